"""Render conditions for the history as Spark writes them in a plan: ``(id#7 > 2)``, constants computed, casts folded.

The numbers distinguish columns of one name within a statement and have no meaning beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.engines.spark.jvm import Jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.engines.spark.scan.filters import Node, Tree

__all__ = ["is_shown_as_it_is", "shown", "text_of"]

_COMPARISONS: Final = frozenset(("EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"))

_FIELDS: Final = 25
"""Number of elements of a list that Spark shows by default."""


def shown(spark: SparkSession, expressions: Sequence[Any]) -> list[str]:
    """Render resolved expressions of one statement by Spark's optimizer, over rows that nothing reads.

    Args:
        spark: The session.
        expressions: The Catalyst expressions.

    Returns:
        The text of each, in their order. If the optimizer fails, the text before optimization.
    """
    jvm = Jvm.of(spark)
    if not any(jvm.has_subquery(expression) for expression in expressions):
        try:
            with jvm.active():  # The rules read the settings of the active session.
                plan = jvm.state.optimizer().execute(_projected(jvm, expressions))
            found = [item.child() for item in jvm.to_list(plan.projectList())]
        except (
            PySparkException,
            Py4JError,
        ):  # A constant part fails. The query will fail on it too, and explain it.
            found = []
        if len(found) == len(expressions):
            expressions = found
    return [text_of(expression) for expression in expressions]


def text_of(expression: Any) -> str:
    """Render an expression of a plan unchanged."""
    return str(expression.simpleString(_FIELDS))


def is_shown_as_it_is(tree: Tree) -> bool:
    """Return whether Spark's optimizer keeps a condition: a conjunction of columns compared with constants."""
    return _are_comparisons(tree.root, set())


def _are_comparisons(node: Node, columns: set[str]) -> bool:
    """Return whether all conjuncts compare a column with a constant, each a different one (Spark merges equal ones)."""
    if node.name == "And":
        return all(_are_comparisons(child, columns) for child in node.children)
    if node.name not in _COMPARISONS:
        return False
    column, value = node.children
    if column.name != "AttributeReference" or value.name != "Literal" or value.body.get("value") is None:
        return False
    name = str(column.body["name"]).lower()
    if name in columns or value.body.get("dataType") == "boolean":
        return False
    columns.add(name)
    return True


def _projected(jvm: Jvm, expressions: Sequence[Any]) -> Any:
    """Build a projection of the expressions over rows of the columns that they refer to.

    An optimizer evaluates expressions over rows that it knows, so these come from an RDD, which it does not examine.
    """
    columns: dict[str, Any] = {}
    for expression in expressions:
        for column in jvm.to_list(expression.references().toSeq()):
            columns.setdefault(str(column.exprId()), column)
    rows = _rows(jvm, jvm.project(jvm.seq(columns.values()), jvm.no_rows()).schema())
    own = [
        jvm.alias(mine, column.exprId())
        for mine, column in zip(jvm.to_list(rows.output()), columns.values(), strict=True)
    ]
    named = [jvm.named(f"c{place}", expression) for place, expression in enumerate(expressions)]
    return jvm.project(jvm.seq(named), jvm.project(jvm.seq(own), rows))


def _rows(jvm: Jvm, schema: Any) -> Any:
    """Return a plan of rows that the optimizer does not examine, shared by statements with the same columns."""
    key = str(schema.json())
    rows = jvm.unseen_rows.get(key)
    if rows is None:
        nothing = jvm.spark.sparkContext._jsc.emptyRDD().rdd()
        rows = jvm.session.internalCreateDataFrame(nothing, schema, False).queryExecution().analyzed()
        jvm.unseen_rows.put(key, rows, 1)
    return rows
