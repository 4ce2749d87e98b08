"""Evaluate conditions over many rows at once: exactly by partition values, loosely by statistics.

::

    partition_mask(expr, typed values)  -> true, false or null for each row: SQL's three values
    skipping_mask(expr, statistics)     -> false only if no row of the file can make expr true
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final, TypeAlias

import polars as pl

from pydelta.errors import DeltaError, first_line
from pydelta.predicate.expressions import (
    FLIPPED,
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
    TextTest,
)
from pydelta.protocol.stats import stat_column
from pydelta.protocol.types import PrimitiveType

__all__ = ["NotEvaluable", "partition_mask", "skipping_mask", "skipping_masks"]

_LONG: Final = 1 << 63
_DOUBLE: Final = PrimitiveType("double")


class NotEvaluable(DeltaError):
    """Raised if the values cannot decide a condition. The caller then keeps the row or file."""

    code = "DELTA_NOT_EVALUABLE"


def partition_mask(expr: Expr, frame: pl.DataFrame) -> pl.Series:
    """Evaluate a condition for each row of typed partition values.

    Args:
        expr: A condition that reads only columns of ``frame``, by name and ignoring case.
        frame: Typed columns, from ``protocol.partitions.typed_frame``.

    Returns:
        Boolean series: true, false, or null if unknown in SQL.

    Raises:
        NotEvaluable: A part is not understood, a column is missing, or types cannot be compared.
    """
    names: dict[tuple[str, ...], str] = {(name.lower(),): name for name in frame.columns}
    try:
        return frame.select(_in_every_row(_value(expr, names))).to_series()
    except (pl.exceptions.PolarsError, OverflowError) as error:
        raise NotEvaluable(f"{_shown(expr)} cannot be compared: {first_line(error)}") from error
    except RecursionError:
        raise NotEvaluable("The condition is nested too deeply.") from None


def _shown(expr: Expr) -> str:
    try:
        return str(expr)
    except RecursionError:
        return "A deep condition"


def _in_every_row(condition: pl.Expr) -> pl.Expr:
    """Repeat the value of a condition without columns for each row."""
    return condition & pl.repeat(True, pl.len())


def _value(expr: Expr, names: Mapping[tuple[str, ...], str]) -> pl.Expr:
    if isinstance(expr, Column):
        name = names.get(tuple(part.lower() for part in expr.path))
        if name is None:
            raise NotEvaluable(f"{expr} is not among the given columns.")
        return pl.col(name)
    if isinstance(expr, Literal):
        return pl.lit(None, dtype=pl.Boolean) if expr.value is None else _literal(expr)
    if isinstance(expr, And):
        return _value(expr.left, names) & _value(expr.right, names)
    if isinstance(expr, Or):
        return _value(expr.left, names) | _value(expr.right, names)
    if isinstance(expr, Not):
        return ~_value(expr.child, names)
    if isinstance(expr, IsNull):
        return _value(expr.child, names).is_null()
    if isinstance(expr, IsNotNull):
        return _value(expr.child, names).is_not_null()
    if isinstance(expr, TextTest) and expr.kind == "starts":
        return _value(expr.child, names).str.starts_with(expr.part)
    if isinstance(expr, In):
        child = _value(expr.child, names)
        values = [value for value in expr.values if value is not None]
        found = _is_among(child, values)
        if len(values) < len(expr.values):
            found = found | pl.lit(None)
        return pl.when(child.is_null()).then(None).otherwise(found)
    if isinstance(expr, Compare):
        return _compare(expr, names)
    raise NotEvaluable(f"{expr} is not supported here.")


def _is_among(child: pl.Expr, values: Sequence[Any]) -> pl.Expr:
    """Test whether a value equals one of many constants, with one list if possible, else with a flat disjunction."""
    series = _in_one_series(values)
    if series is not None:
        return child.is_in(series.implode())
    return pl.any_horizontal(pl.lit(False), *(child == pl.lit(value) for value in values))


def _in_one_series(values: Sequence[Any]) -> pl.Series | None:
    """Make a series of constants of one type, or None for types that other types compare with, and beyond 64 bits."""
    kinds = {type(value) for value in values}
    if kinds not in ({int}, {str}, {date}) or (kinds == {int} and not all(-_LONG <= value < _LONG for value in values)):
        return None
    return pl.Series(values)


def _compare(expr: Compare, names: Mapping[tuple[str, ...], str]) -> pl.Expr:
    nulls = [isinstance(side, Literal) and side.value is None for side in (expr.left, expr.right)]
    if any(nulls):
        if expr.op != "<=>":
            return pl.lit(None, dtype=pl.Boolean)
        return _value(expr.right if nulls[0] else expr.left, names).is_null()
    left, right = _value(expr.left, names), _value(expr.right, names)
    operations = {
        "=": left.eq(right),
        "<=>": left.eq_missing(right),
        "<": left.lt(right),
        "<=": left.le(right),
        ">": left.gt(right),
        ">=": left.ge(right),
    }
    return operations[expr.op]


def _literal(literal: Literal) -> pl.Expr:
    """Make a constant that is compared without a rounding that could rule a row out.

    A double stays a double, because Polars would round it to a column's single precision. A decimal is compared with
    widened floats in bounds of statistics (``parse_stats_columns``), and with exact decimals in partition values.
    """
    if literal.type == _DOUBLE:
        return pl.lit(literal.value, dtype=pl.Float64)
    return pl.lit(literal.value)


Possible: TypeAlias = tuple[pl.Expr, pl.Expr]
"""Whether some row can make a condition true, and whether some row can make it false. Null counts as true."""

_YES: Final = pl.lit(True)
_NO: Final = pl.lit(False)


@dataclass(frozen=True, slots=True)
class _Known:
    """The types of the columns' statistics, and the set of decimal columns."""

    schema: pl.Schema
    decimals: Collection[tuple[str, ...]]

    def stat(self, kind: str, column: Column) -> pl.Expr | None:
        name = stat_column(kind, column.path)
        return pl.col(name) if name in self.schema else None

    def bounds(self, column: Column) -> pl.DataType:
        return self.schema[stat_column("max", column.path)]

    def may_be_nan(self, column: Column) -> bool:
        """Return whether rows may be NaN, which bounds ignore and which is greater than any number."""
        return self.bounds(column).is_float() and column.path not in self.decimals


def skipping_mask(expr: Expr, stats: pl.DataFrame, *, decimals: Collection[tuple[str, ...]] = ()) -> pl.Series:
    """Find the files that may hold a row that makes a condition true.

    Args:
        expr: A condition over physical column paths.
        stats: Columns named by ``stat_column``, one row per file, null if not known.
        decimals: Paths of decimal columns. Their bounds may be floats, but none of their rows is NaN.

    Returns:
        Boolean series without nulls: false only if the statistics prove that no row can.
    """
    try:
        return _possible_for([expr], stats, decimals)
    except (pl.exceptions.PolarsError, OverflowError, RecursionError):  # A failing comparison rules nothing out.
        return pl.repeat(True, stats.height, eager=True)


def skipping_masks(
    exprs: Sequence[Expr], stats: pl.DataFrame, *, decimals: Collection[tuple[str, ...]] = ()
) -> pl.Series:
    """Find the files that may hold a row that makes all conditions true. See ``skipping_mask``.

    If one of them cannot be compared, the others still rule files out.
    """
    try:
        return _possible_for(exprs, stats, decimals)
    except (pl.exceptions.PolarsError, OverflowError, RecursionError):
        mask = pl.repeat(True, stats.height, eager=True)
        for expr in exprs:
            mask &= skipping_mask(expr, stats, decimals=decimals)
        return mask


def _possible_for(exprs: Sequence[Expr], stats: pl.DataFrame, decimals: Collection[tuple[str, ...]]) -> pl.Series:
    known = _Known(stats.schema, decimals)
    possible = [_possible(expr, known)[0].fill_null(True) for expr in exprs]
    return stats.select(_in_every_row(pl.all_horizontal(_YES, *possible))).to_series()


def _possible(expr: Expr, known: _Known) -> Possible:
    if isinstance(expr, And):
        (lt, lf), (rt, rf) = _possible(expr.left, known), _possible(expr.right, known)
        return lt & rt, lf | rf
    if isinstance(expr, Or):
        (lt, lf), (rt, rf) = _possible(expr.left, known), _possible(expr.right, known)
        return lt | rt, lf & rf
    if isinstance(expr, Not):
        can_be_true, can_be_false = _possible(expr.child, known)
        return can_be_false, can_be_true
    if isinstance(expr, Literal):
        if isinstance(expr.value, bool):
            return pl.lit(expr.value), pl.lit(not expr.value)
        return (_NO, _NO) if expr.value is None else (_YES, _YES)
    if isinstance(expr, IsNull) and isinstance(expr.child, Column):
        return _null_possible(expr.child, known)
    if isinstance(expr, IsNotNull) and isinstance(expr.child, Column):
        is_null, is_value = _null_possible(expr.child, known)
        return is_value, is_null
    if isinstance(expr, Compare):
        return _compare_possible(expr, known)
    if isinstance(expr, In) and isinstance(expr.child, Column):
        return _in_possible(expr, known)
    if isinstance(expr, TextTest) and expr.kind == "starts" and isinstance(expr.child, Column):
        return _prefix_possible(expr, known)
    return _YES, _YES


def _null_possible(column: Column, known: _Known) -> Possible:
    """Return whether a row can be null, and whether one can have a value."""
    counts = known.stat("nullCount", column)
    if counts is None:
        return _YES, _YES
    return counts > 0, counts < pl.col("numRecords") if "numRecords" in known.schema else _YES


def _compare_possible(expr: Compare, known: _Known) -> Possible:
    left, right, op = expr.left, expr.right, expr.op
    if isinstance(left, Literal):
        left, right, op = right, left, FLIPPED[op]
    if not (isinstance(left, Column) and isinstance(right, Literal)):
        return _YES, _YES
    is_null, is_value = _null_possible(left, known)
    if right.value is None:
        return (is_null, is_value) if op == "<=>" else (_NO, _NO)
    low, high = known.stat("min", left), known.stat("max", left)
    if low is None or high is None or not _has_bound(right.value):
        return (is_value, is_value) if op != "<=>" else (is_value, _YES)
    floating = known.may_be_nan(left)  # Every upper bound may be exceeded then.
    if floating and right.value != right.value:
        return (is_value, is_value) if op != "<=>" else (is_value, _YES)
    value = _literal(right)
    within = (low <= value) & (high >= value)
    differs = _YES if floating else ~((low == value) & (high == value))
    above_or_equal = _YES if floating else high >= value
    above = _YES if floating else high > value
    below, below_or_equal = low < value, low <= value
    table: dict[str, Possible] = {
        "=": (within, differs),
        "<": (below, above_or_equal),
        "<=": (below_or_equal, above),
        ">": (above, below_or_equal),
        ">=": (above_or_equal, below),
    }
    if op == "<=>":
        return is_value & within, _YES
    can_be_true, can_be_false = table[op]
    return is_value & can_be_true, is_value & can_be_false


def _has_bound(value: Any) -> bool:
    """Return whether a constant can be compared with bounds: its type has them, and rounding cannot cross one."""
    if isinstance(value, Decimal):  # Digits are counted here because normalize() rounds to the context's precision.
        return value.is_finite() and len("".join(map(str, value.as_tuple().digits)).strip("0")) <= _EXACT_DIGITS
    return not isinstance(value, (bool, bytes))


_EXACT_DIGITS: Final = 15
_EXACT_VALUES: Final = 64


def _in_possible(expr: In, known: _Known) -> Possible:
    assert isinstance(expr.child, Column)
    _, is_value = _null_possible(expr.child, known)
    low, high = known.stat("min", expr.child), known.stat("max", expr.child)
    values = [value for value in expr.values if value is not None]
    if not values:
        return _NO, _NO if expr.values else _YES
    plain = all(_has_bound(value) and value == value for value in values)
    if low is None or high is None or not plain:
        return is_value, is_value
    series, kind = _in_one_series(values), known.bounds(expr.child)
    if series is not None and series.dtype == (pl.Int64() if kind.is_integer() else kind):
        ordered = series.sort()  # Sort for the binary search.
        below = pl.when(low.is_not_null()).then(pl.lit(ordered).search_sorted(low, side="left")).otherwise(0)
        reached = pl.lit(ordered).search_sorted(high, side="right")
        return is_value & (below < pl.when(high.is_not_null()).then(reached).otherwise(len(ordered))), is_value
    if len(values) > _EXACT_VALUES:
        try:
            top, bottom = pl.lit(max(values)), pl.lit(min(values))
        except TypeError:  # The constants have no common order.
            return is_value, is_value
        return is_value & (low <= top) & (high >= bottom), is_value
    inside = _NO
    for value in values:
        inside = inside | ((low <= pl.lit(value)) & (high >= pl.lit(value)))
    return is_value & inside, is_value


def _prefix_possible(expr: TextTest, known: _Known) -> Possible:
    assert isinstance(expr.child, Column)
    _, is_value = _null_possible(expr.child, known)
    low, high = known.stat("min", expr.child), known.stat("max", expr.child)
    if low is None or high is None or known.bounds(expr.child) != pl.String:
        return is_value, is_value
    prefix = pl.lit(expr.part)
    reaches = (low.str.slice(0, len(expr.part)) <= prefix) & (high >= prefix)
    return is_value & reaches, is_value
