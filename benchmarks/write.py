"""Compare writing a table through the engine with Spark's own Parquet write of the same rows."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import pydelta
from benchmarks._timing import interleave, ratios

ROWS = 2_000_000


def run() -> dict[str, Any]:
    """Two million rows of six columns, cached in memory first: plain, and into 50 partitions."""
    spark = pydelta.session(app_name="bench-write", conf={"spark.driver.memory": "3g"})
    rows = (
        spark.range(ROWS, numPartitions=2)
        .selectExpr(
            "id",
            "cast(id % 50 as int) AS p",
            "rand(7) AS v",
            "concat('customer-', id % 100000) AS s",
            "date_add(date'2020-01-01', cast(id % 1000 as int)) AS d",
            "timestamp_micros(1577836800000000 + id * 1000003) AS t",
        )
        .cache()
    )
    rows.count()
    result: dict[str, Any] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, partitions in (("plain", []), ("50 partitions", ["p"])):

                def parquet(partitions: list[str] = partitions) -> None:
                    shutil.rmtree(f"{folder}/parquet", ignore_errors=True)
                    rows.write.partitionBy(*partitions).parquet(f"{folder}/parquet")

                def ours(partitions: list[str] = partitions) -> None:
                    shutil.rmtree(f"{folder}/delta", ignore_errors=True)
                    rows.write.format("delta").partitionBy(*partitions).save(f"{folder}/delta")

                medians = interleave({"parquet": parquet, "pydelta": ours}, rounds=5)
                result[name] = {**ratios(medians, to="parquet"), "parquet seconds": round(medians["parquet"], 2)}
    finally:
        rows.unpersist()
    return result
