"""Every storage call of a stream's schema log goes wrong once: started again, the query gives each row once."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from pydelta.commands.stream.admission import AdmissionBudget
from pydelta.commands.stream.errors import SourceDefinitionChangedError
from pydelta.commands.stream.evolution import Allowed
from pydelta.commands.stream.options import SourceOptions
from pydelta.commands.stream.schema_log import SchemaLog
from pydelta.commands.stream.source import TableStream
from pydelta.commands.stream.tracking import open_tracking
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.storage import MemoryStore
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash
from pydelta.testing.operations import add_file, alter, append, create_table
from pydelta.testing.row_files import ROWS_TAG
from pydelta.txn.commit import SILENT

_NAMES = itertools.count()
BATCHES = 12


@pytest.fixture(scope="module")
def table():
    """A table with a new column between its rows; the rows of each file by its path."""
    log = DeltaLog(MemoryStore(f"memory://schemalog{next(_NAMES)}/t"))
    create_table(log, [add_file("1", [1, 2])])
    for operation in (append("1", [3]), alter("more"), append("2", [4]), alter("last"), append("3", [5])):
        operation.run(log, SILENT)
    return log


def values(log, batch):
    adds = [add for version in range(log.update().version + 1) for add in log.actions(version) if hasattr(add, "stats")]
    texts = {add.path: add.tags[ROWS_TAG] for add in adds}
    initial = [] if batch.initial is None else batch.initial["path"].to_list()
    return [text for path in [*initial, *(file.path for file in batch.changed)] for text in texts[path].split(",")]


class Query:
    """The offsets and rows that outlive a process, as in a checkpoint and behind a sink."""

    def __init__(self, log):
        self.log, self.offsets, self.done, self.rows, self.columns = log, [], 0, [], []

    def run(self, store):
        """One process, up to what stops it, as Spark drives a source."""
        tracking, read = open_tracking(self.log, SchemaLog(store), self.log.snapshot(version=0))
        tracking.begin("file:/c/sources/0", Allowed(options={}, conf={}))
        options = SourceOptions.parse({"startingVersion": "0"})
        stream = TableStream(self.log, options, read, tracking=tracking)
        for _ in range(BATCHES):
            if self.done == len(self.offsets):
                last = self.offsets[-1] if self.offsets else None
                end = stream.latest(last, AdmissionBudget(max_files=2))
                if end is None or end == last:
                    return
                self.offsets.append(end)
                if last is not None:
                    stream.finish(last)
            start = self.offsets[-2] if len(self.offsets) > 1 else None
            self.rows += values(self.log, stream.batch(start, self.offsets[-1]))
            self.columns = list(stream.read.schema.names)
            self.done = len(self.offsets)

    def through(self, store):
        """Start again until nothing is left."""
        for _ in range(6):
            try:
                self.run(store)
            except SourceDefinitionChangedError:
                continue
            return
        raise AssertionError("the query stops again and again")


def test_without_a_fault_all_rows_come_in_order(table):
    query = Query(table)
    query.through(MemoryStore(f"memory://schemalog{next(_NAMES)}/s"))
    assert (query.rows, query.columns) == (["1", "2", "3", "4", "5"], ["p", "x", "more", "last"])


@pytest.mark.parametrize("kind", list(FaultKind), ids=lambda kind: kind.value)
def test_a_fault_at_any_call_of_the_schema_log_loses_and_doubles_no_row(kind, table):
    counting = CountingStore(MemoryStore(f"memory://schemalog{next(_NAMES)}/s"))
    Query(table).through(counting)
    assert len(counting.paths("put_if_absent")) == 3
    for number in range(len(counting.calls)):
        store, query = MemoryStore(f"memory://schemalog{next(_NAMES)}/s"), Query(table)
        faulty = FaultyStore(store, Fault(kind=kind, call=number))
        with contextlib.suppress(SimulatedCrash, DeltaError):
            query.through(faulty)
        query.through(store)
        assert faulty.fired, number
        assert query.rows == ["1", "2", "3", "4", "5"], f"{kind.value} at call {number}"
        assert query.columns == ["p", "x", "more", "last"]
