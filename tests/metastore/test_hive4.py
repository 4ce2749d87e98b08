"""The same client against Hive Metastore 4.0.1: each call that a sync makes, and what it leaves."""

from __future__ import annotations

import pytest
from hive4 import Hive4
from java_servers import NotToBeHad
from missing import missing

from catalog_sync.diff import TableAction
from catalog_sync.inspect import verify_sync
from catalog_sync.names import TableName
from catalog_sync.native import native_tables, sync_native
from catalog_sync.sync import SyncOptions, add_partition, sync_table
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.log import DeltaLog
from pydelta.testing.operations import add_file, append, create_table, delete_partition

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    try:
        server = Hive4(tmp_path_factory.mktemp("hive4"))
    except NotToBeHad as error:
        missing(f"HIVE METASTORE 4 IS NOT TESTED HERE: {error}")
    with Metastore(MetastoreAddress.parse(server.uri)) as metastore:
        metastore.create_database("lake", f"file://{server.warehouse}/lake.db")
        yield metastore
    server.stop()


@pytest.mark.parametrize("atomic", [False, True])
def test_a_table_is_followed_through_its_life(client, tmp_path, atomic):
    twin = TableName(database="lake_symlink", name=f"orders_{atomic}".lower())
    log = DeltaLog.for_table(str(tmp_path / "orders"))
    create_table(log, [add_file(p, [1]) for p in ("a", "b c", "x=y", "é")])
    first = sync_table(log, client, twin, SyncOptions(atomic=atomic))
    assert first.plan.table is TableAction.CREATE
    assert verify_sync(log, client, twin, files=0).ok
    append("a", [2]).run(log)
    append("new", [3]).run(log)
    delete_partition("b c").run(log)
    later = sync_table(log, client, twin)
    assert not later.plan.full
    assert later.calls <= 7
    assert verify_sync(log, client, twin, files=0).ok
    assert len(client.partition_names("lake_symlink", twin.name)) == 4
    add_partition(log, client, twin, {"p": "tomorrow"})
    assert "p=tomorrow" in client.partition_names("lake_symlink", twin.name)
    sync_table(log, client, twin, SyncOptions(full=True, atomic=not atomic))
    assert verify_sync(log, client, twin, files=0).ok
    client.drop_partitions("lake_symlink", twin.name, ["p=a", "p=never-there"])
    assert verify_sync(log, client, twin, files=0).missing_partitions == ("p=a",)
    sync_table(log, client, twin, SyncOptions(full=True))
    assert verify_sync(log, client, twin, files=0).ok
    DeltaLog.clear_cache()


def test_columns_and_the_native_entry(client, tmp_path):
    import json

    from pydelta.protocol.actions import encode_json
    from pydelta.txn import Operation, start_transaction

    name = TableName(database="lake", name="items")
    log = DeltaLog.for_table(str(tmp_path / "items"))
    create_table(log, [add_file("a", [1])])
    twin = TableName(database="lake_symlink", name="items")
    sync_table(log, client, twin)
    assert sync_native(client, name, log.update())
    txn = start_transaction(log)
    fields = json.loads(txn.snapshot.metadata.schema_string)["fields"]
    added = {"name": "note", "type": "string", "nullable": True, "metadata": {"comment": "what was said"}}
    schema = encode_json({"type": "struct", "fields": [*fields, added]})
    txn.update_metadata(txn.snapshot.metadata.replace(schema_string=schema))
    txn.commit([], Operation(name="ADD COLUMNS"))
    assert sync_table(log, client, twin).plan.table is TableAction.ALTER
    assert sync_native(client, name, log.update())
    assert [column.name for column in client.table("lake_symlink", "items").sd.cols] == ["x", "note"]
    (part,) = client.partitions("lake_symlink", "items", ["p=a"])
    assert [column.name for column in part.sd.cols] == ["x", "note"]
    assert [str(found) for found, _ in native_tables(client, "lake")] == ["lake.items"]
    txn = start_transaction(log)
    first = {"name": "first", "type": "date", "nullable": True, "metadata": {}}
    changed = [first, *(item | {"type": "string"} if item["name"] == "x" else item for item in fields)]
    txn.update_metadata(txn.snapshot.metadata.replace(schema_string=encode_json({"type": "struct", "fields": changed})))
    txn.commit([], Operation(name="REPLACE COLUMNS"))
    assert sync_table(log, client, twin).plan.table is TableAction.ALTER
    assert sync_native(client, name, log.update())
    wanted = [("first", "date"), ("x", "string")]
    (part,) = client.partitions("lake_symlink", "items", ["p=a"])
    for shown in (client.table("lake_symlink", "items").sd.cols, part.sd.cols):
        assert [(column.name, column.type) for column in shown] == wanted
    shown = client.table("lake", "items").sd.cols
    assert [(column.name, column.type) for column in shown] == [*wanted, ("p", "string")]
    DeltaLog.clear_cache()
