"""Render conditions for the history as Spark writes them in a plan: ``(id#7 > 2)``, constants computed, casts folded.

The numbers are those of columns in one statement: they tell columns of one name apart and mean nothing beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.spark.jvm import Jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["shown"]

_FIELDS: Final = 25
"""Parts of a list that Spark shows by default."""


def shown(spark: SparkSession, expressions: Sequence[Any]) -> list[str]:
    """Render resolved expressions of one statement by Spark's optimizer, over rows that nothing reads.

    Args:
        spark: The session.
        expressions: Catalyst's.

    Returns:
        The text of each, in their order; the text before optimization where that fails.
    """
    jvm = Jvm.of(spark)
    if not any(jvm.has_subquery(expression) for expression in expressions):
        try:
            with jvm.active():  # the rules ask the active session for its settings
                plan = jvm.state.optimizer().execute(_projected(jvm, expressions))
            found = [item.child() for item in jvm.to_list(plan.projectList())]
        except (
            PySparkException,
            Py4JError,
        ):  # a constant part that fails: the query will fail and explain it
            found = []
        if len(found) == len(expressions):
            expressions = found
    return [str(expression.simpleString(_FIELDS)) for expression in expressions]


def _projected(jvm: Jvm, expressions: Sequence[Any]) -> Any:
    """A projection of the expressions over rows of the columns that they refer to.

    An optimizer evaluates expressions over rows that it knows, so these come from an RDD, which it does not look into.
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
    """A plan of rows that an optimizer does not look into; one serves all statements over columns like these."""
    key = str(schema.json())
    rows = jvm.unseen_rows.get(key)
    if rows is None:
        nothing = jvm.spark.sparkContext._jsc.emptyRDD().rdd()
        rows = jvm.session.internalCreateDataFrame(nothing, schema, False).queryExecution().analyzed()
        jvm.unseen_rows.put(key, rows, 1)
    return rows
