"""A stream that reads a table while something else changes it: every row once, or a stop that says why."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from pydelta.commands.stream.admission import AdmissionBudget
from pydelta.commands.stream.errors import SourceSchemaChangedError
from pydelta.commands.stream.options import SourceOptions
from pydelta.commands.stream.source import TableStream
from pydelta.errors import StreamStoppedError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile
from pydelta.storage import MemoryStore
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash
from pydelta.testing.operations import (
    add_file,
    alter,
    append,
    back_to,
    checkpoint,
    compact,
    create_table,
    delete_partition,
    delete_value,
    hide_value,
    optimize,
    overwrite,
    rows_of,
    stream_batch,
    update_value,
    upsert_value,
)
from pydelta.testing.orders import WatchedStore, run_every_order
from pydelta.testing.row_files import MARK, live_values
from pydelta.testing.vacuuming import vacuum_all
from pydelta.txn.commit import SILENT

_NAMES = itertools.count()
ADDING = {"append": append("1", [1, 100]), "stream sink": stream_batch("query", 1, "1", [1, 104])}
REARRANGING = {
    "compact": compact("1"),
    "optimize": optimize(),
    "checkpoint": checkpoint(),
    "vacuum": vacuum_all(),
    "alter": alter("more"),
}
CHANGING = {
    "delete value": delete_value(1),
    "delete partition": delete_partition("1"),
    "hide value": hide_value(1),
    "update value": update_value(1, 300),
    "upsert value": upsert_value(1, 310, "3"),
    "overwrite": overwrite("1", [1, 101]),
    "restore": back_to(0, lambda rows: rows - Counter({("3", 50): 1})),
}
OTHERS = ADDING | REARRANGING | CHANGING


@pytest.fixture(scope="module")
def template():
    """The files of a table of two versions."""
    store = MemoryStore(f"memory://streams{next(_NAMES)}/t")
    files = [add_file("1", [1, 2]), add_file("1", [3, 4]), add_file("2", [1, 5]), add_file("3", [6])]
    create_table(DeltaLog(store), files, delta_enableDeletionVectors="true", delta_checkpointInterval="100")
    append("3", [50]).run(DeltaLog(store), SILENT)
    return {item.path: store.read(item.path) for item in store.list_all()}


def store_of(objects, kind=MemoryStore):
    store = kind(f"memory://streams{next(_NAMES)}/t")
    for path, data in objects.items():
        store.put(path, data)
    return store


class Reader:
    """A query: its offset and the rows that it gave; they outlive the stream, as a checkpoint does."""

    def __init__(self):
        self.offset = None
        self.rows = Counter()

    def run(self, log, step=SILENT, *, batches=9, **options):
        stream = TableStream(log, SourceOptions.parse(options), log.update())
        for number in range(batches):
            step.at("plan")
            end = stream.latest(self.offset, AdmissionBudget(max_files=3))
            if end is None or end == self.offset:
                continue
            if number == 0:
                step.at("read")
            found = Counter(self._given(log, stream.batch(self.offset, end)))
            stream.finish(end)
            self.offset, self.rows = end, self.rows + found

    def _given(self, log, batch):
        if batch.initial is not None:
            for add in batch.snapshot.files.adds(batch.initial):
                yield from ((add.partition_values["p"], value) for value in live_values(add, log.uri))
        if not batch.changed:
            return
        actions = [item for version in range(log.update().version + 1) for item in log.actions(version)]
        adds = {item.path: item for item in actions if isinstance(item, AddFile)}
        for file in batch.changed:
            add = adds[file.path].replace(deletion_vector=file.hides)
            yield from ((add.partition_values["p"], value) for value in live_values(add, log.uri))


def without_marks(rows):
    return Counter({row: count for row, count in rows.items() if not row[0].startswith(MARK)})


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_goes_on_beside_it_a_stream_gives_every_row_once_or_stops(name, template):
    other = OTHERS[name]
    before = rows_of(DeltaLog(store_of(template)).update())
    after = without_marks(other.model(before))
    readers, seen = [], set()

    def start():
        store = store_of(template, WatchedStore)
        readers.append(Reader())
        return store, {
            "stream": lambda step: readers[-1].run(DeltaLog(store), step, batches=2),
            "other": lambda step: other.run(DeltaLog(store), step),
        }

    for schedule, store, results in run_every_order(start):
        reader = readers[-1]
        if isinstance(results["other"], BaseException):
            raise results["other"]
        stopped = results["stream"]
        for _ in range(2):  # started again, until it is through or says the same again
            try:
                reader.run(DeltaLog(store))
                break
            except StreamStoppedError as error:
                stopped = error
        if name in CHANGING and reader.rows != after:
            assert isinstance(stopped, StreamStoppedError), schedule
            assert not reader.rows - before, schedule
            reader.run(DeltaLog(store), skipChangeCommits="true")
            assert reader.rows == before, schedule
            seen.add("stopped")
        else:
            assert stopped is None or isinstance(stopped, SourceSchemaChangedError), (schedule, stopped)
            assert reader.rows == after, schedule
            seen.add("through")
    assert seen == ({"stopped", "through"} if name in CHANGING else {"through"})


@pytest.mark.parametrize("kind", list(FaultKind), ids=lambda kind: kind.value)
def test_a_fault_at_any_call_of_a_stream_loses_and_doubles_no_row(kind, template):
    beginning = store_of(template)
    expected = rows_of(DeltaLog(beginning).update())
    counting = CountingStore(beginning)
    whole = Reader()
    whole.run(DeltaLog(counting))
    assert whole.rows == expected
    for number in range(len(counting.calls)):
        store, reader = store_of(template), Reader()
        faulty = FaultyStore(store, Fault(kind=kind, call=number))
        try:
            reader.run(DeltaLog(faulty))
        except (SimulatedCrash, OSError):
            assert not reader.rows - expected
        assert faulty.fired
        reader.run(DeltaLog(store))
        assert reader.rows == expected, f"{kind.value} at call {number}"
