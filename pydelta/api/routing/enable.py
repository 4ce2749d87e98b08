"""Send a session's Delta routes to this engine. Python imports the routes while the JVM compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydelta.engines.spark.compiled import compile_ahead
from pydelta.engines.spark.session.patches import is_enabled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["disable", "enable", "is_enabled"]


def enable(spark: SparkSession) -> SparkSession:
    """Send the session's Delta routes to this engine. Calling it again does nothing.

    Args:
        spark: A classic session.

    Returns:
        The same session.

    Raises:
        DeltaEnvironmentError: It is a Spark Connect session; it is configured for the JVM engine (the error names the
            settings to delete); or executors lack pyarrow or this package.
        InvalidArgumentError: A ``spark.pydelta.*`` setting has an invalid value.
    """
    compile_ahead(spark)
    from pydelta.api.routing.routes import install

    install(spark, enable)
    return spark


def disable(spark: SparkSession) -> None:
    """Undo ``enable`` for the session; the last one to be disabled restores PySpark's methods."""
    from pydelta.api.routing.routes import remove

    remove(spark)
