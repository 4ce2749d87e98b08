"""Raise an error of this engine inside Spark's script interpreter so that a script's handlers can catch it.

::

    CALL of a procedure --> error --> an iterator for Spark, whose first step throws a SparkThrowable
                                        caught by a handler: the script continues
                                        not caught: it leaves Spark again and is raised as the original error

An error that Python raises in a callback reaches the JVM as py4j's own exception, which Spark's handlers do not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from pydelta.engines.spark.java_objects import iterator_throwing, throwable_with_state
from pydelta.errors import DeltaError

if TYPE_CHECKING:
    from pydelta.engines.spark.jvm import Jvm

__all__ = ["ScriptErrors"]

_CALLBACK: Final = "py4j.Py4JException"


class ScriptErrors:
    """The errors of a script's statements, each with the object thrown for it in the JVM.

    Args:
        jvm: The session's bindings.
    """

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._thrown: list[tuple[Any, BaseException]] = []
        self._last: BaseException | None = None

    def note(self, error: BaseException) -> None:
        """Keep an error that reaches the JVM as py4j's own exception, which does not carry it."""
        self._last = error

    def raised_in_jvm(self, error: DeltaError | PySparkException) -> Any | None:
        """Return a ``java.util.Iterator`` whose first step throws the error, with condition, parameters and SQLSTATE.

        Returns None for a Spark error that did not come from the JVM.
        """
        thrown = (
            throwable_with_state(self._jvm, error) if isinstance(error, DeltaError) else getattr(error, "_origin", None)
        )
        if thrown is None:
            return None
        self._thrown.append((thrown, error))
        return iterator_throwing(self._jvm, thrown)

    def behind(self, error: Py4JError | PySparkException) -> BaseException | None:
        """Find the statement's error behind one from the JVM; None when it is Spark's own."""
        cause = getattr(error, "_origin", None) or (error.java_exception if isinstance(error, Py4JJavaError) else None)
        while cause is not None:
            for thrown, known in self._thrown:
                if cause.equals(thrown):
                    return known
            if str(cause.getClass().getName()) == _CALLBACK:
                return self._last
            cause = cause.getCause()
        return None
