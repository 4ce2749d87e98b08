"""Let relations of scripts and of views' texts be looked up when Spark analyses the statement they stand in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from pydelta.api.sql.nodes import Nodes
from pydelta.api.sql.relations import RelationResolver
from pydelta.engines.spark.java_objects import JavaObject, crossing
from pydelta.protocol.names import quoted

if TYPE_CHECKING:
    from pydelta.api.sql.script_errors import ScriptErrors

__all__ = ["LateRelation", "noted", "with_late_relations"]


@contextmanager
def noted(errors: ScriptErrors | None) -> Iterator[None]:
    """Note the error of a callback: it cannot cross the JVM as itself."""
    try:
        yield
    except BaseException as error:
        if errors is not None:
            errors.note(error)
        raise


class LateRelation(JavaObject):
    """What a name stands for at the time of asking.

    Args:
        nodes: Of the session.
        node: The relation, as parsed.
        errors: Notes what goes wrong; None where errors cross by themselves.
    """

    class Java:
        """py4j: the interface this object implements for the JVM."""

        implements = ("scala.Function2",)

    def __init__(self, nodes: Nodes, node: Any, errors: ScriptErrors | None = None) -> None:
        self._nodes = nodes
        self._node = node
        self._errors = errors

    def apply(self, parts: Any, children: Any) -> Any:
        """Return the scan of a Delta table, or the name for Spark to resolve."""
        nodes = self._nodes
        with crossing(nodes.jvm), noted(self._errors):
            context = nodes.jvm.view.org.apache.spark.sql.catalyst.analysis.AnalysisContext.get()
            view = nodes.names(context.catalogAndNamespace())  # that of the view in whose text the name stands
            temporary = frozenset(
                tuple(part.lower() for part in nodes.names(name))
                for name in nodes.items(context.referredTempViewNames())
            )
            plan = RelationResolver(nodes.spark, temporary).relation(self._node, view[1:])
        return self._node if plan is None else plan


def with_late_relations(
    nodes: Nodes, plan: Any, *, kept: list[LateRelation] | None = None, errors: ScriptErrors | None = None
) -> Any:
    """Return a parsed query with its relations looked up later; itself where it has none.

    Args:
        nodes: Of the session.
        plan: As parsed.
        kept: Takes what the JVM calls.
        errors: See ``LateRelation``.
    """

    def look_up_later(node: Any, parts: tuple[str, ...]) -> Any:
        builder = LateRelation(nodes, node, errors)
        if kept is not None:
            kept.append(builder)
        name = nodes.jvm.expression(F.lit(quoted(*parts)))
        catalyst = nodes.jvm.view.org.apache.spark.sql.catalyst
        return catalyst.analysis.PlanWithUnresolvedIdentifier(name, nodes.jvm.seq([]), builder)

    late = RelationResolver(nodes.spark).late(plan, look_up_later)
    return plan if late is None else late
