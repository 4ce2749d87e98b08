"""Changes in this process: every storage call goes wrong once, over real files; the table is as before or as after.

As ``test_every_call``, which has no files with bytes; here a data file is read, a new one written, and both can fail.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter

import pyarrow as pa
import pytest

from pydelta.api.python.local import LocalTable
from pydelta.engines.arrow.engine import ArrowEngine
from pydelta.errors import CommitStateUnknownError, DeltaError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.protocol.paths import decode_log_path
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash
from pydelta.testing.commands import delete
from pydelta.testing.parquet_rows import parquet_rows
from pydelta.testing.tables import TableBuilder

_NAMES = itertools.count()
KINDS = {
    "rewrite": {},
    "hide": {"delta.enableDeletionVectors": "true"},
    "rewrite with a change feed": {"delta.enableChangeDataFeed": "true"},
}
_FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors", "changeDataFeed"),
)


def prepared(kind: str) -> MemoryStore:
    """Three files in two partitions; ``x = 1`` is in two of them."""
    store = MemoryStore(f"memory://arrowfault{next(_NAMES)}/t")
    columns = {"p": "string", "x": "long", "s": "string"}
    table = TableBuilder(store, columns=columns, partition_columns=["p"], properties=KINDS[kind], protocol=_FEATURES)
    files = [("1", [1, 2, 1]), ("2", [1, 5]), ("2", [6])]
    table.commit(*[table.file(pa.table({"x": x, "s": [f"é{n}" for n in x]}), {"p": p}) for p, x in files])
    return store


def copy_of(store: MemoryStore) -> MemoryStore:
    twin = MemoryStore(f"memory://arrowfault{next(_NAMES)}/t")
    for item in store.list_all():
        twin.put(item.path, store.read(item.path))
    return twin


def run(store):
    log = DeltaLog(store)
    return delete(log, ArrowEngine(log), "x = 1")


def named_by(log: DeltaLog) -> set[str]:
    """Every file but those of the log that some version names."""
    paths = set()
    for version in range(log.update().version + 1):
        for action in log.actions(version):
            if action.kind in ("add", "cdc"):
                paths.add(decode_log_path(action.path).text)
    return paths


BEFORE = Counter({("1", 1, "é1"): 2, ("1", 2, "é2"): 1, ("2", 1, "é1"): 1, ("2", 5, "é5"): 1, ("2", 6, "é6"): 1})
AFTER = Counter({row: count for row, count in BEFORE.items() if row[1] != 1})


@pytest.mark.parametrize("fault", list(FaultKind), ids=lambda kind: kind.value)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_call_of_a_delete_leaves_the_table_before_or_after(kind, fault):
    template = prepared(kind)
    assert parquet_rows(DeltaLog(template).update(), template) == BEFORE
    counting = CountingStore(copy_of(template))
    done = run(counting)
    assert (done.version, done.num_deleted_rows) == (1, 3)
    verbs = Counter(verb for verb, _ in counting.calls)
    assert verbs["read"] >= 3
    assert verbs["open_writer"] == {"hide": 0, "rewrite": 2}.get(kind, 4)
    fired = 0
    for number in range(len(counting.calls)):
        store = copy_of(template)
        faulty = FaultyStore(store, Fault(kind=fault, call=number))
        version = crashed = refused = None
        try:
            version = run(faulty).version
        except SimulatedCrash as error:
            crashed = error
        except DeltaError as error:
            refused = error
        what = f"{fault.value} at call {number}"
        fired += faulty.fired
        log = DeltaLog(store)
        snapshot = log.update()
        assert snapshot.version in (0, 1), what
        assert parquet_rows(snapshot, store) == (AFTER if snapshot.version else BEFORE), what
        if version is not None:
            assert version == snapshot.version == 1, what
        if refused is not None:
            assert not isinstance(refused, CommitStateUnknownError), what
            assert snapshot.version == 0, what
            left = {item.path for item in store.list_all() if item.path.endswith(".parquet")}
            # of a file whose writing was not confirmed nothing is known: it stays, as an executor's does, for VACUUM
            assert len(left - named_by(log)) <= (fault is FaultKind.LOSE_REPLY), what
        if crashed is not None:
            assert fault in (FaultKind.DIE_BEFORE, FaultKind.DIE_AFTER), what
        if not snapshot.version:
            assert run(store).version == 1, what
            assert parquet_rows(DeltaLog(store).update(), store) == AFTER, what
    assert fired == len(counting.calls)


_SOURCE = pa.table({"x": [1, 5, 9], "s": ["new1", "new5", "new9"]})
_UPDATED = Counter(
    {("1", 1, "new1"): 2, ("1", 2, "é2"): 1, ("2", 1, "new1"): 1, ("2", 5, "new5"): 1, ("2", 6, "é6"): 1}
)
OPERATIONS = {
    "compaction": (lambda table: table.optimize(), BEFORE),
    "order": (lambda table: table.optimize(zorder_by=["x", "s"]), BEFORE),
    "merge": (lambda table: table.merge(_SOURCE, on="x"), _UPDATED + Counter({(None, 9, "new9"): 1})),
}


@pytest.mark.parametrize("fault", list(FaultKind), ids=lambda kind: kind.value)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_call_leaves_the_table_before_or_after(kind, operation, fault):
    template, (work, after) = prepared(kind), OPERATIONS[operation]
    counting = CountingStore(copy_of(template))
    assert work(LocalTable(DeltaLog(counting))).version == 1
    fired = 0
    for number in range(len(counting.calls)):
        store = copy_of(template)
        faulty = FaultyStore(store, Fault(kind=fault, call=number))
        version = refused = None
        with contextlib.suppress(SimulatedCrash):
            try:
                version = work(LocalTable(DeltaLog(faulty))).version
            except DeltaError as error:
                refused = error
        what = f"{fault.value} at call {number}"
        fired += faulty.fired
        log = DeltaLog(store)
        snapshot = log.update()
        assert snapshot.version in (0, 1), what
        assert parquet_rows(snapshot, store) == (after if snapshot.version else BEFORE), what
        assert version in (None, snapshot.version), what
        if refused is not None:
            assert snapshot.version == 0 or isinstance(refused, CommitStateUnknownError), what
            left = {item.path for item in store.list_all() if item.path.endswith(".parquet")}
            assert snapshot.version or len(left - named_by(log)) <= (fault is FaultKind.LOSE_REPLY), what
        if not snapshot.version:
            assert work(LocalTable(DeltaLog(store))).version == 1, what
            assert parquet_rows(DeltaLog(store).update(), store) == after, what
    assert fired
