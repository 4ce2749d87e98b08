"""Build the expressions that this process computes exactly as Spark does. Everything else raises ``NotHere``.

The functions check the types of their arguments, so that a node can only be built if it computes every value of its
types as Spark does, bit for bit. If the result depends on a value (an overflow, a zero divisor), ``evaluate`` raises
``NotHere``, and Spark then computes everything and reports its own result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from pydelta.predicate.expressions import (
    BOOLEAN,
    OPERATORS,
    STRING,
    WHOLE,
    And,
    Arithmetic,
    CaseWhen,
    Cast,
    Coalesce,
    Compare,
    Concat,
    Expr,
    In,
    IsNan,
    IsNull,
    Literal,
    Negative,
    Not,
    Or,
    TextTest,
)
from pydelta.protocol.types import DataType, DecimalType, PrimitiveType

__all__ = [
    "SOURCE",
    "Exact",
    "NotHere",
    "arithmetic",
    "both",
    "cast",
    "check_simple",
    "choice",
    "coalesce",
    "compare",
    "concat",
    "either",
    "is_in",
    "is_nan",
    "is_null",
    "like",
    "negative",
    "opposite",
    "source_field",
    "text_test",
    "type_of",
]

Exact: TypeAlias = Expr
"""An expression made by these functions: each part has its type, and each day or time is an ``int``."""

SOURCE: Final = "\0source"
"""First part of the path of a column of a merge's source. The second part is its place, as text."""

_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_IN_DOUBLE: Final = ("byte", "short", "integer", "float")
FLOATS: Final = ("float", "double")
_SIMPLE: Final = frozenset(("boolean", "string", "binary", *WHOLE, *FLOATS, "date", "timestamp", "timestamp_ntz"))
_MOST_FLOATS: Final = 10


class NotHere(Exception):
    """Raised for work that only Spark does. The text names it, and never holds a value of a row or of the condition."""


def type_of(expr: Exact) -> DataType:
    """Return the type of an exact expression."""
    assert expr.type is not None, "the expression passed exact"
    return expr.type


def source_field(path: tuple[str, ...]) -> bool:
    """Return whether a path refers to a column of the source."""
    return path[0] == SOURCE


def _is(data_type: DataType | None, names: Sequence[str]) -> bool:
    return isinstance(data_type, PrimitiveType) and data_type.name in names


def _numeric(data_type: DataType | None) -> bool:
    return _is(data_type, (*WHOLE, *FLOATS))


def check_simple(data_type: DataType | None) -> DataType:
    """Return a type whose values can be compared here.

    Raises:
        NotHere: It is a struct, list or map, a string with a collation, an interval …
    """
    if isinstance(data_type, DecimalType) or (isinstance(data_type, PrimitiveType) and data_type.name in _SIMPLE):
        return data_type
    kind = data_type.name if isinstance(data_type, PrimitiveType) else type(data_type).__name__.removesuffix("Type")
    raise NotHere(f"a value of type {kind.partition('(')[0].lower()}")


def _same(what: str, *exprs: Exact) -> DataType:
    """Return the common type of several expressions."""
    first = check_simple(exprs[0].type)
    if any(item.type != first for item in exprs):
        raise NotHere(f"{what} of different types")
    return first


def _boolean(what: str, *exprs: Exact) -> None:
    if any(item.type != BOOLEAN for item in exprs):
        raise NotHere(f"{what} of values that are not boolean")


def compare(op: str, left: Exact, right: Exact) -> Compare:
    """Compare two values of one type. ``op`` is one of ``OPERATORS``."""
    assert op in OPERATORS
    _same("a comparison", left, right)
    return Compare(op, left, right)


def both(left: Exact, right: Exact) -> And:
    """Join two conditions with AND."""
    _boolean("AND", left, right)
    return And(left, right)


def either(left: Exact, right: Exact) -> Or:
    """Join two conditions with OR."""
    _boolean("OR", left, right)
    return Or(left, right)


def opposite(child: Exact) -> Not:
    """Negate a condition."""
    _boolean("NOT", child)
    return Not(child)


def is_in(child: Exact, values: Sequence[Literal]) -> In:
    """Look a value up among constants.

    With more than ten constants, Spark compares by a hash that distinguishes 0.0 from -0.0, unlike ``=``. So longer
    lists of floats are left to Spark.
    """
    data_type = _same("IN", child, *values)
    if _is(data_type, FLOATS) and len(values) > _MOST_FLOATS:
        raise NotHere("a long IN list of floats")
    return In(child, tuple(item.value for item in values))


def is_null(child: Exact) -> IsNull:
    """Test whether a value is null."""
    check_simple(child.type)
    return IsNull(child)


def is_nan(child: Exact) -> IsNan:
    """Test whether a float is NaN."""
    if not _is(child.type, FLOATS):
        raise NotHere("isnan of a number that is not a float")
    return IsNan(child)


def text_test(kind: str, child: Exact, part: Exact) -> TextTest:
    """Search for a constant string. ``kind`` is ``starts``, ``ends`` or ``contains``."""
    if child.type != STRING or not isinstance(part, Literal) or not isinstance(part.value, str) or not part.value:
        raise NotHere("a comparison of text with anything but a constant")
    return TextTest(kind, child, part.value)


def like(child: Exact, pattern: Exact, escape: str) -> Exact:
    """Match a pattern with ``%`` only at its ends. Others depend on the definition of a character."""
    if child.type != STRING or not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        raise NotHere("LIKE with a pattern that is not a constant")
    text = pattern.value
    body = text.removeprefix("%").removesuffix("%") if len(text) > 1 else text
    if escape in text or "_" in body or "%" in body or not body:
        raise NotHere("LIKE with a pattern of several parts")
    if text == body:
        return compare("=", child, pattern)
    kinds = {(True, True): "contains", (False, True): "starts", (True, False): "ends"}
    kind = kinds[text.startswith("%"), text.endswith("%")]
    return text_test(kind, child, Literal(body, STRING))


def cast(child: Exact, target: DataType) -> Exact:
    """Cast to a type that holds every value of the child's type without rounding."""
    source = child.type
    if source == target:
        return child
    if isinstance(child, Literal) and child.value is None:
        return Literal(None, check_simple(target))
    if isinstance(target, DecimalType):
        whole = target.precision - target.scale
        if isinstance(source, PrimitiveType) and source.name in _DIGITS and whole >= _DIGITS[source.name]:
            return Cast(child, target)
        if (
            isinstance(source, DecimalType)
            and target.scale >= source.scale
            and whole >= source.precision - source.scale
        ):
            return Cast(child, target)
    elif isinstance(source, PrimitiveType) and isinstance(target, PrimitiveType):
        wider = source.name in WHOLE and target.name in WHOLE[WHOLE.index(source.name) :]
        if wider or (target.name == "double" and source.name in _IN_DOUBLE):
            return Cast(child, target)
    raise NotHere("a cast that may round or fail")


def arithmetic(op: str, left: Exact, right: Exact) -> Arithmetic:
    """Compute with two numbers of one type that is not decimal."""
    data_type = _same("arithmetic", left, right)
    floats = _is(data_type, FLOATS)
    if not _numeric(data_type) or op not in ("+", "-", "*", "/", "%"):
        raise NotHere("arithmetic of decimals or dates")
    if op == "/" and not floats:
        raise NotHere("a division of whole numbers")
    if op == "%" and (floats or not isinstance(right, Literal) or right.value is None or right.value <= 0):
        raise NotHere("a remainder of anything but whole numbers by a positive constant")
    return Arithmetic(op, left, right, data_type)


def negative(child: Exact) -> Negative:
    """Change the sign of a number that is not decimal."""
    if not _numeric(child.type):
        raise NotHere("arithmetic of decimals or dates")
    return Negative(child, child.type)


def coalesce(*parts: Exact) -> Coalesce:
    """Choose the first value that is not null."""
    return Coalesce(parts, _same("coalesce", *parts))


def choice(branches: Sequence[tuple[Exact, Exact]], otherwise: Exact) -> CaseWhen:
    """Choose the value of the first condition that is true."""
    _boolean("CASE", *(condition for condition, _ in branches))
    data_type = _same("CASE", otherwise, *(value for _, value in branches))
    return CaseWhen(tuple(branches), otherwise, data_type)


def concat(*parts: Exact) -> Concat:
    """Join strings."""
    if _same("concat", *parts) != STRING:
        raise NotHere("concat of anything but text")
    return Concat(parts)
