"""Two changes of one table of which at least one is a DELETE in this process, over real files, in every order.

As ``test_interleavings``, whose files have no bytes. What stands is what some serial order gives, and a loser leaves
nothing behind.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter

import pyarrow as pa
import pytest

from pydelta.engines.arrow.engine import ArrowEngine
from pydelta.errors import DeltaConcurrentModificationException
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.protocol.paths import decode_log_path
from pydelta.settings import Settings
from pydelta.testing.commands import delete
from pydelta.testing.operations import NO_PAUSE
from pydelta.testing.orders import WatchedStore, run_every_order
from pydelta.testing.parquet_rows import parquet_rows
from pydelta.testing.tables import TableBuilder
from pydelta.txn import Operation, start_transaction

_NAMES = itertools.count()
_FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors",),
)
_OWN = threading.local()
BEGINNING = Counter({("1", 1): 2, ("1", 2): 1, ("2", 1): 1, ("2", 5): 1, ("3", 9): 1})


def begin(log, **given):
    return start_transaction(log, observer=_OWN.step, backoff=NO_PAUSE, **given)


def deleting(condition, keeps):
    def run(store, step, settings):
        _OWN.step = step
        log = DeltaLog(store, settings=settings)
        return delete(log, ArrowEngine(log), condition, begin=begin).version

    return run, lambda rows: Counter({row: count for row, count in rows.items() if keeps(row)})


def appending(partition, value):
    def run(store, step, settings):
        _OWN.step = step
        log = DeltaLog(store, settings=settings)
        txn = begin(log)
        builder = TableBuilder(store, columns={"p": "string", "x": "long"}, partition_columns=["p"])
        add = builder.file(pa.table({"x": pa.array([value], pa.int64())}), {"p": partition})
        return txn.commit([add], Operation(name="WRITE")).version

    return run, lambda rows: rows + Counter({(partition, value): 1})


CHANGES = {
    "one": deleting("x = 1", lambda row: row[1] != 1),
    "two": deleting("x = 2", lambda row: row[1] != 2),
    "nine": deleting("x = 9", lambda row: row[1] != 9),
    "partition": deleting("p = '1'", lambda row: row[0] != "1"),
    "append": appending("2", 1),
}
# The files have no bounds in their statistics, so that each DELETE reads all files. Rows that two of them hide in one
# file are united; a file that one removes as a whole is a conflict for the other.
WITHOUT_CONFLICT = {("one", "two", True)}


def start_with(vectors):
    store = WatchedStore(f"memory://arroworders{next(_NAMES)}/t")
    properties = {"delta.enableDeletionVectors": "true"} if vectors else {}
    table = TableBuilder(
        store, columns={"p": "string", "x": "long"}, partition_columns=["p"], properties=properties, protocol=_FEATURES
    )
    files = [("1", [1, 2, 1]), ("2", [1, 5]), ("3", [9])]
    table.commit(*[table.file(pa.table({"x": pa.array(x, pa.int64())}), {"p": p}) for p, x in files])
    return store


PAIRS = [
    ("one", "two"),
    ("one", "one"),
    ("one", "nine"),
    ("one", "partition"),
    ("one", "append"),
    ("two", "partition"),
    ("two", "append"),
]


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
@pytest.mark.parametrize("vectors", [False, True], ids=["rewritten", "hidden"])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_every_order_has_a_serial_outcome(first, second, vectors, again):
    one, two = CHANGES[first], CHANGES[second]
    settings = Settings() if again else Settings(change_max_retries=0)
    orders = conflicts = 0

    def start():
        store = start_with(vectors)
        return store, {
            "one": lambda step: one[0](store, step, settings),
            "two": lambda step: two[0](store, step, settings),
        }

    for schedule, store, results in run_every_order(start):
        orders += 1
        stood = []
        for name, change in (("one", one), ("two", two)):
            if isinstance(results[name], DeltaConcurrentModificationException):
                conflicts += 1
            elif isinstance(results[name], BaseException):
                raise results[name]
            else:
                stood.append((results[name], change[1]))
        assert stood, "one of the two always commits"
        log = DeltaLog(store)
        snapshot = log.update()
        outcomes = []
        for order in itertools.permutations(stood):
            rows = BEGINNING
            for _, model in order:
                rows = model(rows)
            outcomes.append(rows)
        assert parquet_rows(snapshot, store) in outcomes, schedule
        named = {
            decode_log_path(action.path).text
            for version in range(snapshot.version + 1)
            for action in log.actions(version)
            if action.kind == "add"
        }
        assert {item.path for item in store.list_all() if item.path.endswith(".parquet")} <= named, schedule
    assert orders > 1
    assert (conflicts == 0) == (again or (first, second, vectors) in WITHOUT_CONFLICT)
