"""Route a session's ``format("delta")``, tables, SQL and writers to this engine.

::

    enable(spark) --> checks: classic session, no JVM engine configured, executors have the packages
                  --> routing_read, routing_write: methods of PySpark's classes replaced, once per process
                  --> the Python data source "delta": the last resort for routes that are not covered
    disable(spark) --> when the last enabled session is disabled, every method is restored
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydelta.api.routing import input_files, local_lists
from pydelta.api.routing import readers as routing_read
from pydelta.api.routing import streams as routing_streams
from pydelta.api.routing import writers as routing_write
from pydelta.api.sql import foreign_writes
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import user_errors
from pydelta.engines.spark.session import call_sites
from pydelta.engines.spark.session.checks import check_executors, check_session
from pydelta.engines.spark.session.patches import is_enabled, mark, restore_all, unmark

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
    with user_errors():
        check_session(spark)
        if is_enabled(spark):
            return spark
        check_executors(spark)
        routing_read.install(enable)
        routing_write.install(spark)
        routing_streams.install()
        foreign_writes.install()
        input_files.install()
        local_lists.install()
        call_sites.install()
        _register_source(spark)
        mark(spark)
    return spark


def disable(spark: SparkSession) -> None:
    """Undo ``enable`` for the session; the last one to be disabled restores PySpark's methods."""
    if not is_enabled(spark):
        return
    Jvm.of(spark).forget_data_source("delta")
    last = unmark(spark)
    routing_write.uninstall(spark)
    if last:
        restore_all()


def _register_source(spark: SparkSession) -> None:
    from pydelta.api.routing.datasource import DeltaDataSource

    Jvm.of(spark).register_data_source(DeltaDataSource)
