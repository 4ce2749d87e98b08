"""Measure what deletion vectors cost a reader at 1, 10^4 and 10^7 deleted rows, and what they save a DELETE.

Beside the time from outside it takes the executors' processor time, which company on the machine does not stretch.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import pydelta
from benchmarks._timing import ratios
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

ROWS = int(os.environ.get("PYDELTA_BENCH_ROWS", "20000000"))
FILES = 16
DELETES = {
    "1 row": f"id = {ROWS // 2 + 345_678}",
    "10^4 rows": f"id % {ROWS // 10_000} = 7",
    "10^7 rows": "id % 2 = 1",
}
_BY_SCAN = "spark.pydelta.read.metadataQuery"
QUERIES = {
    "full aggregate": lambda df: df.selectExpr("sum(v)", "sum(k)", "max(s)", "count(*)"),
    "filtered sum": lambda df: df.where("k < 10").selectExpr("sum(v)", "count(*)"),
    "count": lambda df: df.selectExpr("count(*)"),
    "count by a scan": lambda df: df.selectExpr("count(*)"),
}
_JOBS = itertools.count()


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
            runs = {version: lambda query=query, frame=frame: query(frame) for version, frame in frames.items()}
            if name == "filtered sum":  # what Spark's column of row numbers costs by itself
                plain = frames["no vector"].where("k < 10")
                runs["no vector, with row_index"] = lambda plain=plain: plain.selectExpr(
                    "sum(v)", "count(*)", "max(_metadata.row_index)"
                )
            spark.conf.set(_BY_SCAN, str(name != "count by a scan").lower())
            result |= _measured(spark, name, runs)
        spark.conf.unset(_BY_SCAN)
        if os.environ.get("PYDELTA_BENCH_ONLY", "delete") == "delete":
            result["one-row DELETE"] = _one_row(spark, folder)
        return result


def _measured(spark: Any, name: str, runs: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Ratios of a query's time and of its jobs' processor time to those of the version without vectors."""
    seconds: dict[str, list[float]] = {version: [] for version in runs}
    processor: dict[str, list[float]] = {version: [] for version in runs}
    for turn in range(6):
        for version, run in runs.items():
            group = f"bench-vectors-{next(_JOBS)}"
            spark.sparkContext.setJobGroup(group, name)
            started = time.perf_counter()
            run().collect()
            took = time.perf_counter() - started
            if turn:
                seconds[version].append(took)
                processor[version].append(_processor_seconds(spark, group))
    medians = {version: statistics.median(values) for version, values in seconds.items()}
    used = {version: statistics.median(values) for version, values in processor.items()}
    found: dict[str, Any] = {name: {**ratios(medians, to="no vector"), "seconds": round(medians["no vector"], 3)}}
    if used["no vector"]:
        found[f"{name}, processor time"] = {**ratios(used, to="no vector"), "seconds": round(used["no vector"], 3)}
    return found


def _processor_seconds(spark: Any, group: str) -> float:
    """What the tasks of a group's jobs used, as Spark's own metrics have it."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    store, tracker = context._jsc.sc().statusStore(), context.statusTracker()
    ran = [info for job in tracker.getJobIdsForGroup(group) if (info := tracker.getJobInfo(job)) is not None]
    stages = {int(stage) for info in ran for stage in info.stageIds}
    return sum(float(store.lastStageAttempt(stage).executorCpuTime()) for stage in stages) / 1e9


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
