"""Let the statements of ``BEGIN … END`` see Delta tables as they are when each statement runs.

::

    SELECT … FROM t      --> the relation becomes a name that is looked up when Spark analyses the statement
    DELETE FROM t …      --> CALL of a procedure, which runs the statement through this engine
    IF, WHILE, SET, FOR  --> Spark's own, over such statements

Spark parses a script as one text and runs it statement by statement, in the thread that asked for it. So nothing is
resolved here: a table may not even exist before the script made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.errors import DeltaError
from pydelta.spark.catalog.objects import copy_of
from pydelta.spark.java_objects import JavaObject, crossing
from pydelta.spark.sql.late_relations import noted, with_late_relations
from pydelta.spark.sql.nodes import Nodes
from pydelta.spark.sql.relations import RelationResolver, named_tables
from pydelta.spark.sql.script_errors import ScriptErrors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pydelta.spark.jvm import Jvm

__all__ = ["late_plan", "late_script"]

_Run = Callable[[Any], "DataFrame | None"]


def late_script(nodes: Nodes, script: Any, run: _Run, *, is_command: Callable[[Any], bool]) -> DataFrame:
    """Run a script whose statements may be about Delta tables.

    Args:
        nodes: Of the session.
        script: As Spark parsed it.
        run: Runs a parsed statement about a Delta table; None for any other.
        is_command: Tells whether ``run`` may know a statement.

    Raises:
        DeltaError: A statement failed; those before it have run.
    """
    late = _Late(nodes, run)
    plan = late.script(script, is_command)
    try:
        frame = nodes.jvm.frame(plan)
    except (Py4JError, PySparkException) as error:
        behind = late.errors.behind(error)
        if behind is None:
            raise
        raise behind from None
    late.keep(frame)
    return frame


def late_plan(nodes: Nodes, script: Any, run: _Run, *, is_command: Callable[[Any], bool]) -> Any:
    """Return the script that ``late_script`` would run, for Spark to run: see there.

    Its errors come out of the JVM as they are where ``let_errors_cross`` was called.
    """
    return _Late(nodes, run).script(script, is_command)


def _rebuilt(jvm: Jvm, node: Any, statement: Callable[[Any], Any]) -> Any:
    """A part of a script with other statements; Spark's own way to replace parts forgets a block's handlers."""
    kind = str(node.getClass().getSimpleName())
    if kind == "SingleStatement":
        return statement(node)
    if kind == "ExceptionHandler":
        return copy_of(node, body=_rebuilt(jvm, node.body(), statement))
    if kind == "CompoundBody":
        parts = {
            name: jvm.seq([_rebuilt(jvm, item, statement) for item in jvm.to_list(found)])
            for name, found in (("collection", node.collection()), ("handlers", node.handlers()))
        }
        return copy_of(node, **parts)
    return node.withNewChildren(jvm.seq([_rebuilt(jvm, item, statement) for item in jvm.to_list(node.children())]))


class _Late:
    """Puts what is decided later into statements, and keeps it as long as the script's result."""

    def __init__(self, nodes: Nodes, run: _Run) -> None:
        self._nodes = nodes
        self._run = run
        self._kept: list[Any] = []
        self.errors = ScriptErrors(nodes.jvm)

    def script(self, script: Any, is_command: Callable[[Any], bool]) -> Any:
        """The script with what is decided later in its statements."""

        def statement(node: Any) -> Any:
            plan = node.parsedPlan()
            return copy_of(node, parsedPlan=self.call(plan) if is_command(plan) else self.read(plan))

        return _rebuilt(self._nodes.jvm, script, statement)

    def keep(self, frame: DataFrame) -> None:
        """Keep all callbacks alive with the frame: the JVM does not."""
        frame._pydelta_script = self._kept  # type: ignore[attr-defined]

    def read(self, plan: Any) -> Any:
        """A query whose tables are looked up when it runs."""
        return with_late_relations(self._nodes, plan, kept=self._kept, errors=self.errors)

    def call(self, plan: Any) -> Any:
        """A statement with an effect, as a call of a procedure."""
        jvm, catalyst = self._nodes.jvm, self._nodes.jvm.view.org.apache.spark.sql.catalyst
        procedure, catalog = _Procedure(self._nodes, plan, self._run, self.errors), _Catalog()
        self._kept += [procedure, catalog]
        named = jvm.view.org.apache.spark.sql.connector.catalog.Identifier.of(
            jvm.array(jvm.view.java.lang.String, []), "statement"
        )
        resolved = catalyst.analysis.ResolvedProcedure(catalog, named, procedure)
        return catalyst.plans.logical.Call(resolved, jvm.seq([]), True)


class _Rows(JavaObject):
    """What a statement tells, already here."""

    class Java:
        implements = ("org.apache.spark.sql.connector.read.LocalScan",)

    def __init__(self, frame: DataFrame) -> None:
        self._frame: Any = frame._jdf

    def readSchema(self) -> Any:  # noqa: N802
        """Return the columns."""
        return self._frame.schema()

    def rows(self) -> Any:
        """Return the rows, as Catalyst has them."""
        return self._frame.queryExecution().executedPlan().executeCollect()

    def description(self) -> str:
        """Return a name for plans."""
        return "pydelta"


class _Procedure(JavaObject):
    """A statement that Spark calls once, when it comes to it."""

    class Java:
        implements = ("org.apache.spark.sql.connector.catalog.procedures.BoundProcedure",)

    def __init__(self, nodes: Nodes, plan: Any, run: _Run, errors: ScriptErrors) -> None:
        self._nodes = nodes
        self._plan = plan
        self._run = run
        self._errors = errors
        self._told: list[_Rows] = []

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
        """Return none."""
        jvm = self._nodes.jvm
        return jvm.array(jvm.view.org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter, [])

    def call(self, row: Any) -> Any:
        """Run the statement, by this engine or by Spark; an error of this engine is one that handlers catch."""
        jvm = self._nodes.jvm
        with crossing(jvm), noted(self._errors):
            plan = named_tables(jvm, self._plan)
            try:
                frame = self._run(plan)
            except DeltaError as error:
                return self._errors.raised_in_jvm(error)
            if frame is None:
                resolved = RelationResolver(self._nodes.spark).statement(plan)
                frame = jvm.frame(plan if resolved is None else resolved)
        scans = jvm.view.java.util.ArrayList()
        if frame.columns:
            self._told.append(_Rows(frame))
            scans.add(self._told[-1])
        return scans.iterator()


class _Catalog(JavaObject):
    """The catalog that the procedures seem to come from."""

    class Java:
        implements = ("org.apache.spark.sql.connector.catalog.ProcedureCatalog",)

    def name(self) -> str:
        """Return its name for plans."""
        return "pydelta"
