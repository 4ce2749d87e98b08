"""What a metastore's database has no room for: named before anything is sent, and nothing is published half."""

from __future__ import annotations

import uuid

import pytest

from catalog_sync.errors import MetastoreError, PartitionTooLongError
from catalog_sync.inspect import SyncState, sync_status
from catalog_sync.limits import check_partitions
from catalog_sync.names import TableName
from catalog_sync.sync import SyncOptions, sync_table
from catalog_sync.target_sync import sync_target
from catalog_sync.targets import SyncTarget
from catalog_sync.thrift.client import partition_entry
from catalog_sync.thrift.memory import MemoryMetastore
from catalog_sync.twin import VERSION_KEY, twin_of
from pydelta.errors import SchemaError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import DeletionVectorDescriptor, encode_commit, encode_json
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.operations import add_file, append, create_table, delete_partition, table_metadata
from pydelta.txn import Operation, start_transaction

TWIN = TableName(database="lake_symlink", name="orders")


def new_log(**settings):
    store = MemoryStore(f"memory://sync-limits-{uuid.uuid4()}/orders")
    return DeltaLog.for_table(store.root, store=store, settings=Settings(**settings))


def file(value):
    return add_file("x", [1]).replace(path=f"{uuid.uuid4()}.parquet", partition_values={"p": value})


def test_one_value_that_is_too_long_is_named_and_nothing_is_published():
    log, metastore = new_log(), MemoryMetastore()
    create_table(log, [file("a"), file("v" * 300), file("b")])
    for options in (SyncOptions(), SyncOptions(dry_run=True)):
        with pytest.raises(PartitionTooLongError) as caught:
            sync_table(log, metastore, TWIN, options)
        said = str(caught.value)
        assert f"p={'v' * 58}…: its value of 'p' has 300 characters, and 255 fit" in said
        assert "partitionValueLength" in caught.value.hint
    assert metastore.entries == {}
    assert list(log.store.list_all("_symlink_format_manifest")) == []
    delete_partition("v" * 300).run(log)
    sync_table(log, metastore, TWIN)
    assert metastore.partition_names(TWIN.database, TWIN.name) == ["p=a", "p=b"]


def test_a_twin_that_is_there_shows_the_version_of_before_and_all_of_it():
    log, metastore = new_log(), MemoryMetastore()
    create_table(log, [file("a")])
    sync_table(log, metastore, TWIN)
    shown = log.store.read("_symlink_format_manifest/p=a/manifest")
    append("a", [2]).run(log)
    txn = start_transaction(log)
    txn.commit([file("w" * 256), file("v" * 256)], Operation(name="WRITE"))
    with pytest.raises(PartitionTooLongError, match=r"p=v{58}…, nor 1 others: .* 256 characters"):
        sync_table(log, metastore, TWIN)
    assert log.store.read("_symlink_format_manifest/p=a/manifest") == shown
    assert metastore.table(TWIN.database, TWIN.name).parameters[VERSION_KEY] == "0"


def test_status_says_that_a_twin_is_blocked_and_by_what():
    log, metastore = new_log(), MemoryMetastore()
    create_table(log, [file("a")])
    sync_table(log, metastore, TWIN)
    append("v" * 256, [1]).run(log)
    found = sync_status(log, metastore, TWIN, now_ms=0)
    assert (found.state, found.lag_versions) == (SyncState.BLOCKED, 1)
    assert "256 characters, and 255 fit" in found.problem
    delete_partition("v" * 256).run(log)
    assert sync_status(log, metastore, TWIN, now_ms=0).state is SyncState.BEHIND
    never = sync_status(log, MemoryMetastore(), TWIN, now_ms=0)
    assert (never.state, never.problem) == (SyncState.NOT_SYNCED, None)


def test_a_table_whose_rows_deletion_vectors_hide_is_blocked_as_well():
    log, metastore = new_log(), MemoryMetastore()
    create_table(log, [file("a")])
    sync_table(log, metastore, TWIN)
    hidden = DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv="wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", size_in_bytes=40,
        cardinality=6,
    )  # fmt: skip
    txn = start_transaction(log)
    txn.read_whole_table()
    (old,) = txn.snapshot.files.adds(txn.snapshot.files.core)
    log.store.put(
        "_delta_log/00000000000000000001.json",
        encode_commit([old.remove(deletion_timestamp=1), old.replace(deletion_vector=hidden)]),
    )
    found = sync_status(DeltaLog(log.store), metastore, TWIN, now_ms=0)
    assert found.state is SyncState.BLOCKED
    assert "deletion vectors" in found.problem


NULL_NAME = "__HIVE_DEFAULT_PARTITION__"


def test_a_value_that_is_hives_name_for_null_blocks_the_twin_and_the_version_of_before_stays():
    log, metastore, others = new_log(), MemoryMetastore(), new_log()
    create_table(log, [file("a"), file(None)])
    sync_table(log, metastore, TWIN)
    assert metastore.partition_names(TWIN.database, TWIN.name) == [f"p={NULL_NAME}", "p=a"]
    shown = log.store.read(f"_symlink_format_manifest/p={NULL_NAME}/manifest")
    append(NULL_NAME, [1]).run(log)
    for options in (SyncOptions(), SyncOptions(dry_run=True), SyncOptions(atomic=True)):
        with pytest.raises(SchemaError, match=f"'p' has the value '{NULL_NAME}'"):
            sync_table(log, metastore, TWIN, options)
    found = sync_status(log, metastore, TWIN, now_ms=0)
    assert found.state is SyncState.BLOCKED
    assert NULL_NAME in found.problem
    append("a", [2]).run(log)  # a commit that touches another partition
    with pytest.raises(SchemaError):
        sync_table(log, metastore, TWIN)
    assert log.store.read(f"_symlink_format_manifest/p={NULL_NAME}/manifest") == shown
    assert metastore.table(TWIN.database, TWIN.name).parameters[VERSION_KEY] == "0"
    create_table(others, [file("b")])
    other = TableName(database="lake_symlink", name="others")
    sync_table(others, metastore, other)
    assert metastore.partition_names(other.database, other.name) == ["p=b"]
    delete_partition(NULL_NAME).run(log)
    sync_table(log, metastore, TWIN)
    assert sync_status(log, metastore, TWIN, now_ms=0).state is SyncState.CURRENT


def test_the_native_entry_follows_all_the_same():
    log, metastore, native = new_log(), MemoryMetastore(), TableName(database="lake", name="orders")
    create_table(log, [file("v" * 256)])
    with pytest.raises(PartitionTooLongError):
        sync_target(metastore, SyncTarget(log=log, native=native, twin=TWIN), SyncOptions(dry_run=True))
    assert metastore.entries == {}
    with pytest.raises(PartitionTooLongError):
        sync_target(metastore, SyncTarget(log=log, native=native, twin=TWIN), SyncOptions())
    assert list(metastore.entries) == [("lake", "orders")]


@pytest.mark.parametrize(
    ("value", "fits"),
    [("v" * 255, True), ("é" * 255, True), ("/" * 254, True), ("😀" * 127, True), ("😀" * 128, False), (None, True)],
)
def test_the_length_is_that_of_the_value_and_not_of_its_escapes(value, fits):
    log = new_log()
    create_table(log, [file(value)])
    if fits:
        check_partitions(log.update(), value_length=255)
    else:
        with pytest.raises(PartitionTooLongError):
            check_partitions(log.update(), value_length=255)


@pytest.mark.parametrize("slashes", [252, 253])
def test_a_name_of_many_short_values_can_be_too_long_as_well(slashes):
    """``p=`` and ``/q=`` are five characters, an escaped slash three: 5 + 3 * 252 + 6 are 767."""
    log = new_log()
    txn = start_transaction(log)
    fields = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("p", "q", "x")]
    schema = encode_json({"type": "struct", "fields": fields})
    txn.update_metadata(table_metadata().replace(schema_string=schema, partition_columns=("p", "q")))
    values = {"p": "/" * 200, "q": "/" * (slashes - 200) + "v" * 6}
    txn.commit([file("x").replace(partition_values=values)], Operation(name="WRITE"))
    if slashes == 252:
        check_partitions(log.update(), value_length=255)
    else:
        with pytest.raises(PartitionTooLongError, match="its name has 770 characters, and 767 fit"):
            check_partitions(log.update(), value_length=255)


def test_a_database_with_wider_columns_is_asked():
    log, metastore = new_log(sync_partition_value_length=400), MemoryMetastore()
    create_table(log, [file("v" * 300)])
    sync_table(log, metastore, TWIN)
    assert metastore.partition_names(TWIN.database, TWIN.name) == [f"p={'v' * 300}"]


def test_the_limit_is_that_of_a_real_one(metastore, database, tmp_path):
    """255 characters go in, one more does not."""
    log, name = DeltaLog.for_table(str(tmp_path / "orders")), TableName(database=database, name="orders")
    create_table(log, [file("a")])
    sync_table(log, metastore, name)
    twin = twin_of(log.update())

    def add(value):
        place = twin.partition_location("p=a")  # a disk has no room for a folder of such a name
        metastore.add_partitions(
            name.database, name.name, [partition_entry(twin, name.database, name.name, f"p={value}", location=place)]
        )

    add("v" * 255)
    assert metastore.partition_names(name.database, name.name) == ["p=a", f"p={'v' * 255}"]
    with pytest.raises(MetastoreError):
        add("w" * 256)
    DeltaLog.clear_cache()
