"""Make Python objects that the JVM calls, and let their errors surface there like the JVM's own.

::

    the JVM calls a method --> Python --DeltaError--------------> SparkRuntimeException: condition, SQLSTATE, parameters
                                      --an error of the JVM's---> that same error
                                      --anything else-----------> INTERNAL_ERROR, one line; the trace is logged here

A Java method can only throw checked exceptions that it declares, and Spark's ``AnalysisException`` is checked. If a
method returns an iterator, ``throwing_iterator`` throws it nevertheless.

py4j keeps such an object alive as long as the JVM has its counterpart, and releases it once that is garbage-collected.
"""

from __future__ import annotations

import logging
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from pydelta.engines.spark.errors import raised_in, spark_class
from pydelta.engines.spark.session.call_sites import without_call_sites
from pydelta.engines.spark.session.inside import inside
from pydelta.errors import DeltaError, first_line

if TYPE_CHECKING:
    from pydelta.engines.spark.jvm import Jvm

__all__ = [
    "JavaObject", "Kinds", "crossing", "errors_cross", "iterator_throwing", "kinds", "let_errors_cross", "throwable",
    "throwable_with_state",
    "throwing_iterator",
]  # fmt: skip

_log = logging.getLogger(__name__)
_RUNTIME: Final = "org.apache.spark.SparkRuntimeException"
_TELLING: Final = 200
"""Length of the prefix that identifies a message. Spark cuts messages at about 2,000 characters."""
_ANALYSIS: Final = "org.apache.spark.sql.AnalysisException"
_ANALYSIS_ARGUMENTS: Final = 9
_RUNTIME_ARGUMENTS: Final = 6
"""Number since Spark 4.2. The last one is the SQLSTATE."""
_ENDING_SECONDS: Final = 1.0
"""A connection ends a moment before its process is seen to exit."""
_INTERNAL: Final = "INTERNAL_ERROR"
_INTERNAL_STATE: Final = "XX000"


class JavaObject:
    """Methods that every object held by the JVM needs: a name, a hash, equality."""

    def toString(self) -> str:  # noqa: N802
        """Return a name for logs."""
        return "pydelta"

    def hashCode(self) -> int:  # noqa: N802
        """Return a constant number."""
        return id(self) % (1 << 31)

    def equals(self, other: Any) -> bool:
        """Return false, because the JVM never holds one twice."""
        return False


def let_errors_cross(gateway: Any) -> None:
    """Let JVM errors that a callback raises reach the JVM unchanged, for all callbacks of the process."""
    gateway.callback_server_parameters.propagate_java_exceptions = True


def errors_cross(jvm: Jvm) -> bool:
    """Return whether ``let_errors_cross`` was called for the process."""
    return bool(jvm.gateway.callback_server_parameters.propagate_java_exceptions)


@contextmanager
def crossing(jvm: Jvm, *, parsing: bool = False) -> Iterator[None]:
    """Convert errors within a callback of the JVM to ones that the JVM can throw.

    Text that the engine parses within the block goes only to Spark's own parser.

    Args:
        jvm: JVM of any session of the process. Without ``let_errors_cross`` for its gateway, errors stay unchanged.
        parsing: Whether the called method declares a ``ParseException``.

    Raises:
        Py4JJavaError: Holds the exception that the JVM is to throw.
    """
    try:
        with inside(), without_call_sites():
            yield
    except Py4JJavaError:
        raise
    except Exception as error:
        if not errors_cross(jvm) or _nobody_is_left(jvm, error):
            raise
        raise Py4JJavaError(type(error).__name__, java_exception=_thrown(jvm, error, parsing)) from None


def _nobody_is_left(jvm: Jvm, error: Exception) -> bool:
    """Return whether a call failed because the JVM's process has exited, so that nothing can be thrown to it."""
    if jvm.process is None or not isinstance(error, (Py4JError, ConnectionError)):
        return False
    try:
        jvm.process.wait(_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _thrown(jvm: Jvm, error: Exception, parsing: bool) -> Any:
    if isinstance(error, DeltaError):
        return throwable(jvm, error)
    if isinstance(error, PySparkException):
        origin = getattr(error, "_origin", None)
        ours = raised_in(str(error))
        if ours is not None:
            return throwable(jvm, ours)
        if origin is not None and _may_be_thrown(jvm, origin, parsing):
            return _without_trace(jvm, origin)
        given = error.getCondition(), error.getSqlState(), dict(error.getMessageParameters() or {})
        kinds.note(str(error).strip(), type(error).__name__)
        return _make(jvm, str(error).strip(), *given)
    _log.error("a statement failed on an error of the engine itself", exc_info=error)
    text = f"[{_INTERNAL}] {type(error).__name__}: {first_line(error).rstrip('.') or 'no message'}"
    return _make(jvm, f"{text}. The server's log has more.", _INTERNAL, _INTERNAL_STATE, {})


def _may_be_thrown(jvm: Jvm, origin: Any, parsing: bool) -> bool:
    """Return whether the method may throw it. Java wraps checked exceptions that the method does not declare."""
    unchecked = (jvm.view.java.lang.Class.forName(f"java.lang.{name}") for name in ("RuntimeException", "Error"))
    parse = "org.apache.spark.sql.catalyst.parser.ParseException"
    return (parsing and str(origin.getClass().getName()) == parse) or any(kind.isInstance(origin) for kind in unchecked)


def throwing_iterator(jvm: Jvm, error: DeltaError | PySparkException) -> Any:
    """Return a Java iterator whose first step throws what Spark users catch as ``AnalysisException``.

    Raises:
        DeltaError, PySparkException: The error itself, if it is of another kind, which crosses unchanged.
    """
    if isinstance(error, DeltaError):
        if not issubclass(spark_class(error), AnalysisException):
            raise error
        thrown = _analysis_exception(jvm, error)
    else:
        thrown = getattr(error, "_origin", None)
        if not isinstance(error, AnalysisException) or thrown is None:
            raise error
        _without_trace(jvm, thrown)
    return iterator_throwing(jvm, thrown)


def iterator_throwing(jvm: Jvm, thrown: Any) -> Any:
    """Return a Java iterator whose first step throws a JVM exception, checked or not.

    ``scala.util.Failure.get`` throws what it holds, and the lambda that Java builds over it does not wrap it.
    """
    view = jvm.view
    find, types = view.java.lang.Class.forName, view.java.lang.invoke.MethodType.methodType
    anything, failed, supplies = map(find, ("java.lang.Object", "scala.util.Try", "java.util.function.Supplier"))
    handles = view.java.lang.invoke.MethodHandles
    get = handles.publicLookup().findVirtual(failed, "get", types(anything))
    made = view.java.lang.invoke.LambdaMetafactory.metafactory(
        handles.lookup(), "get", types(supplies, failed), types(anything), get, types(anything)
    )
    given = jvm.array(view.java.lang.Object, [view.scala.util.Failure(thrown)])
    return view.java.util.stream.Stream.generate(made.getTarget().invokeWithArguments(given)).iterator()


def throwable(jvm: Jvm, error: DeltaError) -> Any:
    """Make the JVM exception for an error, with the same message, condition, parameters and SQLSTATE."""
    kinds.note(str(error), spark_class(error).__name__)
    return _make(jvm, str(error), error.getCondition(), error.getSqlState(), error.getMessageParameters())


def throwable_with_state(jvm: Jvm, error: DeltaError) -> Any:
    """Make an exception like ``throwable`` that has its SQLSTATE in every Spark version, because handlers need it."""
    holds = max(_constructors(jvm)) == _RUNTIME_ARGUMENTS
    return throwable(jvm, error) if holds else _analysis_exception(jvm, error)


class Kinds:
    """Remembers PySpark's classes of recent errors, which the JVM's generic exception does not carry.

    Args:
        most: The number of errors to remember.
    """

    def __init__(self, most: int = 1000) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()
        self._most = most
        self._lock = threading.Lock()

    def note(self, message: str, kind: str) -> None:
        """Remember an error by its message."""
        with self._lock:
            self._known[message[:_TELLING]] = kind
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def of(self, message: str) -> str | None:
        """Return the name of PySpark's exception for a message, which may be truncated."""
        return self._known.get(message[:_TELLING])


kinds = Kinds()


def _analysis_exception(jvm: Jvm, error: DeltaError) -> Any:
    kinds.note(str(error), spark_class(error).__name__)
    view, some = jvm.view, jvm.view.scala.Option.apply
    kind = view.java.lang.Class.forName(_ANALYSIS)
    constructors = (item for item in kind.getDeclaredConstructors() if item.getParameterCount() == _ANALYSIS_ARGUMENTS)
    constructor = next(constructors, None)
    if constructor is None:  # Other versions of Spark lack this constructor.
        return throwable(jvm, error)
    nothing, context = some(None), jvm.array(view.org.apache.spark.QueryContext, [])
    given = jvm.scala_map(error.getMessageParameters())
    arguments = [str(error), nothing, nothing, nothing, some(error.getCondition()), given, context]
    arguments += [some(error.getSqlState()), nothing]
    return _without_trace(jvm, constructor.newInstance(jvm.array(view.java.lang.Object, arguments)))


def _make(jvm: Jvm, message: str, condition: str | None, state: str | None, given: Mapping[str, str]) -> Any:
    """Use the private constructor, because the others look the condition up among Spark's own."""
    view, found = jvm.view, _constructors(jvm)
    constructor = found[max(found)]
    constructor.setAccessible(True)
    some = view.scala.Option.apply
    arguments = [
        message,
        some(None),
        some(condition),
        jvm.scala_map(given),
        jvm.array(view.org.apache.spark.QueryContext, []),
        some(state),
    ][: max(found)]  # Spark 4.1 derives the SQLSTATE from the condition.
    made = constructor.newInstance(jvm.array(view.java.lang.Object, arguments))
    return _without_trace(jvm, made)


def _constructors(jvm: Jvm) -> dict[int, Any]:
    """Return the constructors that take the parts of an error, by their number of parameters."""
    kind = jvm.view.java.lang.Class.forName(_RUNTIME)
    return {item.getParameterCount(): item for item in kind.getDeclaredConstructors() if _is_by_parts(item)}


def _is_by_parts(constructor: Any) -> bool:
    """Return whether a constructor takes an error's parts directly: message, cause, condition, parameters."""
    return str(constructor.getParameterTypes()[1].getName()) == "scala.Option"


def _without_trace(jvm: Jvm, error: Any) -> Any:
    """Remove the error's stack trace, which is py4j's and would be sent to clients. Its cause keeps its own."""
    error.setStackTrace(jvm.array(jvm.view.java.lang.StackTraceElement, []))
    return error
