"""Let a statement with an effect run when Spark analyses it: once, however often its text is parsed.

::

    DELETE FROM t …  --parsed-->   a plan that says nothing yet
                     --analysed--> this engine runs the statement: CommandResult with its rows
                     --again-----> the same CommandResult

A plan that is parsed and never analysed has no effect. Spark takes a ``CommandResult`` for what it is, a statement that
has run, and does not run it again for the client that fetches its rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from pydelta.spark.java_objects import JavaObject, crossing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pydelta.spark.jvm import Jvm

__all__ = ["late_statement"]

_SMALL: Final = frozenset({"LocalRelation", "OneRowRelation", "LogicalRDD", "CommandResult", "MultiResult"})
"""Leaves of plans that tell what a statement did; a query over anything else is left for Spark to run."""


def late_statement(
    jvm: Jvm, run: Callable[[], DataFrame], around: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Any:
    """Return the plan of a statement that runs when it is analysed.

    Args:
        jvm: Of the session.
        run: Runs it, and returns what it tells.
        around: Entered meanwhile.
    """
    name = jvm.expression(F.lit("statement"))
    builder = _Statement(jvm, run, around)
    return jvm.view.org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier(name, jvm.seq([]), builder)


class _Statement(JavaObject):
    """What Spark asks for the plan of a statement."""

    class Java:
        implements = ("scala.Function2",)

    def __init__(
        self, jvm: Jvm, run: Callable[[], DataFrame], around: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._jvm = jvm
        self._around = around
        self._run: Callable[[], DataFrame] | None = run
        self._plan: Any = None
        self._error: Exception | None = None
        self._lock = threading.Lock()  # of this statement alone

    def apply(self, parts: Any, children: Any) -> Any:
        """Run the statement if it has not run yet, and return what it told."""
        with self._lock, crossing(self._jvm):
            if self._run is not None:
                run, self._run = self._run, None
                try:
                    with self._around():
                        self._plan = _told(self._jvm, run())
                except Exception as error:
                    self._error = error
                    raise
            if self._error is not None:
                raise self._error
            return self._plan


def _told(jvm: Jvm, frame: DataFrame) -> Any:
    """The rows of a statement that has run, as Spark keeps those of its own; the plan of a query that has not."""
    execution = frame._jdf.queryExecution()
    plan = execution.commandExecuted()
    if str(plan.nodeName()) == "CommandResult":
        return plan
    if any(str(leaf.nodeName()) not in _SMALL for leaf in jvm.to_list(plan.collectLeaves())):
        return plan
    physical = execution.executedPlan()
    rows = jvm.python_utils.toSeq(jvm.rows_list(physical.executeCollect()))
    logical = jvm.view.org.apache.spark.sql.catalyst.plans.logical
    return logical.CommandResult(plan.output(), plan, physical, rows)
