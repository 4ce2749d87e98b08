"""Provide the Python API that Delta users know: ``DeltaTable`` and its builders, and tables without a JVM."""

from __future__ import annotations

from pydelta.engines.spark_versions import installed_spark, refuse_unsupported

refuse_unsupported(installed_spark())
