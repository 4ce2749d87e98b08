"""Run TPC-DS by SQL: over Delta tables by this engine and by delta-spark, and over the same rows as Parquet.

As ``benchmarks.tpc``; it takes half an hour and more.
"""

from __future__ import annotations

from typing import Any

from benchmarks.tpc import workload


def run() -> dict[str, Any]:
    """Scale 1 (``PYDELTA_BENCH_SCALE``); medians of turns after one that is not counted, and ratios of their sums."""
    return {"tpcds": workload("tpcds")}
