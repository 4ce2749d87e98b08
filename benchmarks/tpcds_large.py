"""Run TPC-DS as ``benchmarks.tpcds``, but at scale 10: once, for most of two hours."""

from __future__ import annotations

from typing import Any

from benchmarks.tpc import workload

ONLY_IF_NAMED = True


def run() -> dict[str, Any]:
    """Scale 10; each query once, without a turn before (``PYDELTA_BENCH_MINUTES``: how long queries may begin)."""
    return {"tpcds": workload("tpcds", scale=10, rounds=1, warm_up=0)}
