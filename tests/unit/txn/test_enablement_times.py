"""Since when commits carry their time: what each command makes of the two properties that say so.

Protocol: "In-Commit Timestamps". A table that has had them from its first version has neither property; one that turned
them on later has both, as long as they are on, whatever else becomes of its definition.
"""

from __future__ import annotations

import itertools

import pytest

from pydelta.commands.alter.requests import SetProperties, UnsetProperties
from pydelta.commands.create import CreateMode
from pydelta.commands.engine import RewriteOutput
from pydelta.commands.write.command import WriteMode, WriteOptions
from pydelta.commands.write.plan import TableDefinition, new_metadata
from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.protocol.schema import PrimitiveType, StructField, StructType
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import alter_table, clone_table, create_table, drop_feature, restore, write_table
from pydelta.testing.row_files import LogEngine
from pydelta.txn import Operation, start_transaction

ENABLE = "delta.enableInCommitTimestamps"
VERSION, TIME = "delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"
ON, OFF = {ENABLE: "true"}, {ENABLE: "false"}
SCHEMA = StructType((StructField("x", PrimitiveType("long")),))
_NAMES = itertools.count()


class NoRows:
    """A source of no rows."""

    schema = SCHEMA

    def write(self, target):
        return RewriteOutput(adds=(), num_rows=0)


def new_log():
    return DeltaLog(MemoryStore(f"memory://enablement{next(_NAMES)}/t"))


def create(log, properties, mode=CreateMode.CREATE, settings=None):
    create_table(log, TableDefinition(schema=SCHEMA, properties=properties), mode=mode, settings=settings or Settings())
    return log


def set_properties(log, properties):
    alter_table(log, SetProperties(properties=properties))
    return log


def table(kind):
    """A table of a kind, at version 2, and what its properties have to say as long as times are on."""
    log = new_log()
    if kind == "from the start":
        create(log, ON)
        set_properties(log, {"a": "1"})
        set_properties(log, {"a": "2"})
        return log, {}
    create(log, {})
    set_properties(log, ON if kind == "later" else {"a": "1"})
    set_properties(log, {"a": "2"})
    if kind == "never":
        return log, {}
    return log, since(log, 1)


def since(log, version):
    """What the properties say of a table whose commits carry times since a version."""
    commit = next(action for action in log.actions(version) if action.kind == "commitInfo")
    return {VERSION: str(version), TIME: str(commit.in_commit_timestamp)}


def told(log):
    configuration = log.update().metadata.configuration
    return {key: configuration[key] for key in (VERSION, TIME) if key in configuration}


def is_on(log):
    return log.update().in_commit_timestamps_enabled


def clone_over(log, properties):
    source = create(new_log(), properties)
    set_properties(source, ON | properties)  # of its own, and none of the target's business
    clone_table(source, log, shallow=True, replace=True, properties=properties)


def rewrite(log, mode, properties, **options):
    given = WriteOptions(mode=mode, properties=properties, **options)
    write_table(log, NoRows(), given, LogEngine(), Settings())


KEEPING = {
    "set another property": lambda log: set_properties(log, {"a": "3"}),
    "set it again": lambda log: set_properties(log, ON),
    "replace": lambda log: create(log, ON, CreateMode.REPLACE),
    "create or replace": lambda log: create(log, ON, CreateMode.CREATE_OR_REPLACE),
    "replace by a default": lambda log: create(log, {}, CreateMode.REPLACE, Settings(default_properties=ON)),
    "replace as select": lambda log: rewrite(log, WriteMode.REPLACE, ON),
    "create or replace as select": lambda log: rewrite(log, WriteMode.CREATE_OR_REPLACE, ON),
    "overwrite the schema": lambda log: rewrite(log, WriteMode.OVERWRITE, {}, overwrite_schema=True),
    "clone over": lambda log: clone_over(log, ON),
    "restore": lambda log: restore(log, version=0),
    "restore the version before": lambda log: restore(log, version=1),
}
ENDING = {
    "set it off": lambda log: set_properties(log, OFF),
    "unset it": lambda log: alter_table(log, UnsetProperties(names=(ENABLE,))),
    "replace without": lambda log: create(log, OFF, CreateMode.REPLACE),
    "replace as select without": lambda log: rewrite(log, WriteMode.REPLACE, OFF),
    "clone over without": lambda log: clone_over(log, OFF),
    "drop the feature": lambda log: drop_feature(log, "inCommitTimestamp"),
}


@pytest.mark.parametrize("command", KEEPING)
@pytest.mark.parametrize("kind", ["from the start", "later"])
def test_times_that_stay_on_began_when_they_began(kind, command):
    log, expected = table(kind)
    KEEPING[command](log)
    assert is_on(log)
    assert told(log) == expected
    assert log.update().version >= (2 if command == "set it again" else 3)
    times = [record.timestamp_ms for record in log.history()]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("command", ENDING)
@pytest.mark.parametrize("kind", ["from the start", "later"])
def test_times_that_end_say_nothing_of_a_beginning_and_may_begin_anew(kind, command):
    log, _ = table(kind)
    ENDING[command](log)
    assert not is_on(log)
    assert told(log) == {}
    ended = log.update().version
    set_properties(log, ON)
    assert is_on(log)
    assert told(log) == since(log, ended + 1)


@pytest.mark.parametrize("command", ["replace", "create or replace as select", "clone over", "set it again"])
def test_times_that_a_command_turns_on_begin_with_it(command):
    log, _ = table("never")
    KEEPING[command](log)
    assert is_on(log)
    assert told(log) == since(log, 3)


@pytest.mark.parametrize("kind", ["later", "from the start"])
def test_a_clone_elsewhere_begins_with_its_first_version(kind):
    source, _ = table(kind)
    target = new_log()
    clone_table(source, target, shallow=True)
    assert is_on(target)
    assert told(target) == {}


def test_a_restore_of_a_version_without_times_leaves_them_off_where_they_are_off():
    log, _ = table("later")
    set_properties(log, OFF)
    restore(log, version=0)
    assert not is_on(log)
    assert told(log) == {}


@pytest.mark.parametrize("name", [VERSION, TIME])
def test_nobody_sets_or_unsets_them_by_hand(name):
    log, expected = table("later")
    with pytest.raises(InvalidArgumentError, match="managed by the engine"):
        set_properties(log, {name: "0"})
    with pytest.raises(InvalidArgumentError, match="managed by the engine"):
        alter_table(log, UnsetProperties(names=(name,)))
    for mode in (CreateMode.REPLACE, CreateMode.CREATE_OR_REPLACE):
        with pytest.raises(InvalidArgumentError, match="managed by the engine"):
            create(log, ON | {name: "0"}, mode)
    with pytest.raises(InvalidArgumentError, match="managed by the engine"):
        create(new_log(), ON | {name: "0"})
    with pytest.raises(InvalidArgumentError, match="managed by the engine"):
        clone_over(log, {name: "0"})
    assert told(log) == expected


def test_a_definition_with_times_of_another_log_loses_them():
    log = new_log()
    txn = start_transaction(log)
    made = new_metadata(TableDefinition(schema=SCHEMA), settings=Settings())
    txn.update_metadata(made.replace(configuration={**ON, VERSION: "7", TIME: "1"}))
    txn.commit([], Operation(name="CREATE TABLE"))
    assert is_on(log)
    assert told(log) == {}
