"""What spark-submit passed to this process, without a session: for jobs that only need its settings."""

from __future__ import annotations

import os

__all__ = ["submitted_conf"]


def submitted_conf() -> dict[str, str]:
    """The settings of spark-submit's command line and defaults; empty in a Python process of its own."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf
    from pyspark.core.context import SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())
