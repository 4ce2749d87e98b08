"""Removes what an earlier run of these tests left: files, entries; with --registered only entries of lake's tables."""

from __future__ import annotations

import os
import sys

from conftest import DATABASE, ON_HDFS, PLACES, ROOT, STORE_OPTIONS, STORE_ROOT
from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol import TBinaryProtocol

from catalog_sync.thrift.transport import transport_to
from pydelta.storage import open_store

host, _, port = os.environ["METASTORE"].partition(":")
transport = transport_to(host, int(port), budget=lambda: 60.0, tls=os.environ.get("METASTORE_TLS") == "true")
transport.open()
client = ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocol(transport))
for name in client.get_all_tables("lake"):  # what the tests register there, and its twins
    if name.startswith(DATABASE):
        client.drop_table("lake", name, False)
for database in ("lake_symlink", "lake_iceberg"):
    for name in client.get_all_tables(database):
        if name.startswith(DATABASE):
            client.drop_table(database, name, False)
if "--registered" in sys.argv:
    sys.exit()
for name in {DATABASE, f"{DATABASE}_symlink", f"{DATABASE}_iceberg"} & set(client.get_all_databases()):
    client.drop_database(name, False, True)
client.create_database(ttypes.Database(name=DATABASE, locationUri=ROOT, parameters={}))
transport.close()
for place in PLACES:
    if ON_HDFS:  # directories stay when their files go
        from hdfs_native import Client

        Client(STORE_ROOT.rstrip("/")).delete(f"/{place.removeprefix(STORE_ROOT)}/{DATABASE}", recursive=True)
        continue
    store = open_store(f"{place}/{DATABASE}", STORE_OPTIONS)
    store.delete_many([info.path for info in store.list_all()])
