"""Show a table with a twin in a Hive Metastore, for Trino and Presto, and check that both stay in step."""

from __future__ import annotations

import polars as pl
from pyspark.sql import functions as F

from catalog_sync.inspect import preview, verify_sync
from catalog_sync.names import TableName, twin_name
from catalog_sync.native import sync_native
from catalog_sync.sync import SyncOptions, SyncResult, sync_table
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from catalog_sync.thrift.embedded import EmbeddedMetastore
from jobs.demo.charts import Bars
from jobs.demo.stage import Stage
from pydelta.log import DeltaLog
from pydelta.manifests.contents import manifest_lines, manifest_path
from pydelta.tables import DeltaTable

_DAYS, _ROWS = 60, 12_000
_NAME = TableName(database="lake", name="orders")


def run(stage: Stage) -> None:
    """Sync to the metastore in PySpark's jars, change the table, sync again, verify, and look at the rows."""
    path = str(stage.folder / "orders")
    with stage.step(f"Write orders of {_DAYS} days, a partition each"):
        orders = stage.spark.range(_ROWS).select(
            "id",
            F.concat(F.lit("customer-"), F.col("id") % 97).alias("customer"),
            (F.col("id") % 1000 / 8).alias("amount"),
            F.date_add(F.lit("2024-01-01").cast("date"), (F.col("id") % _DAYS).cast("int")).alias("day"),
        )
        orders.repartition("day").write.format("delta").partitionBy("day").save(path)
    log = DeltaLog.for_table(path)
    with stage.step("Start the Hive Metastore of PySpark's own jars"):
        server = EmbeddedMetastore(stage.folder / "metastore")
    with server, Metastore(MetastoreAddress.parse(server.uri)) as metastore:
        twin = twin_name(_NAME)
        for database in (_NAME.database, twin.database):
            metastore.create_database(database, f"file://{server.warehouse}/{database}.db")
        with stage.step(f"Sync: manifests, {twin} beside {_NAME}"):
            first = sync_table(log, metastore, twin)
            sync_native(metastore, _NAME, log.update())
        stage.check("a partition of the metastore for each day", expected=_DAYS, found=len(first.plan.add))
        stage.check("the twin is verified", expected=True, found=verify_sync(log, metastore, twin).ok)

        with stage.step("Delete a day, correct one, add one"):
            table = DeltaTable.forPath(stage.spark, path)
            table.delete("day = DATE'2024-01-03'")
            table.delete("day = DATE'2024-01-04' AND customer = 'customer-3'")
            late = orders.limit(50).withColumn("day", F.lit("2024-03-01").cast("date"))
            late.coalesce(1).write.format("delta").mode("append").save(path)
        behind = log.update().version - first.version
        planned = sync_table(log, metastore, twin, SyncOptions(dry_run=True))
        with stage.step(f"Sync again, {behind} versions later: only what changed"):
            second = sync_table(log, metastore, twin)
        assert second.manifests is not None
        stage.check("partitions whose manifest was written", expected=2, found=len(second.manifests.written))
        stage.check("dropped", expected=("day=2024-01-03",), found=second.plan.drop)
        stage.check("as the dry run had said", expected=planned.plan.drop, found=second.plan.drop)
        stage.check("at most six calls of the metastore", expected=True, found=second.calls <= 6)
        report = verify_sync(log, metastore, twin)
        stage.check("verified again, every file looked for", expected=True, found=report.ok)
        _compare(stage, log, path)
        changed = len(second.manifests.written)
        stage.fact("Twin", f"{twin}: {changed} of {_DAYS} manifests written for {behind} new versions")
        synced = {"first sync": len(first.plan.add), "second sync": changed}
        stage.chart(Bars(title="Manifests that each sync wrote", bars=synced))
        _show(stage, log, second, report.manifests.lines)


def _compare(stage: Stage, log: DeltaLog, path: str) -> None:
    """Compare the rows that Polars reads through the manifests with Spark's rows of the table."""
    days = [str(row[0]) for row in stage.spark.read.format("delta").load(path).select("day").distinct().collect()]
    found = []
    for day in sorted(days):
        manifest = manifest_path(f"day={day}")
        lines = manifest_lines(log.store.read(manifest), source=manifest)
        rows = pl.concat([pl.read_parquet(line.removeprefix("file://")) for line in lines])
        found.append((day, rows.height, rows["amount"].sum()))
    table = stage.spark.read.format("delta").load(path)
    expected = table.groupBy(F.col("day").cast("string")).agg(F.count("*"), F.sum("amount")).orderBy("day").collect()
    same = [tuple(row) for row in expected] == found
    stage.check("rows by the manifests", expected=len(expected), found=len(found) if same else "other sums")


def _show(stage: Stage, log: DeltaLog, result: SyncResult, lines: int) -> None:
    rows = preview(log, "day=2024-03-01", limit=3)
    stage.table(
        f"catalog_sync preview: {result.twin}, version {result.version}, {lines} files; day=2024-03-01",
        list(rows[0]),
        [[str(value) for value in row.values()] for row in rows],
    )
