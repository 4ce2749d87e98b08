"""From the bucket to vacuumed tables: list, S3 Inventory, Delta inventory table, VACUUM; looked at object by object.

On S3 a proxy counts requests, too. HDFS lists directories beside files, and its places are one bucket: the NameNode.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from urllib.parse import unquote

import polars as pl
import pytest
from conftest import DATABASE, INVENTORY, ON_HDFS, ROOT, STORE_OPTIONS, WORK
from recording_proxy import RecordingProxy

from catalog_sync.names import TableName
from catalog_sync.native import sync_native
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.commands.vacuum.plan import directories_above
from pydelta.log import DeltaLog
from pydelta.protocol.vectors import vector_path
from pydelta.storage.uris import bucket_of

pytestmark = [pytest.mark.before_submit, pytest.mark.spark, pytest.mark.slow]

RUN = uuid.uuid4().hex[:8]  # Trino remembers logs by their location
LAKE = f"{ROOT}/vacuumed-{RUN}"
DELIVERIES = f"{INVENTORY}/{DATABASE}/deliveries"
REPORT = f"{DATABASE}.datalake_report_{RUN}"
TABLES = ("orders", "people", "by_location")
NOW = ["--retention-hours", "0", "--no-retention-check"]


@pytest.fixture(scope="module")
def spark():
    import pydelta

    session = pydelta.session(
        "vacuum-tests", conf={"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def lake(spark, store_at):
    """Three tables with a history, and files that belong to none of their versions."""
    from pydelta.tables import DeltaTable

    rows = spark.range(300).selectExpr("id", "concat('c', id % 7) AS customer", "concat('d ', id % 3) AS day")
    for name in TABLES:
        vectors = {"delta.enableDeletionVectors": "true"} if name == "people" else {}
        path = f"{LAKE}/{name}"
        rows.coalesce(2).write.format("delta").partitionBy("day").options(**vectors).save(path)
        DeltaTable.forPath(spark, path).delete("id % 10 = 3")
        DeltaTable.forPath(spark, path).update("customer = 'c1'", {"customer": "'changed'"})
        rows.where("id < 30").coalesce(1).write.format("delta").mode("append").save(path)
    with Metastore(MetastoreAddress.parse(None)) as metastore:
        for name in TABLES[:2]:
            snapshot = DeltaLog.for_table(f"{LAKE}/{name}", options=STORE_OPTIONS).update()
            sync_native(metastore, TableName(database=DATABASE, name=f"vacuumed_{name}_{RUN}"), snapshot)
    store = store_at(LAKE)
    for path in ("orders/day=d 1/stray é%41+.parquet", "people/part-stray", "orders/_tmp/kept", "no_table/kept"):
        store.put(path, b"123")
    return store


def objects(store):
    """Path -> size of everything but logs."""
    return {info.path: info.size for info in store.list_all() if "_delta_log" not in info.path}


def needed(name):
    """Files that the newest version reads, deletion vectors among them."""
    snapshot = DeltaLog.for_table(f"{LAKE}/{name}", options=STORE_OPTIONS).update()
    adds = snapshot.files.adds(snapshot.files.core)
    vectors = {vector_path(add.deletion_vector) for add in adds if add.deletion_vector is not None}
    return {f"{name}/{path}" for path in {unquote(add.path) for add in adds} | vectors if path is not None}


def rows_of(spark):
    return {name: sorted(map(tuple, spark.read.format("delta").load(f"{LAKE}/{name}").collect())) for name in TABLES}


@pytest.fixture
def watched():
    """Between this process and S3: what is asked for. None on HDFS, which speaks no HTTP."""
    if ON_HDFS:
        yield None
        return
    proxy = RecordingProxy(os.environ["S3_ENDPOINT"])
    yield proxy
    proxy.close()


def listed_data(proxy):
    """What was listed but logs and the project's own folders."""
    return [prefix for prefix in proxy.listings() if "/_" not in prefix]


def vacuum_in_this_process(proxy, *arguments):
    if "/opt" not in sys.path:
        sys.path.insert(0, "/opt")
    from jobs import vacuum

    DeltaLog.clear_cache()
    try:
        through = {} if proxy is None else {"fs.s3a.endpoint": proxy.endpoint}
        return vacuum.run(STORE_OPTIONS | through, arguments)
    finally:
        DeltaLog.clear_cache()


def test_from_the_bucket_to_vacuumed_tables(lake, spark, submit, sql, watched):
    listed = submit("inventory", "--source", LAKE, "--destination", DELIVERIES)
    assert listed.code == 0, listed.errors
    (delivery,) = listed.result["inventories"]
    everything = {info.path: info.size for info in lake.list_all()}
    assert delivery["bytes"] == sum(everything.values())
    assert delivery["objects"] > len(everything) if ON_HDFS else delivery["objects"] == len(everything)

    loaded = submit("load_inventory", "--source", DELIVERIES, "--table", REPORT)
    assert loaded.code == 0, loaded.errors
    assert loaded.result["warnings"] == []
    again = submit("load_inventory", "--source", DELIVERIES, "--table", REPORT)
    assert (again.code, again.result["version"]) == (0, None)
    found = sql(f'SELECT key, length, "table" FROM delta.{REPORT} WHERE NOT isdir')
    prefix = f"{bucket_of(LAKE).key}/"
    assert {row[0].removeprefix(prefix): row[1] for row in found} == everything
    names = {row[0].removeprefix(prefix).partition("/")[0]: row[2] for row in found}
    assert names == {
        "orders": f"{DATABASE}.vacuumed_orders_{RUN}",
        "people": f"{DATABASE}.vacuumed_people_{RUN}",
        "by_location": None,
        "no_table": None,
    }

    before, rows = objects(lake), rows_of(spark)
    keep: set[str] = {"orders/_tmp/kept", "no_table/kept"}
    for name in TABLES:
        keep |= needed(name)
    lake.put("orders/day=d 2/after.parquet", b"1")  # the inventory does not know it
    tables = [f"{DATABASE}.vacuumed_orders_{RUN}", f"{DATABASE}.vacuumed_people_{RUN}", f"{LAKE}/by_location"]
    planned = submit("vacuum", *tables, "--inventory", REPORT, "--dry-run", *NOW)
    assert planned.code == 0, planned.errors
    reports = vacuum_in_this_process(watched, *tables, "--inventory", REPORT, *NOW)
    assert [row.get("message") for row in reports] == [None] * 3
    after = objects(lake)
    gone = set(before) - set(after)
    assert gone == set(before) - keep
    assert {"orders/day=d 1/stray é%41+.parquet", "people/part-stray"} <= gone
    assert set(after) == keep | {"orders/day=d 2/after.parquet"}
    assert sum(row["deleted"] for row in reports) == len(gone)
    assert sum(row["bytes"] for row in reports) == sum(before[path] for path in gone)
    said = {f"{row['location'].rpartition('/')[2]}/{path}" for row in planned.result["tables"] for path in row["files"]}
    assert said == gone
    if watched is not None:
        assert listed_data(watched) == [], "nothing of the tables' data was listed"
        assert len(watched.deletions()) == 3, "one bulk deletion a table"
        paths = pl.Series([path.partition("/")[2] for path in gone])
        by_table = [paths.filter(pl.Series([path.startswith(f"{name}/") for path in gone])) for name in TABLES]
        asked = sum(len(directories_above(part)) for part in by_table)
        assert sum(row["list_requests"] for row in reports) == asked, "whether folders are tables of their own"

    assert rows_of(spark) == rows
    from_trino = sql(f"SELECT id, customer, day FROM delta.{DATABASE}.vacuumed_orders_{RUN}")
    assert sorted(map(tuple, from_trino)) == rows["orders"]


def test_a_full_pass_finds_what_the_inventory_did_not_know(lake, watched):
    (report,) = vacuum_in_this_process(watched, f"{LAKE}/orders", *NOW)
    assert report["deleted"] == 1
    assert "orders/day=d 2/after.parquet" not in objects(lake)
    if watched is not None:
        assert len(listed_data(watched)) == report["list_requests"] == 1


def test_the_scheduler_s_command_needs_no_spark(lake):
    """As jobs/schedule.conf has it: a Python process of its own, settings from the environment."""
    command = ["python", "/opt/jobs/inventory.py", "--source", LAKE, "--destination", DELIVERIES, "--format", "CSV"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    command = ["python", "/opt/jobs/load_inventory.py", "--source", DELIVERIES, "--table", REPORT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    log = DeltaLog.for_table(f"{ROOT}/datalake_report_{RUN}", options=STORE_OPTIONS)
    assert log.update().version == 1
    checked = subprocess.run(
        ["python", "/opt/jobs/schedule.py", "/opt/jobs/schedule.conf", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_a_damaged_delivery_is_refused(lake, submit, store_at):
    store = store_at(f"{INVENTORY}/{DATABASE}/damaged")
    for info in store_at(DELIVERIES).list_all():
        store.put(info.path, store_at(DELIVERIES).read(info.path))
    (data,) = [info.path for info in store.list_all() if info.path.endswith(".parquet")]
    for path in [info.path for info in store.list_all() if info.path.endswith("manifest.json")]:
        text = store.read(path).replace(f"{DATABASE}/deliveries/".encode(), f"{DATABASE}/damaged/".encode())
        store.put(path, text + b" ")
    done = submit("load_inventory", "--source", f"{INVENTORY}/{DATABASE}/damaged", "--table", REPORT, "--force")
    assert done.code == 1
    assert "does not match its checksum" in done.result["message"]
    assert store.head(data) is not None


@pytest.mark.skipif(
    ON_HDFS, reason="the places of HDFS are directories of one NameNode, which is one bucket to an inventory"
)
def test_a_table_in_another_bucket_than_the_inventory_s_is_refused(lake, submit):
    tables = (f"{WORK}/{DATABASE}/no_table", f"{LAKE}/orders")
    done = submit("vacuum", *tables, "--inventory", REPORT, "--dry-run", user="spark")  # who sees both buckets
    assert done.code == 1
    first, second = sorted(done.result["tables"], key=lambda row: row.get("exit_code", 0))
    assert "error" not in first
    assert "lists nothing of the bucket work; it lists warehouse" in second["message"]
