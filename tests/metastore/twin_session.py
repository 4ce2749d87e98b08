"""Run by ``test_twin_in_spark.py`` in a process of its own: a session's catalog is chosen once a process.

Arguments: the metastore's address, a database, a folder. Prints one JSON document: what was found.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pydelta
from catalog_sync import Metastore, MetastoreAddress, TableName, sync_table, twin_name
from catalog_sync.iceberg.entry import found_iceberg, iceberg_at
from catalog_sync.iceberg.sync import sync_iceberg
from catalog_sync.names import iceberg_name
from catalog_sync.native import native_location, sync_native
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.refresh import indexes_in
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

uri, database, folder = sys.argv[1:]
root = f"{folder}/orders"
native, twin = f"{database}.orders", f"{database}_symlink.orders"
found: dict[str, object] = {}

spark = pydelta.session(
    "twin",
    master="local[2]",
    conf={
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": uri,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    },
)
spark.sparkContext.setLogLevel("OFF")


def rows(frame):
    return sorted([str(value) for value in row] for row in frame.collect())


def plan(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def refused(what):
    try:
        what()
    except DeltaError as error:
        return str(error)
    return None


def tree():
    return sorted(str(path) for path in Path(root).rglob("*") if "_symlink_format_manifest" in str(path))


def entry():
    """The twin as the metastore has it, with the names of its partitions."""
    with Metastore(MetastoreAddress.parse(uri)) as client:
        found = client.table(f"{database}_symlink", "orders")
        return repr(found), found and client.partition_names(f"{database}_symlink", "orders")


(
    spark.range(40)
    .selectExpr(
        "id", "id % 4 AS Day", "concat('n', id) AS Name", "cast(id / 3 AS decimal(10,2)) AS price",
        "timestamp_seconds(id * 86400) AS At", "named_struct('a', id, 'b', array(id)) AS s",
    )
    .write.format("delta").partitionBy("Day").save(root)
)  # fmt: skip
log = DeltaLog.for_table(root)
with Metastore(MetastoreAddress.parse(uri)) as metastore:
    name_of_orders = TableName.parse(native)
    sync_table(log, metastore, twin_name(name_of_orders))
    sync_native(metastore, name_of_orders, log.update())

by_path = spark.read.format("delta").load(root)
found["expected"] = rows(by_path)
found["read"] = {
    "spark.table": rows(spark.table(twin)),
    "spark.sql": rows(spark.sql(f"SELECT * FROM {twin}")),
    "spark.read.table": rows(spark.read.table(twin)),
    "in capitals": rows(spark.table(twin.upper())),
    "native": rows(spark.table(native)),
}
spark.sql(f"CREATE VIEW {database}.seen AS SELECT * FROM {twin}")
found["read"]["view"] = rows(spark.table(f"{database}.seen"))
spark.catalog.setCurrentDatabase(f"{database}_symlink")
found["read"]["by its short name"] = rows(spark.sql("SELECT * FROM orders"))
spark.catalog.setCurrentDatabase("default")
found["columns"] = [spark.table(twin).columns, by_path.columns]
filtered = spark.sql(f"SELECT Name FROM {twin} WHERE Day = 2 AND id > 10")
found["plan"] = plan(filtered)
found["index"] = [index.text for index in indexes_in(Jvm.of(spark), filtered._jdf.queryExecution().analyzed())]
found["files"] = [len(filtered.inputFiles()), len(by_path.where("Day = 2").inputFiles())]
joined = spark.sql(f"WITH o AS (SELECT * FROM {twin}) SELECT a.id FROM o a JOIN {native} b ON a.id = b.id")
found["join"] = [joined.count(), "hive" in plan(joined).lower()]
found["explain"] = spark.sql(f"EXPLAIN SELECT * FROM {twin}").collect()[0][0]
found["older version"] = rows(spark.sql(f"SELECT * FROM {twin} VERSION AS OF 0"))

new = spark.table(twin).where("id = 3").selectExpr("id + 100 AS id", "Day", "Name", "price", "At", "s")
new.write.insertInto(twin)
new.withColumn("id", new["id"] + 1).write.mode("append").saveAsTable(twin)
new.withColumn("id", new["id"] + 2).writeTo(twin).append()
found["written"] = [spark.table(twin).where("id >= 100").count(), log.update().version]
DeltaTable.forName(spark, twin).delete("id = 103")
found["deleted"] = [spark.table(twin).where("id >= 100").count(), log.update().version]
found["forName"] = rows(DeltaTable.forName(spark, twin).toDF())
found["expected after"] = rows(spark.read.format("delta").load(root))

beginning, manifests = log.update().version, tree()
changes = {
    "insert": f"INSERT INTO {twin} SELECT id + 200, Day, Name, price, At, s FROM {native} WHERE id < 2",
    "insert after with": f"WITH w AS (SELECT * FROM {native} WHERE id = 5) INSERT INTO {twin} "
    "SELECT id + 300, Day, Name, price, At, s FROM w",
    "update": f"UPDATE {twin} SET Name = 'x' WHERE id >= 300",
    "merge": f"MERGE INTO {twin} t USING (SELECT 201 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "delete under an alias": f"DELETE FROM {twin} AS t WHERE t.id = 200",
    "insert overwrite": f"INSERT OVERWRITE TABLE {twin} PARTITION (Day = 1) (id, Name) SELECT 400, 'y'",
}
found["in SQL"] = {}
for key, text in changes.items():
    spark.sql(text)
    answer = spark.sql(f"SELECT id, Day, Name FROM {twin} WHERE id >= 200 ORDER BY id").collect()
    found["in SQL"][key] = [list(row) for row in answer]
found["commits in SQL"] = [log.update().version - beginning, manifests == tree()]
spark.sql(f"TRUNCATE TABLE {twin}")
found["truncated"] = [spark.table(twin).count(), manifests == tree()]
DeltaTable.forName(spark, twin).restoreToVersion(beginning)

before = [tree(), log.update().version]
statements = {
    "msck": f"MSCK REPAIR TABLE {twin}",
    "add partition": f"ALTER TABLE {twin} ADD PARTITION (Day = 99)",
    "add column": f"ALTER TABLE {twin} ADD COLUMNS (z INT)",
    "analyze": f"ANALYZE TABLE {twin} COMPUTE STATISTICS",
    "rename": f"ALTER TABLE {twin} RENAME TO {database}_symlink.other",
    "set location": f"ALTER TABLE {twin} SET LOCATION '{folder}/elsewhere'",
    "drop partition": f"ALTER TABLE {twin} DROP PARTITION (Day = 1)",
    "recover partitions": f"ALTER TABLE {twin} RECOVER PARTITIONS",
    "drop": f"DROP TABLE {twin}",
    "drop if exists": f"DROP TABLE IF EXISTS spark_catalog.{twin} PURGE",
    "drop by expression": f"DROP TABLE IDENTIFIER('{database}_symlink' || '.orders')",
}
entry_before = entry()
found["refused"] = {key: refused(lambda text=text: spark.sql(text)) for key, text in statements.items()}
found["refused"]["spark.catalog.recoverPartitions"] = refused(lambda: spark.catalog.recoverPartitions(twin))
as_orc = spark.range(1).write.mode("overwrite").format("orc")
found["refused"]["save as orc"] = refused(lambda: as_orc.saveAsTable(twin))
found["unchanged"] = [before == [tree(), log.update().version], entry_before == entry()]
found["described"] = [
    "Symlink" in str(spark.sql(f"DESCRIBE EXTENDED {twin}").collect()),
    spark.sql(f"SHOW PARTITIONS {twin}").count(),
]


def known():
    """Names in both databases, and where each twin's table lies."""
    with Metastore(MetastoreAddress.parse(uri)) as client:
        names = []
        for place in (database, f"{database}_symlink"):
            for item in client.tables(place):
                twin_parts = client.partition_names(place, item.tableName) if place.endswith("_symlink") else []
                names.append([f"{place}.{item.tableName}", item.parameters.get("pydelta.sync.version"), twin_parts])
        return sorted(item for item in names if item[0].rpartition(".")[2].startswith("take_"))


def with_twin(name, location, *, managed=False, **properties):
    listed = "".join(f", '{key}' = '{value}'" for key, value in properties.items())
    place = "" if managed else f"LOCATION '{location}'"
    spark.sql(
        f"CREATE TABLE {database}.{name} (id BIGINT, p STRING) USING delta PARTITIONED BY (p) {place} "
        f"TBLPROPERTIES ('delta.appendOnly' = 'false'{listed})"
    )
    spark.sql(f"INSERT INTO {database}.{name} VALUES (1, 'a')")
    entry = TableName(database=database, name=name)
    with Metastore(MetastoreAddress.parse(uri)) as client:
        found_at = native_location(client.table(database, name))
        sync_table(DeltaLog.for_table(found_at), client, twin_name(entry))
        sync_iceberg(DeltaLog.for_table(found_at), client, iceberg_name(entry), iceberg=True)


def known_to_iceberg():
    """The Iceberg entries: name, whether the metadata is ours, and its version."""
    with Metastore(MetastoreAddress.parse(uri)) as client:
        entries = client.tables(f"{database}_iceberg")
        states = [(entry.tableName, found_iceberg(entry)) for entry in entries if iceberg_at(entry) is not None]
    return sorted([name, not state.has_drifted, state.version] for name, state in states)


found["taken along"] = {}
with_twin("take_drop", f"{folder}/take_drop")
with_twin("take_managed", "", managed=True)
with_twin("take_rename", f"{folder}/take_rename")
with_twin("take_moved", "", managed=True)
with_twin("take_place", f"{folder}/take_place")
hooked = {"pydelta.sync.enabled": "true", "pydelta.sync.table": f"{database}.take_hooked"}
with_twin("take_hooked", f"{folder}/take_hooked", **hooked)
found["taken along"]["before"] = known()
found["taken along"]["iceberg before"] = known_to_iceberg()
found["as iceberg"] = rows(spark.sql(f"SELECT * FROM {database}_iceberg.take_drop"))
try:
    spark.sql(f"DROP TABLE {database}_iceberg.take_drop")
    found["dropped as iceberg"] = None
except Exception as error:  # noqa: BLE001  its text is looked at
    found["dropped as iceberg"] = str(error)
spark.sql(f"DROP TABLE {database}.take_drop")
spark.sql(f"DROP TABLE {database}.take_managed")
spark.sql(f"ALTER TABLE {database}.take_rename RENAME TO {database}.take_renamed")
spark.sql(f"ALTER TABLE {database}.take_moved RENAME TO {database}.take_gone_there")
spark.sql(f"ALTER TABLE {database}.take_hooked RENAME TO {database}.take_hook")
spark.sql(f"CREATE TABLE delta.`{folder}/take_elsewhere` (id BIGINT, p STRING) USING delta PARTITIONED BY (p)")
spark.sql(f"ALTER TABLE {database}.take_place SET LOCATION '{folder}/take_elsewhere'")
found["taken along"]["after"] = known()
found["taken along"]["iceberg after"] = known_to_iceberg()
spark.sql(f"INSERT INTO {database}.take_hook VALUES (2, 'b')")
found["taken along"]["after a commit"] = [item for item in known() if "hook" in item[0]]
found["taken along"]["property"] = (
    DeltaLog.for_table(f"{folder}/take_hooked").update().metadata.configuration["pydelta.sync.table"]
)

# The twin of an earlier table, and one whose table's folder is gone.
with_twin("take_earlier", f"{folder}/take_earlier")
with_twin("take_vanished", f"{folder}/take_vanished")
for name in ("take_earlier", "take_vanished"):
    shutil.rmtree(f"{folder}/{name}")
DeltaLog.clear_cache()
spark.range(1).selectExpr("id", "'a' AS p").write.format("delta").partitionBy("p").save(f"{folder}/take_earlier")
spark.sql(f"DROP TABLE {database}.take_earlier")
spark.sql(f"DROP TABLE {database}.take_vanished")
found["taken along"]["of other tables"] = [item[0] for item in known() if "earlier" in item[0] or "vanished" in item[0]]

# MSCK lists folders: one that lost its files must not come back.
spark.sql(f"DELETE FROM {native} WHERE Day = 3")
with Metastore(MetastoreAddress.parse(uri)) as metastore:
    sync_table(log, metastore, twin_name(name_of_orders))
    found["msck"] = [metastore.partition_names(f"{database}_symlink", "orders")]

spark.sql(f"CREATE TABLE {database}.plain (a INT) STORED AS PARQUET")
spark.sql(f"INSERT INTO {database}.plain VALUES (1), (2)")
found["a table of Hive's own"] = rows(spark.table(f"{database}.plain"))

pydelta.disable(spark)
spark.sql(f"MSCK REPAIR TABLE {twin}")
with Metastore(MetastoreAddress.parse(uri)) as metastore:
    found["msck"].append(metastore.partition_names(f"{database}_symlink", "orders"))
for setting in ("true", "false"):
    spark.conf.set("spark.sql.hive.convertMetastoreParquet", setting)
    try:
        answer = rows(spark.table(twin))
        found[f"without pydelta, convertMetastoreParquet={setting}"] = sorted({str(row) for row in answer})[:3]
    except Exception as error:  # noqa: BLE001  whatever it is: it is shown, and never the right rows
        found[f"without pydelta, convertMetastoreParquet={setting}"] = f"{type(error).__name__}: {str(error)[:300]}"
spark.stop()
print(json.dumps(found))
