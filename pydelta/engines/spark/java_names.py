"""Look up names of the JVM once each.

Through py4j a look-up costs milliseconds: the JVM searches all of its jars for every part of a name, and forgets what
is not there. A call on a known class costs a fraction of one.
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
    """A package of the JVM, or all of them, whose members are looked up once each."""

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
        """Return those of a gateway, which all sessions of a process share."""
        names: JavaNames | None = vars(gateway).get(_ATTRIBUTE)  # what a gateway lacks it takes for a method of the JVM
        if names is None:
            names = cls(gateway.jvm)
            setattr(gateway, _ATTRIBUTE, names)
        return names


def column_named(text: str) -> Column:
    """Return the column of a name as SQL spells it, in one call.

    ``functions.col`` makes five: it also tells Spark which of the user's lines it is called from.
    """
    context = SparkContext._active_spark_context
    assert context is not None
    names = JavaNames.of(context._gateway)
    make = names.__dict__.get("_pydelta_col")
    if make is None:
        make = names.__dict__["_pydelta_col"] = names.org.apache.spark.sql.functions.col
    return ClassicColumn(make(text))
