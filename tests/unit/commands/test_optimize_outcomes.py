"""What an OPTIMIZE does with its files, by how its commit ended; what it picks and says; auto-compaction."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field

import pytest
from refusals import ExpiringStore, RefusingStore

from pydelta.commands.engine import BoundCondition, RefusingEngine, RewriteOutput
from pydelta.commands.optimize.command import Optimize
from pydelta.commands.optimize.result import OPTIMIZE_METRICS
from pydelta.errors import (
    CommitStateUnknownError,
    ConcurrentDeleteReadException,
    InvalidArgumentError,
    MetadataChangedException,
    StorageError,
)
from pydelta.log import DeltaLog
from pydelta.predicate import Column, Compare, Literal
from pydelta.protocol.actions import DeletionVectorDescriptor
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import compact_after_write, optimize
from pydelta.testing.operations import add_file, append, create_table, delete_partition, table_metadata
from pydelta.txn import Operation, start_transaction, transaction

_NAMES = itertools.count()


@dataclass
class LogEngine(RefusingEngine):
    """An engine over files without bytes: a bin becomes a file; ``meanwhile`` runs before that."""

    rewrites_files = True

    meanwhile: object = None
    discarded: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)

    def bind_condition(self, snapshot, condition):
        name, value = condition.split("=")
        equal = Compare("=", Column((name,)), Literal(value, "string"))
        return BoundCondition(sql=condition, conjuncts=(equal,), references=frozenset({name}), native=None)

    def match_partitions(self, snapshot, files, condition):
        return files

    def match_rows(self, snapshot, files, condition):
        raise AssertionError("not asked for")

    write_without = lay_out = match_rows

    def compact(self, snapshot, files, plan, *, max_bytes):
        if self.meanwhile is not None:
            self.meanwhile()
        self.limits.append(max_bytes)
        assert [add.path for add in files] == plan["path"].to_list()
        adds = []
        for number in plan["bin"].unique(maintain_order=True):
            first = next(add for add, of in zip(files, plan["bin"], strict=True) if of == number)
            adds.append(add_file(first.partition_values["p"], [1]))
        self.written += [add.path for add in adds]
        return RewriteOutput(adds=tuple(adds), num_rows=len(adds))

    def discard(self, snapshot, adds):
        self.discarded += [add.path for add in adds]

    def committed(self, snapshot):
        pass

    def time_zone(self):
        return "UTC"


@pytest.fixture
def inner():
    store = MemoryStore(f"memory://optimized{next(_NAMES)}/t")
    create_table(DeltaLog(store), [add_file(p, [n]) for p in ("1", "2") for n in range(3)])
    return store


def run(store, engine=None, settings=None, **request):
    return optimize(DeltaLog(store), engine or LogEngine(), settings or Settings(), Optimize(**request))


def test_each_partition_becomes_one_file_and_the_counts_say_so(inner):
    result = run(inner)
    assert (result.version, len(result.added), len(result.removed), result.num_partitions) == (1, 2, 6, 2)
    assert (result.num_bins, result.num_considered) == (2, 6)
    metrics = result.metrics()
    assert metrics.keys() == OPTIMIZE_METRICS.keys()
    assert metrics["filesRemoved"] == {"min": 101, "max": 101, "avg": 101.0, "totalFiles": 6, "totalSize": 606}
    assert metrics["totalFilesSkipped"] == 0
    again = run(inner)
    assert (again.version, again.metrics()["totalFilesSkipped"]) == (None, 2)


def test_the_metrics_have_the_shape_that_is_promised(inner):
    def check(values, fields):
        assert values.keys() == fields.keys()
        for name, kind in fields.items():
            if isinstance(kind, dict) and values[name] is not None:
                check(values[name], kind)

    result = run(inner)
    check(result.metrics(), OPTIMIZE_METRICS)


def test_a_condition_chooses_partitions_and_is_told(inner):
    assert len(run(inner, condition="p=1").removed) == 3
    parameters = DeltaLog(inner).history(1)[0].commit_info.fields["operationParameters"]
    assert json.loads(parameters["predicate"]) == ["p=1"]
    with pytest.raises(InvalidArgumentError, match="names x"):
        run(inner, condition="x=1")


@pytest.mark.parametrize(
    ("properties", "settings", "expected"),
    [
        ({}, {}, 1 << 30),
        ({"delta_targetFileSize": "64mb"}, {}, 64 << 20),
        ({"delta_targetFileSize": "64mb"}, {"spark.databricks.delta.optimize.maxFileSize": "32mb"}, 32 << 20),
        ({}, {"spark.pydelta.optimize.maxFileSize": "16mb"}, 16 << 20),
    ],
)
def test_the_target_is_the_sessions_else_the_tables_else_a_gibibyte(properties, settings, expected):
    store = MemoryStore(f"memory://optimized{next(_NAMES)}/t")
    create_table(DeltaLog(store), [add_file("1", [1]), add_file("1", [2])], **properties)
    engine = LogEngine()
    run(store, engine, Settings.resolve(settings, {}))
    assert engine.limits == [expected]


def test_files_as_large_as_the_least_size_are_left_alone(inner):
    settings = Settings.resolve({"spark.databricks.delta.optimize.minFileSize": "101"}, {})
    assert run(inner, settings=settings).version is None


def test_a_commit_that_landed_keeps_its_files_whatever_fails_afterwards(inner, monkeypatch):
    def broken(self, snapshot, number, actions, file):
        raise StorageError("the store went away")

    monkeypatch.setattr(transaction.OptimisticTransaction, "_apply", broken)
    engine = LogEngine()
    with pytest.raises(StorageError, match="went away"):
        run(inner, engine)
    assert sorted(DeltaLog(inner).update().files.core["path"].to_list()) == sorted(engine.written)
    assert engine.discarded == []


def test_a_refused_commit_gives_its_files_back(inner):
    engine = LogEngine()
    with pytest.raises(StorageError):
        run(RefusingStore(inner), engine)
    assert engine.discarded == engine.written
    assert DeltaLog(inner).update().version == 0


def test_a_refusal_after_a_lost_reply_settles_nothing(inner):
    engine = LogEngine()
    with pytest.raises(CommitStateUnknownError):
        run(ExpiringStore(inner), engine)
    assert engine.discarded == []


def change_metadata(store):
    txn = start_transaction(DeltaLog(store))
    txn.update_metadata(table_metadata().replace(id=txn.snapshot.metadata.id, description="new"))
    txn.commit([], Operation(name="SET TBLPROPERTIES"))


@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [
        (lambda store: append("1", [7]).run(DeltaLog(store)), None),
        (lambda store: delete_partition("2").run(DeltaLog(store)), None),
        (lambda store: delete_partition("1").run(DeltaLog(store)), ConcurrentDeleteReadException),
        (lambda store: optimize(DeltaLog(store), LogEngine(), Settings()), ConcurrentDeleteReadException),
        (change_metadata, MetadataChangedException),
    ],
    ids=["append", "delete elsewhere", "delete here", "another optimize", "metadata"],
)
def test_who_else_may_commit_meanwhile(inner, meanwhile, error):
    engine = LogEngine(meanwhile=lambda: meanwhile(inner))
    if error is None:
        assert run(inner, engine, condition="p=1").version == 2
        assert engine.discarded == []
        return
    with pytest.raises(error) as caught:
        run(inner, engine, condition="p=1")
    assert "again" in str(caught.value)
    assert engine.discarded == engine.written


@pytest.mark.parametrize(("cardinality", "stats", "rewritten"), [(1, 10, True), (1, 100, False), (1, None, True)])
def test_a_large_file_is_rewritten_for_the_rows_it_has_lost(cardinality, stats, rewritten):
    store = MemoryStore(f"memory://optimized{next(_NAMES)}/t")
    vector = DeletionVectorDescriptor(storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=cardinality)
    text = None if stats is None else json.dumps({"numRecords": stats})
    large = add_file("1", [1]).replace(size=1 << 31, deletion_vector=vector, stats=text)
    log = DeltaLog(store)
    create_table(log, [large], delta_enableDeletionVectors="true")
    result = run(store)
    assert (result.version is not None) == rewritten
    if rewritten:
        assert result.metrics()["deletionVectorStats"] == {
            "numDeletionVectorsRemoved": 1,
            "numDeletionVectorRowsRemoved": cardinality,
        }


# --- after a write ---------------------------------------------------------------------------------------------------


def written(store, partition, count, settings, engine):
    log = DeltaLog(store)
    adds = [add_file(partition, [n]) for n in range(count)]
    committed = start_transaction(log).commit(adds, Operation(name="WRITE"))
    return compact_after_write(log, engine, Settings.resolve(settings, {}), committed, adds)


ON = {"spark.databricks.delta.autoCompact.enabled": "true", "spark.databricks.delta.autoCompact.minNumFiles": "5"}


@pytest.mark.parametrize(
    ("partition", "count", "settings", "removed"),
    [
        ("1", 2, ON, 5),
        ("1", 1, ON, None),
        ("2", 2, ON, 5),
        ("3", 5, ON, 5),
        ("3", 4, ON, None),
        ("1", 2, {}, None),
        ("1", 2, ON | {"spark.databricks.delta.autoCompact.enabled": "false"}, None),
        ("1", 2, ON | {"spark.databricks.delta.autoCompact.minFileSize": "50"}, None),
        ("1", 2, ON | {"spark.databricks.delta.autoCompact.enabled": "auto"}, 5),
    ],
)
def test_auto_compaction_looks_at_the_partitions_of_the_write(inner, partition, count, settings, removed):
    engine = LogEngine()
    result = written(inner, partition, count, settings, engine)
    if removed is None:
        assert engine.written == []
        return
    assert len(result.removed) == removed
    assert {add.partition_values["p"] for add in result.removed} == {partition}
    assert DeltaLog(inner).history(1)[0].commit_info.fields["operationParameters"]["auto"] == "true"
    assert engine.limits == [128 << 20]


def test_the_table_asks_for_auto_compaction_and_the_session_decides():
    for session, happens in (({}, True), ({"spark.pydelta.autoCompact.enabled": "false"}, False)):
        store = MemoryStore(f"memory://optimized{next(_NAMES)}/t")
        create_table(DeltaLog(store), [], delta_autoOptimize_autoCompact="true")
        engine = LogEngine()
        written(store, "1", 50, session, engine)
        assert bool(engine.written) == happens


@pytest.mark.parametrize("error", [StorageError("full"), RuntimeError("odd")])
def test_auto_compaction_never_fails_the_write(inner, caplog, error):
    def fail():
        raise error

    assert written(inner, "1", 2, ON, LogEngine(meanwhile=fail)) is None
    assert "auto-compaction after version 1" in caplog.text
    assert DeltaLog(inner).update().version == 1
