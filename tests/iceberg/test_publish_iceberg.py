"""An Iceberg entry has a table's rows, as PyIceberg and DuckDB read them, and moves forward with the log."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import pydelta
from pydelta.errors import UnsafeOperationError
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import IcebergOptions, publish_iceberg, read_entry
from pydelta.manifests.iceberg.metadata import HINT_PATH, metadata_path
from pydelta.txn import Operation, start_transaction
from tests.iceberg.readers import all_rows, duckdb_rows, of_arrow, pyiceberg_rows

VECTORS = {"delta.enableDeletionVectors": "true"}
PUFFIN = VECTORS | {"pydelta.iceberg.formatVersion": "3"}
FIRST = pa.table({"id": [1, 2, 3, 4], "day": ["a", "a", "b", None], "v": [1.0, 2.0, None, 4.0]})


def made(path, rows=FIRST, **options):
    return pydelta.LocalTable.create(str(path), rows, **options)


def published(table, **options):
    log = table._log
    result = publish_iceberg(log, IcebergOptions(**options))
    assert read_entry(log) == result.entry
    assert all_rows(result.entry) == of_arrow(table.scan())
    return result


@pytest.mark.parametrize("keys", [(), ("day",), ("day", "id")], ids=["none", "day", "two"])
@pytest.mark.parametrize("properties", [{}, VECTORS, PUFFIN], ids=["rewrites", "vectors", "puffin"])
def test_every_change_is_read_by_every_engine(tmp_path, keys, properties):
    table = made(tmp_path / "t", partition_by=keys, properties=properties)
    steps = [
        lambda: table.append(pa.table({"id": [5, 6, 7], "day": ["b", "x/y", "é %"], "v": [5.0, None, 7.5]})),
        lambda: table.delete("id = 1"),
        lambda: table.delete("id = 6"),
        lambda: table.update("id = 3 AND v IS NULL", set={"v": "33"}),
        lambda: table.overwrite(pa.table({"id": [8, 9], "day": ["b", "b"], "v": [8.0, 9.0]}), where="day = 'b'"),
        lambda: table.delete("id = 9"),
        lambda: table.optimize(),
        lambda: table.restore(version=1),
        lambda: table.delete(),
        lambda: table.append(FIRST),
    ]
    assert published(table).reason == "nothing was published yet"
    for number, step in enumerate(steps, start=2):
        step()
        result = published(table)
        assert not result.full, number
        assert result.entry.version == table._log.update().version
    metadata = StaticTable.from_metadata(result.entry.metadata_location).metadata
    assert [int(item.summary["pydelta.version"]) for item in metadata.snapshots] == list(range(len(metadata.snapshots)))


def test_a_second_run_writes_nothing(tmp_path):
    table = made(tmp_path / "t")
    first = published(table)
    again = published(table)
    assert again.entry == first.entry
    assert again.puts == 0


def test_older_snapshots_are_still_read(tmp_path):
    table = made(tmp_path / "t", properties=VECTORS)
    expected = []
    for step in (
        lambda: None,
        lambda: table.delete("id = 2"),
        lambda: table.append(FIRST),
        lambda: table.delete("id < 4"),
    ):
        step()
        published(table)
        expected.append(of_arrow(table.scan()))
    static = StaticTable.from_metadata(read_entry(table._log).metadata_location)
    for snapshot, rows in zip(static.metadata.snapshots, expected, strict=True):
        assert of_arrow(static.scan(snapshot_id=snapshot.snapshot_id).to_arrow()) == rows


def test_a_stopped_publisher_left_an_older_hint(tmp_path):
    table = made(tmp_path / "t")
    published(table)
    table.append(FIRST)
    second = published(table)
    log = table._log
    log.store.put(HINT_PATH, b"1")
    assert pyiceberg_rows(second.entry.location) == of_arrow(table.scan(version=0))
    assert read_entry(log) == second.entry
    assert publish_iceberg(log).entry == second.entry
    assert log.store.read(HINT_PATH) == b"2"
    log.store.delete_many([HINT_PATH])
    assert published(table).entry == second.entry


def test_another_writer_is_not_overwritten_in_silence(tmp_path):
    table = made(tmp_path / "t")
    published(table)
    log = table._log
    metadata = json.loads(log.store.read(metadata_path(1)))
    snapshot = {**metadata["snapshots"][0], "snapshot-id": 7, "sequence-number": 2, "summary": {"operation": "append"}}
    metadata |= {"snapshots": [snapshot], "current-snapshot-id": 7, "refs": {}, "snapshot-log": []}
    log.store.put(metadata_path(2), json.dumps(metadata).encode())
    table.append(FIRST)
    assert read_entry(log) is None
    with pytest.raises(UnsafeOperationError, match="changed by another writer"):
        publish_iceberg(log)
    assert published(table, adopt=True).reason == "another writer had changed it"


def test_a_table_in_another_place_starts_again(tmp_path):
    table = made(tmp_path / "t")
    first = published(table)
    (tmp_path / "t").rename(tmp_path / "elsewhere")
    moved = pydelta.open(str(tmp_path / "elsewhere"))
    result = published(moved)
    assert "when it was published" in result.reason
    assert result.entry.number == first.entry.number + 1


def test_a_recreated_table_starts_again(tmp_path):
    published(made(tmp_path / "t"))
    log = DeltaLog.for_table(str(tmp_path / "t"))
    log.store.delete_many([info.path for info in log.store.list_all("_delta_log")])
    log.store.delete_many([info.path for info in log.store.list_all() if "/" not in info.path])
    DeltaLog.clear_cache()
    table = made(tmp_path / "t", FIRST.slice(0, 1), mode="ignore")
    assert published(table).reason == "another table was published here before"


def test_a_cleaned_log_gives_a_full_comparison(tmp_path):
    table = made(tmp_path / "t", properties=VECTORS)
    table.append(FIRST)
    table.delete("id = 1")
    published(table)
    for _ in range(3):
        table.append(FIRST)
        table.delete("id = 2")
    log = table._log
    log.checkpoint()
    for version in range(5):
        log.store.delete_many([f"_delta_log/{version:020}.json"])
    DeltaLog.clear_cache()
    result = published(table)
    assert result.reason == "the log no longer reaches back to version 2"
    assert not published(table).full


def test_the_counts_of_the_summary_are_those_of_the_table(tmp_path):
    table = made(tmp_path / "t", partition_by=["day"], properties=VECTORS)
    for step in (lambda: table.append(FIRST), lambda: table.delete("id = 2"), lambda: table.delete("id = 1")):
        step()
        result = published(table)
        static = StaticTable.from_metadata(result.entry.metadata_location)
        summary = static.metadata.current_snapshot().summary
        files, deletes = static.inspect.data_files(), static.inspect.delete_files()
        snapshot = table._log.update()
        assert int(summary["total-data-files"]) == files.num_rows == snapshot.num_files
        assert int(summary["total-records"]) == sum(files["record_count"].to_pylist())
        assert int(summary["total-delete-files"]) == deletes.num_rows
        hidden = sum(deletes["record_count"].to_pylist())
        assert int(summary["total-position-deletes"]) == hidden
        assert int(summary["total-records"]) - hidden == table.scan().num_rows
        size = sum(files["file_size_in_bytes"].to_pylist()) + sum(deletes["file_size_in_bytes"].to_pylist())
        assert int(summary["total-files-size"]) == size


def test_a_table_without_rows_has_none(tmp_path):
    table = made(tmp_path / "t", {"id": "bigint"})
    result = publish_iceberg(table._log)
    assert pyiceberg_rows(result.entry.location) == []
    assert duckdb_rows(result.entry.location) == []


def test_an_older_version_does_not_go_back(tmp_path):
    table = made(tmp_path / "t")
    table.append(FIRST)
    log = table._log
    assert publish_iceberg(log, version=0).entry.version == 0
    newest = publish_iceberg(log)
    assert newest.entry.version == 1
    assert publish_iceberg(log, version=0).entry == newest.entry


def test_files_without_statistics_are_counted_by_their_footers(tmp_path):
    table = made(tmp_path / "t", properties={"delta.dataSkippingNumIndexedCols": "0"})
    log = table._log
    path = "_delta_log/00000000000000000000.json"
    lines = [json.loads(line) for line in log.store.read(path).splitlines()]
    for line in lines:
        if "add" in line:
            line["add"].pop("stats", None)
    log.store.put(path, "\n".join(map(json.dumps, lines)).encode())
    DeltaLog.clear_cache()
    published(table)


@pytest.mark.parametrize("name", ["a b", "é", "1x", "p.q", "日", 'q"r', "a'b"])
def test_partition_columns_have_any_name(tmp_path, name):
    rows = pa.table({"id": [1, 2, 3], name: ["a", "b", None]})
    properties = {"delta.columnMapping.mode": "name", **VECTORS}
    table = made(tmp_path / "t", rows, partition_by=[name], properties=properties)
    table.append(rows)
    table.delete("id = 2")
    published(table)


def commit(log, *actions):
    start_transaction(log).commit(list(actions), Operation(name="WRITE"))


def test_a_live_file_that_is_added_again_is_not_counted_twice(tmp_path):
    """Such a commit is not one of ours: an add with dataChange names a new file."""
    table = made(tmp_path / "t")
    published(table)
    log = table._log
    (add,) = log.update().files.adds(log.update().files.core)
    commit(log, add.replace(modification_time=add.modification_time + 1))
    result = published(table)
    assert result.reason == "the entry would have 2 files, but the table has 1"
    assert (result.files_added, result.files_removed) == (0, 0)


def test_new_statistics_of_a_file_leave_its_manifest_alone(tmp_path):
    table = made(tmp_path / "t")
    published(table)
    log = table._log
    (add,) = log.update().files.adds(log.update().files.core)
    commit(log, add.replace(stats='{"numRecords":4}', data_change=False))
    result = published(table)
    assert (result.full, result.manifests_written, result.manifests_kept) == (False, 0, 1)


def test_wrong_counts_of_hidden_rows_are_noticed(tmp_path):
    table = made(tmp_path / "t", properties=VECTORS)
    table.append(FIRST)
    table.delete("id = 1")
    published(table)
    log = table._log
    path = metadata_path(1)
    name = b'"pydelta.files-with-hidden-rows":'
    log.store.put(path, log.store.read(path).replace(name + b'"2"', name + b'"3"'))
    table.append(FIRST)
    assert published(table).reason == "the entry would hide rows of 3 files, but the table hides rows of 2"
    table.delete("id = 2")
    assert not published(table).full


def test_a_repartitioned_table_has_one_spec(tmp_path):
    table = made(tmp_path / "t", partition_by=["day"], properties=VECTORS)
    table.append(FIRST)
    table.delete("id = 1")
    published(table)
    for keys in ((), ("v",), ("day", "v"), ("day",)):
        table = made(tmp_path / "t", FIRST, partition_by=keys, properties=VECTORS, mode="replace")
        table.append(FIRST)
        table.delete("id = 2")
        result = published(table)
        assert not result.full
        static = StaticTable.from_metadata(result.entry.metadata_location)
        specs = {item.partition_spec_id for item in static.metadata.current_snapshot().manifests(static.io)}
        assert specs == {static.metadata.default_spec_id}
