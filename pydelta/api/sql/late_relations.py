"""Look up relations in scripts and in the text of views when Spark analyzes the statement that contains them."""

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
    """Note the error of a callback, because the JVM does not pass it on unchanged."""
    try:
        yield
    except BaseException as error:
        if errors is not None:
            errors.note(error)
        raise


class LateRelation(JavaObject):
    """The callback that resolves a name when Spark analyzes it.

    Args:
        nodes: The session's nodes.
        node: The relation, as parsed.
        errors: Notes errors; None where they pass through the JVM.
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
            view = nodes.names(context.catalogAndNamespace())  # The namespace of the view that contains the name.
            temporary = frozenset(
                tuple(part.lower() for part in nodes.names(name))
                for name in nodes.items(context.referredTempViewNames())
            )
            plan = RelationResolver(nodes.spark, temporary).relation(self._node, view[1:])
        return self._node if plan is None else plan


def with_late_relations(
    nodes: Nodes, plan: Any, *, kept: list[LateRelation] | None = None, errors: ScriptErrors | None = None
) -> Any:
    """Return a parsed query whose relations are looked up later; the query itself if it has none.

    Args:
        nodes: The session's nodes.
        plan: As parsed.
        kept: Collects the objects that the JVM calls back, to keep them alive.
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
