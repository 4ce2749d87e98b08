"""Writers that give out identity values at the same time: they never share one, and disturb nobody else. No Spark."""

from __future__ import annotations

import itertools

import pytest

from pydelta.commands.alter.requests import SetProperties
from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.commands.engine import RefusingEngine, RewriteOutput
from pydelta.commands.write.command import WriteMode, WriteOptions
from pydelta.errors import MetadataChangedException, UnsafeOperationError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile
from pydelta.protocol.identity import identities, identity_metadata
from pydelta.protocol.schema import PrimitiveType, StructField, StructType
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import alter_table, create_table, write_table
from pydelta.txn import Operation, start_transaction

LONG = PrimitiveType("long")
_names = itertools.count()


@pytest.fixture
def log():
    uri = f"memory://identity/{next(_names)}"
    log = DeltaLog.for_table(uri, store=MemoryStore(uri))
    key = StructField("key", LONG, True, identity_metadata(explicit=False))
    schema = StructType((key, StructField("v", LONG)))
    create_table(log, TableDefinition(schema=schema), mode=CreateMode.CREATE, settings=Settings())
    return log


class Rows:
    """Claims to have written so many rows; remembers the values that it gave them each time."""

    def __init__(self, count, columns=("v",)):
        self.schema = StructType(tuple(StructField(name, LONG) for name in columns))
        self.count, self.given = count, []

    def write(self, target):
        first = identities(target.plan.schema)[0].next
        self.given.append(list(range(first, first + self.count)))
        add = AddFile(path=f"f{next(_names)}", partition_values={}, size=1, modification_time=1, data_change=True)
        marks = {"key": first + self.count - 1} if self.count else {}
        return RewriteOutput(adds=(add,), num_rows=self.count, marks=marks)


class Engine(RefusingEngine):
    def __init__(self):
        self.discarded = []

    def discard(self, snapshot, adds):
        self.discarded += [add.path for add in adds]

    def committed(self, snapshot):
        pass


def write(log, rows, *, mode=WriteMode.APPEND, begin=start_transaction, engine=None, **options):
    parsed = WriteOptions.parse(options, mode=mode, settings=Settings())
    return write_table(log, rows, parsed, engine or Engine(), Settings(), begin=begin)


def mark(log):
    return identities(log.update().schema)[0].mark


def interrupted(*others):
    """Transactions, behind the reading of each of which one of these things happens."""
    left = list(others)

    def begin(log):
        txn = start_transaction(log)
        if left:
            left.pop(0)()
        return txn

    return begin


def test_the_mark_moves_in_the_commit_that_gives_values_out(log):
    write(log, Rows(3))
    assert mark(log) == 3
    kinds = {type(action).__name__ for action in log.actions(1)}
    assert kinds == {"CommitInfo", "Metadata", "AddFile"}
    write(log, Rows(0))
    assert mark(log) == 3
    assert "Metadata" not in {type(action).__name__ for action in log.actions(2)}


def test_a_writer_that_lost_writes_its_rows_again_with_other_values(log):
    ours, first, second, engine = Rows(2), Rows(3), Rows(4), Engine()
    begin = interrupted(lambda: write(log, first), lambda: write(log, second))
    result = write(log, ours, begin=begin, engine=engine)
    assert result.version == 3
    assert ours.given == [[1, 2], [4, 5], [8, 9]]
    assert first.given == [[1, 2, 3]]
    assert second.given == [[4, 5, 6, 7]]
    assert len(engine.discarded) == 2
    assert log.update().num_files == 3
    assert mark(log) == 9


def test_another_change_of_the_table_is_a_conflict_as_ever(log):
    ours = Rows(2)

    def alter():
        alter_table(log, SetProperties(properties={"owner": "me"}))

    with pytest.raises(MetadataChangedException):
        write(log, ours, begin=interrupted(alter))
    assert len(ours.given) == 1
    assert mark(log) is None


def test_transactions_that_give_out_no_value_are_not_disturbed(log):
    write(log, Rows(2))
    txn = start_transaction(log)
    write(log, Rows(2))
    (add,) = txn.snapshot.files.adds(txn.snapshot.files.core)
    txn.mark_read(txn.snapshot.files.core)
    committed = txn.commit([add.remove(deletion_timestamp=1)], Operation(name="DELETE"))
    assert committed.version == 3
    assert identities(committed.snapshot.schema)[0].mark == 4


def test_a_change_of_the_definition_never_takes_the_mark_back(log):
    def append():
        write(log, Rows(5))

    result = alter_table(log, SetProperties(properties={"owner": "me"}), begin=interrupted(append))
    assert result.version == 2
    assert mark(log) == 5


def test_overwriting_the_rows_goes_on_from_the_mark(log):
    write(log, Rows(5))
    ours = Rows(2)
    write(log, ours, mode=WriteMode.OVERWRITE)
    assert ours.given == [[6, 7]]


def test_values_of_the_rows_own_are_refused(log):
    with pytest.raises(UnsafeOperationError, match="GENERATED ALWAYS"):
        write(log, Rows(1, columns=("key", "v")))
