"""Read the configuration that spark-submit passed to this process, for jobs without a session."""

from __future__ import annotations

import os
import re

__all__ = ["submitted_conf"]


def submitted_conf() -> dict[str, str]:
    """Return the settings of spark-submit's command line and defaults; empty in an ordinary Python process.

    ``${env.NAME}`` is replaced by the environment variable, as in Hadoop.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf
    from pyspark.core.context import SparkContext

    SparkContext._ensure_initialized()
    return {name: expanded(value) for name, value in SparkConf().getAll()}


def expanded(value: str) -> str:
    """Replace ``${env.NAME}`` in a setting. An unset variable stays as written."""
    return re.sub(r"\$\{env\.(\w+)\}", lambda match: os.environ.get(match[1], match[0]), value)
