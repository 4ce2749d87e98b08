"""Make the statements of ``BEGIN … END`` look up Delta tables when each statement runs.

::

    SELECT … FROM t      --> the relation becomes a name that is looked up when Spark analyzes the statement
    DELETE FROM t …      --> CALL of a procedure, which runs the statement through this engine
    IF, WHILE, SET, FOR  --> Spark's own, over such statements

Spark parses a script as one text and runs it statement by statement in the caller's thread. Resolving tables any
earlier would fail: a table may not exist until the script creates it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.api.sql.late_relations import noted, with_late_relations
from pydelta.api.sql.nodes import Nodes
from pydelta.api.sql.procedures import Procedure, call_of
from pydelta.api.sql.relations import RelationResolver, named_tables
from pydelta.api.sql.script_errors import ScriptErrors
from pydelta.engines.spark.catalog.objects import copy_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pydelta.engines.spark.jvm import Jvm

__all__ = ["late_plan", "late_script"]

_Run = Callable[[Any], "DataFrame | None"]


def late_script(nodes: Nodes, script: Any, run: _Run, *, is_command: Callable[[Any], bool]) -> DataFrame:
    """Run a script whose statements may concern Delta tables.

    Args:
        nodes: The session's nodes.
        script: As Spark parsed it.
        run: Runs a parsed statement about a Delta table; returns None for any other.
        is_command: Returns whether ``run`` may handle a statement.

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
    """Return the plan that ``late_script`` would run, for Spark to run.

    Its errors pass through the JVM unchanged if ``let_errors_cross`` was called.
    """
    return _Late(nodes, run).script(script, is_command)


def _rebuilt(jvm: Jvm, node: Any, statement: Callable[[Any], Any]) -> Any:
    """Rebuild a part of a script with other statements; Spark's own way to replace parts drops a block's handlers."""
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
    """Inserts callbacks into statements, and keeps them alive as long as the script's result."""

    def __init__(self, nodes: Nodes, run: _Run) -> None:
        self._nodes = nodes
        self._run = run
        self._kept: list[Any] = []
        self.errors = ScriptErrors(nodes.jvm)

    def script(self, script: Any, is_command: Callable[[Any], bool]) -> Any:
        """Return the script with callbacks in its statements."""

        def statement(node: Any) -> Any:
            plan = node.parsedPlan()
            return copy_of(node, parsedPlan=self.call(plan) if is_command(plan) else self.read(plan))

        return _rebuilt(self._nodes.jvm, script, statement)

    def keep(self, frame: DataFrame) -> None:
        """Keep all callbacks alive with the frame, because the JVM does not."""
        frame._pydelta_script = self._kept  # type: ignore[attr-defined]

    def read(self, plan: Any) -> Any:
        """Return a query whose tables are looked up when it runs."""
        return with_late_relations(self._nodes, plan, kept=self._kept, errors=self.errors)

    def call(self, plan: Any) -> Any:
        """Return a statement with an effect as a procedure call."""
        procedure = Procedure(self._nodes.jvm, lambda: self._frame(plan), thrown=self.errors.raised_in_jvm)
        return call_of(self._nodes.jvm, procedure, kept=self._kept)

    def _frame(self, plan: Any) -> DataFrame:
        """Run a statement with this engine, or else with Spark."""
        nodes = self._nodes
        with noted(self.errors):
            named = named_tables(nodes.jvm, plan)
            frame = self._run(named)
            if frame is None:
                resolved = RelationResolver(nodes.spark).statement(named)
                frame = nodes.jvm.frame(named if resolved is None else resolved)
            return frame
