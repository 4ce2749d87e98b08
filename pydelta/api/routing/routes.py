"""Install the routes of a session's ``format("delta")``, tables, SQL and writers to this engine, and remove them.

::

    install(spark) --> checks: classic session, no JVM engine configured, executors have the packages
                   --> routing_read, routing_write: methods of PySpark's classes replaced, once per process
                   --> the Python data source "delta": the last resort for routes that are not covered
    remove(spark) --> with the last enabled session, every method is restored
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pydelta.api.routing import input_files, local_lists
from pydelta.api.routing import readers as routing_read
from pydelta.api.routing import streams as routing_streams
from pydelta.api.routing import writers as routing_write
from pydelta.api.sql import foreign_writes
from pydelta.engines.spark.data_sources import forget_data_source, register_data_source
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import user_errors
from pydelta.engines.spark.scan.newest import offer_newest
from pydelta.engines.spark.session import call_sites
from pydelta.engines.spark.session.checks import check_executors, check_session
from pydelta.engines.spark.session.patches import is_enabled, mark, restore_all, unmark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["install", "remove"]


def install(spark: SparkSession, enable: Callable[[SparkSession], SparkSession]) -> None:
    """Install the routes. Raises as ``enable``.

    Args:
        spark: The session.
        enable: Enables a session that is made from this one.
    """
    with user_errors():
        check_session(spark)
        if is_enabled(spark):
            return
        check_executors(spark)
        routing_read.install(enable)
        routing_write.install(spark)
        routing_streams.install()
        foreign_writes.install()
        input_files.install()
        local_lists.install()
        call_sites.install()
        _register_source(spark)
        offer_newest(Jvm.of(spark))
        mark(spark)


def remove(spark: SparkSession) -> None:
    """Remove the session's routes; the last one that has any restores PySpark's methods."""
    if not is_enabled(spark):
        return
    forget_data_source(Jvm.of(spark), "delta")
    last = unmark(spark)
    routing_write.uninstall(spark)
    if last:
        restore_all()


def _register_source(spark: SparkSession) -> None:
    from pydelta.api.routing.datasource import DeltaDataSource

    register_data_source(Jvm.of(spark), DeltaDataSource)
