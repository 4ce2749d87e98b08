"""A session in; ``format("delta")``, tables, SQL and writers of that session answered by this engine from then on.

::

    enable(spark) --> checks: classic session, no JVM engine configured, executors have what they need
                  --> routing_read, routing_write: methods of PySpark's classes replaced, once a process
                  --> the Python data source "delta": the last resort for routes that are not covered
    disable(spark) --> the last enabled session gone, every method is put back
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from pydelta.spark import routing_read
from pydelta.spark.checks import check_executors, check_session
from pydelta.spark.facade import user_errors
from pydelta.spark.jvm import Jvm
from pydelta.spark.patches import is_enabled, mark, restore_all, unmark

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
        DeltaEnvironmentError: A Spark Connect session; a session configured for the JVM engine (the settings to
            delete are named); executors without pyarrow or this package.
        InvalidArgumentError: A ``spark.pydelta.*`` setting that cannot be right.
    """
    with user_errors():
        check_session(spark)
        if is_enabled(spark):
            return spark
        check_executors(spark)
        routing_read.install()
        for module in _write_routes():
            module.install(spark)
        _register_source(spark)
        mark(spark)
    return spark


def disable(spark: SparkSession) -> None:
    """Undo ``enable`` for the session; PySpark's methods are put back when no enabled session is left."""
    if not is_enabled(spark):
        return
    Jvm.of(spark).forget_data_source("delta")
    last = unmark(spark)
    for module in _write_routes():
        module.uninstall(spark)
    if last:
        restore_all()


def _write_routes() -> list[Any]:
    name = "pydelta.spark.routing_write"
    return [importlib.import_module(name)] if importlib.util.find_spec(name) is not None else []


def _register_source(spark: SparkSession) -> None:
    from pydelta.spark.datasource import DeltaDataSource

    manager = Jvm.of(spark).session.sessionState().dataSourceManager()
    if not manager.dataSourceExists(DeltaDataSource.name()):  # a new session inherits those of its parent
        spark.dataSource.register(DeltaDataSource)
