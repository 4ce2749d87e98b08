"""Enable new sessions automatically if their builder or their settings ask for Delta.

::

    configure_spark_with_delta_pip(builder) ------------> that builder's sessions
    spark.pydelta.enabled=true, or the reference
    engine's extension or catalog without its jar ------> any session, once ``pydelta.tables`` is imported
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession

from pydelta.api.routing.enable import enable
from pydelta.engines.spark.jvm import Jvm, is_classic
from pydelta.engines.spark.session.checks import (
    CATALOG,
    EXTENSIONS,
    JVM_CATALOG,
    JVM_EXTENSION,
    has_jvm_engine,
    jvm_engine_settings,
)
from pydelta.engines.spark.session.patches import is_enabled

if TYPE_CHECKING:
    from pyspark.sql.session import SparkSession as _Session

__all__ = ["ENABLED", "asks_for_delta", "enabling", "watch_builders", "without_jvm_engine"]

ENABLED: Final = "spark.pydelta.enabled"
_WATCHED: Final = "_pydelta_watched"


def without_jvm_engine(settings: MutableMapping[str, Any]) -> None:
    """Remove the reference engine's extension and catalog from the settings of a new session."""
    named = [name.strip() for name in str(settings.get(EXTENSIONS, "")).split(",")]
    others = [name for name in named if name and not name.endswith(JVM_EXTENSION)]
    if others:
        settings[EXTENSIONS] = ",".join(others)
    else:
        settings.pop(EXTENSIONS, None)
    if str(settings.get(CATALOG, "")).endswith(JVM_CATALOG):
        del settings[CATALOG]


def enabling(builder: _Session.Builder) -> _Session.Builder:
    """Return the builder, changed so that ``getOrCreate`` returns enabled sessions."""
    original = builder.getOrCreate

    def get_or_create() -> _Session:
        without_jvm_engine(builder._options)
        return enable(original())

    builder.getOrCreate = get_or_create  # type: ignore[method-assign]
    return builder


def asks_for_delta(conf: Mapping[str, str]) -> bool:
    """Return whether a session's settings ask for Delta, in this engine's words or in the reference engine's."""
    wish = conf.get(ENABLED, "").strip().lower()
    if wish:
        return wish == "true"
    return bool(jvm_engine_settings(conf))


def watch_builders() -> None:
    """Enable later sessions whose settings ask for it, unless the reference engine is installed.

    This covers sessions from a builder and those that a program creates with ``SparkSession(context)``.
    """
    original, created = SparkSession.Builder.getOrCreate, SparkSession.__init__
    if hasattr(original, _WATCHED):
        return

    @functools.wraps(original)
    def get_or_create(self: _Session.Builder) -> _Session:
        return _enabled_if_asked(original(self))

    @functools.wraps(created)
    def create(self: _Session, *given: Any, **named: Any) -> None:
        created(self, *given, **named)
        if len(given) + len(named) == 1:  # Spark's own code passes more arguments.
            _enabled_if_asked(self)

    setattr(get_or_create, _WATCHED, True)
    SparkSession.Builder.getOrCreate = get_or_create  # type: ignore[method-assign]
    SparkSession.__init__ = create  # type: ignore[method-assign]


def _enabled_if_asked(spark: _Session) -> _Session:
    if is_enabled(spark) or not is_classic(spark):
        return spark
    if asks_for_delta(Jvm.of(spark).session_conf()) and not has_jvm_engine(spark):
        enable(spark)
    return spark
