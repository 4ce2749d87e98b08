"""Log clean-up: what goes, what must stay, and that nothing goes without a checkpoint that reads."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from log_tables import V2_PROTOCOL, append_until, create, log_of, new_store

from pydelta.errors import TableNotFoundError, VersionNotFoundError
from pydelta.log.cleanup import cutoff_ms
from pydelta.protocol.paths import LOG_DIR, checkpoint_file, checksum_file, commit_file, compacted_file

DAY_MS = 86_400_000
START = 1_700_006_400_000  # a midnight, UTC


def daily_table(last: int, *checkpoints: int, **options):
    """Version n is committed at noon of day n."""
    store = new_store()
    create(store, **options)
    append_until(store, 1, last)
    for version in range(last + 1):
        store.times[commit_file(version)] = START + version * DAY_MS + DAY_MS // 2
        log = log_of(store)
    for version in checkpoints:
        log.checkpoint(log.snapshot(version=version), now_ms=START)
    return store


def names(store) -> set[str]:
    return {item.path.removeprefix(f"{LOG_DIR}/") for item in store.list_all() if "sidecar" not in item.path}


def test_the_cutoff_is_a_midnight():
    assert cutoff_ms(START + 40 * DAY_MS + 12345, 30 * DAY_MS) == START + 10 * DAY_MS


def test_what_lies_before_the_newest_expired_checkpoint_goes_and_its_own_commit_stays():
    store = daily_table(45, 5, 10, 20, 40)
    store.put(f"{LOG_DIR}/{checksum_file(3)}", b"{}")
    store.put(f"{LOG_DIR}/{checksum_file(10)}", b"{}")
    store.put(f"{LOG_DIR}/{compacted_file(10, 12)}", b"{}")
    store.put(f"{LOG_DIR}/{compacted_file(30, 31)}", b"{}")
    store.put(f"{LOG_DIR}/notes.txt", b"mine")
    result = log_of(store).cleanup(START + 45 * DAY_MS)  # cutoff: midnight of day 15, so version 14 is expired
    left = names(store)
    assert result.oldest_version == 10
    assert result.deleted == 10 + 1 + 1 + 1  # commits 0-9, checkpoint 5, checksum 3, compaction from 10
    assert {checkpoint_file(10), commit_file(10), checksum_file(10), checkpoint_file(40), "notes.txt"} <= left
    assert compacted_file(30, 31) in left
    assert not {commit_file(9), checkpoint_file(5), checksum_file(3), compacted_file(10, 12)} & left
    log = log_of(store)
    assert log.snapshot(version=10).num_files == 10
    assert log.snapshot().num_files == 45
    with pytest.raises(VersionNotFoundError, match="versions 10 to 45"):
        log.snapshot(version=9)


def test_nothing_goes_without_a_checkpoint_that_old():
    store = daily_table(45, 40)
    before = names(store)
    assert log_of(store).cleanup(START + 45 * DAY_MS).deleted == 0
    assert names(store) == before


def test_nothing_goes_while_nothing_is_expired():
    store = daily_table(20, 5, 10)
    assert log_of(store).cleanup(START + 21 * DAY_MS).deleted == 0


def test_nothing_goes_behind_a_checkpoint_that_does_not_read():
    store = daily_table(45, 10, 40)
    path = f"{LOG_DIR}/{checkpoint_file(10)}"
    store.put(path, store.read(path)[:-30])
    before = names(store)
    assert log_of(store).cleanup(START + 45 * DAY_MS).deleted == 0
    assert names(store) == before


def test_the_retention_is_the_tables():
    store = daily_table(45, 10, 40, logRetentionDuration="interval 3 days")
    assert log_of(store).cleanup(START + 45 * DAY_MS).oldest_version == 40


def test_sidecars_go_when_no_checkpoint_left_names_them_and_they_are_old():
    store = daily_table(45, 5, 10, 40, protocol=V2_PROTOCOL, checkpointPolicy="v2")
    sidecars = {item.path for item in store.list_all(f"{LOG_DIR}/_sidecars")}
    assert len(sidecars) == 3
    for path in sidecars:
        store.times[path.rsplit("/", 1)[-1]] = START
    old, young = f"{LOG_DIR}/_sidecars/old.parquet", f"{LOG_DIR}/_sidecars/young.parquet"
    store.put(old, b"left by a crash")
    store.put(young, b"being written now")
    store.times |= {"old.parquet": START, "young.parquet": START + 45 * DAY_MS}
    log_of(store).cleanup(START + 45 * DAY_MS + 5)
    left = {item.path for item in store.list_all(f"{LOG_DIR}/_sidecars")}
    assert young in left
    assert old not in left
    assert len(left & sidecars) == 2
    assert log_of(store).snapshot(version=11).num_files == 11
    assert log_of(store).snapshot().num_files == 45


def test_a_sidecar_whose_name_holds_an_escape_stays_as_long_as_a_checkpoint_names_it():
    store = daily_table(45, 40, protocol=V2_PROTOCOL, checkpointPolicy="v2")
    (sidecar,) = [item.path for item in store.list_all(f"{LOG_DIR}/_sidecars")]
    (checkpoint,) = [item.path for item in store.list_all(LOG_DIR) if f"{40:020d}.checkpoint" in item.path]
    odd = f"{LOG_DIR}/_sidecars/p%41 q.parquet"
    store.put(odd, store.read(sidecar))
    store.delete_many([sidecar])
    table = pq.read_table(pa.BufferReader(store.read(checkpoint)))
    rows = table.to_pylist()
    for row in rows:
        if row["sidecar"]:
            row["sidecar"]["path"] = "p%2541%20q.parquet"
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), out)
    store.put(checkpoint, out.getvalue().to_pybytes())
    store.times["p%41 q.parquet"] = START
    assert log_of(store).snapshot().num_files == 45
    log_of(store).cleanup(START + 90 * DAY_MS)
    assert store.head(odd) is not None
    assert log_of(store).snapshot().num_files == 45


@pytest.mark.parametrize(("before", "deletes"), [("11", False), ("10", True), ("0", True), ("odd", False)])
def test_protected_checkpoints_are_left_alone_unless_all_of_them_go(before, deletes):
    protocol = V2_PROTOCOL.replace(writer_features=(*V2_PROTOCOL.writer_features, "checkpointProtection"))
    properties = {"requireCheckpointProtectionBeforeVersion": before}
    store = daily_table(45, 10, 40, protocol=protocol, **properties)
    assert (log_of(store).cleanup(START + 45 * DAY_MS).deleted > 0) == deletes


def test_no_table_has_no_log_to_clean():
    with pytest.raises(TableNotFoundError):
        log_of(new_store()).cleanup(START)


def test_nothing_goes_behind_a_checkpoint_that_lacks_the_metadata():
    store = daily_table(45, 10, 40)
    path = f"{LOG_DIR}/{checkpoint_file(10)}"
    table = pq.read_table(pa.BufferReader(store.read(path)))
    out = pa.BufferOutputStream()
    pq.write_table(table.filter(pc.is_null(table["metaData"])), out)
    store.put(path, out.getvalue().to_pybytes())
    assert log_of(store).cleanup(START + 45 * DAY_MS).deleted == 0


def test_nothing_goes_behind_a_checkpoint_whose_partition_values_do_not_read():
    store = daily_table(45, 10, 40)
    path = f"{LOG_DIR}/{checkpoint_file(10)}"
    data = bytearray(store.read(path))
    group = pq.ParquetFile(pa.BufferReader(bytes(data))).metadata.row_group(1)
    columns = [group.column(number) for number in range(group.num_columns)]
    chunk = next(c for c in columns if c.path_in_schema == "add.partitionValues.key_value.value")
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    store.put(path, bytes(data))
    assert log_of(store).cleanup(START + 45 * DAY_MS).deleted == 0


def test_sidecars_of_a_checkpoint_that_could_not_be_deleted_stay():
    store = daily_table(45, 5, 10, protocol=V2_PROTOCOL, checkpointPolicy="v2")
    for item in store.list_all(f"{LOG_DIR}/_sidecars"):
        store.times[item.path.rsplit("/", 1)[-1]] = START
    delete = store.delete_many

    def stubborn(paths):
        paths = list(paths)
        kept = [path for path in paths if f"{5:020d}.checkpoint" in path]
        report = delete([path for path in paths if path not in kept])
        return replace(report, failed=tuple((path, "denied") for path in kept))

    store.delete_many = stubborn
    result = log_of(store).cleanup(START + 45 * DAY_MS)
    assert len(result.failed) == 1
    assert len(list(store.list_all(f"{LOG_DIR}/_sidecars"))) == 2
