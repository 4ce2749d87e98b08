"""Compare reading a table through our index with Spark's plain scan of the same Parquet files."""

from __future__ import annotations

import tempfile
from typing import Any

import pydelta
from benchmarks._timing import interleave, ratios

ROWS = 8_000_000


def run() -> dict[str, Any]:
    """Three queries over 8 million rows in 16 files, both ways on the very same files."""
    spark = pydelta.session("bench-scan")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t"
        (
            spark.range(ROWS, numPartitions=16)
            .selectExpr("id", "id % 1000 AS k", "rand(7) AS v", "concat('s', id % 5000) AS s")
            .write.format("delta")
            .save(path)
        )
        result: dict[str, Any] = {}
        queries = {
            "full aggregate": lambda df: df.selectExpr("sum(v)", "sum(k)", "max(s)", "count(*)").collect(),
            "filtered sum": lambda df: df.where("k < 10").selectExpr("sum(v)", "count(*)").collect(),
            "count": lambda df: df.selectExpr("count(*)").collect(),
        }
        for name, query in queries.items():
            medians = interleave(
                {
                    "parquet": lambda query=query: query(spark.read.parquet(path)),
                    "pydelta": lambda query=query: query(spark.read.format("delta").load(path)),
                },
                rounds=7,
            )
            result[name] = {**ratios(medians, to="parquet"), "parquet seconds": round(medians["parquet"], 2)}
        return result
