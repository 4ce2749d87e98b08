"""Removes what an earlier run of these tests left: objects, entries; with --registered only entries in lake."""

from __future__ import annotations

import os
import sys

from conftest import BUCKETS, DATABASE, S3_OPTIONS
from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

from pydelta.storage import open_store

host, _, port = os.environ["METASTORE"].partition(":")
transport = TTransport.TBufferedTransport(TSocket.TSocket(host, int(port)))
transport.open()
client = ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocol(transport))
for name in client.get_all_tables("lake"):  # what the tests register there, and its twins
    if name.startswith(DATABASE):
        client.drop_table("lake", name, False)
for name in client.get_all_tables("lake_symlink"):
    if name.startswith(DATABASE):
        client.drop_table("lake_symlink", name, False)
if "--registered" in sys.argv:
    sys.exit()
for name in {DATABASE, f"{DATABASE}_symlink"} & set(client.get_all_databases()):
    client.drop_database(name, False, True)
client.create_database(ttypes.Database(name=DATABASE, locationUri=f"s3a://warehouse/{DATABASE}", parameters={}))
transport.close()
for bucket in BUCKETS:
    store = open_store(f"s3a://{bucket}/{DATABASE}", S3_OPTIONS)
    store.delete_many([info.path for info in store.list_all()])
