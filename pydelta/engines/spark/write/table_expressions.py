"""Bind SQL from a log to a column, refusing expressions that could run code or read files.

::

    text of a constraint, a generated column, a default, an invariant --parsed--> names of functions, kinds of nodes
        only Spark's functions, none refused, no query --> a column
        anything else -----------------------------------> UnsafeOperationError, before it is computed

Anyone who can write a table's log controls its expressions, and every writer of rows computes them.
"""

from __future__ import annotations

import functools
import json
from typing import Any, Final

from py4j.java_gateway import JVMView
from pyspark import SparkContext
from pyspark.sql import Column

from pydelta.engines.spark.jvm import is_query, scala_object
from pydelta.errors import UnsafeOperationError
from pydelta.errors.conditions import Condition

__all__ = ["refuse_foreign", "table_expression"]

_REFUSED: Final = frozenset(
    {"from_protobuf", "from_xml", "java_method", "reflect", "schema_of_xml", "to_protobuf", "try_reflect"}
)
"""Spark functions that call methods of any class, or read a file named by an argument."""
_PREFIXES: Final = (("builtin",), ("system", "builtin"))


def table_expression(text: str, kind: str) -> Column:
    """Return the column for an expression in a table's log, built from the same tree that was checked.

    Args:
        text: The SQL.
        kind: ``CHECK constraint``, ``generation expression``, ``default`` or ``invariant``.

    Raises:
        UnsafeOperationError: It calls a function that is not Spark's or that runs code or reads files, or has a query.
        ParseException: It is not an expression.
    """
    return _column(_checked(text, kind))


def refuse_foreign(text: str, kind: str) -> None:
    """Refuse an expression that may do more than compute a value from a row. See ``table_expression``.

    Raises:
        UnsafeOperationError: The expression may do more.
    """
    _checked(text, kind)


def _checked(text: str, kind: str) -> Any:
    """Parse an expression with the active session, whose settings affect parsing, and check its tree."""
    view = _view()
    session = scala_object(view.org.apache.spark.sql.classic, "SparkSession").active()
    parsed = session.sessionState().sqlParser().parseExpression(text)
    nodes = json.loads(str(parsed.toJSON()))
    found = next((words for node in nodes if (words := _of_node(node))), "")
    if not found:
        return parsed
    raise UnsafeOperationError(
        f"The {kind} {text!r} holds {found}. Expressions in a table's log may only call Spark's own functions, except "
        "those that run code or read files.",
        hint="Nothing was computed. If the table is yours, drop or change the expression; otherwise do not write to "
        "the table.",
        condition=_condition(text, kind),
    )


def _condition(text: str, kind: str) -> Condition | None:
    if kind == "CHECK constraint":
        return Condition.of("DELTA_UDF_IN_CHECK_CONSTRAINT", expr=text)
    return Condition.of("DELTA_UDF_IN_GENERATED_COLUMN", udfExpr=text) if kind == "generation expression" else None


def _column(expression: Any) -> Column:
    from pyspark.sql.classic.column import Column as ClassicColumn

    utilities = scala_object(_view().org.apache.spark.sql.classic, "ExpressionUtils")
    column: Column = ClassicColumn(utilities.column(expression))
    return column


def _view() -> JVMView:
    context = SparkContext._active_spark_context
    assert context is not None and context._jvm is not None
    return context._jvm


def _of_node(node: dict[str, Any]) -> str:
    """Describe a forbidden node; empty if it is allowed."""
    if is_query(node):
        return "a query"
    kind = str(node.get("class", "")).rpartition(".")[2]
    if kind == "ExpressionWithUnresolvedIdentifier":
        return "a name that is computed"
    if kind != "UnresolvedFunction":
        return ""
    *before, last = str(node.get("nameParts", "")).strip("[]").split(", ")
    is_own = not before or tuple(part.lower() for part in before) in _PREFIXES
    if is_own and last.lower() in _allowed():
        return ""
    return f"the function {'.'.join((*before, last))}"


@functools.cache
def _allowed() -> frozenset[str]:
    """Return the names of Spark's built-in functions, equal for all sessions of a process, except the refused ones."""
    functions = _view().org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin().listFunction()
    names = str(functions.mkString("\n")).replace("`", "").lower().split("\n")
    return frozenset(name.rpartition(".")[2] for name in names) - _REFUSED
