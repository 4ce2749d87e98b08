"""Bind the SQL that a log holds to a column, and refuse what would run code or read files by it.

::

    text of a constraint, a generated column, a default, an invariant --parsed--> names of functions, kinds of nodes
        all of them Spark's own, none of REFUSED, no query --> a column
        anything else -------------------------------------> UnsafeOperationError, before it is computed

Whoever can write a table's log decides what its expressions say, and whoever writes rows to that table computes them.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any, Final

from py4j.java_gateway import JVMView
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.conditions import Condition
from pydelta.errors import UnsafeOperationError
from pydelta.spark.jvm import scala_object

__all__ = ["refuse_foreign", "table_expression"]

REFUSED: Final = frozenset(
    {"from_protobuf", "from_xml", "java_method", "reflect", "schema_of_xml", "to_protobuf", "try_reflect"}
)
"""Spark's own functions that call methods of any class, or read a file that their arguments name."""
_PREFIXES: Final = (("builtin",), ("system", "builtin"))


def table_expression(text: str, kind: str) -> Column:
    """Return the column that an expression of a table's log stands for.

    Args:
        text: The SQL.
        kind: What it is: ``CHECK constraint``, ``generation expression``, ``default`` or ``invariant``.

    Raises:
        UnsafeOperationError: It calls what is not Spark's own, or what runs code or reads files, or holds a query.
        ParseException: It is no expression.
    """
    refuse_foreign(text, kind)
    return F.expr(text)


def refuse_foreign(text: str, kind: str) -> None:
    """Refuse an expression that may do more than compute a value from a row. See ``table_expression``.

    Raises:
        UnsafeOperationError: So it does.
    """
    found = _foreign(text)
    if not found:
        return
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


@functools.lru_cache(maxsize=1024)
def _foreign(text: str) -> str:
    """What an expression holds that it must not, as words; empty if nothing, or if it does not parse."""
    context = SparkContext._active_spark_context
    assert context is not None
    view = context._jvm
    assert view is not None
    parser = scala_object(view.org.apache.spark.sql.catalyst.parser, "CatalystSqlParser")
    try:
        nodes = json.loads(str(parser.parseExpression(text).toJSON()))
    except PySparkException:
        return ""  # Spark says why when it is used
    return next((words for node in nodes if (words := _of_node(node, view))), "")


def _of_node(node: dict[str, Any], view: JVMView) -> str:
    kind = str(node.get("class", "")).rpartition(".")[2]
    if kind.endswith("Subquery") or kind in ("Exists", "ListQuery"):
        return "a query"
    if kind == "ExpressionWithUnresolvedIdentifier":
        return "a name that is computed"
    if kind != "UnresolvedFunction":
        return ""
    *before, last = str(node.get("nameParts", "")).strip("[]").split(", ")
    is_own = not before or tuple(part.lower() for part in before) in _PREFIXES
    if is_own and last.lower() in _own_functions(view) - REFUSED:
        return ""
    return f"the function {'.'.join((*before, last))}"


_OWN: Final[set[str]] = set()


def _own_functions(view: JVMView) -> set[str]:
    """Names of the functions that Spark brings; the same for all sessions of a process."""
    if not _OWN:
        functions = view.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin().listFunction()
        names = str(functions.mkString("\n"))
        _OWN.update(re.sub(r"^.*\.", "", name.replace("`", "")).lower() for name in names.split("\n"))
    return _OWN
