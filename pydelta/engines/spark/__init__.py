"""Let Spark read, write and change tables through this engine. Only this package depends on PySpark."""

from __future__ import annotations

from pydelta.engines.spark_versions import require_spark

require_spark()
