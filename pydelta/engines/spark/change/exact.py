"""Translate a resolved Catalyst expression into one that Arrow computes exactly; the rest is Spark's.

::

    Tree (JSON of the expression, as pruning reads it) --a closed list of nodes--> Exact
                                                       --anything else-----------> NotHere(what it is)

A node is on the list only if its value is the same to the last bit, for every value of its types and whatever the
session's settings. Nothing is parsed again as text: types and columns are those that Spark resolved.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

from pydelta.engines.arrow.columns import field_of
from pydelta.engines.arrow.expressions import (
    Constant,
    Exact,
    Field,
    NotHere,
    arithmetic,
    both,
    cast,
    check_simple,
    choice,
    coalesce,
    compare,
    concat,
    either,
    is_in,
    is_nan,
    is_null,
    like,
    negative,
    opposite,
    text_test,
)
from pydelta.engines.spark.scan.filters import Fetch, Node, Tree, times_in
from pydelta.errors import SchemaError
from pydelta.protocol.types import DataType, DecimalType, PrimitiveType, StructType, parse_type

__all__ = ["Sources", "exact"]

_EPOCH_DATE: Final = dt.date(1970, 1, 1)
_INTERNAL: Final = ("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz")
_LOST: Final = "\ufffd"
"""What stands in a Java text for bytes that are not UTF-8."""

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
_JOINED: Final[Mapping[str, Callable[..., Exact]]] = {
    "And": both,
    "Or": either,
    "Not": opposite,
    "Coalesce": coalesce,
    "Concat": concat,
    "UnaryMinus": negative,
    "IsNull": is_null,
    "IsNaN": is_nan,
}


Sources: TypeAlias = Mapping[int, tuple[str, ...]]
"""Paths of the columns of a MERGE's source, by the ids that Spark has for them; those of the table have no path."""


def exact(tree: Tree, schema: StructType, sources: Sources | None = None) -> Exact:
    """Return what a Catalyst expression means, for this process to compute.

    Args:
        tree: The expression.
        schema: The table's: every other column that the expression reads must be one of it, with its type.
        sources: Of a MERGE, the columns of both sides.

    Raises:
        NotHere: Some part of it is Spark's alone; the text names its kind, and no value.
    """
    try:
        return _Translation(schema, tree.fetch, sources).of(tree.root)
    except RecursionError as error:
        raise NotHere("an expression that is nested too deeply") from error


class _Translation:
    def __init__(self, schema: StructType, fetch: Fetch, sources: Sources | None) -> None:
        self._schema = schema
        self._sources = sources
        self._fetch = fetch

    def of(self, node: Node) -> Exact:
        name = node.name
        if name in _COMPARISONS:
            return compare(_COMPARISONS[name], *self._children(node))
        if name in _JOINED:
            return _JOINED[name](*self._children(node))
        if name in _ARITHMETIC:
            left, right = self._children(node)
            return arithmetic(_ARITHMETIC[name], left, right)
        if name in _TEXTS:
            return text_test(_TEXTS[name], *self._children(node))
        if name not in _SPECIAL:
            raise NotHere(name)
        return _SPECIAL[name](self, node)

    def _children(self, node: Node) -> list[Exact]:
        return [self.of(child) for child in node.children]

    def _attribute_reference(self, node: Node) -> Exact:
        source = self._source_path(node)
        if source is not None:
            return Field(source, _type(node.body.get("dataType")))
        return field_of(self._schema, (str(node.body["name"]),), expected=_type(node.body.get("dataType")))

    def _source_path(self, node: Node) -> tuple[str, ...] | None:
        """The path of a column of the source; None for one of the table's."""
        if self._sources is None:
            return None
        path = self._sources.get(int(node.body["exprId"]["id"]))
        if path is None:
            raise NotHere("a column of neither side")
        return path or None

    def _get_struct_field(self, node: Node) -> Exact:
        path, top = list[str](), node
        while top.name == "GetStructField":
            parent = _type_of(top.children[0])
            if not isinstance(parent, StructType):
                raise NotHere("a field of something other than a struct")
            path.append(parent.fields[int(top.body["ordinal"])].name)
            top = top.children[0]
        if top.name != "AttributeReference":
            raise NotHere("a field of a computed struct")
        source = self._source_path(top)
        if source is not None:
            return Field((*source, *reversed(path)), _type_of(node))
        return field_of(self._schema, (str(top.body["name"]), *reversed(path)), expected=_type_of(node))

    def _literal(self, node: Node) -> Exact:
        data_type = check_simple(_type(node.body["dataType"]))
        if node.body.get("value") is None:
            return Constant(None, data_type)
        name = data_type.name if isinstance(data_type, PrimitiveType) else ""
        if name == "binary":
            return Constant(self._fetch(node.position, "bytes"), data_type)
        if name in ("timestamp", "timestamp_ntz"):
            return Constant(self._fetch(node.position, "micros"), data_type)
        text = str(node.body["value"])
        if name == "date":
            return Constant(_days(text), data_type)
        return Constant(_value(text, data_type), data_type)

    def _cast(self, node: Node) -> Exact:
        target = _type(node.body["dataType"])
        if _foldable(node):
            return self._folded(node, check_simple(target))
        return cast(self.of(node.children[0]), target)

    def _check_overflow_in_table_insert(self, node: Node) -> Exact:
        return self.of(node.children[0])  # a cast that is taken here cannot overflow

    def _folded(self, node: Node, data_type: DataType) -> Exact:
        try:
            value = self._fetch(node.position, "fold")
        except Exception as error:
            raise NotHere("a constant that cannot be computed") from error
        return Constant(None if value is None else _value(value, data_type), data_type)

    def _in(self, node: Node) -> Exact:
        times = times_in(node, self._fetch)
        if times is not None:
            return is_in(self.of(node.children[0]), [Constant(value, _type(kind)) for value, kind in times])
        child, *values = self._children(node)
        constants = [value for value in values if isinstance(value, Constant)]
        if len(constants) < len(values):
            raise NotHere("IN with values that are not constants")
        return is_in(child, constants)

    def _in_set(self, node: Node) -> Exact:
        child = self.of(node.children[0])
        name = child.type.name if isinstance(child.type, PrimitiveType) else ""
        texts = None if name in ("", "binary", "boolean", "float", "double") else self._fetch(node.position, "set")
        if texts is None:
            raise NotHere("a large set of such values")
        values = [None if text == "null" and name != "string" else _value(text, child.type) for text in texts]
        if name == "string" and "null" in texts:  # the text, or no value: the JVM writes both the same way
            raise NotHere("a large set of such values")
        return is_in(child, [Constant(value, child.type) for value in values])

    def _is_not_null(self, node: Node) -> Exact:
        return opposite(is_null(self.of(node.children[0])))

    def _like(self, node: Node) -> Exact:
        child, pattern = self._children(node)
        return like(child, pattern, str(self._fetch(node.position, "escape")))

    def _if(self, node: Node) -> Exact:
        condition, then, otherwise = self._children(node)
        return choice([(condition, then)], otherwise)

    def _case_when(self, node: Node) -> Exact:
        parts = self._children(node)
        otherwise = parts.pop() if len(parts) % 2 else Constant(None, parts[1].type)
        return choice(list(zip(parts[::2], parts[1::2], strict=True)), otherwise)


_SPECIAL: Final[Mapping[str, Callable[[_Translation, Node], Exact]]] = {
    "AttributeReference": _Translation._attribute_reference,
    "GetStructField": _Translation._get_struct_field,
    "Literal": _Translation._literal,
    "Cast": _Translation._cast,
    "CheckOverflowInTableInsert": _Translation._check_overflow_in_table_insert,
    "In": _Translation._in,
    "InSet": _Translation._in_set,
    "IsNotNull": _Translation._is_not_null,
    "Like": _Translation._like,
    "If": _Translation._if,
    "CaseWhen": _Translation._case_when,
}
"""Catalyst's expressions whose translation is more than that of their children."""


def _type(value: Any) -> DataType:
    try:
        return parse_type(value)
    except (SchemaError, KeyError, TypeError) as error:
        raise NotHere("a type that tables do not have") from error


def _type_of(node: Node) -> DataType:
    """The type of a column, or of a field in it."""
    if node.name == "GetStructField":
        parent = _type_of(node.children[0])
        if not isinstance(parent, StructType):
            raise NotHere("a field of something other than a struct")
        return parent.fields[int(node.body["ordinal"])].data_type
    return _type(node.body.get("dataType"))


def _foldable(node: Node) -> bool:
    return node.name == "Literal" or (node.name == "Cast" and _foldable(node.children[0]))


def _days(text: str) -> int:
    try:
        return (dt.date.fromisoformat(text) - _EPOCH_DATE).days
    except ValueError as error:
        raise NotHere("a date beyond the year 9999, or before the year 1") from error


def _value(value: Any, data_type: DataType) -> Any:
    """A constant as Spark holds it, or its text -> as ``Constant`` has it."""
    try:
        if isinstance(data_type, DecimalType):
            return Decimal(str(value))
        name = data_type.name if isinstance(data_type, PrimitiveType) else ""
        if name in _INTERNAL:
            return int(value)
        if name in ("float", "double"):
            return float(value)
    except (ValueError, InvalidOperation) as error:
        raise NotHere("a constant that cannot be read") from error
    if name == "boolean":
        return value if isinstance(value, bool) else str(value) == "true"
    if name == "binary" and isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if name == "string" and _LOST not in str(value):
        return str(value)
    raise NotHere("a constant that cannot be read")
