"""Evaluate an expression over columns of Arrow, bit for bit as Spark does.

::

    evaluate(expr, column, size) -> an array        ``column(path)`` gives a column, or a field within a struct
    true_rows(expr, column, size) -> one boolean per row: true if the condition is, false if it is false or null

An overflow or a division by zero raises ``NotHere``. Only Spark knows whether it is an error, null or another number,
from the session's settings and its order of evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.engines.arrow.expressions import Exact, NotHere, type_of
from pydelta.predicate.expressions import (
    FLIPPED,
    And,
    Arithmetic,
    CaseWhen,
    Cast,
    Coalesce,
    Column,
    Compare,
    Concat,
    In,
    IsNan,
    IsNull,
    Literal,
    Negative,
    Not,
    Or,
    TextTest,
)
from pydelta.protocol.schema import to_arrow_type

__all__ = ["Columns", "evaluate", "true_rows"]

Columns: TypeAlias = Callable[[tuple[str, ...]], Any]
_Datum: TypeAlias = Any
"""An array, or a scalar for all rows."""

_PLAIN: Final[dict[str, Callable[..., _Datum]]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_WHOLE: Final[dict[str, Callable[..., _Datum]]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_FLOAT: Final[dict[str, Callable[..., _Datum]]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}
_TEXT: Final[dict[str, Callable[..., _Datum]]] = {
    "starts": pc.starts_with,
    "ends": pc.ends_with,
    "contains": pc.match_substring,
}


def evaluate(expr: Exact, column: Columns, size: int) -> pa.Array:
    """Compute an expression for every row.

    Args:
        expr: The expression.
        column: Function that gives a column's values by its path, in the Arrow type of the table's column.
        size: Number of rows.

    Raises:
        NotHere: Only Spark can compute the result for a row.
    """
    try:
        return _as_array(_Evaluation(column).of(expr), size)
    except pa.ArrowInvalid as error:  # A checked kernel found an overflow.
        raise NotHere("a number outside the range of its type") from error
    except RecursionError as error:
        raise NotHere("an expression that is nested too deeply") from error


def true_rows(expr: Exact, column: Columns, size: int) -> npt.NDArray[np.bool_]:
    """Return for every row whether a condition is true. Null counts as false.

    Raises:
        NotHere: Only Spark can compute the result for a row.
    """
    found = pc.fill_null(evaluate(expr, column, size), False)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _as_array(datum: _Datum, size: int) -> pa.Array:
    if isinstance(datum, pa.ChunkedArray):
        return datum.combine_chunks()
    return pa.repeat(datum, size) if isinstance(datum, pa.Scalar) else datum


class _Evaluation:
    """One evaluation of a tree. A part that occurs several times is computed each time."""

    def __init__(self, column: Columns) -> None:
        self._column = column

    def of(self, expr: Exact) -> _Datum:
        if isinstance(expr, Column):
            return self._column(expr.path)
        if isinstance(expr, Literal):
            return _scalar(expr.value, to_arrow_type(type_of(expr)))
        if isinstance(expr, Compare):
            return _compared(expr.op, self.of(expr.left), self.of(expr.right))
        if isinstance(expr, And):
            return pc.and_kleene(self.of(expr.left), self.of(expr.right))
        if isinstance(expr, Or):
            return pc.or_kleene(self.of(expr.left), self.of(expr.right))
        if isinstance(expr, Not):
            return pc.invert(self.of(expr.child))
        if isinstance(expr, In):
            return _among(self.of(expr.child), expr)
        if isinstance(expr, IsNull):
            return pc.is_null(self.of(expr.child))
        if isinstance(expr, IsNan):
            return pc.fill_null(pc.is_nan(self.of(expr.child)), False)
        if isinstance(expr, TextTest):
            return _TEXT[expr.kind](self.of(expr.child), pattern=expr.part)
        return self._value(expr)

    def _value(self, expr: Exact) -> _Datum:
        if isinstance(expr, Cast):
            return pc.cast(self.of(expr.child), to_arrow_type(type_of(expr)), safe=True)
        if isinstance(expr, Arithmetic):
            return _computed(expr.op, self.of(expr.left), self.of(expr.right))
        if isinstance(expr, Negative):
            number = self.of(expr.child)
            return pc.negate(number) if pa.types.is_floating(number.type) else pc.negate_checked(number)
        if isinstance(expr, Coalesce):
            return pc.coalesce(*map(self.of, expr.parts))
        if isinstance(expr, CaseWhen):
            found = self.of(expr.otherwise)
            for condition, value in reversed(expr.branches):
                found = pc.if_else(pc.fill_null(self.of(condition), False), self.of(value), found)
            return found
        assert isinstance(expr, Concat), f"{type(expr).__name__} has no evaluation"
        return pc.binary_join_element_wise(*map(self.of, expr.parts), "", null_handling="emit_null")


def _scalar(value: Any, data_type: pa.DataType) -> pa.Scalar:
    return pa.scalar(value, data_type)


def _compared(op: str, left: _Datum, right: _Datum) -> _Datum:
    if op == "<=>":
        equal = _compared("=", left, right)
        null = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(pc.fill_null(equal, False), null)
    if pa.types.is_boolean(left.type):
        left, right = pc.cast(left, pa.int8()), pc.cast(right, pa.int8())
    if not pa.types.is_floating(left.type):
        return _PLAIN[op](left, right)
    if op in (">", ">="):
        op, left, right = FLIPPED[op], right, left
    plain = _PLAIN[op](left, right)  # False if one is NaN, and -0.0 equals 0.0.
    if op == "=":
        return pc.or_(plain, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if op == "<":
        return pc.or_(plain, pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))
    # Nothing is above NaN. A null on the left gives null, since pc.is_nan of null is null.
    return pc.or_(plain, pc.and_(pc.is_nan(right), pc.or_(pc.is_nan(left), pc.invert(pc.is_nan(left)))))


def _among(value: _Datum, expr: In) -> _Datum:
    present = [item for item in expr.values if item is not None]
    data_type = to_arrow_type(type_of(expr.child))
    if pa.types.is_floating(data_type):
        found: _Datum = pa.scalar(False)
        for item in present:
            found = pc.or_(found, _compared("=", value, _scalar(item, data_type)))
        if not present:
            found = pc.is_null(value)  # The result becomes null below in any case.
    else:
        found = pc.is_in(value, value_set=pa.array(present, type=data_type))
    if len(present) < len(expr.values):  # A value that is not in the list gives null.
        found = pc.if_else(found, found, pa.scalar(None, pa.bool_()))
    return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


def _computed(op: str, left: _Datum, right: _Datum) -> _Datum:
    if op == "%":
        return _remainder(left, right)
    if not pa.types.is_floating(left.type):
        return _WHOLE[op](left, right)
    if op == "/" and pc.any(pc.equal(right, pa.scalar(0.0, right.type))).as_py():
        raise NotHere("a division by zero")
    return _FLOAT[op](left, right)


def _remainder(left: _Datum, right: pa.Scalar) -> _Datum:
    """Compute the remainder with the sign of the dividend, as Java does."""
    if isinstance(left, pa.Scalar):
        left = pa.array([left.as_py()], type=left.type)
        return _remainder(left, right)[0]
    numbers = pc.fill_null(left, 0)
    if isinstance(numbers, pa.ChunkedArray):
        numbers = numbers.combine_chunks()
    values = numbers.to_numpy(zero_copy_only=False)
    found = np.fmod(values, values.dtype.type(right.as_py()))
    return pc.if_else(pc.is_valid(left), pa.array(found, type=left.type), pa.scalar(None, left.type))
