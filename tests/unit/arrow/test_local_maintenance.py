"""OPTIMIZE, ZORDER, REORG and VACUUM through ``pydelta.open``: no JVM; real files in memory."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.api.python.local import LocalTable
from pydelta.engines.arrow import rearrange
from pydelta.errors import InvalidArgumentError, StorageError, UnsafeOperationError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.protocol.paths import decode_log_path
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import vacuum
from pydelta.testing.parquet_rows import parquet_rows
from pydelta.testing.tables import TableBuilder

_NAMES = itertools.count()
FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors", "changeDataFeed", "rowTracking", "domainMetadata"),
)
VECTORS = {"delta.enableDeletionVectors": "true"}


def table(files, *, properties=None, settings=None):
    store = MemoryStore(f"memory://localoptimize{next(_NAMES)}/t")
    built = TableBuilder(
        store,
        columns={"x": "long", "y": "double", "p": "string"},
        partition_columns=("p",),
        properties=properties,
        protocol=FEATURES,
    )
    built.commit(*[built.file(data, {"p": part}) for data, part in files])
    return LocalTable(DeltaLog(store, settings=settings)), store


def numbers(*values):
    return pa.table({"x": pa.array(values, pa.int64()), "y": pa.array([float(v % 7) for v in values], pa.float64())})


def now(store):
    return parquet_rows(DeltaLog(store).update(), store)


def adds(store):
    snapshot = DeltaLog(store).update()
    return snapshot.files.adds(snapshot.files.core)


def parquet(store):
    return [item.path for item in store.list_all() if item.path.endswith(".parquet")]


def in_file(store, add):
    return pq.read_table(pa.BufferReader(store.read(decode_log_path(add.path).text))).column("x").to_pylist()


def test_small_files_of_each_partition_become_one_in_their_order():
    held, store = table([(numbers(3, 1), "a"), (numbers(2), "a"), (numbers(9), None), (numbers(8), None)])
    before = now(store)
    result = held.optimize()
    assert (result.version, len(result.added), len(result.removed)) == (1, 2, 4)
    assert now(store) == before
    fields = DeltaLog(store).history(1)[0].commit_info.fields
    assert fields["operationMetrics"]["rewrittenBy"] == "arrow"
    assert "scannedBy" not in fields["operationMetrics"]
    by_part = {add.partition_values["p"]: add for add in adds(store)}
    assert sorted(in_file(store, by_part["a"])) == [1, 2, 3]
    assert json.loads(by_part["a"].stats)["maxValues"]["x"] == 3
    assert all(not action.data_change for action in DeltaLog(store).actions(1) if action.kind in ("add", "remove"))
    assert held.optimize().version is None


def test_a_condition_chooses_partitions():
    held, _ = table([(numbers(1), "a"), (numbers(2), "a"), (numbers(3), "b"), (numbers(4), "b")])
    assert len(held.optimize("p = 'b'").removed) == 2
    with pytest.raises(InvalidArgumentError, match="only partition columns"):
        held.optimize("x = 1")


def test_hidden_rows_are_gone_after_a_purge_and_do_not_come_back():
    held, store = table([(numbers(*range(100)), "a"), (numbers(7), "b")], properties=VECTORS)
    held.delete("x < 10 AND p = 'a'")
    result = held.purge()
    assert (result.num_deletion_vectors_removed, result.num_deletion_vector_rows_removed) == (1, 10)
    assert now(store) == Counter({(n, float(n % 7), "a"): 1 for n in range(10, 100)} | {(7, 0.0, "b"): 1})
    assert [in_file(store, add) for add in adds(store) if add.partition_values["p"] == "a"] == [list(range(10, 100))]
    assert held.purge().version is None
    assert DeltaLog(store).history(1)[0].commit_info.fields["operationMetrics"]["rewrittenBy"] == "arrow"


def test_rows_are_put_in_order_within_each_partition_and_hidden_ones_left_out():
    held, store = table([(numbers(5, 3, 1), "a"), (numbers(4, 2), "a"), (numbers(6), "b")], properties=VECTORS)
    held.delete("x = 3")
    result = held.optimize(zorder_by=["x"])
    assert (len(result.added), len(result.removed), result.num_bins) == (2, 3, 2)
    found = {add.partition_values["p"]: in_file(store, add) for add in adds(store)}
    assert found == {"a": [1, 2, 4, 5], "b": [6]}
    held.optimize(zorder_by=["y", "x"])
    assert now(store) == Counter({(n, float(n % 7), "b" if n == 6 else "a"): 1 for n in (1, 2, 4, 5, 6)})


def test_as_many_files_are_made_as_the_bytes_ask_for_none_overlapping():
    values = [n * 7919 % 10_007 for n in range(10_000)]
    settings = Settings(optimize_max_file_bytes=20_000)
    held, store = table([(numbers(*values[at::4]), "a") for at in range(4)], settings=settings)
    result = held.optimize(zorder_by=["x"])
    assert len(result.added) > 2
    bounds = sorted((min(rows), max(rows)) for rows in (in_file(store, add) for add in adds(store)))
    assert all(low[1] < high[0] for low, high in itertools.pairwise(bounds))
    assert sum(now(store).values()) == 10_000


def test_nan_in_a_later_row_group_does_not_split_a_file_in_order(monkeypatch):
    from dataclasses import replace

    from pydelta.engines.arrow import engine

    make_task = engine.make_task
    monkeypatch.setattr(engine, "make_task", lambda *args, **kw: replace(make_task(*args, **kw), row_group_bytes=64))
    rows = pa.table({"x": pa.array(range(100), pa.int64()), "y": [1.0] * 99 + [float("nan")]})
    held, store = table([(rows.slice(0, 50), "a"), (rows.slice(50), "a")])
    assert len(held.optimize(zorder_by=["x"]).added) == 1
    [add] = adds(store)
    assert "y" not in json.loads(add.stats)["maxValues"]


def test_a_partition_too_large_to_sort_is_left_to_spark_and_nothing_is_left(monkeypatch):
    monkeypatch.setattr(rearrange, "_MOST_BYTES", 1000)
    held, store = table([(numbers(1), "a"), (numbers(2), "a"), (numbers(*range(500)), "b"), (numbers(3), "b")])
    with pytest.raises(UnsupportedFeatureError, match="a partition of more than 1000 bytes"):
        held.optimize(zorder_by=["x"])
    assert held.version == 0
    assert len(parquet(store)) == 4
    assert len(held.optimize().removed) == 4


def test_a_file_for_spark_alone_refuses_the_whole_and_nothing_is_left():
    held, store = table([(numbers(n), "a") for n in range(3)] + [(numbers(9), "b"), (numbers(8), "b")])
    other = pa.table({"x": pa.array([1], pa.int16()), "y": [1.0]})
    sink = pa.BufferOutputStream()
    pq.write_table(other, sink)
    [add, *_] = [add for add in adds(store) if add.partition_values["p"] == "b"]
    path = decode_log_path(add.path).text
    store.delete_many([path])
    store.put(path, sink.getvalue().to_pybytes())
    with pytest.raises(UnsupportedFeatureError, match="int16"):
        held.optimize()
    assert held.version == 0
    assert len(parquet(store)) == 5


def test_a_missing_file_is_named_and_nothing_is_left():
    held, store = table([(numbers(n), part) for n in range(3) for part in "ab"])
    gone = decode_log_path(adds(store)[0].path).text
    store.delete_many([gone])
    for zorder_by in ([], ["x"]):
        with pytest.raises(StorageError):
            held.optimize(zorder_by=zorder_by)
    assert held.version == 0
    assert len(parquet(store)) == 5


def test_what_an_optimize_removed_is_vacuumed_once_it_is_old():
    held, store = table([(numbers(1), "a"), (numbers(2), "a")])
    held.optimize()
    young = held.vacuum(dry_run=True)
    assert (young.version, young.deleted, len(young.files)) == (1, 0, 0)
    old = vacuum(DeltaLog(store), now_ms=time.time_ns() // 1_000_000 + 8 * 24 * 3_600_000)
    assert old.deleted == 2
    assert parquet(store) == [decode_log_path(add.path).text for add in adds(store)]
    with pytest.raises(UnsafeOperationError):
        held.vacuum(retention_hours=1)


def test_an_erasure_changes_the_table_unless_it_is_asked_only_to_look():
    held, store = table([(numbers(1, 2, 3), "a"), (numbers(4), "b")])
    before = now(store)
    assert not held.erase({"x": ["2"]}, history="drop", dry_run=True).is_proven
    assert now(store) == before
    assert held.erase({"x": ["2"]}, history="drop").is_proven
    assert (len(now(store)), {2} & {value for row in now(store) for value in row}) == (len(before) - 1, set())
    with pytest.raises(InvalidArgumentError, match="dry_run"):
        held.erase({"x": ["1"]}, dry_run="yes")
