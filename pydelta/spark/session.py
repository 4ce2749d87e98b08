"""Settings in, an enabled Spark session out."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pydelta.spark.routing import enable

if TYPE_CHECKING:
    from pyspark.sql.session import SparkSession as _Session

__all__ = ["configure_spark_with_delta_pip", "session"]


def session(
    app_name: str = "pydelta", *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A classic session with the engine enabled: the running one, or a new one.

    Args:
        app_name: Name of the application.
        master: Cluster to use; None for what spark-submit or the configuration says, else all local cores.
        conf: Spark settings.

    Raises:
        DeltaEnvironmentError: See ``enable``.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    elif "SPARK_HOME" not in os.environ and "MASTER" not in os.environ and SparkSession.getActiveSession() is None:
        builder = builder.master("local[*]")
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nothing of a local session is for other machines
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    return enable(builder.getOrCreate())


def configure_spark_with_delta_pip(
    spark_session_builder: _Session.Builder, extra_packages: Sequence[str] | None = None
) -> _Session.Builder:
    """The builder as it is: this engine needs no package of the JVM.

    Here so that code that calls it runs unchanged; call ``pydelta.enable`` on the session that the builder makes.

    Args:
        spark_session_builder: A session builder.
        extra_packages: Maven coordinates of other packages, set as ``spark.jars.packages``.
    """
    if extra_packages:
        return spark_session_builder.config("spark.jars.packages", ",".join(extra_packages))
    return spark_session_builder
