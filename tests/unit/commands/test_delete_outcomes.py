"""What a DELETE does with the files it wrote, by how its commit ended; and what it asks of the log."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from refusals import ExpiringStore, RefusingStore

from pydelta.commands.engine import BoundCondition, RefusingEngine, RewriteOutput
from pydelta.errors import CommitStateUnknownError, RowsDoNotAddUpError, StorageError, TableNotFoundError
from pydelta.log import DeltaLog
from pydelta.predicate import Column, Compare, Literal
from pydelta.protocol.actions import AddCDCFile
from pydelta.protocol.row_sets import RowSet
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import delete
from pydelta.testing.operations import add_file, create_table
from pydelta.testing.tables import TableBuilder
from pydelta.txn import transaction

_NAMES = itertools.count()


@dataclass
class LogEngine(RefusingEngine):
    """An engine over files without bytes: the first row of every candidate matches, one file holds the others."""

    condition: BoundCondition
    discarded: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)

    def bind_condition(self, snapshot, condition):
        return self.condition

    def match_partitions(self, snapshot, files, condition):
        return files

    def match_rows(self, snapshot, files, condition):
        return {place: RowSet.of(np.array([0], dtype=np.uint64)) for place in range(files.height)}

    def write_without(self, snapshot, files, rows):
        new = add_file("1", [2])
        self.written.append(new.path)
        return RewriteOutput(adds=(new,), num_rows=1)

    def discard(self, snapshot, adds):
        self.discarded += [add.path for add in adds]

    def committed(self, snapshot):
        pass

    def time_zone(self):
        return "America/New_York"


def x_is(value: int) -> BoundCondition:
    equal = Compare("=", Column(("x",)), Literal(value, "long"))
    return BoundCondition(sql=f"(x = {value})", conjuncts=(equal,), references=frozenset({"x"}), native=None)


def test_partition_times_without_a_zone_are_those_of_the_session():
    store = MemoryStore(f"memory://deleted{next(_NAMES)}/t")
    table = TableBuilder(store, columns={"x": "long", "at": "timestamp"}, partition_columns=["at"])
    table.commit(table.file(pa.table({"x": [1]}), {"at": "2024-01-01 00:00:00"}))
    moment = dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC)  # midnight in New York
    equal = Compare("=", Column(("at",)), Literal(moment, "timestamp"))
    condition = BoundCondition(sql="at", conjuncts=(equal,), references=frozenset({"at"}), native=None)
    assert delete(DeltaLog(store), LogEngine(condition), "at").num_touched_files == 1


@pytest.fixture
def inner():
    store = MemoryStore(f"memory://deleted{next(_NAMES)}/t")
    create_table(DeltaLog(store), [add_file("1", [1, 2])])
    return store


def test_a_commit_that_landed_keeps_its_files_whatever_fails_afterwards(inner, monkeypatch):
    def broken(self, snapshot, number, actions, file):
        raise StorageError("the store went away")

    monkeypatch.setattr(transaction.OptimisticTransaction, "_apply", broken)
    engine = LogEngine(x_is(1))
    with pytest.raises(StorageError, match="went away"):
        delete(DeltaLog(inner), engine, "x = 1")
    assert DeltaLog(inner).update().files.core["path"].to_list() == engine.written
    assert engine.discarded == []


def test_a_refused_commit_gives_its_files_back(inner):
    store, engine = RefusingStore(inner), LogEngine(x_is(1))
    with pytest.raises(StorageError):
        delete(DeltaLog(store), engine, "x = 1")
    assert engine.discarded == engine.written
    assert DeltaLog(inner).update().version == 0


def test_a_refusal_after_a_lost_reply_settles_nothing(inner):
    engine = LogEngine(x_is(1))
    with pytest.raises(CommitStateUnknownError):
        delete(DeltaLog(ExpiringStore(inner)), engine, "x = 1")
    assert engine.discarded == []
    assert DeltaLog(inner).update().files.core["path"].to_list() == engine.written


def test_change_files_are_part_of_the_commit_or_are_given_back(inner):
    class Recording(LogEngine):
        def write_without(self, snapshot, files, rows):
            changes = (AddCDCFile(path="_change_data/c", partition_values={"p": "1"}, size=1),)
            return dataclasses.replace(super().write_without(snapshot, files, rows), changes=changes, num_changes=1)

    engine = Recording(x_is(1))
    with pytest.raises(StorageError):
        delete(DeltaLog(RefusingStore(inner)), engine, "x = 1")
    assert engine.discarded == [*engine.written, "_change_data/c"]
    version = delete(DeltaLog(inner), engine, "x = 1").version
    assert [action.path for action in DeltaLog(inner).actions(version) if action.kind == "cdc"] == ["_change_data/c"]
    assert DeltaLog(inner).history(1)[0].commit_info.fields["operationMetrics"]["numAddedChangeFiles"] == "1"


def test_rows_that_got_lost_on_the_way_leave_the_table_as_it_was(inner):
    class Losing(LogEngine):
        def write_without(self, snapshot, files, rows):
            return dataclasses.replace(super().write_without(snapshot, files, rows), num_rows=0)

    engine = Losing(x_is(1))
    with pytest.raises(RowsDoNotAddUpError, match="0 rows were written where 0 updated, 1 copied") as caught:
        delete(DeltaLog(inner), engine, "x = 1")
    assert engine.discarded == engine.written != []
    assert DeltaLog(inner).update().version == 0
    assert caught.value.table == DeltaLog(inner).uri


@pytest.mark.parametrize("stats", ["{truncated", "null", '{"numRecords":"many"}'])
def test_statistics_that_make_no_sense_leave_the_count_open(stats):
    store = MemoryStore(f"memory://deleted{next(_NAMES)}/t")
    create_table(DeltaLog(store), [add_file("1", [1, 2]).replace(stats=stats)])
    assert delete(DeltaLog(store), LogEngine(x_is(1))).num_deleted_rows is None


def test_no_table_is_an_error_and_not_a_delete_of_nothing():
    store = MemoryStore(f"memory://deleted{next(_NAMES)}/t")
    with pytest.raises(TableNotFoundError, match="no Delta table"):
        delete(DeltaLog(store), LogEngine(x_is(1)), "x = 1")
