"""Turn a condition that was parsed without Spark into one that is computed exactly, with the meaning it has in Spark.

``pydelta.predicate`` understands a condition as far as pruning needs it; here nothing may be loose: constants take the
type that Spark would compare in, and what would be compared in a type of neither side is ``NotHere``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from pydelta.engines.arrow.columns import field_of
from pydelta.engines.arrow.expressions import Compare as ExactCompare
from pydelta.engines.arrow.expressions import (
    Constant,
    Exact,
    Field,
    NotHere,
    both,
    cast,
    compare,
    either,
    is_in,
    is_null,
    opposite,
    text_test,
)
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
)
from pydelta.protocol.types import DecimalType, PrimitiveType, StructType

__all__ = ["exactly", "fitting", "simple_value"]

_LONG: Final = PrimitiveType("long")
_DOUBLE: Final = PrimitiveType("double")
_BOOLEAN: Final = PrimitiveType("boolean")
_WHOLE: Final = ("byte", "short", "integer", "long")
_EPOCH_DATE: Final = dt.date(1970, 1, 1)
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_LONG_MAX: Final = 1 << 63


def exactly(expr: Expr, schema: StructType) -> Exact:
    """Return a condition for this process to compute.

    Args:
        expr: As ``parse_predicate`` gives it.
        schema: The table's.

    Raises:
        NotHere: A part of it would be computed in a type that neither side has.
    """
    if isinstance(expr, (And, Or)):
        join = both if isinstance(expr, And) else either
        return join(exactly(expr.left, schema), exactly(expr.right, schema))
    if isinstance(expr, Not):
        return opposite(exactly(expr.child, schema))
    if isinstance(expr, Compare):
        return _compared(expr, schema)
    if isinstance(expr, In):
        return _among(_column(expr.child, schema), expr.values)
    if isinstance(expr, (IsNull, IsNotNull)):
        null = is_null(_column(expr.child, schema))
        return null if isinstance(expr, IsNull) else opposite(null)
    if isinstance(expr, StartsWith):
        return text_test("starts", _column(expr.child, schema), Constant(expr.prefix, PrimitiveType("string")))
    if isinstance(expr, Literal) and (expr.value is None or isinstance(expr.value, bool)):
        return Constant(expr.value, _BOOLEAN)
    if isinstance(expr, Column):
        return _column(expr, schema)
    raise NotHere("such a condition")


def _column(expr: Expr, schema: StructType) -> Field:
    if not isinstance(expr, Column):
        raise NotHere("a test of something other than a column")
    return field_of(schema, expr.path)


def _compared(expr: Compare, schema: StructType) -> ExactCompare:
    left, right = expr.left, expr.right
    if isinstance(left, Literal) and isinstance(right, Column):
        flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(expr.op, expr.op)
        return _compared(Compare(flipped, right, left), schema)
    column = _column(left, schema)
    if isinstance(right, Column):
        other = _column(right, schema)
        if _is_whole(column) and _is_whole(other):
            return compare(expr.op, cast(column, _LONG), cast(other, _LONG))
        return compare(expr.op, column, other)
    if not isinstance(right, Literal):
        raise NotHere("a comparison with something other than a constant")
    side, constant = _in_one_type(column, right.value)
    return compare(expr.op, side, constant)


def _among(column: Field, values: Sequence[Any]) -> Exact:
    side, constants = None, list[Constant]()
    for value in values:
        if value is None:
            continue
        beside, constant = _in_one_type(column, value)
        if side is not None and beside != side:
            raise NotHere("IN with constants of several types")
        side = beside
        constants.append(constant)
    if len(constants) < len(values):
        constants.append(Constant(None, column.type if side is None else side.type))
    return is_in(column if side is None else side, constants)


def _is_whole(column: Field) -> bool:
    return isinstance(column.type, PrimitiveType) and column.type.name in _WHOLE


def _in_one_type(column: Field, value: Any) -> tuple[Exact, Constant]:
    """A column and a constant in the type in which Spark compares them."""
    kind = column.type
    if value is None:
        return column, Constant(None, kind)
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if _is_whole(column) and isinstance(value, int) and number:
        if not -_LONG_MAX <= value < _LONG_MAX:
            raise NotHere("a whole number beyond 64 bits")
        return cast(column, _LONG), Constant(value, _LONG)
    if name in ("float", "double") and number:
        return cast(column, _DOUBLE), Constant(float(value), _DOUBLE)
    if isinstance(kind, DecimalType) and number and not isinstance(value, float):
        return column, Constant(fitting(Decimal(value), kind), kind)
    simple = simple_value(value, name)
    if simple is None:
        raise NotHere(f"a comparison of {kind} with such a constant")
    return column, Constant(simple, kind)


def simple_value(value: Any, name: str) -> Any:
    """Return the value as ``Constant`` has it; None where the type is another one."""
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
    """Return a number that a decimal type holds to its last digit.

    Raises:
        NotHere: It has more digits.
    """
    digits = "".join(map(str, value.as_tuple().digits))
    kept = digits.rstrip("0")
    exponent = int(value.as_tuple().exponent) + len(digits) - len(kept)
    if kept and (-exponent > kind.scale or len(kept) + exponent > kind.precision - kind.scale):
        raise NotHere("a number with more digits than its column has")
    return value
