"""Start an enabled Spark session with the given settings."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession

from pydelta.engines.spark.session.places import local_settings, without_derby_log
from pydelta.engines.spark.session.stores import packages_for
from pydelta.engines.spark.session.submitted import submitted_conf

if TYPE_CHECKING:
    from pyspark.sql.session import SparkSession as _Session

__all__ = ["configure_spark_with_delta_pip", "session"]


def session(
    app_name: str = "pydelta", *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a classic session with the engine enabled: the running one, or a new one.

    A new local session creates no folder in the working directory: see ``places`` for where managed tables go. If
    ``conf`` has keys for S3 or Azure (``spark.hadoop.fs.s3a.*``), the session loads the package with Hadoop's file
    system for that store, in the version of Spark's own Hadoop.

    Args:
        app_name: Name of the application.
        master: Cluster to use; None for the master set by spark-submit or the configuration, else all local cores.
        conf: Spark settings.

    Raises:
        DeltaEnvironmentError: See ``enable``.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    running = SparkContext._active_spark_context is not None
    settings = dict(conf or {})
    if master is not None:
        settings["spark.master"] = master
    elif not {"SPARK_HOME", "MASTER"} & set(os.environ) and not running:
        settings.setdefault("spark.master", "local[*]")
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # Only this machine uses a local session.
    if not running:
        settings = {**local_settings(settings), **settings}
        packages = None if submitted_conf() else packages_for(settings)  # spark-submit has already set the class path.
        if packages is not None:
            settings["spark.jars.packages"] = packages
        # The modules are loaded while the JVM starts.
        modules = "pydelta.api.routing.enable"
        threading.Thread(target=import_module, args=(modules,), daemon=True, name="pydelta-imports").start()
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not running:
        without_derby_log(spark)
    from pydelta.api.routing.enable import enable

    return enable(spark)


def configure_spark_with_delta_pip(
    spark_session_builder: _Session.Builder, extra_packages: Sequence[str] | None = None
) -> _Session.Builder:
    """Return the builder, changed so that ``getOrCreate`` returns enabled sessions; the engine needs no JVM package.

    It removes the reference engine's two settings from the builder.

    Args:
        spark_session_builder: A session builder.
        extra_packages: Maven coordinates of other packages, set as ``spark.jars.packages``.
    """
    from pydelta.api.routing.wishes import enabling

    if extra_packages:
        spark_session_builder = spark_session_builder.config("spark.jars.packages", ",".join(extra_packages))
    return enabling(spark_session_builder)
