"""Translate Catalyst expressions into the engine's predicates; what has no counterpart becomes ``Unknown``.

An expression crosses as JSON in one call. JSON loses three things, which are fetched from the node itself by its
position: the values of an ``InSet``, binary literals, and the instant of a timestamp (its text is in the session zone).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkContext

from pydelta.engines.spark.java_names import JavaNames
from pydelta.predicate import (
    And,
    Column,
    Compare,
    Expr,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
    Unknown,
    split_conjuncts,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Node", "Tree", "conjuncts_in", "conjuncts_of", "convert", "literal_of", "times_in", "to_expressions"]

_EPOCH_DATE: Final = dt.date(1970, 1, 1)
_EPOCH: Final = dt.datetime(1970, 1, 1)
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_COMPARISONS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_INTEGERS: Final = {"byte": 0, "short": 1, "integer": 2, "long": 3}
_TIMES: Final = frozenset(("timestamp", "timestamp_ntz"))
_NAMING: Final = ".With"
_SEPARATOR: Final = "\x01"

Fetch = Callable[[int, str], Any]
"""``fetch(position, what)``: a node's value. ``what`` is "set" (texts, or None), "bytes", "micros", "list" (of an IN of
times: the micros of each, as texts), "fold" (the constant), "escape" (of LIKE) or "common" (the name of a common
expression)."""


class _NoCounterpart(Exception):
    """The node cannot be expressed."""


@dataclass(slots=True)
class Node:
    """A node of a Catalyst expression: its place in the JSON, the name of its class, its attributes."""

    position: int
    name: str
    body: Mapping[str, Any]
    children: list[Node]


@dataclass(frozen=True, slots=True)
class Tree:
    """A Catalyst expression that has crossed to Python.

    Args:
        root: Its top.
        fetch: Values that the JSON lost; see ``Fetch``.
        text: Its SQL.
    """

    root: Node
    fetch: Fetch
    text: Callable[[], str]

    @classmethod
    def of(cls, expression: Any) -> Tree:
        """Bring an expression of the JVM over, in one call."""
        return cls.read(json.loads(str(expression.toJSON())), _fetching(expression), lambda: str(expression.sql()))

    @classmethod
    def read(cls, nodes: Sequence[Mapping[str, Any]], fetch: Fetch, text: Callable[[], str]) -> Tree:
        """Build the tree of nodes in pre-order."""
        root, end = _parse(nodes, 0)
        assert end == len(nodes), "a Catalyst expression with trailing nodes"
        if any(str(node["class"]).endswith(_NAMING) for node in nodes):
            root = _spelt_out(root, fetch, {})
        return cls(root, fetch, text)

    def conjuncts(self) -> tuple[Expr, ...]:
        """Return the conjuncts as predicates; ``Unknown`` with its SQL text where one has no counterpart."""
        return tuple(split_conjuncts(_boolean(self.root, self.fetch, self.text)))


def to_expressions(filters: Sequence[Any]) -> tuple[Expr, ...]:
    """Turn Catalyst filter expressions of one conjunction into our conjuncts; those that say nothing are left out."""
    converted = (_from_jvm(item) for item in filters)
    return tuple(expr for item in converted for expr in split_conjuncts(item) if not isinstance(expr, Unknown))


def conjuncts_of(spark: SparkSession, filtered: DataFrame) -> tuple[Expr, ...]:
    """Return the conjuncts of a DataFrame that is a filter over a scan, with the scan's logical column names.

    Args:
        spark: The session.
        filtered: ``scan.filter(condition)``.

    Returns:
        Each conjunct; ``Unknown`` with its SQL text where it has no counterpart.
    """
    del spark
    return conjuncts_in(filtered._jdf.queryExecution().analyzed().condition())


def conjuncts_in(condition: Any) -> tuple[Expr, ...]:
    """Return the conjuncts of a Catalyst expression; ``Unknown`` with its SQL text where one has no counterpart."""
    return Tree.of(condition).conjuncts()


def literal_of(value: Any, data_type: str) -> Literal | None:
    """Turn a value as Spark holds it into a literal; None where Python has no such value, such as a year beyond 9999.

    Args:
        value: A number, text or bytes; days for a date, microseconds for a time.
        data_type: Its type's name in the log.
    """
    try:
        return _from_internal(value, data_type)
    except _NoCounterpart:
        return None


def _from_jvm(expression: Any) -> Expr:
    tree = Tree.of(expression)
    return _boolean(tree.root, tree.fetch, tree.text)


def _fetching(expression: Any) -> Fetch:
    def fetch(position: int, what: str) -> Any:
        node = expression.apply(position)
        if what == "set":
            values = node.hset()
            texts = str(values.mkString(_SEPARATOR)).split(_SEPARATOR)
            return texts if len(texts) == values.size() else None
        if what == "list":
            names = JavaNames.of(SparkContext._gateway)
            made = names.org.apache.spark.sql.catalyst.expressions.CreateArray(node.list(), False)
            return str(made.eval(None).toString())[1:-1].split(",")
        if what == "fold":
            value = node.eval(None)
            return value if value is None or isinstance(value, (bool, int, float, bytes)) else str(value.toString())
        if what == "escape":
            return str(node.escapeChar())
        if what == "common":
            return str(node.id().toString())
        value = node.value()
        return bytes(value) if what == "bytes" else int(value)

    return fetch


def convert(nodes: Sequence[Mapping[str, Any]], fetch: Fetch, *, text: Callable[[], str] = lambda: "") -> Expr:
    """Turn a Catalyst expression as JSON into our tree.

    Args:
        nodes: ``expression.toJSON()`` decoded: nodes in pre-order.
        fetch: Values that the JSON lost, by position in it.
        text: The expression's SQL, asked for only when an ``Unknown`` is made.

    Returns:
        The tree. Parts of an ``AND`` or ``OR`` that have no counterpart are ``Unknown``; anything else that contains
        one is ``Unknown`` as a whole.
    """
    return _boolean(Tree.read(nodes, fetch, text).root, fetch, text)


def _parse(nodes: Sequence[Mapping[str, Any]], position: int) -> tuple[Node, int]:
    body = nodes[position]
    node = Node(position, str(body["class"]).rsplit(".", 1)[-1], body, [])
    position += 1
    for _ in range(int(body["num-children"])):
        child, position = _parse(nodes, position)
        node.children.append(child)
    return node, position


def _spelt_out(node: Node, fetch: Fetch, named: dict[str, Node]) -> Node:
    """A tree with each common expression where its name stands; BETWEEN names what it compares twice."""
    if node.name == "With":
        body, *definitions = node.children
        for item in definitions:
            named[str(fetch(item.position, "common"))] = _spelt_out(item.children[0], fetch, named)
        return _spelt_out(body, fetch, named)
    if node.name == "CommonExpressionRef":
        return named.get(str(fetch(node.position, "common")), node)
    return Node(node.position, node.name, node.body, [_spelt_out(child, fetch, named) for child in node.children])


def _boolean(node: Node, fetch: Fetch, text: Callable[[], str]) -> Expr:
    try:
        if node.name in ("And", "Or"):
            left, right = (_boolean(child, fetch, text) for child in node.children)
            return And(left, right) if node.name == "And" else Or(left, right)
        if node.name == "Not":
            return Not(_boolean(node.children[0], fetch, text))
        return _atom(node, fetch)
    except _NoCounterpart:
        return Unknown(text(), _references(node))


def _references(node: Node) -> frozenset[tuple[str, ...]]:
    if node.name == "AttributeReference":
        return frozenset({(str(node.body["name"]),)})
    return frozenset(path for child in node.children for path in _references(child))


def _atom(node: Node, fetch: Fetch) -> Expr:
    if node.name in _COMPARISONS:
        left, right = (_operand(child, fetch) for child in node.children)
        return Compare(_COMPARISONS[node.name], left, right)
    if node.name == "In":
        times = times_in(node, fetch)
        if times is not None:
            return In(_column(node.children[0]), tuple(_from_internal(*item).value for item in times))
        value, *items = (_operand(child, fetch) for child in node.children)
        if not isinstance(value, Column) or not all(isinstance(item, Literal) for item in items):
            raise _NoCounterpart
        return In(value, tuple(item.value for item in items if isinstance(item, Literal)))
    if node.name == "InSet":
        return _in_set(node, fetch)
    if node.name in ("IsNull", "IsNotNull"):
        column = _column(node.children[0])
        return IsNull(column) if node.name == "IsNull" else IsNotNull(column)
    if node.name == "StartsWith":
        column, prefix = _column(node.children[0]), _operand(node.children[1], fetch)
        if not isinstance(prefix, Literal) or not isinstance(prefix.value, str):
            raise _NoCounterpart
        return StartsWith(column, prefix.value)
    if node.name == "Literal" and node.body.get("dataType") == "boolean":
        return _literal(node, fetch)
    if node.name in ("AttributeReference", "GetStructField") and _type_of(node) == "boolean":
        return Compare("=", _column(node), Literal(True, "boolean"))
    raise _NoCounterpart


def times_in(node: Node, fetch: Fetch) -> list[tuple[int | None, str]] | None:
    """Read the times that an IN lists, in one call, each with its type; None where it lists anything else."""
    items = node.children[1:]
    kinds = {str(item.body.get("dataType")) for item in items if item.name == "Literal"}
    if len(kinds) != 1 or not kinds <= _TIMES or any(item.name != "Literal" for item in items):
        return None
    (kind,) = kinds
    return [(None if text == "null" else int(text), kind) for text in fetch(node.position, "list")]


def _operand(node: Node, fetch: Fetch) -> Expr:
    if node.name == "Literal":
        return _literal(node, fetch)
    if node.name == "Cast":
        return _cast(node, fetch)
    return _column(node)


def _column(node: Node) -> Column:
    path: list[str] = []
    while node.name == "GetStructField":
        path.append(_field_name(node))
        node = node.children[0]
    if node.name != "AttributeReference" or _collated(node.body.get("dataType")):
        raise _NoCounterpart
    return Column((str(node.body["name"]), *reversed(path)))


def _field_name(node: Node) -> str:
    """A struct's field by its ordinal: the name in the node is as the user wrote it."""
    data_type = _type_of(node.children[0])
    if not isinstance(data_type, Mapping) or data_type.get("type") != "struct":
        raise _NoCounterpart
    field = data_type["fields"][int(node.body["ordinal"])]
    if _collated(field["type"]) or "__COLLATIONS" in field.get("metadata", {}):
        raise _NoCounterpart
    return str(field["name"])


def _type_of(node: Node) -> Any:
    if node.name == "GetStructField":
        parent = _type_of(node.children[0])
        return parent["fields"][int(node.body["ordinal"])]["type"] if isinstance(parent, Mapping) else None
    return node.body.get("dataType")


def _collated(data_type: Any) -> bool:
    return isinstance(data_type, str) and data_type.startswith("string collate")


def _cast(node: Node, fetch: Fetch) -> Expr:
    child, target = node.children[0], node.body["dataType"]
    if child.name in ("AttributeReference", "GetStructField"):
        source = _type_of(child)
        if source in _INTEGERS and target in _INTEGERS and _INTEGERS[source] <= _INTEGERS[target]:
            return _column(child)  # a wider integer compares the same
        raise _NoCounterpart
    if not _foldable(child):
        raise _NoCounterpart
    try:
        value = fetch(node.position, "fold")
    except Exception as error:
        raise _NoCounterpart from error  # a cast that fails must fail in the query, not in planning
    return _from_internal(value, target)


def _foldable(node: Node) -> bool:
    return node.name == "Literal" or (node.name == "Cast" and _foldable(node.children[0]))


def _literal(node: Node, fetch: Fetch) -> Literal:
    data_type, text = node.body["dataType"], node.body.get("value")
    if text is None:
        return Literal(None)
    if data_type == "binary":
        return Literal(fetch(node.position, "bytes"), "binary")
    if data_type in ("timestamp", "timestamp_ntz"):
        return _from_internal(fetch(node.position, "micros"), data_type)
    if data_type == "date":
        return Literal(_date(str(text)), "date")
    return _from_internal(text, data_type)


def _in_set(node: Node, fetch: Fetch) -> Expr:
    column, data_type = _column(node.children[0]), _type_of(node.children[0])
    texts = None if data_type == "binary" else fetch(node.position, "set")
    if texts is None or not isinstance(data_type, str):
        raise _NoCounterpart
    return In(column, tuple(_set_item(item, data_type).value for item in texts))


def _set_item(text: str, data_type: str) -> Literal:
    if text == "null" and data_type != "string":
        return Literal(None)
    return _from_internal(int(text) if data_type in ("date", "timestamp", "timestamp_ntz") else text, data_type)


def _from_internal(value: Any, data_type: Any) -> Literal:
    """Spark's internal value (or its text) -> a literal."""
    if not isinstance(data_type, str) or _collated(data_type):
        raise _NoCounterpart
    if value is None:
        return Literal(None)
    try:
        return Literal(_python_value(value, data_type), data_type)
    except (ValueError, OverflowError, InvalidOperation) as error:
        raise _NoCounterpart from error


def _python_value(value: Any, data_type: str) -> Any:
    if data_type in _INTEGERS:
        return int(value)
    if data_type in ("float", "double"):
        return float(value)
    if data_type == "boolean":
        return value if isinstance(value, bool) else str(value) == "true"
    if data_type == "string":
        return str(value)
    if data_type == "binary" and isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if data_type == "date":
        return _EPOCH_DATE + dt.timedelta(days=int(value))
    if data_type == "timestamp":
        return _EPOCH_UTC + dt.timedelta(microseconds=int(value))
    if data_type == "timestamp_ntz":
        return _EPOCH + dt.timedelta(microseconds=int(value))
    if data_type.startswith("decimal"):
        return Decimal(str(value))
    raise _NoCounterpart


def _date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:  # beyond what Python's calendar holds
        raise _NoCounterpart from error
