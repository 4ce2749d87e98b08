"""The page over a real metastore: its tables, how far their twins are, and what is said when it has gone."""

from __future__ import annotations

import json

import pytest

from catalog_sync.names import TableName
from catalog_sync.sync import SyncOptions
from catalog_sync.target_sync import sync_target
from catalog_sync.targets import SyncTarget
from catalog_sync.thrift.embedded import EmbeddedMetastore
from catalog_sync.watching import open_catalog
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.storage import LocalStore
from pydelta.testing.operations import add_file, append, create_table
from pydelta.tools.ui.server import Application
from pydelta.tools.ui.sources import Sources
from pydelta.tools.ui.watch import Watch, Watched


@pytest.fixture
def log(tmp_path):
    found = DeltaLog(LocalStore((tmp_path / "orders").as_uri()))
    create_table(found, [add_file("a", [1])])
    return found


def told(watch):
    status = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/api/tables", "QUERY_STRING": "", "HTTP_HOST": "localhost"}
    answer = json.loads(b"".join(Application(watch)(environ, lambda code, _: status.append(code))))
    assert status == ["200 OK"]
    return answer


def test_registered_tables_are_shown_with_their_twins(metastore, metastore_server, database, log):
    native, twin = TableName(database=database, name="orders"), TableName(database=f"{database}_symlink", name="orders")
    watch = Watch(
        Watched(
            sources=Sources(), catalog=open_catalog(metastore_server.uri, [database], {}, 600), fresh=0, patience=600
        )
    )
    assert told(watch)["tables"] == []
    sync_target(metastore, SyncTarget(log=log, native=native, twin=twin), SyncOptions())
    append("b", [2]).run(log)
    [table] = told(watch)["tables"]
    assert (table["place"]["name"], table["version"]) == (f"{database}.orders", 1)
    assert (table["twin"]["name"], table["twin"]["state"]) == (str(twin), "behind")
    assert (table["twin"]["manifestVersion"], table["twin"]["metastoreVersion"]) == (0, 0)
    sync_target(metastore, SyncTarget(log=log, native=native, twin=twin), SyncOptions())
    [table] = told(watch)["tables"]
    assert (table["twin"]["state"], table["twin"]["lagVersions"], table["troubles"]) == ("current", 0, [])


def test_a_database_that_is_not_there_is_told(metastore_server):
    with pytest.raises(DeltaError, match="no database 'nowhere'"):
        open_catalog(metastore_server.uri, ["nowhere"], {}, 600).tables()


def test_a_metastore_that_has_gone_leaves_the_tables_and_says_so(tmp_path, log):
    server = EmbeddedMetastore(tmp_path)
    try:
        catalog = open_catalog(server.uri, ["default"], {}, 600)
        with catalog._connect() as metastore:
            native, twin = (TableName(database=name, name="orders") for name in ("default", "default_symlink"))
            sync_target(metastore, SyncTarget(log=log, native=native, twin=twin), SyncOptions())
        catalog = open_catalog(server.uri, ["default"], {}, 5)
        watch = Watch(Watched(sources=Sources(), catalog=catalog, fresh=0, patience=600))
        while not told(watch)["tables"]:
            pass
    finally:
        server.stop()
    append("b", [2]).run(log)
    found = told(watch)
    assert server.uri.removeprefix("thrift://") in found["troubles"][0]["what"]
    [table] = found["tables"]
    assert (table["version"], table["twin"]["state"]) == (1, "unknown")
