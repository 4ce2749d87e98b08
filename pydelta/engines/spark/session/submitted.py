"""Read what spark-submit passed to this process, without a session: for jobs that only need its settings."""

from __future__ import annotations

import os
import re

__all__ = ["submitted_conf"]


def submitted_conf() -> dict[str, str]:
    """Return the settings of spark-submit's command line and defaults; empty in a Python process of its own.

    ``${env.NAME}`` stands for a variable of the environment, as it does for Hadoop.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf
    from pyspark.core.context import SparkContext

    SparkContext._ensure_initialized()
    return {name: expanded(value) for name, value in SparkConf().getAll()}


def expanded(value: str) -> str:
    """A setting with ``${env.NAME}`` replaced; an unset variable is left as it is written."""
    return re.sub(r"\$\{env\.(\w+)\}", lambda match: os.environ.get(match[1], match[0]), value)
