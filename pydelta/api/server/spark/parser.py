"""Put the engine in front of Spark's parser in clients' sessions.

::

    a server's thread --parsePlan(text)--> Python, in its own thread --> plans.plan_of --> a plan for Spark to run
                      --anything else----> Python -------------------> Spark's parser
                      --called by the engine's own work--------------> Spark's parser

``install`` affects only sessions created after it. The JVM's session holds its parser, and the parser holds the session
weakly, so both are freed together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydelta.api.server.spark.plans import plan_of, view_plan
from pydelta.engines.spark.java_objects import JavaObject, crossing, let_errors_cross
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.session.inside import is_inside, is_jvm_inside, watch_parsers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.api.server.spark.sessions import Sessions

__all__ = ["install"]


def install(sessions: Sessions) -> None:
    """Make every later session of the root's kind parse through the engine.

    Args:
        sessions: The server's sessions.
    """
    let_errors_cross(sessions.root.sparkContext._gateway)
    watch_parsers(sessions.root)
    sessions.root._jsparkSession.extensions().injectParser(_Builder(sessions))


class _Builder(JavaObject):
    """Builds the parser of a new session when Spark asks for it."""

    class Java:
        implements = ("scala.Function2",)

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def apply(self, session: Any, delegate: Any) -> Any:
        """Return the parser."""
        return _Parser(self._sessions, session, delegate)


class _Parser(JavaObject):
    """A session's parser: Spark's, with the engine in front."""

    class Java:
        implements = ("org.apache.spark.sql.catalyst.parser.ParserInterface",)

    def __init__(self, sessions: Sessions, session: Any, delegate: Any) -> None:
        self._sessions = sessions
        self._jvm = Jvm.of(sessions.root)
        self._key = str(session.sessionUUID())
        self._session = self._jvm.view.java.lang.ref.WeakReference(session)
        self._delegate = delegate
        self._seen = False

    def parsePlan(self, text: str) -> Any:  # noqa: N802
        """Return the plan of a statement."""
        return self._plan(text, lambda: self._delegate.parsePlan(text))

    def parsePlanWithParameters(self, text: str, context: Any) -> Any:  # noqa: N802
        """Return the plan of a statement with the values of its parameters inserted."""
        parse = lambda: self._delegate.parsePlanWithParameters(text, context)  # noqa: E731
        return self._plan(text, parse, lambda: _has_values(context))

    def parseQuery(self, text: str) -> Any:  # noqa: N802
        """Return the plan of a query, which is the text of a view."""
        own = self._is_own()
        with crossing(self._jvm, parsing=True):
            if own:
                return self._delegate.parseQuery(text)
            if (gate := self._sessions.gate) is not None and gate.role(self._key) is not None:
                return gate.parsed(self._jvm, "parseQuery", lambda: self._delegate.parseQuery(text))
            return view_plan(self._spark(), lambda: self._delegate.parseQuery(text))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name == "Java":
            raise AttributeError(name)

        def pass_on(*given: Any) -> Any:
            gate = self._sessions.gate
            limited = gate is not None and not self._is_own() and gate.role(self._key) is not None
            own = self._seen or is_inside()
            with crossing(self._jvm, parsing=True):
                if not own:
                    self._spark()
                if gate is not None and limited:
                    return gate.parsed(self._jvm, name, lambda: getattr(self._delegate, name)(*given))
                return getattr(self._delegate, name)(*given)

        return pass_on

    def _plan(self, text: str, parse: Callable[[], Any], has_values: Callable[[], bool] = lambda: False) -> Any:
        own = self._is_own()
        with crossing(self._jvm, parsing=True):
            gate = None if own else self._sessions.gate
            role = None if gate is None else gate.role(self._key)
            if gate is not None and role is not None:
                self._sessions.refuse_when_stopping()
                self._sessions.observe_text()
                return gate.plan(self._spark(), role, text, parse)
            planner = self._sessions.texts(text)
            if planner is not None:
                spark = self._spark()
                return planner(spark, lambda: self._sessions.statement(spark))
            if own:
                return parse()
            self._sessions.refuse_when_stopping()
            self._sessions.observe_text()
            spark = self._spark()
            return plan_of(spark, text, parse, has_values=has_values, around=lambda: self._sessions.statement(spark))

    def _is_own(self) -> bool:
        return is_inside() or is_jvm_inside(self._sessions.root)

    def _spark(self) -> SparkSession:
        self._seen = True
        return self._sessions.of(self._key, self._session.get)


def _has_values(context: Any) -> bool:
    """Return whether there are parameter values; Spark passes a context even without any."""
    given = context.args() if str(context.getClass().getSimpleName()).startswith("Hybrid") else context.params()
    return not given.isEmpty()
