"""Check that Spark can open a table's store, and find the package that enables it.

This process reads and writes the log, but rows are read by Spark's Parquet reader, which needs Hadoop's file system for
the store on its class path. Without it, a table could be written but never read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.find_spark_home import _find_spark_home

from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import DeltaEnvironmentError
from pydelta.storage.kinds import KINDS, kind_of
from pydelta.storage.uris import scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_store", "packages_for"]

_CHECKED: Final = "_pydelta_stores_checked"
_VERSION: Final = re.compile(r"hadoop-client-api-(\d[\w.-]*)\.jar")


def check_store(spark: SparkSession, uri: str) -> None:
    """Check, once per scheme, that the session's Hadoop has a file system for a table's location.

    Args:
        spark: A classic session.
        uri: The location. A path without a scheme is on Hadoop's default file system, which always exists.

    Raises:
        DeltaEnvironmentError: There is none. The hint gives the package and settings that the session needs.
    """
    scheme = scheme_of(uri) if ":" in uri else ""
    context = spark.sparkContext
    known: set[str] = getattr(context, _CHECKED, set())
    if not scheme or scheme in known:
        return
    jvm = Jvm.of(spark)
    try:
        jvm.view.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, jvm.hadoop_conf())
    except Py4JError as error:
        store = kind_of(scheme).spark
        hint = f"Put the jars of Hadoop's file system for {scheme} on the class path of the driver and the executors."
        if store is not None:
            version = str(jvm.view.org.apache.hadoop.util.VersionInfo.getVersion())
            hint = (
                f"Start the session with spark.jars.packages={store.package}:{version} (or spark-submit --packages), "
                f"and with {store.keys}. pydelta.session(conf=…) adds the package where conf has such a key. A session "
                "that only writes can do without: spark.pydelta.storage.hadoopCheck=false."
            )
        raise DeltaEnvironmentError(
            f"Spark cannot read {scheme}:// in this session: Hadoop has no file system for it on the class path.",
            hint=hint,
        ) from error
    setattr(context, _CHECKED, {*known, scheme})


def packages_for(settings: Mapping[str, str], *, jars: Path | None = None) -> str | None:
    """Find the packages that a new session needs for the stores in its settings.

    Args:
        settings: Settings of the session to be created.
        jars: Spark's folder of jars; None for that of the installed PySpark.

    Returns:
        ``spark.jars.packages`` including them; None if there is nothing to add.

    Example:
        >>> packages_for({"spark.app.name": "no store"})
    """
    folder = jars or Path(os.environ.get("SPARK_HOME") or _find_spark_home()) / "jars"
    names = [path.name for path in folder.glob("hadoop-*.jar")]
    version = next((found.group(1) for found in map(_VERSION.fullmatch, names) if found), None)
    given = [item.strip() for item in settings.get("spark.jars.packages", "").split(",") if item.strip()]
    wanted = []
    for store in (kind.spark for kind in KINDS if kind.spark is not None):
        artifact = store.package.partition(":")[2]
        named = any(key.startswith(store.prefix) for key in settings)
        there = any(name.startswith(f"{artifact}-") for name in names) or any(store.package in item for item in given)
        if named and not there:
            wanted.append(f"{store.package}:{version}")
    return ",".join([*given, *wanted]) if wanted and version else None
