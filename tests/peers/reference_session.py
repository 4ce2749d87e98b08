"""The reference engine's sessions: what they need is said here alone; rows as values that can be compared.

Runs with PySpark's own environment alone, so it imports nothing of the project.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

REFERENCE = {
    "spark.jars.packages": "io.delta:delta-spark_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def reference_session(settings: dict[str, str], *, cores: int = 2) -> Any:
    """A session with the reference engine; a small table's log needs no more parts than there are cores."""
    builder = SparkSession.builder.master(f"local[{cores}]")
    parts = {"spark.databricks.delta.snapshotPartitions": str(cores)}
    for key, value in {"spark.ui.enabled": "false", **REFERENCE, **parts, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def scripts_session() -> Any:
    """The session of the scripts in this folder: two cores, times in UTC, errors alone in the log."""
    spark = reference_session({"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "4"})
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rows(frame: Any) -> list[Any]:
    """The rows, sorted, as JSON."""
    texts = frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
    return sorted((json.loads(row[0]) for row in texts), key=lambda row: json.dumps(row, sort_keys=True))
