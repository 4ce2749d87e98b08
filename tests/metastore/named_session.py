"""Run by ``test_named_tables.py``, two at once: sessions whose catalog is one metastore, each in a process of its own.

Arguments: the metastore's address, a database, a folder, ``first`` or ``second``. The two wait for each other at named
points (files in the folder). Prints one JSON document: what was found.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path

import pydelta
from pydelta.engines.spark.catalog.entries import drop_table, rename_table, set_location
from pydelta.engines.spark.catalog.lookup import look_up
from pydelta.errors import DeltaError, MetadataChangedException
from pydelta.tables import DeltaTable

uri, database, folder, which = sys.argv[1:]
other = "second" if which == "first" else "first"
found: dict[str, object] = {}
said: list[str] = []


class _Keep(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())


logging.getLogger("pydelta").addHandler(_Keep())


def meet(point):
    """Go on when the other session is at the same point."""
    Path(folder, f"{which}.{point}").touch()
    give_up = time.monotonic() + 200
    while not Path(folder, f"{other}.{point}").exists():
        if time.monotonic() > give_up:
            raise SystemExit(f"{which} waited in vain at {point}")
        time.sleep(0.05)


def refused(what):
    try:
        what()
    except DeltaError as error:
        return str(error)
    return None


def rows(frame):
    return sorted([str(value) for value in row] for row in frame.collect())


spark = pydelta.session(
    which,
    master="local[1]",
    conf={
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": uri,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    },
)
spark.sparkContext.setLogLevel("OFF")
spark.catalog.setCurrentDatabase(database)

if which == "first":
    DeltaTable.create(spark).tableName("managed").comment("of the catalog").addColumn("Id", "bigint").addColumn(
        "Day", "date"
    ).addColumn("at", "timestamp_ntz").addColumn("s", "struct<a:int,b:array<decimal(5,2)>>").partitionedBy(
        "Day"
    ).property("delta.appendOnly", "false").execute()
    spark.range(4).write.format("delta").option("path", f"{folder}/external").saveAsTable("external")
    spark.sql(f"CREATE TABLE by_sql (id INT NOT NULL, name STRING COMMENT 'who') USING DELTA LOCATION '{folder}/sql'")
    spark.sql("INSERT INTO by_sql VALUES (1, 'x')")
    spark.sql("CREATE TABLE selected USING delta AS SELECT id, id * 2 AS twice FROM external")
    spark.range(3).write.format("delta").save(f"{folder}/there")
    DeltaTable.create(spark).tableName("there").location(f"{folder}/there").execute()
    found["refused"] = {
        "columns": refused(
            lambda: DeltaTable.create(spark).tableName("no").location(f"{folder}/there").addColumn("x", "int").execute()
        ),
        "taken": refused(lambda: DeltaTable.create(spark).tableName("there").addColumn("x", "int").execute()),
        "managed place": refused(lambda: spark.sql("CREATE TABLE there (id BIGINT) USING delta")),
    }
    DeltaTable.createIfNotExists(spark).tableName("there").addColumn("x", "int").execute()
    spark.sql("CREATE TABLE plain (a INT) USING parquet")
meet("made")
if which == "second":
    names = ("managed", "external", "by_sql", "selected", "there")
    found["seen"] = {name: [spark.table(name).columns, spark.table(name).count()] for name in names}
    found["managed"] = {name: look_up(spark, (name,)).managed for name in names}
    found["plain"] = rows(spark.sql("SELECT * FROM plain"))
    spark.sql("INSERT INTO managed SELECT 1, date'2024-01-01', null, named_struct('a', 1, 'b', array(1.5))")
    spark.sql("ALTER TABLE managed ADD COLUMNS (extra INT)")  # comes before the partition column, which moves
    found["widened"] = [column.name for column in spark.catalog.listColumns("managed")]
    wider = spark.range(4, 6).selectExpr("id", "'new' AS note")
    wider.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable("external")
    DeltaTable.forName(spark, "by_sql").update(set={"name": "'y'"})
meet("evolved")
if which == "first":
    found["evolved"] = [spark.table("external").columns, spark.table("external").count()]
    found["from the other"] = [rows(spark.table("by_sql")), spark.table("managed").count()]
    found["said"] = list(said)
    DeltaTable.replace(spark).tableName("selected").addColumn("fresh", "string").execute()
    rename_table(spark, ("managed",), ("renamed",))
    spark.range(9).write.format("delta").save(f"{folder}/there2")
    set_location(spark, ("there",), f"{folder}/there2")
    drop_table(spark, ("by_sql",))
meet("changed")
if which == "second":
    found["replaced"] = spark.table("selected").columns
    found["renamed"] = [spark.table("renamed").count(), spark.catalog.tableExists("managed")]
    found["moved"] = spark.table("there").count()
    found["dropped"] = [look_up(spark, ("by_sql",)), Path(folder, "sql", "_delta_log").exists()]
meet("raced")
# Both append to one table and widen it, each by a column of its own.
for number in range(3):
    frame = spark.range(1).selectExpr("id", "'n' AS note", f"{number} AS {which}_{number}")
    while True:
        try:
            frame.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable("external")
            break
        except MetadataChangedException:  # the other one widened it: nothing was committed, and it may be tried again
            pass
meet("written")
if which == "first":
    spark.range(1).selectExpr("id", "'n' AS note").write.format("delta").mode("append").saveAsTable("external")
    found["after the race"] = [sorted(spark.table("external").columns), spark.table("external").count()]
    place = look_up(spark, ("renamed",)).location.removeprefix("file:")
    drop_table(spark, ("renamed",))
    found["dropped managed"] = [spark.catalog.tableExists("renamed"), Path(place).exists()]
spark.stop()
print(json.dumps(found))
