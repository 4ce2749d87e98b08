"""Changes of a definition and writers at the same time, every merge of their phases: no rule and no value slips by."""

from __future__ import annotations

import itertools

from pydelta.commands.alter.requests import AddConstraint, ChangeColumn, RenameColumn, SetProperties
from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.commands.engine import NO_ENGINE, RefusingEngine, RewriteOutput
from pydelta.commands.write.command import WriteMode, WriteOptions
from pydelta.errors import BindError, ConstraintViolatedError, DeltaConcurrentModificationException
from pydelta.log import DeltaLog
from pydelta.protocol.identity import identities, identity_metadata
from pydelta.protocol.schema import PrimitiveType, StructField, StructType
from pydelta.settings import Settings
from pydelta.testing.commands import alter_table, create_table, write_table
from pydelta.testing.operations import NO_PAUSE, add_file, rows_of
from pydelta.testing.operations import create_table as create_rows
from pydelta.testing.orders import WatchedStore, run_every_order
from pydelta.testing.row_files import written_values
from pydelta.txn import Operation, start_transaction

LONG = PrimitiveType("long")
RULE = "delta.constraints.small"
_names = itertools.count()


def new_store():
    return WatchedStore(f"memory://definitions{next(_names)}/t")


def beginning(step):
    return lambda log: start_transaction(log, observer=step, backoff=NO_PAUSE)


class Rules(RefusingEngine):
    """Knows the rule ``x < 150`` and reads the rows of the snapshot that it is asked about."""

    def check_condition(self, snapshot, expression):
        assert expression == "x < 150"

    def rows_against(self, snapshot, expression):
        broken = [row for row in rows_of(snapshot).elements() if row[1] >= 150]
        return len(broken), str(broken[:1])


def append_large(store, step):
    """A row with ``x = 200``, by a writer that keeps to the rule where its snapshot has it."""
    txn = beginning(step)(DeltaLog(store))
    if RULE in txn.snapshot.metadata.configuration:
        raise ConstraintViolatedError("200")
    return txn.commit([add_file("1", [200])], Operation(name="WRITE"))


def test_a_constraint_and_a_row_that_breaks_it_never_both_land():
    outcomes = set()
    rule = AddConstraint(name="small", expression="x < 150")

    def start():
        store = new_store()
        create_rows(DeltaLog(store), [add_file("1", [1])])
        return store, {
            "rule": lambda step: alter_table(DeltaLog(store), rule, engine=Rules(), begin=beginning(step)),
            "rows": lambda step: append_large(store, step),
        }

    for schedule, store, results in run_every_order(start):
        snapshot = DeltaLog(store).update()
        ruled = RULE in snapshot.metadata.configuration
        assert ruled != (rows_of(snapshot)["1", 200] == 1), schedule
        lost = results["rows"] if ruled else results["rule"]
        assert isinstance(lost, DeltaConcurrentModificationException | ConstraintViolatedError), schedule
        outcomes.add((ruled, type(lost)))
    assert len(outcomes) == 3  # the rule stands before, comes between, or meets the row


def test_two_names_for_one_column_are_given_one_after_the_other():
    outcomes = set()

    def start():
        store = new_store()
        create_rows(DeltaLog(store), [add_file("1", [1])])
        alter_table(DeltaLog(store), SetProperties(properties={"delta.columnMapping.mode": "name"}))
        return store, {
            name: lambda step, name=name: alter_table(
                DeltaLog(store), RenameColumn(path=("x",), name=name), begin=beginning(step)
            )
            for name in ("one", "two")
        }

    for schedule, store, results in run_every_order(start):
        lost = [name for name, result in results.items() if isinstance(result, BindError)]
        assert len(lost) == 1, schedule
        kept = DeltaLog(store).update().schema.names
        assert [name for name in ("one", "two") if name in kept] == [name for name in results if name not in lost]
        outcomes.add(lost[0])
    assert outcomes == {"one", "two"}


class Numbered:
    """Two rows, which get the next values of the identity column as the snapshot says."""

    schema = StructType((StructField("v", LONG),))

    def write(self, target):
        first = identities(target.plan.schema)[0].next
        add = add_file("", [first, first + 1]).replace(partition_values={})
        return RewriteOutput(adds=(add,), num_rows=2, marks={"key": first + 1})


def numbered(store, step):
    log, options = DeltaLog(store), WriteOptions.parse({}, mode=WriteMode.APPEND, settings=Settings())
    return write_table(log, Numbered(), options, NO_ENGINE, Settings(), begin=beginning(step))


def numbered_table():
    store = new_store()
    key = StructField("key", LONG, True, identity_metadata(explicit=False))
    schema = StructType((key, StructField("v", LONG)))
    create_table(DeltaLog(store), TableDefinition(schema=schema), mode=CreateMode.CREATE, settings=Settings())
    return store


def given(store):
    snapshot = DeltaLog(store).update()
    values = [value for add in snapshot.files.adds(snapshot.files.core) for value in written_values(add)]
    return sorted(values), identities(snapshot.schema)[0].mark


def test_identity_values_are_never_shared():
    def start():
        store = numbered_table()
        return store, dict.fromkeys(("one", "two"), lambda step: numbered(store, step))

    for schedule, store, results in run_every_order(start):
        assert sorted(result.version for result in results.values()) == [1, 2], results
        assert given(store) == ([1, 2, 3, 4], 4), schedule


def test_identity_values_and_a_change_of_the_definition():
    lost = 0
    change = ChangeColumn(path=("v",), comment="a number")

    def start():
        store = numbered_table()
        return store, {
            "rows": lambda step: numbered(store, step),
            "change": lambda step: alter_table(DeltaLog(store), change, begin=beginning(step)),
        }

    for schedule, store, results in run_every_order(start):
        assert DeltaLog(store).update().schema.field("v").metadata == {"comment": "a number"}
        if isinstance(results["rows"], DeltaConcurrentModificationException):
            lost += 1
            assert given(store) == ([], None), schedule
        else:
            assert given(store) == ([1, 2], 2), schedule
    assert lost > 0
