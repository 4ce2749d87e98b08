"""The reference engine's session, for the scripts that run in its environment; rows as values that can be compared."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "4")
    .config("spark.jars.packages", "io.delta:delta-spark_2.13:4.4.0")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.databricks.delta.snapshotPartitions", "2")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")


def rows(frame):
    texts = frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
    return sorted((json.loads(row[0]) for row in texts), key=lambda row: json.dumps(row, sort_keys=True))
