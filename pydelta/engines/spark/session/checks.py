"""Check that the engine can run on a session, and if not, raise an error with the fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import DeltaEnvironmentError
from pydelta.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "CATALOG",
    "EXTENSIONS",
    "JVM_CATALOG",
    "JVM_EXTENSION",
    "check_executors",
    "check_session",
    "has_jvm_engine",
    "jvm_engine_settings",
]

EXTENSIONS: Final = "spark.sql.extensions"
CATALOG: Final = "spark.sql.catalog.spark_catalog"
JVM_EXTENSION: Final = "DeltaSparkSessionExtension"
JVM_CATALOG: Final = "DeltaCatalog"
_CHECKED: Final = "_pydelta_executors_checked"

# This runs in a worker that may lack this package, so it must not be pickled by reference to it.
_PROBE: Final = """
def probe(_):
    import sys
    missing = []
    for name in ("pyarrow", "pydelta"):
        try:
            __import__(name)
        except ImportError as error:
            missing.append(f"{name} ({error})")
    return [(sys.executable, sys.version.split()[0], missing)]
"""


def check_session(spark: Any) -> None:
    """Refuse a session that cannot work: Spark Connect, or one that runs the JVM engine.

    Settings for the JVM engine without its jar count as a request for this engine, and the catalog that Spark could not
    load is unset.

    Raises:
        DeltaEnvironmentError: The hint gives the settings to delete, or how to make a classic session.
    """
    conf = Jvm.of(spark).session_conf()
    found = jvm_engine_settings(conf)
    if found and not has_jvm_engine(spark):
        if CATALOG in found:
            spark.conf.unset(CATALOG)
    elif found:
        given, names = "; ".join(f"{key}={conf[key]}" for key in found), " and ".join(found)
        raise DeltaEnvironmentError(
            f"The session is configured for the JVM engine: {given}.",
            hint=f"Delete {names} from the session's settings (in full: the extension "
            "io.delta.sql.DeltaSparkSessionExtension in spark.sql.extensions, and spark.sql.catalog.spark_catalog = "
            "org.apache.spark.sql.delta.catalog.DeltaCatalog), and start it again.",
        )
    Settings.resolve(conf)


def jvm_engine_settings(conf: Mapping[str, str]) -> list[str]:
    """Return the names of the settings that configure the reference engine."""
    named = ((EXTENSIONS, JVM_EXTENSION), (CATALOG, JVM_CATALOG))
    return [key for key, word in named if word in conf.get(key, "")]


def has_jvm_engine(spark: SparkSession) -> bool:
    """Return whether the reference engine's jar is on the session's class path."""
    return bool(Jvm.of(spark).view.org.apache.spark.util.Utils.classIsLoadable(f"io.delta.sql.{JVM_EXTENSION}"))


def check_executors(spark: SparkSession) -> None:
    """Check once, in one worker, for the packages that the writer needs there.

    No check is needed for a local master whose workers run this interpreter. If no interpreter is configured, this one
    is set.

    Raises:
        DeltaEnvironmentError: Names the interpreter and what it lacks.
    """
    context = spark.sparkContext
    if getattr(context, _CHECKED, False):
        return
    local = str(context.master).startswith("local")
    if local and "PYSPARK_PYTHON" not in os.environ and not context.getConf().get("spark.pyspark.python"):
        os.environ["PYSPARK_PYTHON"] = context.pythonExec = sys.executable
    if not (local and _same_interpreter(context.pythonExec)):
        executable, version, missing = _look(context)
        if missing:
            raise DeltaEnvironmentError(
                f"The executors' Python ({executable}, {version}) lacks {', '.join(missing)}.",
                hint="Set PYSPARK_PYTHON to an interpreter that has them (for a local session: this one, "
                f"{sys.executable}), or ship an environment with --archives.",
            )
        if version.split(".")[:2] != sys.version.split()[0].split(".")[:2]:
            raise DeltaEnvironmentError(
                f"The executors run Python {version} ({executable}), the driver {sys.version.split()[0]}.",
                hint="Set PYSPARK_PYTHON so that both have the same minor version.",
            )
    setattr(context, _CHECKED, True)


def _same_interpreter(executable: str) -> bool:
    """Return whether a path leads to this interpreter in this environment; environments may share an interpreter."""
    theirs, ours = os.path.abspath(executable), os.path.abspath(sys.executable)
    same_folder = os.path.realpath(os.path.dirname(theirs)) == os.path.realpath(os.path.dirname(ours))
    return same_folder and os.path.realpath(theirs) == os.path.realpath(ours)


def _look(context: Any) -> tuple[str, str, list[str]]:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(_PROBE, namespace)  # noqa: S102  a constant of this module
    found: tuple[str, str, list[str]] = context.parallelize([0], 1).mapPartitions(namespace["probe"]).collect()[0]
    return found
