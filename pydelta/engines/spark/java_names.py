"""Look up each JVM name only once.

A look-up through py4j takes milliseconds: the JVM searches all its jars for every part of a name and does not cache
failures. A call on a known class takes a fraction of a millisecond.
"""

from __future__ import annotations

from typing import Any, Final

from py4j.java_gateway import JavaPackage
from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql.classic.column import Column as ClassicColumn

__all__ = ["JavaNames", "column_named"]

_ATTRIBUTE: Final = "_pydelta_names"


class JavaNames:
    """A JVM package, or the root, whose members are looked up only once."""

    def __init__(self, package: Any) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._package, name)
        if isinstance(found, JavaPackage):
            found = JavaNames(found)
        setattr(self, name, found)
        return found

    @classmethod
    def of(cls, gateway: Any) -> JavaNames:
        """Return the names of a gateway, shared by all sessions of the process."""
        # vars() is used because a gateway treats any missing attribute as a JVM method.
        names: JavaNames | None = vars(gateway).get(_ATTRIBUTE)
        if names is None:
            names = cls(gateway.jvm)
            setattr(gateway, _ATTRIBUTE, names)
        return names


def column_named(text: str) -> Column:
    """Return the column of a name in SQL spelling, in one call.

    ``functions.col`` needs five, because it also tells Spark the calling line of the user's code.
    """
    context = SparkContext._active_spark_context
    assert context is not None
    names = JavaNames.of(context._gateway)
    make = names.__dict__.get("_pydelta_col")
    if make is None:
        make = names.__dict__["_pydelta_col"] = names.org.apache.spark.sql.functions.col
    return ClassicColumn(make(text))
