"""How often a sync asks metastore and store: what was read is handed on, and read again only with a reason."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest

from catalog_sync.names import TableName
from catalog_sync.sync import SyncOptions, sync_table
from catalog_sync.target_sync import sync_target
from catalog_sync.targets import SyncTarget
from catalog_sync.thrift.memory import MemoryMetastore
from pydelta.log import DeltaLog
from pydelta.manifests.state import STATE_PATH
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.testing.operations import add_file, append, create_table, delete_partition

TWIN = TableName(database="lake_symlink", name="orders")
NATIVE = TableName(database="lake", name="orders")
APPENDED = ["get_table_req", "get_table_req", "get_partitions_by_names", "alter_table_with_environment_context"]


@pytest.fixture
def metastore():
    return MemoryMetastore()


@pytest.fixture
def store(metastore):
    """A table with both entries, one version behind an append."""
    store = MemoryStore(f"memory://{uuid.uuid4()}/t")
    log = DeltaLog(store)
    create_table(log, [add_file(name, [1]) for name in "abc"])
    sync_target(metastore, SyncTarget(log=log, native=NATIVE, twin=TWIN), SyncOptions())
    append("a", [2]).run(log)
    return store


def counted(store, metastore, sync):
    """What a sync asks: the verbs of the metastore, and how often each path of the store is read or listed."""
    counting = CountingStore(store)
    before = len(metastore.calls)
    sync(DeltaLog(counting))
    asked = Counter((verb, path) for verb, path in counting.calls)
    return metastore.calls[before:], asked


def test_a_sync_after_an_append_reads_entry_and_state_before_and_under_each_lease(store, metastore):
    verbs, asked = counted(store, metastore, lambda log: sync_table(log, metastore, TWIN))
    assert verbs == APPENDED
    assert asked["read", STATE_PATH] == 3, "at first, under the manifests' lease, under the twin's lease"
    assert asked["list_from", "_delta_log"] == 2, "at first, under the manifests' lease"
    assert asked["put", STATE_PATH] == 1


@pytest.mark.parametrize("registered", [False, True])
def test_its_own_entry_takes_one_call_more_and_one_before_it_where_it_may_be_gone(store, metastore, registered):
    target = {"native": NATIVE, "twin": TWIN, "registered": registered}
    verbs, asked = counted(
        store, metastore, lambda log: sync_target(metastore, SyncTarget(log=log, **target), SyncOptions())
    )
    assert verbs == ["get_table_req"] * registered + APPENDED + ["get_table_req"]
    assert asked["read", STATE_PATH] == 3
    assert asked["list_from", "_delta_log"] == 3, "once more before its own entry changes"


def test_a_partition_without_files_is_looked_for_around_the_drop_and_forgotten_under_a_lease(store, metastore):
    delete_partition("b").run(DeltaLog(store))
    verbs, asked = counted(store, metastore, lambda log: sync_table(log, metastore, TWIN))
    assert verbs == [*APPENDED[:3], "drop_partitions_req", APPENDED[3]]
    assert asked["read", STATE_PATH] == 6, "twice around the drop, and under the manifests' lease, which forgets it"


def test_a_sync_with_nothing_to_do_is_one_call_and_one_read(store, metastore):
    sync_table(DeltaLog(store), metastore, TWIN)
    verbs, asked = counted(store, metastore, lambda log: sync_table(log, metastore, TWIN))
    assert verbs == ["get_table_req"]
    assert (asked["read", STATE_PATH], asked["list_from", "_delta_log"]) == (1, 1)
