"""Run a statement with an effect when Spark reaches it, as the call of a stored procedure.

::

    DELETE FROM t …  --parsed-->   CALL of a procedure: nothing has happened yet
                     --EXPLAIN---> the same
                     --analyzed--> Spark calls the procedure, which runs the statement; Spark treats its rows as the
                                   result of a finished command, so no server runs it again to fetch them
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from pydelta.engines.spark.java_objects import JavaObject, crossing, errors_cross, throwing_iterator
from pydelta.errors import DeltaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pydelta.engines.spark.jvm import Jvm

__all__ = ["Procedure", "call_of"]


def call_of(jvm: Jvm, procedure: Procedure, *, kept: list[Any] | None = None) -> Any:
    """Return the plan that calls a procedure.

    Args:
        jvm: The session's bindings.
        procedure: The statement to run.
        kept: Collects the objects that the JVM calls back, to keep them alive.
    """
    view, catalog = jvm.view, _Catalog()
    if kept is not None:
        kept += [procedure, catalog]
    catalyst = view.org.apache.spark.sql.catalyst
    name = view.org.apache.spark.sql.connector.catalog.Identifier.of(jvm.array(view.java.lang.String, []), "statement")
    resolved = catalyst.analysis.ResolvedProcedure(catalog, name, procedure)
    return catalyst.plans.logical.Call(resolved, jvm.seq([]), True)


class Procedure(JavaObject):
    """A statement that Spark calls.

    Args:
        jvm: The session's bindings.
        run: Runs the statement and returns its result.
        once: Return the first result when Spark analyzes the plan again; otherwise run again, as a loop does.
        thrown: Builds an iterator that throws an error, if callbacks cannot raise it; None if they can.
    """

    class Java:
        """py4j: the interface this object implements for the JVM."""

        implements = ("org.apache.spark.sql.connector.catalog.procedures.BoundProcedure",)

    def __init__(
        self,
        jvm: Jvm,
        run: Callable[[], DataFrame],
        *,
        once: bool = False,
        thrown: Callable[[DeltaError | PySparkException], Any | None] | None = None,
    ) -> None:
        self._jvm = jvm
        self._run: Callable[[], DataFrame] | None = run
        self._once = once
        self._thrown = thrown
        self._lock = threading.Lock()  # The guard covers only this statement.
        self._result: _Rows | None = None
        self._error: Exception | None = None

    def name(self) -> str:
        """Return a name for plans."""
        return "statement"

    def description(self) -> str:
        """Return a name for plans."""
        return "statement"

    def isDeterministic(self) -> bool:  # noqa: N802
        """Return false: it has an effect."""
        return False

    def parameters(self) -> Any:
        """Return no parameters."""
        jvm = self._jvm
        return jvm.array(jvm.view.org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter, [])

    def call(self, row: Any) -> Any:
        """Run the statement, and return its result as local scans."""
        with crossing(self._jvm):
            try:
                if self._once:
                    with self._lock:
                        self._first()
                else:
                    assert self._run is not None
                    self._keep(self._run())
            except (DeltaError, PySparkException) as error:
                thrown = None if self._thrown is None else self._thrown(error)
                if thrown is not None:
                    return thrown
                if not errors_cross(self._jvm):
                    raise
                return throwing_iterator(self._jvm, error)
            scans = self._jvm.view.java.util.ArrayList()
            if self._result is not None:
                scans.add(self._result)
            return scans.iterator()

    def _first(self) -> None:
        """Run the statement unless it has already run; a later call raises the same error."""
        run, self._run = self._run, None
        if run is not None:
            try:
                self._keep(run())
            except Exception as error:
                self._error = error
                raise
        if self._error is not None:
            raise self._error

    def _keep(self, frame: DataFrame) -> None:
        self._result = _Rows(self._jvm, frame) if frame.columns else None


class _Rows(JavaObject):
    """The result of a statement that has run."""

    class Java:
        implements = ("org.apache.spark.sql.connector.read.LocalScan",)

    def __init__(self, jvm: Jvm, frame: DataFrame) -> None:
        self._jvm = jvm
        self._frame: Any = frame._jdf

    def readSchema(self) -> Any:  # noqa: N802
        """Return the columns."""
        return self._frame.schema()

    def rows(self) -> Any:
        """Return the rows in Catalyst's format."""
        with crossing(self._jvm):
            return self._frame.queryExecution().executedPlan().executeCollect()

    def description(self) -> str:
        """Return a name for plans."""
        return "pydelta"


class _Catalog(JavaObject):
    """The catalog that the procedures seem to come from."""

    class Java:
        implements = ("org.apache.spark.sql.connector.catalog.ProcedureCatalog",)

    def name(self) -> str:
        """Return its name for plans."""
        return "pydelta"
