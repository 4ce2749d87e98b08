"""Does OPTIMIZE of a thousand small files take less time than the peers' on the very same files?

The reference engine takes part where ``PYDELTA_REFERENCE_PYTHON`` names a Python that has its pyspark; its jars come by
their Maven coordinates, ``PYDELTA_REFERENCE_PACKAGE``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake

import pydelta
from benchmarks._timing import ratios
from pydelta.tables import DeltaTable

FILES, ROWS, PARTITIONS, ROUNDS = 1_000, 2_000_000, 20, 3

_REFERENCE = """
import os, sys, time
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars.packages", os.environ["PYDELTA_REFERENCE_PACKAGE"])
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.driver.memory", "3g")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
from delta.tables import DeltaTable
print("READY", flush=True)
for line in sys.stdin:
    kind, path = line.split(maxsplit=1)
    builder = DeltaTable.forPath(spark, path.strip()).optimize()
    started = time.perf_counter()
    builder.executeZOrderBy("id", "s") if kind == "zorder" else builder.executeCompaction()
    print("TOOK", time.perf_counter() - started, flush=True)
"""


class _Reference:
    """The reference engine in a process of its own, warm between turns."""

    def __init__(self) -> None:
        environment = {
            "PYDELTA_REFERENCE_PACKAGE": "io.delta:delta-spark_2.13:4.4.0",
            **os.environ,
            "PYSPARK_PYTHON": os.environ["PYDELTA_REFERENCE_PYTHON"],
        }
        environment.pop("PYSPARK_DRIVER_PYTHON", None)
        self._process = subprocess.Popen(
            [os.environ["PYDELTA_REFERENCE_PYTHON"], "-c", _REFERENCE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._answer("READY")

    def _answer(self, word: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
        raise RuntimeError("the reference engine ended; try PYDELTA_REFERENCE_PYTHON by hand")

    def __call__(self, kind: str, path: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{kind} {path}\n")
        self._process.stdin.flush()
        return float(self._answer("TOOK"))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def run() -> dict[str, Any]:
    """A thousand files of 2,000 rows, unpartitioned and in 20 partitions: compaction; unpartitioned: ZORDER BY two."""
    spark = pydelta.session(app_name="bench-optimize", conf={"spark.driver.memory": "3g"})
    reference = _Reference() if "PYDELTA_REFERENCE_PYTHON" in os.environ else None
    if reference is None:
        print("PYDELTA_REFERENCE_PYTHON is not set: without the reference engine", file=sys.stderr)

    def ours(kind: str, path: str) -> float:
        builder = DeltaTable.forPath(spark, path).optimize()
        zorder = kind == "zorder"
        return _timed(lambda: builder.executeZOrderBy("id", "s") if zorder else builder.executeCompaction())

    def delta_rs(kind: str, path: str) -> float:
        table = deltalake.DeltaTable(path)
        one = 1 << 30
        if kind == "zorder":
            return _timed(lambda: table.optimize.z_order(["id", "s"], target_size=one))
        return _timed(lambda: table.optimize.compact(target_size=one))

    contestants: dict[str, Callable[[str, str], float]] = {"pydelta": ours, "delta-rs": delta_rs}
    if reference is not None:
        contestants["delta-spark"] = reference
    result: dict[str, Any] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, kind, partitions in (
                ("compact", "compact", []),
                (f"compact {PARTITIONS} partitions", "compact", ["p"]),
                ("zorder", "zorder", []),
            ):
                base = f"{folder}/base"
                shutil.rmtree(base, ignore_errors=True)
                rows = spark.range(ROWS, numPartitions=FILES // (PARTITIONS if partitions else 1)).selectExpr(
                    "(id * 7919) % 2000000 AS id",
                    f"cast(id % {PARTITIONS} as int) AS p",
                    "rand(7) AS v",
                    "concat('customer-', id % 100000) AS s",
                    "timestamp_micros(1577836800000000 + id * 1000003) AS t",
                )
                rows.write.format("delta").partitionBy(*partitions).save(base)
                seconds: dict[str, list[float]] = {contestant: [] for contestant in contestants}
                for turn in range(ROUNDS + 1):
                    for contestant, run_one in contestants.items():
                        copy = f"{folder}/copy-{turn}-{contestant}"
                        shutil.copytree(base, copy)
                        took = run_one(kind, copy)
                        if turn:
                            seconds[contestant].append(took)
                        assert deltalake.DeltaTable(copy).to_pyarrow_dataset().count_rows() == ROWS
                        shutil.rmtree(copy)
                medians = {contestant: sorted(values)[len(values) // 2] for contestant, values in seconds.items()}
                to = "delta-spark" if reference is not None else "delta-rs"
                result[name] = {
                    **ratios(medians, to=to),
                    "seconds": {contestant: round(value, 2) for contestant, value in medians.items()},
                    "files": len(list(Path(base).rglob("*.parquet"))),
                }
                print(name, result[name], flush=True)
    finally:
        if reference is not None:
            reference.close()
    return result
