"""Decide which expressions this process computes exactly as Spark does. All others raise ``NotHere``.

::

    exact(tree, schema)                the tree with the table's types, its parts made by ``expressions``
    assigned(column, text, schema)     the new value of a column in an UPDATE as SQL text

The checks are strict: constants must be values of their types, and comparisons that need a third type are refused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import numpy as np

from pydelta.engines.arrow.expressions import (
    FLOATS,
    Exact,
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
    source_field,
    text_test,
)
from pydelta.predicate import parse_value, value_of_text
from pydelta.predicate.expressions import (
    BOOLEAN,
    FLIPPED,
    STRING,
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
)
from pydelta.protocol.types import DataType, DecimalType, PrimitiveType, StructType

__all__ = ["assigned", "exact", "field_of", "fitting", "simple_value"]

_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_TIMES: Final = ("date", "timestamp", "timestamp_ntz")
_EPOCH_DATE: Final = dt.date(1970, 1, 1)
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def exact(expr: Expr, schema: StructType) -> Exact:
    """Return an expression for this process to compute.

    Args:
        expr: The tree from a translator. Its types must be those of the schema.
        schema: Schema of the table. Every column must be in it, or in a merge's source.

    Raises:
        NotHere: Only Spark can compute some part of it. The text names the kind of that part, and no value.
    """
    try:
        return _condition(_Exactly(schema).of(expr))
    except RecursionError as error:
        raise NotHere("an expression that is nested too deeply") from error


class _Exactly:
    """Rebuilds a tree from its parts with the functions that check them."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def of(self, expr: Expr) -> Exact:
        return _PARTS[type(expr)](self, expr)

    def _column(self, expr: Column) -> Exact:
        return expr if source_field(expr.path) else field_of(self._schema, expr.path, expected=expr.type)

    def _literal(self, expr: Literal) -> Exact:
        if expr.type is None and expr.value is None:
            return expr  # A null takes the type of the other side.
        kind = check_simple(expr.type)
        return Literal(_held(expr.value, kind), kind)

    def _compare(self, expr: Compare) -> Exact:
        left, right, op = self.of(expr.left), self.of(expr.right), expr.op
        if isinstance(left, Literal) and not isinstance(right, Literal):
            left, right, op = right, left, FLIPPED[op]
        return compare(op, *_in_one_type(left, right))

    def _in(self, expr: In) -> Exact:
        child = self.of(expr.child)
        kind = check_simple(child.type)
        name = str(kind)
        if name in WHOLE and not all(value is None or _has_bits(value, name) for value in expr.values):
            child, kind = cast(child, PrimitiveType("long")), PrimitiveType("long")
        return is_in(child, [Literal(_held(value, kind), kind) for value in expr.values])

    def _choice(self, expr: CaseWhen) -> Exact:
        branches = [(self.of(condition), self.of(value)) for condition, value in expr.branches]
        return choice(branches, self.of(expr.otherwise))

    def _unknown(self, expr: Unknown) -> Exact:
        raise NotHere(expr.reason or "such a condition")


_PARTS: Final[Mapping[type, Callable[[_Exactly, Any], Exact]]] = {
    Column: _Exactly._column,
    Literal: _Exactly._literal,
    Compare: _Exactly._compare,
    And: lambda self, expr: both(_condition(self.of(expr.left)), _condition(self.of(expr.right))),
    Or: lambda self, expr: either(_condition(self.of(expr.left)), _condition(self.of(expr.right))),
    Not: lambda self, expr: opposite(_condition(self.of(expr.child))),
    In: _Exactly._in,
    IsNull: lambda self, expr: is_null(self.of(expr.child)),
    IsNotNull: lambda self, expr: opposite(is_null(self.of(expr.child))),
    IsNan: lambda self, expr: is_nan(self.of(expr.child)),
    TextTest: lambda self, expr: text_test(expr.kind, self.of(expr.child), Literal(expr.part, STRING)),
    Like: lambda self, expr: like(self.of(expr.child), self.of(expr.pattern), expr.escape),
    Cast: lambda self, expr: cast(self.of(expr.child), expr.type),
    Arithmetic: lambda self, expr: arithmetic(expr.op, self.of(expr.left), self.of(expr.right)),
    Negative: lambda self, expr: negative(self.of(expr.child)),
    Coalesce: lambda self, expr: coalesce(*map(self.of, expr.parts)),
    CaseWhen: _Exactly._choice,
    Concat: lambda self, expr: concat(*map(self.of, expr.parts)),
    Unknown: _Exactly._unknown,
}


def _condition(expr: Exact) -> Exact:
    """Give a null without a type the boolean type. Other expressions are returned unchanged."""
    return Literal(None, BOOLEAN) if expr.type is None else expr


def _in_one_type(left: Exact, right: Exact) -> tuple[Exact, Exact]:
    """Cast two sides to the type in which Spark compares them: the wider of two whole number or two float types."""
    if right.type is None:  # Only a null has no type.
        right = Literal(None, left.type)
    names = [str(side.type) for side in (left, right)]
    for widths in (WHOLE, FLOATS):
        if all(name in widths for name in names):
            wider = PrimitiveType(max(names, key=widths.index))
            return cast(left, wider), cast(right, wider)
    return left, right


def field_of(schema: StructType, path: Iterable[str], *, expected: DataType | None = None) -> Column:
    """Resolve a column, or a field within structs, by names that ignore case.

    Args:
        schema: Schema of the table.
        path: Names from the column inwards.
        expected: The type found by an earlier resolution. A different type means a different column.

    Raises:
        NotHere: There is no such column, or it does not have that type.
    """
    level: DataType = schema
    found: list[str] = []
    for name in path:
        field = level.field(name) if isinstance(level, StructType) else None
        if field is None:
            raise NotHere("a column that is not the table's")
        found.append(field.name)
        level = field.data_type
    if expected is not None and level != expected:
        raise NotHere("a column of another type than the table's")
    return Column(tuple(found), level)


def assigned(column: str, text: str, schema: StructType, time_zone: str | None = None) -> Exact:
    """Return the new value of a column in an UPDATE as SQL text: a constant or another column.

    Args:
        column: The table's name of the column.
        text: SQL text.
        schema: Schema of the table.
        time_zone: Zone of times that name none. With None, such times are refused if an instant is needed.

    Raises:
        ParseError, BindError: The text is not a value, or names a column that the table does not have.
        NotHere: It is more than a constant or a column, or does not have the column's type.

    Example:
        >>> from pydelta.protocol.types import PrimitiveType, StructField, StructType
        >>> schema = StructType((StructField("n", PrimitiveType("integer")),))
        >>> assigned("n", "7", schema)
        Literal(value=7, type=PrimitiveType(name='integer'))
    """
    field = schema.field(column)
    assert field is not None, "the target was resolved"
    kind = check_simple(field.data_type)
    parsed = parse_value(text, schema, time_zone=time_zone)
    if parsed is None:
        raise NotHere("a value that is not a constant or a column")
    if isinstance(parsed, Column):
        return cast(field_of(schema, parsed.path), kind)
    value, name = parsed.value, str(kind)
    if isinstance(value, str):
        value = value_of_text(value, kind, time_zone)
    if name in _TIMES and isinstance(value, int):
        raise NotHere(f"such a constant for a column of type {kind}")
    if name == "float" and _is_number(value):
        with np.errstate(over="ignore"):  # A number beyond float is infinite there, so it is refused.
            single = float(np.float32(value))
        if single != float(value):
            raise NotHere("a number that a float would round")
    return Literal(_held(value, kind), kind)


def _held(value: Any, kind: DataType) -> Any:
    """Convert a constant to the form that a column of a type holds.

    Raises:
        NotHere: It is not a value of the type, or out of its range.
    """
    if value is None:
        return None
    if isinstance(kind, DecimalType) and _is_number(value) and not isinstance(value, float):
        return fitting(Decimal(value), kind)
    name = str(kind)
    if name in _BITS and _is_number(value) and isinstance(value, int):
        if not _has_bits(value, name):
            raise NotHere(f"a number beyond {kind}")
        return value
    if name in FLOATS and _is_number(value):
        return float(value)
    if name in _TIMES and isinstance(value, int):
        return value
    found = simple_value(value, name)
    if found is None:
        raise NotHere(f"such a constant for a column of type {kind}")
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _has_bits(value: int, name: str) -> bool:
    return -(1 << (_BITS[name] - 1)) <= value < 1 << (_BITS[name] - 1)


def simple_value(value: Any, name: str) -> Any:
    """Return the value in the form of ``Exact``, or None if it has another type."""
    if name == "string" and isinstance(value, str):
        return value
    if name == "boolean" and isinstance(value, bool):
        return value
    if name == "binary" and isinstance(value, bytes):
        return value
    if name == "date" and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return (value - _EPOCH_DATE).days
    if name == "timestamp" and isinstance(value, dt.datetime) and value.tzinfo is not None:
        return (value.astimezone(dt.UTC).replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    if name == "timestamp_ntz" and isinstance(value, dt.datetime) and value.tzinfo is None:
        return (value - _EPOCH) // _MICROSECOND
    return None


def fitting(value: Decimal, kind: DecimalType) -> Decimal:
    """Check that a decimal type holds all digits of a number, and return the number.

    Raises:
        NotHere: It has more digits.
    """
    digits = "".join(map(str, value.as_tuple().digits))
    kept = digits.rstrip("0")
    exponent = int(value.as_tuple().exponent) + len(digits) - len(kept)
    if kept and (-exponent > kind.scale or len(kept) + exponent > kind.precision - kind.scale):
        raise NotHere("a number with more digits than its column has")
    return value
