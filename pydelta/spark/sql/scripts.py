"""Let the statements of ``BEGIN … END`` see Delta tables as they are when each statement runs.

::

    SELECT … FROM t      --> the relation becomes a name that is looked up when Spark analyses the statement
    DELETE FROM t …      --> CALL of a procedure, which runs the statement through this engine
    IF, WHILE, SET, FOR  --> Spark's own, over such statements

Spark parses a script as one text and runs it statement by statement, in the thread that asked for it. So nothing is
resolved here: a table may not even exist before the script made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pydelta.errors import DeltaError
from pydelta.protocol.names import quoted
from pydelta.spark.catalog.objects import copy_of
from pydelta.spark.sql.nodes import Nodes
from pydelta.spark.sql.relations import RelationResolver, named_tables
from pydelta.spark.sql.script_errors import ScriptErrors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pydelta.spark.jvm import Jvm

__all__ = ["late_script"]

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

    def statement(node: Any) -> Any:
        plan = node.parsedPlan()
        return copy_of(node, parsedPlan=late.call(plan) if is_command(plan) else late.read(plan))

    plan = _rebuilt(nodes.jvm, script, statement)
    try:
        frame = nodes.jvm.frame(plan)
    except (Py4JError, PySparkException) as error:
        behind = late.errors.behind(error)
        if behind is None:
            raise
        raise behind from None
    late.keep(frame)
    return frame


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

    def keep(self, frame: DataFrame) -> None:
        """Keep all callbacks alive with the frame: the JVM does not."""
        frame._pydelta_script = self._kept  # type: ignore[attr-defined]

    def read(self, plan: Any) -> Any:
        """A query whose tables are looked up when it runs."""
        late = RelationResolver(self._nodes.spark).late(plan, self._lookup)
        return plan if late is None else late

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

    def _lookup(self, node: Any, parts: tuple[str, ...]) -> Any:
        """A relation that Spark asks for when it analyses the statement."""
        jvm, catalyst = self._nodes.jvm, self._nodes.jvm.view.org.apache.spark.sql.catalyst
        builder = _Relation(self._nodes, node, self.errors)
        self._kept.append(builder)
        name = jvm.expression(F.lit(quoted(*parts)))
        return catalyst.analysis.PlanWithUnresolvedIdentifier(name, jvm.seq([]), builder)


@contextmanager
def _noted(errors: ScriptErrors) -> Iterator[None]:
    """Note the error of a callback: it cannot cross the JVM as itself."""
    try:
        yield
    except BaseException as error:
        errors.note(error)
        raise


class _JavaObject:
    def toString(self) -> str:  # noqa: N802
        """Return a name for logs."""
        return "pydelta"

    def hashCode(self) -> int:  # noqa: N802
        """Return the same number each time."""
        return id(self) % (1 << 31)

    def equals(self, other: Any) -> bool:
        """Return false: the JVM does not hold one twice."""
        return False


class _Relation(_JavaObject):
    """What a name stands for at the time of asking."""

    class Java:
        implements = ("scala.Function2",)

    def __init__(self, nodes: Nodes, node: Any, errors: ScriptErrors) -> None:
        self._nodes = nodes
        self._node = node
        self._errors = errors

    def apply(self, parts: Any, children: Any) -> Any:
        """Return the scan of a Delta table, or the name for Spark to resolve."""
        with _noted(self._errors):
            plan = RelationResolver(self._nodes.spark).statement(self._node)
        return self._node if plan is None else plan


class _Rows(_JavaObject):
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


class _Procedure(_JavaObject):
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
        with _noted(self._errors):
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


class _Catalog(_JavaObject):
    """The catalog that the procedures seem to come from."""

    class Java:
        implements = ("org.apache.spark.sql.connector.catalog.ProcedureCatalog",)

    def name(self) -> str:
        """Return its name for plans."""
        return "pydelta"
