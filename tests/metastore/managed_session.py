"""Run by ``test_managed_sync.py`` in a process of its own: managed tables that are synced as they are made.

Arguments: the metastore's address, a database, a folder. Prints one JSON document: what was found.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pydelta
from catalog_sync import Metastore, MetastoreAddress

uri, database, folder = sys.argv[1:]
spark = pydelta.session(
    "managed",
    master="local[1]",
    conf={
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": uri,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    },
)
spark.sparkContext.setLogLevel("OFF")
spark.sql(f"CREATE DATABASE {database} LOCATION 'file://{folder}/warehouse/{database}.db'")
spark.catalog.setCurrentDatabase(database)


def synced(name):
    return f"TBLPROPERTIES ('pydelta.sync.enabled' = 'true', 'pydelta.sync.table' = '{database}.{name}')"


def by_sql(name, place=""):
    spark.sql(f"CREATE TABLE {name} (id BIGINT) USING delta {place} {synced(name)}")
    spark.sql(f"INSERT INTO {name} VALUES (1), (2)")


def selected(name):
    spark.sql(f"CREATE TABLE {name} USING delta {synced(name)} AS SELECT * FROM range(2)")


def replaced(name):
    spark.sql(f"CREATE OR REPLACE TABLE {name} (id BIGINT) USING delta {synced(name)}")
    spark.sql(f"INSERT INTO {name} VALUES (1), (2)")


def cloned(name):
    spark.sql(f"CREATE TABLE {name} SHALLOW CLONE {database}.source {synced(name)}")


def external(name):
    by_sql(name, f"LOCATION 'file://{folder}/{name}'")


spark.sql("CREATE TABLE source (id BIGINT) USING delta")
spark.sql("INSERT INTO source VALUES (1), (2)")
found: dict[str, object] = {}
with Metastore(MetastoreAddress.parse(uri)) as metastore:
    for make in (by_sql, selected, replaced, cloned, external):
        name = make.__name__
        make(name)
        entry = metastore.table(database, name)
        place = Path(entry.sd.serdeInfo.parameters["path"].removeprefix("file://").removeprefix("file:"))
        twin = metastore.table(f"{database}_symlink", name)
        seen = [entry.tableType, (entry.parameters or {}).get("EXTERNAL"), spark.table(name).count(), twin is not None]
        there = place.exists()
        spark.sql(f"DROP TABLE {name}")
        seen += [there, metastore.table(database, name) is None, place.exists()]
        if make is not external:
            make(name)
            seen += [metastore.table(database, name).tableType, spark.table(name).count()]
        found[name] = seen
print(json.dumps(found))
