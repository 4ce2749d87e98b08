"""Compare OPTIMIZE of a thousand small files with the peers' on the very same files.

The reference engine takes part where ``PYDELTA_REFERENCE_PYTHON`` names a Python that has its pyspark; its jars come by
their Maven coordinates, ``PYDELTA_REFERENCE_PACKAGE``.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import deltalake

import pydelta
from benchmarks._peer import reference_engine
from benchmarks._timing import ratios
from pydelta.tables import DeltaTable

FILES, ROWS, PARTITIONS, ROUNDS = 1_000, 2_000_000, 20, 3

_REFERENCE = """
from delta.tables import DeltaTable
def turn(kind, path):
    builder = DeltaTable.forPath(spark, path).optimize()
    started = time.perf_counter()
    builder.executeZOrderBy("id", "s") if kind == "zorder" else builder.executeCompaction()
    return time.perf_counter() - started
"""


def _timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def run() -> dict[str, Any]:
    """A thousand files of 2,000 rows, unpartitioned and in 20 partitions: compaction; unpartitioned: ZORDER BY two."""
    spark = pydelta.session(app_name="bench-optimize", conf={"spark.driver.memory": "3g"})
    reference = reference_engine(_REFERENCE, {"spark.driver.memory": "3g"})

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
    with reference or nullcontext(), tempfile.TemporaryDirectory() as folder:
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
    return result
