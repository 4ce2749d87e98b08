"""A record index beside everything else that happens to a table: its columns, VACUUM, clones, erasures, failures."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections import Counter

import polars as pl
import pyarrow as pa
import pytest

from pydelta.api.python.local import LocalTable
from pydelta.commands.alter.command import Alter
from pydelta.commands.alter.requests import AddColumns, DropColumns, NewColumn, RenameColumn
from pydelta.commands.records import command as refreshing
from pydelta.commands.records.command import IndexRecords
from pydelta.commands.records.index import FEWEST_FILES, FOLDER, list_segments
from pydelta.commands.run import Context, run
from pydelta.commands.vacuum.command import Vacuum
from pydelta.commands.vacuum.inventory_sources import from_frame
from pydelta.errors import (
    BindError,
    DeltaConcurrentModificationException,
    DeltaError,
    InvalidArgumentError,
    StorageError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pydelta.log import DeltaLog
from pydelta.protocol.types import PrimitiveType
from pydelta.storage.interface import DeleteReport
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore
from pydelta.txn import Operation, start_transaction

_NAMES = itertools.count()
FILES = FEWEST_FILES + 2
LONG = PrimitiveType("long")


def opened(store):
    return LocalTable(DeltaLog(store))


def store_of(table):
    return table._log.store


def rows(keys, value=0, name="k"):
    return pa.table({name: pa.array(keys, pa.int64()), "v": pa.array([value] * len(keys), pa.int64())})


def new_table(uri=None, *, properties=None, **columns):
    """A table of files whose smallest and largest keys enclose all others."""
    uri = uri or f"memory://indexed{next(_NAMES)}/t"
    schema = {"k": "bigint", "v": "bigint", **columns}
    table = LocalTable.create(uri, schema, properties=properties)
    for number in range(FILES):
        table.append(rows([-100, number, 100 + number, 1000]))
    return table


def merged(table, key, value, name="k"):
    return table.merge(rows([key], value, name), name)


def values(table, name="k"):
    found = table.scan(columns=[name, "v"]).to_pydict()
    return Counter(zip(found[name], found["v"], strict=True))


def segments(table):
    return [info.path for info in list_segments(store_of(table))]


def alter(table, *requests):
    for request in requests:
        run(Alter(request), Context(table._log, table._engine))


# --- columns -----------------------------------------------------------------------------------------------------


def test_a_renamed_column_keeps_its_index_and_a_new_column_of_its_name_has_none():
    table = new_table(properties={"delta.columnMapping.mode": "name"})
    assert table.index_records("k").columns == ("k",)
    alter(table, RenameColumn(path=("k",), name="number"))
    assert merged(table, 3, 1, "number").num_candidate_files == 1
    assert values(table, "number")[3, 1] == 1
    assert table.index_records().columns == ("number",)
    assert len(segments(table)) == 2

    alter(table, DropColumns(paths=(("number",),)), AddColumns(columns=(NewColumn(path=("number",), data_type=LONG),)))
    assert table.merge(rows([3], 2, "number"), "number").num_candidate_files == FILES  # All of them have nulls.
    assert values(table, "number")[3, 2] == 1
    with pytest.raises(InvalidArgumentError, match="no record index"):
        table.index_records()
    done = table.index_records("number")
    assert (done.columns, done.num_segments, len(segments(table))) == (("number",), 1, 1)
    assert merged(table, 3, 4, "number").num_candidate_files == 1
    assert values(table, "number")[3, 4] == 1


def test_a_column_that_files_lack_is_indexed_as_null():
    table = new_table()
    alter(table, AddColumns(columns=(NewColumn(path=("later",), data_type=LONG),)))
    table.append(pa.table({"k": pa.array([1], pa.int64()), "later": pa.array([5], pa.int64())}))
    table.index_records("later")
    source = pa.table({"later": pa.array([5], pa.int64()), "v": pa.array([9], pa.int64())})
    result = table.merge(source, "later")
    assert (result.num_candidate_files, result.num_updated_rows) == (1, 1)


def test_a_table_that_was_replaced_by_one_with_other_types_is_read_without_the_index():
    table = new_table()
    table.index_records("k")
    texts = pa.table({"k": [str(number) for number in range(4)], "v": pa.array([0] * 4, pa.int64())})
    LocalTable.create(table._log.uri, texts, mode="replace")
    for number in range(FILES):
        table.append(pa.table({"k": ["", str(number), "x"], "v": pa.array([0] * 3, pa.int64())}))
    source = pa.table({"k": ["7"], "v": pa.array([1], pa.int64())})
    assert table.merge(source, "k").num_candidate_files > 1
    assert values(table)["7", 1] == 1
    assert table.index_records("k").num_segments == 1
    table.restore(FILES)  # The files of the bigint column are live again.
    assert merged(table, 3, 5).num_updated_rows == 1
    assert values(table)[3, 5] == 1


# --- versions and hidden rows ------------------------------------------------------------------------------------


def test_a_restored_file_and_a_row_that_is_hidden_no_more_are_found():
    table = new_table(properties={"delta.enableDeletionVectors": "true"})
    table.delete("k = 3")
    assert table.index_records("k").num_covered_files == FILES
    hidden = merged(table, 3, 1)
    assert (hidden.num_candidate_files, hidden.num_updated_rows, hidden.num_inserted_rows) == (1, 0, 1)
    table.restore(FILES)  # Before the row was hidden: the same file, without its vector.
    result = merged(table, 3, 2)
    assert (result.num_candidate_files, result.num_updated_rows) == (1, 1)
    assert values(table)[3, 2] == 1


def test_a_file_of_another_size_is_not_covered():
    table = new_table()
    table.index_records("k")
    log = table._log
    snapshot = log.update()
    add = next(add for add in snapshot.files.adds(snapshot.files.core))
    start_transaction(log).commit([add.replace(size=add.size + 1)], Operation(name="WRITE"))
    assert merged(table, 7, 1).num_candidate_files in (1, 2)
    assert table.index_records().num_covered_files == FILES


# --- refreshes ---------------------------------------------------------------------------------------------------


def test_a_refresh_covers_what_was_added_and_forgets_what_was_removed():
    table = new_table()
    made = table.index_records("k")
    assert (made.num_indexed_files, made.num_covered_files, made.num_segments) == (FILES, FILES, 1)
    assert table.index_records().num_indexed_files == 0
    table.optimize()
    done = table.index_records()
    assert (done.num_indexed_files, done.num_covered_files) == (1, 1)
    assert (done.num_segments, len(segments(table))) == (2, 2) or done.num_segments == 1
    table.overwrite(rows([1]))
    done = table.index_records()
    assert (done.num_covered_files, done.num_bytes) == (1, sum(info.size for info in list_segments(store_of(table))))


def test_many_refreshes_keep_few_segments(monkeypatch):
    monkeypatch.setattr(refreshing, "_MOST_SEGMENTS", 4)
    table = new_table()
    table.index_records("k")
    for number in range(12):
        table.append(rows([-50, 300 + number, 2000]))
        table.index_records()
        assert len(segments(table)) <= 5
    assert table.index_records().num_covered_files == FILES + 12
    assert merged(table, 305, 1).num_candidate_files == 1
    assert values(table)[305, 1] == 1


def test_large_files_are_written_as_several_segments(monkeypatch):
    monkeypatch.setattr(refreshing, "_SEGMENT_ENTRIES", 10)
    monkeypatch.setattr(refreshing, "_TOGETHER_FILES", 2)
    table = new_table()
    done = table.index_records("k")
    assert done.num_segments > 3
    assert done.num_covered_files == FILES
    assert merged(table, 9, 1).num_candidate_files == 1


def test_refreshes_at_the_same_time_leave_a_right_index(monkeypatch):
    table = new_table()
    reader = table._engine.key_reader
    begun = []

    def begin(snapshot, columns):
        begun.append(snapshot)
        if len(begun) == 1:
            opened(store_of(table)).index_records("k")
        return reader(snapshot, columns)

    # The index of the other process exists before this one lists the segments, so nothing is left to read.
    done = run(IndexRecords(("k",), begin), table._context)
    assert (done.num_indexed_files, done.num_segments) == (0, 1)
    written = refreshing._Refresh._written
    inside = []

    def written_late(self, todo):
        if not inside:
            inside.append(True)
            opened(store_of(table)).index_records()
        return written(self, todo)

    table.append(rows([-50, 77, 3000]))
    monkeypatch.setattr(refreshing._Refresh, "_written", written_late)
    assert table.index_records().num_covered_files == FILES + 1  # Both covered the new file.
    assert len(segments(table)) == 3
    assert merged(table, 77, 1).num_candidate_files == 1
    assert values(table)[77, 1] == 1


def test_a_segment_that_another_process_merges_meanwhile_only_leaves_more_candidates():
    table = new_table()
    table.index_records("k")
    store = store_of(table)

    class Gone(CountingStore):
        def read_range(self, path, start, length):
            if path.startswith(FOLDER):
                store.delete_many([path])
            return super().read_range(path, start, length)

    assert merged(opened(Gone(store)), 3, 1).num_candidate_files == FILES
    assert values(table)[3, 1] == 1


@pytest.mark.parametrize("kind", [FaultKind.FAIL, FaultKind.LOSE_REPLY, FaultKind.TEAR], ids=lambda kind: kind.value)
def test_a_failure_of_any_call_for_the_index_changes_no_row(kind):
    table = new_table()
    table.index_records("k")
    for call in range(6):
        table.append(rows([-50, 700 + call, 3000]))
        lookup = FaultyStore(store_of(table), Fault(call=call, kind=kind, path_contains=FOLDER))
        assert merged(opened(lookup), 700 + call, 1).num_updated_rows == 1
        refresh = FaultyStore(store_of(table), Fault(call=call, kind=kind, path_contains=FOLDER))
        with contextlib.suppress(DeltaError):
            opened(refresh).index_records()
        assert lookup.fired or refresh.fired or call > 3
        assert merged(table, 700 + call, 2).num_updated_rows == 1
        assert values(table)[700 + call, 2] == 1
    table.index_records("k")
    assert merged(table, 3, 3).num_candidate_files == 1


# --- what is refused ---------------------------------------------------------------------------------------------


def test_columns_that_cannot_be_a_key_are_refused():
    table = LocalTable.create(
        f"memory://indexed{next(_NAMES)}/t",
        pa.schema(
            {
                "k": pa.int64(),
                "p": pa.string(),
                "f": pa.float64(),
                "a": pa.list_(pa.int32()),
                "st": pa.struct({"x": pa.int32()}),
            }
        ),
        partition_by=["p"],
    )
    for columns, error, text in (
        ("p", InvalidArgumentError, "partition column 'p'"),
        (["k", "K"], InvalidArgumentError, "twice"),
        ("nope", BindError, "no column 'nope'"),
        ("st.x", UnsupportedFeatureError, "field in a column"),
        ("f", UnsupportedFeatureError, "record index on 'f', which is double"),
        ("a", UnsupportedFeatureError, "record index on 'a'"),
        ((), InvalidArgumentError, "no record index that could be refreshed"),
    ):
        with pytest.raises(error, match=text):
            table.index_records(columns)
    assert segments(table) == []


def test_a_table_has_one_index_and_an_empty_table_may_have_one():
    table = LocalTable.create(f"memory://indexed{next(_NAMES)}/t", {"k": "bigint", "v": "bigint"})
    assert table.index_records("k").num_segments == 1
    with pytest.raises(InvalidArgumentError, match="already has a record index on k"):
        table.index_records(["k", "v"])
    table.append(rows([1]))
    assert table.index_records().num_covered_files == 1
    assert table.drop_record_index() == len([1, 2])
    assert (table.drop_record_index(), segments(table)) == (0, [])
    assert table.index_records(["k", "v"]).columns == ("k", "v")


def test_there_is_no_index_without_a_table():
    log = DeltaLog(MemoryStore(f"memory://indexed{next(_NAMES)}/t"))
    with pytest.raises(TableNotFoundError):
        run(IndexRecords(("k",), lambda snapshot, columns: None), Context(log))


def test_an_index_that_cannot_be_deleted_is_reported():
    table = new_table()
    table.index_records("k")

    store = store_of(table)

    class Kept(CountingStore):
        def delete_many(self, paths):
            return DeleteReport(deleted=0, failed=tuple((path, "locked") for path in paths), retryable=False)

    with pytest.raises(StorageError, match="locked"):
        opened(Kept(store)).drop_record_index()


def test_a_damaged_segment_is_ignored_with_a_warning_and_replaced_by_a_refresh(caplog):
    table = new_table()
    table.index_records("k")
    store = store_of(table)
    (path,) = segments(table)
    data = bytearray(store.read(path))
    data[20] ^= 255
    store.put(path, bytes(data))
    with caplog.at_level(logging.WARNING):
        assert merged(table, 3, 1).num_candidate_files == FILES
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    store.put(path, b"")
    table.index_records("k")
    assert path not in segments(table)
    assert merged(table, 3, 2).num_candidate_files == 1


# --- neighbours --------------------------------------------------------------------------------------------------


def test_vacuum_and_fsck_leave_the_index_and_clones_do_not_take_it(tmp_path):
    table = new_table(f"{tmp_path}/t")
    table.index_records("k")
    before = segments(table)
    old = 30 * 24 * 3600
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            found = os.stat(f"{folder}/{name}")
            os.utime(f"{folder}/{name}", (found.st_atime - old, found.st_mtime - old))
    (tmp_path / "t" / "stray.parquet").write_bytes(b"PAR1")
    os.utime(tmp_path / "t" / "stray.parquet", (1, 1))
    report = table.fsck()
    assert FOLDER not in str(report)
    assert report.stray_files["path"].to_list() == ["stray.parquet"]
    listed = [(f"{table._log.uri}/{item.path}", item.size) for item in store_of(table).list_all()]
    assert sum(FOLDER in path for path, _ in listed) == 1
    frame = pl.DataFrame(listed, schema={"path": pl.String, "length": pl.Int64}, orient="row").with_columns(
        isDir=False, modificationTime=pl.lit(1_600_000_000_000, pl.Int64)
    )
    inventory = Vacuum(inventory=from_frame(frame), dry_run=True)
    assert run(inventory, table._context).files["path"].to_list() == ["stray.parquet"]
    assert table.vacuum().deleted == 1
    assert segments(table) == before
    assert merged(table, 3, 1).num_candidate_files == 1
    for shallow in (True, False):
        clone = table.clone(f"{tmp_path}/clone-{shallow}", shallow=shallow)
        assert not (tmp_path / f"clone-{shallow}" / FOLDER).exists()
        assert clone.detail()["numFiles"] == FILES


def test_a_copy_of_the_folder_keeps_the_index_and_another_table_there_does_not_use_it():
    table = new_table()
    table.index_records("k")
    twin = MemoryStore(f"memory://indexed{next(_NAMES)}/t")
    for item in store_of(table).list_all():
        twin.put(item.path, store_of(table).read(item.path))
    assert merged(opened(twin), 3, 1).num_candidate_files == 1
    other = new_table()
    for item in store_of(table).list_all(FOLDER):
        store_of(other).put(item.path, store_of(table).read(item.path))
    assert merged(other, 3, 1).num_candidate_files == FILES
    assert other.index_records("v").num_segments == 1


# --- erasure -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["3", "999999"], ids=["a key", "no key"])
def test_an_erasure_drops_the_index(key):
    table = new_table()
    table.index_records("k")
    dry = table.erase({"k": [key]}, history="drop", dry_run=True)
    assert not dry.is_proven
    assert len(segments(table)) == 1
    done = table.erase({"k": [key]}, history="drop")
    assert done.is_proven
    assert segments(table) == []
    assert table.index_records("k").num_covered_files > 0
    assert merged(table, 3, 7).num_inserted_rows == (1 if key == "3" else 0)


def test_an_index_of_files_that_an_erasure_rewrites_meanwhile_is_dropped_and_made_again(monkeypatch):
    table = new_table()
    written = refreshing._Refresh._written
    seen = []

    def written_late(self, todo):
        found = list(written(self, todo))
        seen.append(len(found))
        if len(seen) == 1:
            opened(store_of(table)).erase({"k": ["3"]}, history="drop")
        return found

    monkeypatch.setattr(refreshing._Refresh, "_written", written_late)
    done = table.index_records("k")
    assert len(seen) == 2
    assert done.num_covered_files == FILES
    assert merged(table, 3, 1).num_inserted_rows == 1


def test_an_index_is_given_up_if_erasures_run_each_time(monkeypatch):
    table = new_table()
    written = refreshing._Refresh._written
    keys = iter(["3", "4", "5", "6"])

    def written_late(self, todo):
        opened(store_of(table)).erase({"k": [next(keys)]}, history="drop")
        return written(self, todo)

    monkeypatch.setattr(refreshing._Refresh, "_written", written_late)
    with pytest.raises((DeltaConcurrentModificationException, StorageError)):
        table.index_records("k")
    assert segments(table) == []
