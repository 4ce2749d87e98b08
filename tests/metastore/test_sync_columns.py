"""Columns that move, change and grow: the twin takes them in two steps, or says which one the metastore refuses."""

from __future__ import annotations

import pytest

from catalog_sync.columns import ColumnsRefusedError
from catalog_sync.diff import TableAction
from catalog_sync.errors import MetastoreError
from catalog_sync.inspect import SyncState, sync_status, verify_sync
from catalog_sync.names import TableName
from catalog_sync.native import sync_native
from catalog_sync.sync import SyncOptions, sync_table
from catalog_sync.thrift.client import found_partition
from catalog_sync.thrift.memory import MemoryMetastore
from catalog_sync.twin import SCHEMA_KEY, VERSION_KEY
from pydelta.log import DeltaLog
from pydelta.protocol.actions import encode_json
from pydelta.testing.operations import add_file, append, table_metadata
from pydelta.txn import Operation, start_transaction

STRUCT = {"type": "struct", "fields": [{"name": "a", "type": "integer", "nullable": True, "metadata": {}}]}
WIDER = {**STRUCT, "fields": [*STRUCT["fields"], {"name": "b", "type": "string", "nullable": True, "metadata": {}}]}
BEFORE = {"p": "string", "x": "string", "s": STRUCT, "y": "long"}
CHANGES = {
    "a column first": {"new": "date", **BEFORE},
    "a column moved first": {"y": "long", "p": "string", "x": "string", "s": STRUCT},
    "a column in between": {"p": "string", "x": "string", "new": "boolean", "s": STRUCT, "y": "long"},
    "a nested field": BEFORE | {"s": WIDER},
    "a nested field less": BEFORE | {"s": {**STRUCT, "fields": [WIDER["fields"][1]]}},
    "text that became a number": BEFORE | {"x": "long"},
    "one column less": {"p": "string", "s": STRUCT, "y": "long"},
    "all other columns": {"p": "string", "u": "date", "v": "double"},
}
HIVE = {"string": "string", "long": "bigint", "date": "date", "boolean": "boolean", "double": "double"}


@pytest.fixture
def log(tmp_path):
    yield DeltaLog.for_table(str(tmp_path / "orders"))
    DeltaLog.clear_cache()


@pytest.fixture
def twin(database):
    return TableName(database=database, name="orders")


def define(log, columns, *files, by=("p",)):
    """A commit with other columns, and some files."""
    txn = start_transaction(log)
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    metadata = txn.snapshot.metadata or table_metadata()
    schema = encode_json({"type": "struct", "fields": fields})
    txn.update_metadata(metadata.replace(schema_string=schema, partition_columns=by))
    txn.commit(list(files), Operation(name="CHANGE COLUMNS"))


def hive_columns(columns, *without):
    nested = {"a": "int", "b": "string"}

    def kind(item):
        if isinstance(item, str):
            return HIVE[item]
        names = [field["name"] for field in item["fields"]]
        return f"struct<{','.join(f'{name}:{nested[name]}' for name in names)}>"

    return [(name, kind(item)) for name, item in columns.items() if name not in without]


def shown(entry):
    return [(column.name, column.type) for column in entry.sd.cols]


def partitions(metastore, twin):
    return metastore.partitions(twin.database, twin.name, metastore.partition_names(twin.database, twin.name))


@pytest.mark.parametrize("change", list(CHANGES))
def test_columns_of_the_twin_move_and_change_as_they_please(log, metastore, twin, change):
    define(log, BEFORE, add_file("a", [1]), add_file("b", [1]))
    sync_table(log, metastore, twin)
    after = CHANGES[change]
    define(log, after, add_file("c", [1]))
    result = sync_table(log, metastore, twin)
    assert (result.plan.table, result.plan.add) == (TableAction.ALTER, ("p=c",))
    wanted = hive_columns(after, "p")
    assert shown(metastore.table(twin.database, twin.name)) == wanted
    assert [shown(part) for part in partitions(metastore, twin)] == [wanted] * 3
    assert verify_sync(log, metastore, twin, files=0).ok
    assert sync_table(log, metastore, twin).calls == 1


@pytest.mark.parametrize("change", ["a column first", "a nested field", "text that became a number"])
def test_columns_of_a_twin_without_partitions_do_too(log, metastore, twin, change):
    define(log, BEFORE, add_file("a", [1]).replace(partition_values={}), by=())
    sync_table(log, metastore, twin)
    define(log, CHANGES[change], by=())
    sync_table(log, metastore, twin)
    assert shown(metastore.table(twin.database, twin.name)) == hive_columns(CHANGES[change])
    assert sync_table(log, metastore, twin).calls == 1


@pytest.mark.parametrize("change", ["a column first", "a nested field", "text that became a number"])
def test_so_do_those_of_the_native_entry(log, metastore, twin, change):
    define(log, BEFORE)
    assert sync_native(metastore, twin, log.update())
    define(log, CHANGES[change])
    assert sync_native(metastore, twin, log.update())
    after = {name: kind for name, kind in CHANGES[change].items() if name != "p"} | {"p": "string"}
    assert shown(metastore.table(twin.database, twin.name)) == hive_columns(after)


class _Stubborn(MemoryMetastore):
    """Takes columns away and back, and no others, as one whose listener forbids it."""

    refuses = True

    def _alter_table_with_environment_context(self, database, name, entry, context):
        if self.refuses and shown(entry) not in ([], hive_columns(BEFORE, "p")):
            raise _invalid("The following columns have types incompatible: x, see hive.metastore.disallow")
        super()._alter_table_with_environment_context(database, name, entry, context)


def _invalid(message):
    from pymetastore.hive_metastore import ttypes

    return ttypes.InvalidOperationException(message=message)


@pytest.mark.parametrize("atomic", [False, True])
def test_a_metastore_that_refuses_columns_has_the_partitions_all_the_same_and_is_told_on(log, atomic):
    metastore, twin = _Stubborn(), TableName(database="lake_symlink", name="orders")
    define(log, BEFORE, add_file("a", [1]))
    sync_table(log, metastore, twin, SyncOptions(atomic=atomic))
    carried = metastore.table(twin.database, twin.name).parameters[SCHEMA_KEY]
    define(log, CHANGES["text that became a number"] | {"new": "date"}, add_file("c", [2]))
    for _ in range(2):
        with pytest.raises(ColumnsRefusedError) as caught:
            sync_table(log, metastore, twin)
        said = str(caught.value)
        for part in ("lake_symlink.orders", "'x' from string to bigint", "'new' (date)", "incompatible: x"):
            assert part in said, "names the column, the cause"
        assert "hive.metastore.disallow.incompatible.col.type.changes" in caught.value.hint, "and the cure"
        entry = metastore.table(twin.database, twin.name)
        assert shown(entry) == hive_columns(BEFORE, "p"), "none is lost on the way"
        assert (entry.parameters[VERSION_KEY], entry.parameters[SCHEMA_KEY]) == ("1", carried)
        found = partitions(metastore, twin)
        assert [part.values for part in found] == [["a"], ["c"]]
        assert [shown(part) for part in found] == [hive_columns(BEFORE, "p")] * 2
        for part in found:
            where = found_partition(part, ["p"]).location.removeprefix(f"{log.uri}/")
            assert log.store.read(f"{where}/manifest").decode().count("\n") == 1
    assert verify_sync(log, metastore, twin, files=0).entry == ("its columns are not those of the table",)
    status = sync_status(log, metastore, twin, now_ms=0)
    assert (status.state, status.lag_versions) == (SyncState.BLOCKED, 0)
    assert "refuses the columns of version 1" in status.problem
    append("d", [1]).run(log)
    with pytest.raises(ColumnsRefusedError):
        sync_table(log, metastore, twin)
    assert [part.values for part in partitions(metastore, twin)] == [["a"], ["c"], ["d"]]
    metastore.refuses = False
    sync_table(log, metastore, twin)
    assert verify_sync(log, metastore, twin, files=0).ok
    assert sync_status(log, metastore, twin, now_ms=0).state is SyncState.CURRENT


def test_a_metastore_that_refuses_everything_is_not_said_to_refuse_columns(log):
    metastore, twin = _Stubborn(), TableName(database="lake_symlink", name="orders")
    metastore.refuses = False
    define(log, BEFORE, add_file("a", [1]))
    sync_table(log, metastore, twin)
    define(log, BEFORE | {"new": "date"})

    def deny(verb):
        if verb.startswith("alter_table"):
            raise _invalid("User bob has no privileges")

    with pytest.raises(MetastoreError, match="no privileges") as caught:
        sync_table(log, MemoryMetastore(metastore, before=deny), twin)
    assert not isinstance(caught.value, ColumnsRefusedError)
    assert metastore.table(twin.database, twin.name).parameters[VERSION_KEY] == "0"
