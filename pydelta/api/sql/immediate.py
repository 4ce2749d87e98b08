"""Run ``EXECUTE IMMEDIATE``: a statement given as text, over Delta tables as over Spark's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import ParseException, PySparkException
from pyspark.sql.classic.column import Column

from pydelta.api.sql.grammar import is_ours, parse_statement
from pydelta.api.sql.nodes import Nodes
from pydelta.api.sql.own import run_own
from pydelta.api.sql.relations import RelationResolver, named_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["execute_immediate"]


def execute_immediate(nodes: Nodes, node: Any, run: Callable[[Any], DataFrame | None]) -> DataFrame | None:
    """Run ``EXECUTE IMMEDIATE text [INTO variables] [USING values]``.

    Args:
        nodes: The session's nodes.
        node: As Spark parsed it.
        run: Runs a parsed statement about a Delta table; returns None for any other.

    Returns:
        None when Spark should run or refuse the text.
    """
    text = nodes.evaluate(node.sqlStmtStr())
    values = _values(nodes, node)
    if not isinstance(text, str) or values is None:
        return None
    targets = nodes.items(node.targetVariables())
    frame = _own(nodes, text) if not values and not targets else None
    if frame is not None:
        return frame
    given = [item.name for item in values if item.name is not None]
    if given or (values and _asks_by_name(nodes, text)):
        given = [name for item in values if (name := item.name or item.variable) is not None]
        if len(given) < len(values):
            return None  # Spark's error lists those without a name.
    try:
        parsed = nodes.jvm.parse(text, [item.value for item in values], given)
    except ParseException:
        return None
    parsed = named_tables(nodes.jvm, parsed)
    plan = RelationResolver(nodes.spark).statement(parsed)
    if not targets:
        frame = run(parsed)
        return frame if frame is not None or plan is None else nodes.jvm.frame(plan)
    if plan is None:
        return None
    variables = nodes.jvm.view.org.apache.spark.sql.catalyst.plans.logical.SetVariable
    return nodes.jvm.frame(variables(nodes.jvm.seq(targets), plan))


def _own(nodes: Nodes, text: str) -> DataFrame | None:
    """Run a statement that only this engine knows."""
    refused = False
    if not is_ours(text):
        try:
            nodes.jvm.parse(text)
        except ParseException:
            refused = True
    return run_own(nodes, parse_statement(text)) if is_ours(text, spark_refuses=refused) else None


def _asks_by_name(nodes: Nodes, text: str) -> bool:
    """Return whether a statement has named parameters, as far as it parses without their values."""
    try:
        return ":" in text and "namedparameter(" in str(nodes.jvm.parse(text).toString()).lower()
    except ParseException:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    """A value of USING.

    Args:
        value: A Catalyst literal.
        name: The name after AS.
        variable: The session variable that it reads, whose name is used where parameters are named.
    """

    value: Any
    name: str | None = None
    variable: str | None = None


def _values(nodes: Nodes, node: Any) -> list[_Value] | None:
    """Compute the values of USING; None when Spark should raise the error."""
    found: list[_Value] = []
    for given in nodes.items(node.args()):
        name, variable, value = None, None, given
        if str(given.nodeName()) == "Alias":
            name, value = str(given.name()), given.child()
        elif str(given.nodeName()) == "UnresolvedAttribute":  # Only a session variable can be named here.
            variable = str(nodes.items(given.nameParts())[-1])
        try:
            row = nodes.jvm.one_row([Column(nodes.jvm.column_of(value)).alias("value")])
            computed = row._jdf.queryExecution().optimizedPlan()
        except PySparkException:
            return None
        if str(computed.nodeName()) != "Project":
            return None
        literal = computed.projectList().apply(0).child()
        found.append(_Value(value=literal, name=name, variable=variable))
    return found
