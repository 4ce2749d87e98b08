"""Bind the SQL that a log holds to a column, and refuse what would run code or read files by it.

::

    text of a constraint, a generated column, a default, an invariant --parsed--> names of functions, kinds of nodes
        all of them Spark's own, none refused, no query --> a column
        anything else -------------------------------------> UnsafeOperationError, before it is computed

Whoever can write a table's log decides what its expressions say, and whoever writes rows to that table computes them.
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
"""Spark's own functions that call methods of any class, or read a file that their arguments name."""
_PREFIXES: Final = (("builtin",), ("system", "builtin"))


def table_expression(text: str, kind: str) -> Column:
    """Return the column that an expression of a table's log stands for: of the very tree that was looked at.

    Args:
        text: The SQL.
        kind: What it is: ``CHECK constraint``, ``generation expression``, ``default`` or ``invariant``.

    Raises:
        UnsafeOperationError: It calls what is not Spark's own, or what runs code or reads files, or holds a query.
        ParseException: It is no expression.
    """
    return _column(_checked(text, kind))


def refuse_foreign(text: str, kind: str) -> None:
    """Refuse an expression that may do more than compute a value from a row. See ``table_expression``.

    Raises:
        UnsafeOperationError: So it does.
    """
    _checked(text, kind)


def _checked(text: str, kind: str) -> Any:
    """The tree of an expression as the session that is active parses it, whose settings decide what a text is."""
    view = _view()
    session = scala_object(view.org.apache.spark.sql.classic, "SparkSession").active()
    parsed = session.sessionState().sqlParser().parseExpression(text)
    nodes = json.loads(str(parsed.toJSON()))
    found = next((words for node in nodes if (words := _of_node(node))), "")
    if not found:
        return parsed
    raise UnsafeOperationError(
        f"The {kind} {text!r} holds {found}. What a table's log says may call Spark's own functions, and none of them "
        "that runs code or reads files.",
        hint="Nothing was computed. In a table of your own drop or change it; a table of somebody else is better "
        "read than written.",
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
    """What a node is that must not be there, as words; empty if it may."""
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
    """Names of the functions that Spark brings, the same for all sessions of a process, without those refused."""
    functions = _view().org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin().listFunction()
    names = str(functions.mkString("\n")).replace("`", "").lower().split("\n")
    return frozenset(name.rpartition(".")[2] for name in names) - _REFUSED
