"""``sync --atomic`` under the eyes of Trino: does a query ever see two versions at once?"""

from __future__ import annotations

import io
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import DATABASE, ROOT, STORE_OPTIONS

from catalog_sync.names import TableName, twin_name
from catalog_sync.sync import SyncOptions, sync_table
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile
from pydelta.testing.operations import create_table
from pydelta.txn import Operation, start_transaction

pytestmark = [pytest.mark.before_submit, pytest.mark.slow, pytest.mark.in_turn]

VERSIONS = 8
_FIRST_BATCH = 10
"""Trino's ``hive.metastore.partition-batch-size.min``, which the stack leaves as it is."""


def files_of(log, version, partitions):
    """A row with the version's number in each partition: written, and as actions."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": [version]}), sink)
    adds = [
        AddFile(
            path=f"p={number}/part-{uuid.uuid4()}.parquet",
            partition_values={"p": str(number)},
            size=len(sink.getvalue()),
            modification_time=1,
            data_change=True,
        )
        for number in range(partitions)
    ]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda add: log.store.put(add.path, sink.getvalue()), adds))
    return adds


@pytest.mark.parametrize("partitions", [10, 40, 250])
def test_a_query_sees_one_version_as_far_as_it_asks_the_metastore_once(sql, record_property, partitions):
    """Trino asks for ten partitions first and for more with each call: beyond ten a query may see two versions."""
    name = TableName(database=DATABASE, name=f"atomic_{partitions}")
    twin, location = twin_name(name), f"{ROOT}/{name.name}_{uuid.uuid4().hex[:8]}"
    log = DeltaLog.for_table(location, options=STORE_OPTIONS)
    with Metastore(MetastoreAddress.parse(None)) as client:
        client.drop(twin.database, twin.name)
        create_table(log, files_of(log, 0, partitions))
        sync_table(log, client, twin, SyncOptions(atomic=True))
        over, seen = threading.Event(), []

        def look():
            while not over.is_set():
                ((least, most, count),) = sql(f"SELECT min(x), max(x), count(*) FROM hive.{twin}")
                seen.append((least, most, count))

        reader = threading.Thread(target=look)
        reader.start()
        try:
            for version in range(1, VERSIONS + 1):
                adds = files_of(log, version, partitions)
                txn = start_transaction(log)
                txn.read_whole_table()
                old = txn.snapshot.files.adds(txn.snapshot.files.core)
                txn.commit([*(add.remove(deletion_timestamp=1) for add in old), *adds], Operation(name="WRITE"))
                sync_table(log, client, twin)
        finally:
            over.set()
            reader.join(60)
    assert {count for _, _, count in seen} == {partitions}, "no partition is missing, none is there twice"
    mixed = sum(least != most for least, most, _ in seen)
    record_property("queries", len(seen))
    record_property("mixed", mixed)
    print(f"{partitions} partitions: {mixed} of {len(seen)} queries saw two versions")
    assert len(seen) >= VERSIONS // 2
    assert [most for _, most, _ in seen] == sorted(most for _, most, _ in seen), "and never an older one"
    if partitions <= _FIRST_BATCH:
        assert mixed == 0
    assert sql(f"SELECT min(x), max(x), count(*) FROM hive.{twin}") == [[VERSIONS, VERSIONS, partitions]]
