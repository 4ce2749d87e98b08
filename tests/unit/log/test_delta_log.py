"""Snapshots kept and advanced, tables made anew, damage bypassed, history and time travel."""

from __future__ import annotations

import os

import pytest
from log_tables import (
    PROTOCOL,
    V2_PROTOCOL,
    add,
    append_until,
    commit,
    create,
    info,
    log_of,
    metadata,
    new_store,
    remove,
)

from pydelta.errors import (
    LogCorruptedError,
    LogGapError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pydelta.log import DeltaLog
from pydelta.protocol.actions import DomainMetadata, Protocol, SetTransaction, encode_commit
from pydelta.protocol.paths import LOG_DIR, checkpoint_file, commit_file, compacted_file
from pydelta.storage import LocalStore
from pydelta.testing import CountingStore


def name(version: int) -> str:
    return f"{LOG_DIR}/{commit_file(version)}"


def test_no_table_is_the_empty_snapshot():
    log = log_of(new_store())
    assert not log.table_exists()
    empty = log.update()
    assert (empty.version, empty.metadata, empty.protocol, empty.num_files) == (-1, None, None, 0)
    with pytest.raises(TableNotFoundError, match="no commit"):
        log.snapshot()


def test_a_snapshot_holds_what_the_commits_say():
    store = new_store()
    create(store, add(0))
    commit(store, 1, [info(), add(1, None), SetTransaction(app_id="a", version=7)])
    commit(store, 2, [info(), remove(add(0)), DomainMetadata(domain="d", configuration="{}", removed=False)])
    commit(
        store,
        3,
        [info(), SetTransaction(app_id="a", version=5), DomainMetadata(domain="d", configuration="", removed=True)],
    )
    snapshot = log_of(store).snapshot()
    assert snapshot.version == 3
    assert snapshot.files.core["path"].to_list() == [add(1, None).path]
    assert snapshot.files.core["pv:day"].to_list() == [None]
    assert snapshot.set_transactions["a"].version == 5
    assert snapshot.domain_metadata == {}
    assert snapshot.partition_columns == ("day",)
    assert snapshot.tombstones()["path"].to_list() == [add(0).path]
    assert (snapshot.num_files, snapshot.size_bytes) == (1, 101)


def test_an_update_reads_only_the_new_commits_and_leaves_old_snapshots_alone():
    store = CountingStore(new_store())
    create(store, add(0))
    log = log_of(store)
    before = log.update()
    commit(store, 1, [info(), remove(add(0)), add(1)])
    store.calls.clear()
    after = log.update()
    assert [path for verb, path in store.calls if verb == "read"] == [name(1)]
    assert before.files.core["path"].to_list() == [add(0).path]
    assert after.files.core["path"].to_list() == [add(1).path]
    assert log.update() is after


def test_a_long_chain_is_read_anew_from_a_checkpoint():
    store = new_store()
    create(store)
    log = log_of(store, max_snapshot_chain=3)
    longest = 0
    for version in range(1, 13):
        append_until(store, version, version)
        snapshot = log.update()
        longest = max(longest, snapshot.files.chain_length)
        assert snapshot.num_files == version
        if version == 5:
            log.checkpoint(snapshot)
    assert longest <= 3
    assert log.update().segment.checkpoint_version == 5


def test_applying_a_commit_reads_nothing():
    store = CountingStore(new_store())
    create(store, add(0))
    log = log_of(store)
    before = log.update()
    actions = [info(), add(1), remove(add(0))]
    commit(store, 1, actions)
    listed = store.head(name(1))
    store.calls.clear()
    after = log.apply_commit(before, 1, actions, listed)
    assert after.files.core["path"].to_list() == [add(1).path]
    assert store.calls == []
    assert log.update() is after
    with pytest.raises(ValueError, match="does not follow"):
        log.apply_commit(before, 2, actions)


def test_a_table_deleted_and_made_again_is_read_anew():
    store = new_store()
    create(store, add(0))
    append_until(store, 1, 3)
    log = log_of(store)
    assert log.update().version == 3
    for version in range(4):
        store.delete_many([name(version)])
    assert log.update().version == -1
    commit(store, 0, [info(), Protocol(min_reader_version=1, min_writer_version=2), metadata("t2"), add(9)])
    assert log.update().metadata.id == "t2"
    assert log.update().num_files == 1


def test_a_table_replaced_by_a_longer_one_between_two_updates_is_read_anew():
    store = new_store()
    create(store, add(0))
    log = log_of(store)
    assert log.update().metadata.id == "t1"
    store.delete_many([name(0)])
    commit(store, 0, [info(), Protocol(min_reader_version=1, min_writer_version=2), metadata("other"), add(5), add(6)])
    append_until(store, 1, 2)
    snapshot = log.update()
    assert (snapshot.metadata.id, snapshot.version, snapshot.num_files) == ("other", 2, 4)


def test_a_commit_that_changes_the_partitioning_is_followed():
    store = new_store()
    create(store, add(0))
    log = log_of(store)
    before = log.update()
    actions = [
        info(),
        metadata().replace(partition_columns=("name",)),
        remove(add(0)),
        add(1, partition_values={"name": "x"}, path="name=x/1.parquet"),
    ]
    commit(store, 1, actions)
    after = log.apply_commit(before, 1, actions)
    assert after.files.core.columns[4] == "pv:name"
    assert after.files.core["pv:name"].to_list() == ["x"]


def test_a_table_whose_emptiness_was_looked_at_has_its_partition_columns_from_the_first_commit_on():
    store = new_store()
    log = log_of(store)
    before = log.update()
    assert before.files.core.is_empty()
    actions = [info("CREATE TABLE"), PROTOCOL, metadata(), add(1, "2024-05-01")]
    commit(store, 0, actions)
    after = log.apply_commit(before, 0, actions)
    assert after.files.core["pv:day"].to_list() == ["2024-05-01"]


def test_a_hole_names_the_version():
    store = new_store()
    create(store)
    append_until(store, 1, 5)
    store.delete_many([name(3)])
    with pytest.raises(LogGapError, match="version 3") as raised:
        log_of(store).snapshot()
    assert raised.value.missing_versions == (3,)
    assert raised.value.table == store.root


@pytest.mark.parametrize("damage", [b"", b'{"add":{"path":"x"', b'{"add":{"path":"x"}}\n', b"\x00\x01\n", b"[]\n"])
def test_a_damaged_commit_is_named(damage: bytes):
    store = new_store()
    create(store)
    append_until(store, 1, 2)
    store.put(name(1), damage)
    with pytest.raises(LogCorruptedError, match=r"00000000000000000001\.json"):
        log_of(store).snapshot()


def test_a_damaged_commit_behind_a_checkpoint_does_no_harm():
    store = new_store()
    create(store)
    append_until(store, 1, 5)
    log_of(store).checkpoint()
    append_until(store, 6, 6)
    store.put(name(2), b"{")
    assert log_of(store).snapshot().num_files == 6


def test_a_truncated_checkpoint_is_bypassed_where_an_older_one_and_the_commits_reach():
    store = new_store()
    create(store)
    append_until(store, 1, 5)
    log_of(store).checkpoint()
    append_until(store, 6, 10)
    log_of(store).checkpoint()
    append_until(store, 11, 11)
    path = f"{LOG_DIR}/{checkpoint_file(10)}"
    store.put(path, store.read(path)[:-20])
    snapshot = log_of(store).snapshot()
    assert (snapshot.segment.checkpoint_version, snapshot.num_files) == (5, 11)


def test_a_truncated_checkpoint_that_nothing_replaces_is_an_error_that_names_it():
    store = new_store()
    create(store)
    append_until(store, 1, 10)
    log_of(store).checkpoint()
    path = f"{LOG_DIR}/{checkpoint_file(10)}"
    store.put(path, store.read(path)[:-20])
    store.delete_many([name(4)])
    with pytest.raises(
        LogCorruptedError, match=r"checkpoint\.parquet is not a readable checkpoint.*version 4 is missing"
    ):
        log_of(store).snapshot()


def test_columns_damaged_behind_a_sound_footer_are_found_on_first_use_and_bypassed():
    store = new_store()
    create(store)
    append_until(store, 1, 10)
    log_of(store).checkpoint()
    append_until(store, 11, 12)
    path = f"{LOG_DIR}/{checkpoint_file(10)}"
    data = bytearray(store.read(path))
    start = _first_page(bytes(data))
    data[start : start + 24] = b"\xff" * 24
    store.put(path, bytes(data))
    snapshot = log_of(store).snapshot()
    assert snapshot.num_files == 12
    assert len(snapshot.files.adds(snapshot.files.core)) == 12
    assert snapshot.files.with_stats(snapshot.files.core)["stats"].null_count() == 0
    commit(store, 13, [info(), remove(add(3))])
    log = log_of(store)
    log.update()
    assert sorted(log.update().files.core["size"].to_list()) == [100 + n for n in range(1, 13) if n != 3]


def _first_page(data: bytes) -> int:
    """Offset of the first page of ``add.path``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata_ = pq.ParquetFile(pa.BufferReader(data)).metadata
    for group in range(metadata_.num_row_groups):
        for index in range(metadata_.num_columns):
            column = metadata_.row_group(group).column(index)
            if column.path_in_schema == "add.path" and column.statistics.null_count < column.num_values:
                return column.dictionary_page_offset or column.data_page_offset
    raise AssertionError("no adds")


def test_a_reconciled_compacted_file_stands_for_its_commits():
    inner = new_store()
    create(inner, add(0))
    commit(inner, 1, [info(), add(1)])
    commit(inner, 2, [info(), remove(add(1)), add(2)])
    inner.put(f"{LOG_DIR}/{compacted_file(1, 2)}", encode_commit([remove(add(1)), add(2)]))
    store = CountingStore(inner)
    snapshot = log_of(store).snapshot()
    assert sorted(snapshot.files.core["size"].to_list()) == [100, 102]
    assert name(1) not in [path for _, path in store.calls]


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"",
        encode_commit([info(), add(2)]),
        encode_commit([add(2), add(2)]),
        encode_commit([add(2), remove(add(2))]),
    ],
    ids=["truncated", "empty", "with commitInfo", "one file twice", "added and removed"],
)
def test_a_compacted_file_that_cannot_be_right_is_bypassed(text: bytes):
    store = new_store()
    create(store, add(0))
    append_until(store, 1, 2)
    store.put(f"{LOG_DIR}/{compacted_file(1, 2)}", text)
    assert log_of(store).snapshot().num_files == 3


def test_a_compacted_file_that_contradicts_the_checksum_is_bypassed():
    store = new_store()
    create(store, add(0))
    append_until(store, 1, 2)
    log = log_of(store)
    log.write_checksum(log.snapshot())
    store.put(f"{LOG_DIR}/{compacted_file(1, 2)}", encode_commit([add(2)]))
    assert log_of(store).snapshot().num_files == 3


def test_an_unknown_reader_feature_is_named_and_the_history_of_such_a_table_is_refused_too():
    store = new_store()
    protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=("telepathy",), writer_features=("telepathy",)
    )
    create(store, add(0), protocol=protocol)
    with pytest.raises(UnsupportedFeatureError, match="telepathy") as raised:
        log_of(store).snapshot()
    assert raised.value.features == ("telepathy",)
    with pytest.raises(UnsupportedFeatureError):
        log_of(store).history()


def test_a_feature_that_comes_with_an_update_is_refused_each_time():
    store = new_store()
    create(store, add(0))
    log = log_of(store)
    log.update()
    protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=("telepathy",), writer_features=("telepathy",)
    )
    commit(store, 1, [info(), protocol])
    with pytest.raises(UnsupportedFeatureError):
        log.update()
    with pytest.raises(UnsupportedFeatureError):
        log.snapshot()


# -- time travel ------------------------------------------------------------------------------------------------------


def test_a_version_is_read_from_the_checkpoint_before_it():
    inner = new_store()
    create(inner)
    append_until(inner, 1, 10)
    log_of(inner).checkpoint()
    append_until(inner, 11, 23)
    log_of(inner).checkpoint()
    store = CountingStore(inner)
    log = log_of(store)
    log.update()
    store.calls.clear()
    assert log.snapshot(version=12).num_files == 12
    read = [path for verb, path in store.calls if verb == "read"]
    assert read == [f"{LOG_DIR}/{checkpoint_file(10)}", name(11), name(12)]
    assert log.snapshot(version=12) is log.snapshot(version=12)


@pytest.mark.parametrize("version", [-1, 24, 1000])
def test_a_version_that_is_not_there_names_the_range(version: int):
    store = new_store()
    create(store)
    append_until(store, 1, 23)
    with pytest.raises(VersionNotFoundError, match="versions 0 to 23"):
        log_of(store).snapshot(version=version)


def test_versions_before_the_oldest_checkpoint_left_are_gone():
    store = new_store()
    create(store)
    append_until(store, 1, 12)
    log = log_of(store)
    log.checkpoint(log.snapshot(version=10))
    store.delete_many([name(version) for version in range(8)])
    with pytest.raises(VersionNotFoundError, match="versions 10 to 12"):
        log_of(store).snapshot(version=9)
    assert log_of(store).snapshot(version=11).num_files == 11


def _timed_table(times: list[int]):
    store = new_store()
    create(store)
    append_until(store, 1, len(times) - 1)
    store.times = {commit_file(version): at for version, at in enumerate(times)}
    return store


def test_a_time_gives_the_last_version_that_is_not_newer():
    log = log_of(_timed_table([1000, 2000, 3000]))
    assert [log.version_at(at) for at in (1000, 1999, 2000, 2999, 3000)] == [0, 0, 1, 1, 2]
    assert log.snapshot(timestamp_ms=2500).version == 1


def test_a_time_before_the_first_or_after_the_last_version_is_refused_with_both_ends():
    log = log_of(_timed_table([1000, 2000, 3000]))
    with pytest.raises(VersionNotFoundError, match=r"before the oldest.*version 0 of 1970-01-01 00:00:01.000 UTC"):
        log.version_at(999)
    with pytest.raises(VersionNotFoundError, match=r"after the newest.*version 2 of 1970-01-01 00:00:03.000 UTC"):
        log.version_at(3001)
    assert log.version_at(3001, can_return_last=True) == 2
    assert log.version_at(0, can_return_first=True) == 0


def test_a_clock_that_went_back_does_not_reorder_versions():
    log = log_of(_timed_table([5000, 1000, 2000, 6000]))
    assert [record.timestamp_ms for record in log.history()] == [6000, 5002, 5001, 5000]
    assert [log.version_at(at) for at in (5000, 5001, 5002, 5999, 6000)] == [0, 1, 2, 2, 3]
    assert log.snapshot(version=2).timestamp_ms == 5002


def test_in_commit_timestamps_are_the_time_of_a_version():
    store = new_store()
    create(store, protocol=V2_PROTOCOL, enableInCommitTimestamps="true")
    store.put(
        name(0), encode_commit([info(inCommitTimestamp=100), V2_PROTOCOL, metadata(enableInCommitTimestamps="true")])
    )
    for version in (1, 2, 3):
        commit(store, version, [info(inCommitTimestamp=100 + version * 10), add(version)])
    store.times = {commit_file(version): 9_000 - version for version in range(4)}
    log = log_of(store)
    assert log.snapshot().timestamp_ms == 130
    assert [record.timestamp_ms for record in log.history()] == [130, 120, 110, 100]
    assert [log.version_at(at) for at in (100, 115, 120, 130)] == [0, 1, 2, 3]
    with pytest.raises(VersionNotFoundError):
        log.version_at(131)
    log.checkpoint()
    assert log_of(store).snapshot().timestamp_ms == 130


def test_in_commit_timestamps_enabled_later_switch_the_clock_at_that_version():
    store = new_store()
    create(store)
    append_until(store, 1, 2)
    enabled = metadata(
        enableInCommitTimestamps="true",
        inCommitTimestampEnablementVersion="3",
        inCommitTimestampEnablementTimestamp="4000",
    )
    commit(store, 3, [info(inCommitTimestamp=4000), V2_PROTOCOL, enabled])
    commit(store, 4, [info(inCommitTimestamp=4100), add(4)])
    store.times = {commit_file(version): at for version, at in enumerate([1000, 2000, 3000, 99_000, 50_000])}
    log = log_of(store)
    assert [record.timestamp_ms for record in log.history()] == [4100, 4000, 3000, 2000, 1000]
    assert [log.version_at(at) for at in (1000, 2500, 3999, 4000, 4099, 4100)] == [0, 1, 2, 3, 3, 4]


# -- history ----------------------------------------------------------------------------------------------------------


def test_history_is_newest_first_and_limited_and_reads_no_more_than_asked():
    inner = new_store()
    create(inner)
    append_until(inner, 1, 5)
    store = CountingStore(inner)
    log = log_of(store)
    log.update()
    store.calls.clear()
    records = log.history(limit=2)
    assert [(record.version, record.commit_info.operation) for record in records] == [(5, "WRITE"), (4, "WRITE")]
    assert sorted(path for verb, path in store.calls if verb == "read") == [name(4), name(5)]
    assert len(log.history()) == 6


def test_history_reads_the_first_part_of_a_large_commit_and_all_of_one_that_begins_otherwise(monkeypatch):
    monkeypatch.setattr("pydelta.log.history._HEAD_BYTES", 1_500)
    store = CountingStore(new_store())
    create(store, *(add(number) for number in range(20)))
    commit(store, 1, [*(add(number) for number in range(20, 40)), info("LAST")])
    commit(store, 2, [info("FIRST"), *(add(number) for number in range(40, 60))])
    log = log_of(store)
    log.update()
    store.reset()
    assert [record.commit_info.operation for record in log.history()] == ["FIRST", "LAST", "CREATE TABLE"]
    assert sorted(store.paths("read_range")) == [name(0), name(1), name(2)]
    assert store.paths("read") == [name(1)]


def test_history_of_no_table_is_an_error():
    with pytest.raises(TableNotFoundError):
        log_of(new_store()).history()


def test_a_commit_without_provenance_has_a_record():
    store = new_store()
    create(store)
    commit(store, 1, [add(1)])
    assert log_of(store).history(1)[0].commit_info is None


def test_changes_are_the_commits_after_base_up_to_head():
    store = new_store()
    create(store)
    append_until(store, 1, 4)
    found = list(log_of(store).changes(1, 3))
    assert [version for version, _ in found] == [2, 3]
    assert found[0][1][1] == add(2)
    with pytest.raises(VersionNotFoundError, match="version 9"):
        log_of(store).actions(9)


# -- the process's logs -----------------------------------------------------------------------------------------------


def test_one_log_a_location_and_options(tmp_path):
    first = DeltaLog.for_table(str(tmp_path))
    assert DeltaLog.for_table(f"file://{tmp_path}/") is first
    assert DeltaLog.for_table(str(tmp_path), options={"fs.s3a.endpoint": "x"}) is not first
    DeltaLog.clear_cache()
    assert DeltaLog.for_table(str(tmp_path)) is not first


def test_a_local_folder_behaves_the_same(tmp_path):
    store = LocalStore(f"file://{tmp_path}")
    create(store, add(0))
    append_until(store, 1, 3)
    log = log_of(store)
    assert log.update().num_files == 4
    log.checkpoint()
    append_until(store, 4, 4)
    assert log.update().num_files == 5
    assert log_of(store).snapshot().segment.checkpoint_version == 3
    assert not [path.name for path in (tmp_path / LOG_DIR).iterdir() if "tmp" in path.name]


def test_a_stray_file_with_a_huge_version_is_a_gap_and_costs_no_memory():
    store = new_store()
    create(store, add(0))
    log = log_of(store)
    assert log.update().version == 0
    store.put(f"{LOG_DIR}/{commit_file(10**18)}", encode_commit([info()]))
    with pytest.raises(LogGapError):
        log.update()


def test_a_table_made_anew_within_the_second_is_read_anew(tmp_path):
    store = LocalStore(str(tmp_path))
    create(store, add(5))
    log = log_of(store)
    path = tmp_path / name(0)
    size, second = path.stat().st_size, 1_700_000_000_000_000_000
    os.utime(path, ns=(second, second + 100_000_000))
    assert log.update().files.core["path"].to_list() == [add(5).path]
    path.unlink()
    create(store, add(6))
    os.utime(path, ns=(second, second + 900_000_000))
    assert path.stat().st_size == size
    assert log.update().files.core["path"].to_list() == [add(6).path]


def test_time_travel_and_history_tell_the_same_times_behind_a_clean_up():
    store = new_store()
    create(store)
    append_until(store, 1, 6)
    for version, at in enumerate([9_000, 9_000, 9_000, 1_000, 1_000, 1_000, 20_000]):  # a clock went back
        store.times[commit_file(version)] = at
    log = log_of(store)
    log.checkpoint(log.snapshot(version=3))
    store.delete_many([name(0)])
    log = log_of(store)
    for record in log.history():
        if record.version >= 3:
            assert log.version_at(record.timestamp_ms) == record.version
