"""Measure what deletion vectors cost a reader at 1, 10^4 and 10^7 deleted rows, and what they save a DELETE."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import pydelta
from benchmarks._timing import interleave, ratios
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

ROWS = 20_000_000
FILES = 16
DELETES = {
    "1 row": "id = 12345678",
    "10^4 rows": "id % 2000 = 7",
    "10^7 rows": "id % 2 = 1",
}
QUERIES = {
    "full aggregate": lambda df: df.selectExpr("sum(v)", "sum(k)", "max(s)", "count(*)").collect(),
    "filtered sum": lambda df: df.where("k < 10").selectExpr("sum(v)", "count(*)").collect(),
    "count": lambda df: df.selectExpr("count(*)").collect(),
}


def run() -> dict[str, Any]:
    """Versions of one table with the same data files: ratios to the version without vectors; and a one-row DELETE."""
    spark = pydelta.session("bench-vectors")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t"
        (
            spark.range(ROWS, numPartitions=FILES)
            .selectExpr("id", "id % 1000 AS k", "rand(7) AS v", "concat('s', id % 5000) AS s")
            .write.format("delta")
            .option("delta.enableDeletionVectors", "true")
            .save(path)
        )
        table = DeltaTable.forPath(spark, path)
        versions = {"no vector": 0}
        result: dict[str, Any] = {"delete": {}, "vector bytes": {}}
        for name, condition in DELETES.items():
            table.restoreToVersion(0)
            started = time.perf_counter()
            done = table.delete(condition)
            result["delete"][name] = round(time.perf_counter() - started, 2)
            versions[name] = done.version
            snapshot = DeltaLog.for_table(path).update()
            adds = snapshot.files.adds(snapshot.files.core)
            result["vector bytes"][name] = sum(add.deletion_vector.size_in_bytes for add in adds if add.deletion_vector)
        frames = {
            name: spark.read.format("delta").option("versionAsOf", version).load(path)
            for name, version in versions.items()
        }
        for name, query in QUERIES.items():
            medians = interleave(
                {version: lambda query=query, frame=frame: query(frame) for version, frame in frames.items()}, rounds=5
            )
            result[name] = {**ratios(medians, to="no vector"), "no vector, seconds": round(medians["no vector"], 2)}
        result["one-row DELETE"] = _one_row(spark, folder)
        return result


def _one_row(spark: Any, folder: str) -> dict[str, float]:
    """Seconds of a DELETE of one row, by a vector and by a copy of its file; the table is put back in between."""
    tables = {}
    for name, enabled in (("vector", "true"), ("copy", "false")):
        path = f"{folder}/{name}"
        frame = spark.range(ROWS // 4, numPartitions=4).selectExpr(
            "id", "id % 1000 AS k", "rand(7) AS v", "uuid() AS s"
        )
        frame.write.format("delta").option("delta.enableDeletionVectors", enabled).save(path)
        tables[name] = DeltaTable.forPath(spark, path)
    seconds: dict[str, list[float]] = {name: [] for name in tables}
    for turn in range(6):
        for name, table in tables.items():
            started = time.perf_counter()
            table.delete(f"id = {1_000_000 + turn}")
            if turn:
                seconds[name].append(time.perf_counter() - started)
            table.restoreToVersion(0)
    medians = {name: sorted(values)[len(values) // 2] for name, values in seconds.items()}
    return {
        **{name: round(value, 2) for name, value in medians.items()},
        "ratio": ratios(medians, to="copy")["vector"],
    }
