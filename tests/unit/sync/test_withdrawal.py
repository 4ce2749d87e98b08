"""A table that can no longer be published: readers of its twin get an error, never the rows of a past version."""

from __future__ import annotations

import copy
import uuid

import pytest

from catalog_sync.inspect import SyncState, sync_status, verify_sync
from catalog_sync.names import TableName
from catalog_sync.sync import SyncOptions, sync_table
from catalog_sync.target_sync import sync_target
from catalog_sync.targets import SyncTarget
from catalog_sync.thrift.memory import MemoryMetastore
from catalog_sync.twin import NOT_READABLE_KEY, WITHDRAWN_KEY
from pydelta.errors import SchemaError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import encode_json
from pydelta.storage.memory import MemoryStore
from pydelta.testing.operations import add_file, append, create_table, delete_partition
from pydelta.txn import Operation, start_transaction

TWIN = TableName(database="lake_symlink", name="orders_with_a_name_that_is_rather_long_for_a_table")
NATIVE = TableName(database="lake", name="orders")


def with_column(log, kind):
    """A commit after which the column ``v`` has the type, or there is none where that is None."""
    txn = start_transaction(log)
    fields = [
        {"name": "p", "type": "string"},
        {"name": "x", "type": "long"},
        *([{"name": "v", "type": kind}] if kind else []),
    ]
    schema = {"type": "struct", "fields": [field | {"nullable": True, "metadata": {}} for field in fields]}
    txn.update_metadata(txn.snapshot.metadata.replace(schema_string=encode_json(schema)))
    txn.commit([], Operation(name="CHANGE COLUMNS"))


@pytest.fixture
def log():
    store = MemoryStore(f"memory://{uuid.uuid4()}/orders")
    log = DeltaLog(store)
    create_table(log, [add_file(name, [1]) for name in "ab"])
    with_column(log, None)
    return log


@pytest.fixture
def metastore(log):
    found = MemoryMetastore()
    sync_table(log, found, TWIN)
    return found


def parameters(metastore):
    return metastore.table(TWIN.database, TWIN.name).parameters


def test_readers_get_the_reason_and_status_says_it(log, metastore):
    before = copy.deepcopy(metastore.table(TWIN.database, TWIN.name))
    with_column(log, "variant")
    delete_partition("a").run(log)
    with pytest.raises(SchemaError, match="'v'"):
        sync_table(log, metastore, TWIN)
    told = parameters(metastore)
    assert log.uri in told[NOT_READABLE_KEY]
    assert "cannot have these columns: 'v'" in told[NOT_READABLE_KEY]
    assert {
        key: value for key, value in told.items() if key not in (NOT_READABLE_KEY, WITHDRAWN_KEY)
    } == before.parameters
    found = sync_status(log, metastore, TWIN, now_ms=0)
    assert (found.state, found.twin) == (SyncState.BLOCKED, str(TWIN))
    assert "'v'" in found.problem
    assert "withdrawn" in found.problem


def test_it_is_said_once_and_not_by_a_dry_run(log, metastore):
    with_column(log, "variant")
    with pytest.raises(SchemaError):
        sync_table(log, metastore, TWIN, SyncOptions(dry_run=True))
    assert NOT_READABLE_KEY not in parameters(metastore)
    for changed in (1, 0):
        before = len(metastore.calls)
        with pytest.raises(SchemaError):
            sync_table(log, metastore, TWIN)
        assert len(metastore.calls) - before == 1 + changed


@pytest.mark.parametrize("options", [SyncOptions(), SyncOptions(full=True), SyncOptions(atomic=True)])
def test_a_table_that_can_be_published_again_is_readable_again(log, metastore, options):
    with_column(log, "variant")
    with pytest.raises(SchemaError):
        sync_table(log, metastore, TWIN, options)
    with_column(log, None)
    append("c", [3]).run(log)
    sync_table(log, metastore, TWIN, options)
    assert not {NOT_READABLE_KEY, WITHDRAWN_KEY} & set(parameters(metastore))
    assert verify_sync(log, metastore, TWIN, files=0).ok
    assert sync_status(log, metastore, TWIN, now_ms=0).state is SyncState.CURRENT


def test_a_reader_s_switch_of_somebody_else_stays(log, metastore):
    entry = metastore.table(TWIN.database, TWIN.name)
    entry.parameters[NOT_READABLE_KEY] = "closed by the owner"
    metastore.alter(entry)
    append("c", [3]).run(log)
    sync_table(log, metastore, TWIN)
    assert parameters(metastore)[NOT_READABLE_KEY] == "closed by the owner"


def test_what_is_not_this_table_s_twin_is_left_alone(log):
    with_column(log, "variant")
    metastore = MemoryMetastore()
    with pytest.raises(SchemaError):
        sync_target(metastore, SyncTarget(log=log, native=NATIVE, twin=TWIN), SyncOptions())
    assert list(metastore.entries) == [("lake", "orders")]
    other = DeltaLog(MemoryStore(f"memory://{uuid.uuid4()}/other"))
    create_table(other, [add_file("a", [1])])
    sync_table(other, metastore, TWIN)
    with pytest.raises(SchemaError):
        sync_table(log, metastore, TWIN)
    assert NOT_READABLE_KEY not in parameters(metastore)
