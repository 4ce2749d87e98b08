"""Translate Catalyst expressions into the engine's. Parts without a counterpart become ``Unknown``.

::

    Tree (JSON of the expression) --a closed list of nodes--> Expr --+--prunable--> conjuncts
                                                                     +--exact-----> an expression for Arrow, or NotHere

No text is parsed again: types and columns are those that Spark resolved. An expression is transferred as JSON in one
call. JSON loses three things, which are fetched from the node by its position: the values of an ``InSet``, binary
literals, and the instant of a timestamp (its text is in the session zone).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark import SparkContext

from pydelta.engines.arrow.exact import exact
from pydelta.engines.arrow.expressions import Exact, NotHere, check_simple
from pydelta.engines.spark.java_names import JavaNames
from pydelta.errors import SchemaError
from pydelta.predicate.expressions import (
    WHOLE,
    And,
    Arithmetic,
    CaseWhen,
    Cast,
    Coalesce,
    Column,
    Compare,
    Concat,
    Expr,
    In,
    IsNan,
    IsNotNull,
    IsNull,
    Like,
    Literal,
    Negative,
    Not,
    Or,
    TextTest,
    Unknown,
    split_conjuncts,
)
from pydelta.predicate.projection import is_beyond, prunable
from pydelta.protocol.types import DataType, DecimalType, StructField, StructType, parse_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Node", "Sources", "Tree", "conjuncts_in", "conjuncts_of", "literal_of", "to_expressions"]

_COMPARISONS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_ARITHMETIC: Final = {"Add": "+", "Subtract": "-", "Multiply": "*", "Divide": "/", "Remainder": "%"}
_TEXTS: Final = {"StartsWith": "starts", "EndsWith": "ends", "Contains": "contains"}
_SAME: Final[Mapping[str, Callable[..., Expr]]] = {
    "And": And,
    "Or": Or,
    "Not": Not,
    "IsNull": IsNull,
    "IsNotNull": IsNotNull,
    "IsNaN": IsNan,
    "UnaryMinus": lambda child: Negative(child, child.type),
    "Coalesce": lambda *parts: Coalesce(parts, parts[0].type),
    "Concat": lambda *parts: Concat(parts),
    "If": lambda condition, value, otherwise: CaseWhen(((condition, value),), otherwise, otherwise.type),
    "CheckOverflowInTableInsert": lambda child: child,  # A cast that ``exact`` accepts cannot overflow.
    **{name: lambda left, right, op=op: Compare(op, left, right) for name, op in _COMPARISONS.items()},
    **{name: lambda left, right, op=op: Arithmetic(op, left, right, left.type) for name, op in _ARITHMETIC.items()},
}
"""Catalyst expressions that are built from the translations of their children."""

_TIMES: Final = ("timestamp", "timestamp_ntz")
_LOST: Final = "\ufffd"
"""The replacement character that a Java string has for bytes that are not UTF-8."""

_LARGE: Final = "a large set of such values"
_TOO_DEEP: Final = "an expression that is nested too deeply"
_NAMING: Final = ".With"
_SEPARATOR: Final = "\x01"

Fetch = Callable[[int, str], Any]
"""Type of ``fetch(position, what)``, which returns a node's value. ``what`` is "set" (strings, or None), "bytes",
"micros", "list" (microseconds of each time of an IN, as strings), "fold" (the constant), "escape" (of LIKE) or "common"
(the name of a common expression).
"""


Sources: TypeAlias = Mapping[int, tuple[str, ...]]
"""Paths of the columns of a MERGE's source, by Spark's ids. Columns of the table have an empty path."""


@dataclass(slots=True)
class Node:
    """A node of a Catalyst expression: its position in the JSON, the name of its class, its attributes."""

    position: int
    name: str
    body: Mapping[str, Any]
    children: list[Node]


@dataclass(frozen=True, slots=True)
class Tree:
    """A Catalyst expression that was transferred to Python.

    Args:
        root: The root node.
        fetch: Function that fetches values that the JSON lost. See ``Fetch``.
        text: Function that returns the SQL text.
    """

    root: Node
    fetch: Fetch
    text: Callable[[], str]

    @classmethod
    def of(cls, expression: Any) -> Tree:
        """Transfer an expression from the JVM in one call."""
        return cls.read(json.loads(str(expression.toJSON())), _fetching(expression), lambda: str(expression.sql()))

    @classmethod
    def read(cls, nodes: Sequence[Mapping[str, Any]], fetch: Fetch, text: Callable[[], str]) -> Tree:
        """Build the tree from nodes in pre-order."""
        root, end = _parse(nodes, 0)
        assert end == len(nodes), "a Catalyst expression with trailing nodes"
        if any(str(node["class"]).endswith(_NAMING) for node in nodes):
            root = _spelt_out(root, fetch, {})
        return cls(root, fetch, text)

    def conjuncts(self) -> tuple[Expr, ...]:
        """Return the conjuncts for pruning. One without a counterpart is ``Unknown`` with its SQL text."""
        found = _Translation(self.fetch).condition(self.root)
        return split_conjuncts(prunable(found, self.text))

    def exact(self, schema: StructType, sources: Sources | None = None) -> Exact:
        """Return the meaning of the expression, for this process to compute.

        Args:
            schema: Schema of the table. It must have every column that is not in ``sources``, with its type.
            sources: Columns of both sides of a MERGE.

        Raises:
            NotHere: Only Spark can compute some part of it. The text names the kind of that part, and no value.
        """
        translation = _Translation(self.fetch, sources)
        try:
            found = translation.condition(self.root)
        except RecursionError as error:
            raise NotHere(_TOO_DEEP) from error
        if translation.doubt:
            raise NotHere(translation.doubt)
        return exact(found, schema)


def to_expressions(filters: Sequence[Any]) -> tuple[Expr, ...]:
    """Turn Catalyst filters of one conjunction into the engine's conjuncts, leaving out those without a counterpart."""
    return tuple(expr for item in filters for expr in Tree.of(item).conjuncts() if not isinstance(expr, Unknown))


def conjuncts_of(spark: SparkSession, filtered: DataFrame) -> tuple[Expr, ...]:
    """Return the conjuncts of a DataFrame that is a filter over a scan, with the scan's logical column names.

    Args:
        spark: The session.
        filtered: ``scan.filter(condition)``.

    Returns:
        Each conjunct. One without a counterpart is ``Unknown`` with its SQL text.
    """
    del spark
    return conjuncts_in(filtered._jdf.queryExecution().analyzed().condition())


def conjuncts_in(condition: Any) -> tuple[Expr, ...]:
    """Return the conjuncts of a Catalyst expression. One without a counterpart is ``Unknown`` with its SQL text."""
    return Tree.of(condition).conjuncts()


def literal_of(value: Any, data_type: str) -> Literal | None:
    """Turn Spark's form of a value into a literal, or None if Python lacks the value, such as a year beyond 9999.

    Args:
        value: A number, text or bytes. Days for a date, microseconds for a time.
        data_type: Name of its type in the log.
    """
    kind = parse_type(data_type)
    try:
        found = _held(value, kind)
    except NotHere:
        return None
    return None if is_beyond(found, kind) else Literal(found, None if found is None else kind)


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


def _parse(nodes: Sequence[Mapping[str, Any]], position: int) -> tuple[Node, int]:
    body = nodes[position]
    node = Node(position, str(body["class"]).rsplit(".", 1)[-1], body, [])
    position += 1
    for _ in range(int(body["num-children"])):
        child, position = _parse(nodes, position)
        node.children.append(child)
    return node, position


def _spelt_out(node: Node, fetch: Fetch, named: dict[str, Node]) -> Node:
    """Replace the names of common expressions by the expressions, such as the value that BETWEEN compares twice."""
    if node.name == "With":
        body, *definitions = node.children
        for item in definitions:
            named[str(fetch(item.position, "common"))] = _spelt_out(item.children[0], fetch, named)
        return _spelt_out(body, fetch, named)
    if node.name == "CommonExpressionRef":
        return named.get(str(fetch(node.position, "common")), node)
    return Node(node.position, node.name, node.body, [_spelt_out(child, fetch, named) for child in node.children])


class _Translation:
    """The translation of one expression.

    Args:
        fetch: Function that fetches values that the JSON lost. See ``Fetch``.
        sources: Columns of both sides of a MERGE.
    """

    def __init__(self, fetch: Fetch, sources: Sources | None = None) -> None:
        self._fetch = fetch
        self._sources = sources
        self.doubt = ""
        """The kind of constant that is exact enough to rule files out, but not to decide about rows. Empty if none."""

    def condition(self, node: Node) -> Expr:
        """Translate an expression. A part of an AND, OR or NOT without a counterpart becomes ``Unknown`` as a whole."""
        if node.name in ("And", "Or"):
            left, right = node.children
            return _SAME[node.name](self.condition(left), self.condition(right))
        if node.name == "Not":
            return Not(self.condition(node.children[0]))
        try:
            return self._of(node)
        except NotHere as reason:
            return Unknown("", frozenset(_references(node)), str(reason))

    def _of(self, node: Node) -> Expr:
        if node.name in _SAME:
            return _SAME[node.name](*self._children(node))
        if node.name not in _SPECIAL:
            raise NotHere(node.name)
        return _SPECIAL[node.name](self, node)

    def _children(self, node: Node) -> list[Expr]:
        return [self._of(child) for child in node.children]

    def _column(self, node: Node) -> Expr:
        path, top = list[str](), node
        while top.name == "GetStructField":
            field = _field(top)
            if "__COLLATIONS" in field.metadata:
                raise NotHere("text with a collation")
            path.append(field.name)
            top = top.children[0]
        if top.name != "AttributeReference":
            raise NotHere("a field of a computed struct")
        return Column((*self._top(top), *reversed(path)), _type_of(node))

    def _top(self, node: Node) -> tuple[str, ...]:
        """Return the path of a whole column: its name, or its place among the source's columns."""
        path = () if self._sources is None else self._sources.get(int(node.body["exprId"]["id"]))
        if path is None:
            raise NotHere("a column of neither side")
        return path or (str(node.body["name"]),)

    def _literal(self, node: Node) -> Expr:
        data_type, text = _type(node.body["dataType"]), node.body.get("value")
        if text is None:
            return Literal(None, data_type)
        name = str(check_simple(data_type))
        if name == "binary":
            return Literal(self._fetch(node.position, "bytes"), data_type)
        if name in _TIMES:
            return Literal(_held(self._fetch(node.position, "micros"), data_type), data_type)
        if name == "date":
            return Literal(_date(str(text)), data_type)
        return Literal(self._read(text, data_type), data_type)

    def _read(self, value: Any, data_type: DataType) -> Any:
        found = _held(value, data_type)
        if isinstance(found, str) and _LOST in found:
            self.doubt = "a constant that cannot be read"
        return found

    def _cast(self, node: Node) -> Expr:
        target = _type(node.body["dataType"])
        if not _foldable(node):
            return Cast(self._of(node.children[0]), target)
        try:
            value = self._fetch(node.position, "fold")
        except Exception as error:  # The query must fail on it, not this translation.
            raise NotHere("a constant that cannot be computed") from error
        return Literal(self._read(value, check_simple(target)), target)

    def _in(self, node: Node) -> Expr:
        times = self._times(node)
        if times is not None:
            return In(self._of(node.children[0]), times)
        child, *values = self._children(node)
        constants = [value for value in values if isinstance(value, Literal)]
        if len(constants) < len(values):
            raise NotHere("IN with values that are not constants")
        if any(value.type != child.type for value in constants):
            self.doubt = "IN of different types"
        return In(child, tuple(value.value for value in constants))

    def _times(self, node: Node) -> tuple[Any, ...] | None:
        """Read the times that an IN lists in one call, or return None if it lists anything else."""
        items = node.children[1:]
        kinds = {str(item.body.get("dataType")) for item in items if item.name == "Literal"}
        if len(kinds) != 1 or not kinds <= {*_TIMES} or any(item.name != "Literal" for item in items):
            return None
        kind = parse_type(kinds.pop())
        return tuple(_held(None if text == "null" else text, kind) for text in self._fetch(node.position, "list"))

    def _in_set(self, node: Node) -> Expr:
        child = self._of(node.children[0])
        data_type, name = check_simple(child.type), str(child.type)
        texts = None if name == "binary" else self._fetch(node.position, "set")
        if texts is None:
            raise NotHere(_LARGE)
        if name in ("boolean", "float", "double") or isinstance(data_type, DecimalType):
            self.doubt = _LARGE
        if name == "string" and "null" in texts:  # The JVM writes the string "null" and a null in the same way.
            self.doubt = _LARGE
        absent = None if name == "string" else "null"
        return In(child, tuple(None if text == absent else self._read(text, data_type) for text in texts))

    def _text_test(self, node: Node) -> Expr:
        child, part = self._children(node)
        if not isinstance(part, Literal) or not isinstance(part.value, str):
            raise NotHere("a comparison of text with anything but a constant")
        return TextTest(_TEXTS[node.name], child, part.value)

    def _like(self, node: Node) -> Expr:
        child, pattern = self._children(node)
        return Like(child, pattern, str(self._fetch(node.position, "escape")))

    def _case_when(self, node: Node) -> Expr:
        parts = self._children(node)
        otherwise = parts.pop() if len(parts) % 2 else Literal(None, parts[1].type)
        return CaseWhen(tuple(zip(parts[::2], parts[1::2], strict=True)), otherwise, otherwise.type)


_SPECIAL: Final[Mapping[str, Callable[[_Translation, Node], Expr]]] = {
    "AttributeReference": _Translation._column,
    "GetStructField": _Translation._column,
    "Literal": _Translation._literal,
    "Cast": _Translation._cast,
    "In": _Translation._in,
    "InSet": _Translation._in_set,
    "Like": _Translation._like,
    "CaseWhen": _Translation._case_when,
    **dict.fromkeys(_TEXTS, _Translation._text_test),
}
"""Catalyst expressions that need more than the translations of their children."""


def _references(node: Node) -> Iterator[tuple[str, ...]]:
    todo = [node]
    while todo:
        part = todo.pop()
        if part.name == "AttributeReference":
            yield (str(part.body["name"]),)
        todo += part.children


def _type(value: Any) -> DataType:
    try:
        return parse_type(value)
    except (SchemaError, KeyError, TypeError) as error:
        raise NotHere("a type that tables do not have") from error


def _type_of(node: Node) -> DataType:
    """Return the type of a column, or of a field in it."""
    return _field(node).data_type if node.name == "GetStructField" else _type(node.body.get("dataType"))


def _field(node: Node) -> StructField:
    """Return a struct's field by its ordinal, since the name in the node has the user's spelling."""
    parent = _type_of(node.children[0])
    if not isinstance(parent, StructType):
        raise NotHere("a field of something other than a struct")
    return parent.fields[int(node.body["ordinal"])]


def _foldable(node: Node) -> bool:
    return node.name == "Literal" or (node.name == "Cast" and _foldable(node.children[0]))


def _date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise NotHere("a date beyond the year 9999, or before the year 1") from error


def _held(value: Any, data_type: DataType) -> Any:
    """Turn Spark's internal value, or its text, into the constant of a ``Literal``."""
    name = str(data_type)
    try:
        if value is None:
            return None
        if isinstance(data_type, DecimalType):
            return Decimal(str(value))
        if name in _READ:
            return _READ[name](value)
        if name in _SINCE:
            return _moment(int(value), *_SINCE[name])
    except (ValueError, InvalidOperation) as error:
        raise NotHere("a constant that cannot be read") from error
    if name == "boolean":
        return value if isinstance(value, bool) else str(value) == "true"
    if name == "binary" and isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise NotHere("a constant that cannot be read")


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(WHOLE, int),
    **dict.fromkeys(("float", "double"), float),
    "string": str,
}
_SINCE: Final[Mapping[str, tuple[Any, str]]] = {
    "date": (dt.date(1970, 1, 1), "days"),
    "timestamp": (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "microseconds"),
    "timestamp_ntz": (dt.datetime(1970, 1, 1), "microseconds"),
}


def _moment(count: int, start: Any, unit: str) -> Any:
    """Return a day or a time, or its count if Python's calendar lacks it."""
    try:
        return start + dt.timedelta(**{unit: count})
    except OverflowError:
        return count
