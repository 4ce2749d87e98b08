"""Removes what an earlier run of these tests left: objects, metastore entries. Nothing else is touched."""

from __future__ import annotations

import os

from conftest import BUCKETS, DATABASE, S3_OPTIONS
from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

from pydelta.storage import open_store

host, _, port = os.environ["METASTORE"].partition(":")
transport = TTransport.TBufferedTransport(TSocket.TSocket(host, int(port)))
transport.open()
client = ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocol(transport))
for name in {DATABASE, f"{DATABASE}_symlink"} & set(client.get_all_databases()):
    client.drop_database(name, False, True)
client.create_database(ttypes.Database(name=DATABASE, locationUri=f"s3a://warehouse/{DATABASE}", parameters={}))
transport.close()
for bucket in BUCKETS:
    store = open_store(f"s3a://{bucket}/{DATABASE}", S3_OPTIONS)
    store.delete_many([info.path for info in store.list_all()])
