"""Let Spark read, write and change tables through this engine. Only this package depends on PySpark."""

from __future__ import annotations

from pydelta.engines.spark.versions import installed_spark, refuse_unsupported

refuse_unsupported(installed_spark())
