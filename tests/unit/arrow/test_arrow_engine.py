"""DELETE through ``ArrowEngine``: no Spark, no JVM; real files in memory."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.engines.arrow import changes
from pydelta.engines.arrow.engine import ArrowEngine
from pydelta.errors import (
    BindError,
    InvalidArgumentError,
    ParseError,
    RowsDoNotAddUpError,
    StorageError,
    UnsupportedFeatureError,
)
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.protocol.paths import decode_log_path
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.testing.commands import delete
from pydelta.testing.parquet_rows import parquet_rows
from pydelta.testing.tables import TableBuilder

_NAMES = itertools.count()
FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors", "columnMapping", "timestampNtz"),
    writer_features=(
        "deletionVectors",
        "columnMapping",
        "changeDataFeed",
        "rowTracking",
        "domainMetadata",
        "timestampNtz",
    ),
)


def table(columns, files, *, partition_columns=(), properties=None):
    store = MemoryStore(f"memory://arrowengine{next(_NAMES)}/t")
    built = TableBuilder(
        store, columns=columns, partition_columns=partition_columns, properties=properties, protocol=FEATURES
    )
    built.commit(*[built.file(data, partition) for data, partition in files])
    return store


def run(store, condition):
    log = DeltaLog(store)
    return delete(log, ArrowEngine(log), condition)


def rows(store):
    return parquet_rows(DeltaLog(store).update(), store)


def metrics(store):
    return DeltaLog(store).history(1)[0].commit_info.fields["operationMetrics"]


def numbers(*values):
    return pa.table({"x": pa.array(values, pa.int64())})


def test_the_history_says_how_it_was_done_and_the_counts_add_up():
    store = table({"x": "long"}, [(numbers(1, 2, None), None), (numbers(3), None)])
    result = run(store, "x <= 1")
    assert (result.num_deleted_rows, result.num_copied_rows, result.num_touched_files) == (1, 2, 1)
    assert rows(store) == Counter({(2,): 1, (None,): 1, (3,): 1})
    told = metrics(store)
    assert (told["scannedBy"], told["rewrittenBy"]) == ("arrow", "arrow")
    assert (told["numDeletedRows"], told["numCopiedRows"], told["numAddedFiles"]) == ("1", "2", "1")


def test_no_row_no_commit():
    store = table({"x": "long"}, [(numbers(1), None)])
    assert run(store, "x = 2").version is None
    assert DeltaLog(store).update().version == 0


def test_a_condition_on_partitions_reads_no_file():
    files = [(numbers(1), {"p": "a"}), (numbers(2), {"p": None}), (numbers(3), {"p": "b"})]
    store = table({"x": "long", "p": "string"}, files, partition_columns=["p"])
    counting = CountingStore(store)
    assert run(counting, "p >= 'b' OR p IS NULL").num_touched_files == 2
    assert not [path for verb, path in counting.calls if path.endswith(".parquet")]
    assert rows(store) == Counter({(1, "a"): 1})


def test_a_condition_over_a_partition_and_a_column_at_once():
    files = [(numbers(1, 2), {"p": "1"}), (numbers(1, 2), {"p": "2"})]
    store = table({"x": "long", "p": "integer"}, files, partition_columns=["p"])
    assert run(store, "p = 1 AND x = 1 OR p = 2 AND x = 2").num_deleted_rows == 2
    assert rows(store) == Counter({(2, "1"): 1, (1, "2"): 1})
    assert run(store, "p < x").num_deleted_rows == 1
    assert rows(store) == Counter({(1, "2"): 1})


def test_rows_are_hidden_and_hidden_again_and_a_file_without_rows_goes():
    properties = {"delta.enableDeletionVectors": "true"}
    store = table({"x": "long"}, [(numbers(*range(100)), None), (numbers(7), None)], properties=properties)
    assert run(store, "x IN (7, 8)").num_deleted_rows == 3
    assert "rewrittenBy" not in metrics(store) or metrics(store)["numAddedFiles"] == "0"
    second = run(store, "x < 10")
    assert (second.num_deleted_rows, second.num_deletion_vectors_updated) == (8, 1)
    assert rows(store) == Counter({(n,): 1 for n in range(10, 100)})
    assert DeltaLog(store).update().num_files == 1


def test_what_was_hidden_does_not_come_back_with_a_rewrite():
    store = table({"x": "long"}, [(numbers(*range(10)), None)], properties={"delta.enableDeletionVectors": "true"})
    run(store, "x < 3")
    log = DeltaLog(store)
    txn_metadata = log.update().metadata
    from pydelta.txn import Operation, start_transaction

    txn = start_transaction(log)
    txn.update_metadata(txn_metadata.replace(configuration={"delta.enableDeletionVectors": "false"}))
    txn.commit([], Operation(name="SET TBLPROPERTIES"))
    result = run(store, "x = 5")
    assert (result.num_deleted_rows, result.num_copied_rows) == (1, 6)
    assert metrics(store)["numDeletionVectorsRemoved"] == "1"
    assert rows(store) == Counter({(n,): 1 for n in (3, 4, 6, 7, 8, 9)})


def test_the_change_feed_gets_the_rows_that_went():
    store = table({"x": "long"}, [(numbers(1, 2), None)], properties={"delta.enableChangeDataFeed": "true"})
    run(store, "x = 1")
    [change] = [action for action in DeltaLog(store).actions(1) if action.kind == "cdc"]
    feed = pq.read_table(pa.BufferReader(store.read(decode_log_path(change.path).text))).to_pylist()
    assert feed == [{"x": 1, "_change_type": "delete"}]


def test_rows_keep_their_ids_and_versions():
    properties = {
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_id",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
        "delta.enableChangeDataFeed": "true",
    }
    store = MemoryStore(f"memory://arrowengine{next(_NAMES)}/t")
    built = TableBuilder(store, columns={"x": "long"}, properties=properties, protocol=FEATURES)
    add = built.file(numbers(10, 20, 30)).replace(base_row_id=100, default_row_commit_version=0)
    built.commit(add)
    run(store, "x = 10")
    [new] = DeltaLog(store).update().files.adds(DeltaLog(store).update().files.core)
    found = pq.read_table(pa.BufferReader(store.read(decode_log_path(new.path).text))).to_pylist()
    assert found == [{"x": 20, "_id": 101, "_version": 0}, {"x": 30, "_id": 102, "_version": 0}]
    [change] = [action for action in DeltaLog(store).actions(1) if action.kind == "cdc"]
    assert pq.read_schema(pa.BufferReader(store.read(decode_log_path(change.path).text))).names == ["x", "_change_type"]


def test_a_struct_that_is_null_has_null_fields():
    rows_in = pa.table({"s": pa.array([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int64())]))})
    store = MemoryStore(f"memory://arrowengine{next(_NAMES)}/t")
    struct = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
    built = TableBuilder(store, columns={"s": struct}, protocol=FEATURES)
    built.commit(built.file(rows_in))
    assert run(store, "s.a = 1").num_deleted_rows == 1
    assert run(store, "s.a IS NULL").num_deleted_rows == 2


def test_a_column_that_a_file_lacks_is_null():
    store = table({"x": "long", "y": "string"}, [(numbers(1, 2), None)])
    assert run(store, "y = 'a'").version is None
    assert run(store, "y IS NULL AND x = 1").num_deleted_rows == 1


def test_mapped_columns_are_found_under_their_names_in_files():
    store = MemoryStore(f"memory://arrowengine{next(_NAMES)}/t")
    built = TableBuilder(
        store, columns={"x": "long"}, properties={"delta.columnMapping.mode": "name"}, protocol=FEATURES
    )
    fields = json.loads(built.metadata.schema_string)
    fields["fields"][0]["metadata"] = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-a"}
    built.metadata = built.metadata.replace(schema_string=json.dumps(fields))
    built.commit(built.file(pa.table({"col-a": pa.array([1, 2], pa.int64())})))
    assert run(store, "x = 1").num_deleted_rows == 1
    [add] = DeltaLog(store).update().files.adds(DeltaLog(store).update().files.core)
    assert pq.read_table(pa.BufferReader(store.read(decode_log_path(add.path).text))).to_pylist() == [{"col-a": 2}]


def test_many_files_are_written_by_several_threads(monkeypatch):
    monkeypatch.setattr(changes, "_GROUP_BYTES", 1000)
    monkeypatch.setattr(changes, "cores", lambda: 3)
    files = [(numbers(*range(n * 100, n * 100 + 100)), None) for n in range(9)]
    store = table({"x": "long"}, files)
    result = run(store, " OR ".join(f"x = {n * 100 + n}" for n in range(9)))
    assert (result.num_touched_files, result.num_deleted_rows, result.num_copied_rows) == (9, 9, 891)
    assert 1 < result.num_rewritten_files <= 3
    assert rows(store) == Counter({(n,): 1 for n in range(900) if n // 100 != n % 100})


def test_a_failure_of_one_thread_leaves_nothing_of_the_others(monkeypatch):
    monkeypatch.setattr(changes, "_GROUP_BYTES", 1000)
    monkeypatch.setattr(changes, "cores", lambda: 3)
    store = table({"x": "long"}, [(numbers(*range(n * 100, n * 100 + 100)), None) for n in range(9)])
    before = {item.path for item in store.list_all()}
    real = changes.with_row_ids
    seen = itertools.count()

    def failing(*given, **named):
        if next(seen) == 7:
            raise StorageError("the disk went away")
        return real(*given, **named)

    monkeypatch.setattr(changes, "with_row_ids", failing)
    with pytest.raises(StorageError, match="went away"):
        run(store, " OR ".join(f"x = {n * 100}" for n in range(9)))
    assert {item.path for item in store.list_all()} == before


@pytest.mark.parametrize("lost", ["rows", "changes"])
def test_rows_that_get_lost_on_the_way_commit_nothing(monkeypatch, lost):
    store = table({"x": "long"}, [(numbers(*range(10)), None)], properties={"delta.enableChangeDataFeed": "true"})
    before = {item.path for item in store.list_all()}
    real = changes.TaskWriter.append

    def losing(self, values, batch):
        of_feed = "_change_type" in batch.schema.names
        real(self, values, batch.slice(1) if of_feed == (lost == "changes") else batch)

    monkeypatch.setattr(changes.TaskWriter, "append", losing)
    with pytest.raises(RowsDoNotAddUpError, match="10 rows reached a task of the write, but its files hold 9"):
        run(store, "x < 3")
    assert {item.path for item in store.list_all()} == before


def test_groups_are_of_about_the_same_bytes(monkeypatch):
    monkeypatch.setattr(changes, "cores", lambda: 2)
    mib = 1 << 20
    assert changes._groups([mib]) == [[0]]
    assert changes._groups([mib] * 5) == [[0, 1, 2, 3, 4]]  # not worth a thread
    assert sorted(changes._groups([30 * mib, 10 * mib, 20 * mib])) == [[0], [1, 2]]


@pytest.mark.parametrize(
    ("condition", "error", "word"),
    [
        ("f = 0.1", None, ""),
        ("x = 1.5", UnsupportedFeatureError, "long"),
        ("d = 1.555", UnsupportedFeatureError, "digits"),
        ("s = 'a\\\\tb'", None, ""),
        ("d = '1.5'", UnsupportedFeatureError, "decimal"),
        ("x = 'a'", BindError, "not a valid"),
        ("nothing = 1", BindError, "no column"),
        ("x = ", ParseError, "parse"),
        ("s LIKE '%a'", InvalidArgumentError, "LIKE"),
    ],
)
def test_what_takes_spark_is_refused_with_the_reason(condition, error, word):
    columns = {"x": "long", "d": "decimal(10,2)", "s": "string", "f": "float"}
    store = table(columns, [(numbers(1), None)])
    if error is None:
        assert run(store, condition).version is None
        return
    with pytest.raises(error, match=word) as caught:
        run(store, condition)
    assert caught.value.hint
    assert DeltaLog(store).update().version == 0


def test_a_single_float_is_compared_as_a_double_as_spark_does():
    data = pa.table({"f": pa.array([0.1, 0.5, float("nan"), None], pa.float32())})
    store = table({"f": "float"}, [(data, None)])
    assert run(store, "f = 0.1").version is None  # 0.1 as a float is not the decimal 0.1
    assert run(store, "f = 0.5").num_deleted_rows == 1
    assert run(store, "f > 1e300").num_deleted_rows == 1


def test_a_file_of_another_type_and_one_that_is_damaged_are_refused():
    wider = pa.table({"x": pa.array([1], pa.int32())})
    store = table({"x": "long"}, [(wider, None)])
    with pytest.raises(UnsupportedFeatureError, match="int32"):
        run(store, "x = 1")
    store = table({"x": "long"}, [(numbers(1), None)])
    [path] = [item.path for item in store.list_all() if item.path.endswith(".parquet")]
    store.put(path, store.read(path)[:-20])
    with pytest.raises(StorageError, match="cannot be read"):
        run(store, "x = 1")
    assert DeltaLog(store).update().version == 0


def test_positions_are_right_beyond_the_first_batch(monkeypatch):
    monkeypatch.setattr("pydelta.engines.arrow.tasks.old_files.BATCH_ROWS", 10)
    properties = {"delta.enableDeletionVectors": "true"}
    store = table({"x": "long"}, [(numbers(*range(95)), None)], properties=properties)
    gone = {0, 9, 10, 55, 94}
    for condition in ("x IN (0, 10, 94)", "x = 9 OR x = 55"):
        run(store, condition)
    assert rows(store) == Counter({(int(n),): 1 for n in np.arange(95) if int(n) not in gone})
