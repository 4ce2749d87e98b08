"""Order rows by several columns: one sort key along a space-filling curve, in Spark's own expressions.

::

    column --quantiles of a sample--> range id (0 for null, then upwards) --bits--> Z-order:  bits interleaved
                                                                        `--------> Hilbert: a table of turns a level

Range ids make columns comparable whatever their type and spread. No Python runs per row.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.protocol.types import DataType, DecimalType, PrimitiveType
from pydelta.spark.jvm import Jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["boundaries", "hilbert_index", "hilbert_tables", "interleave", "range_id", "sortable", "with_curve_key"]

_MOST_BITS: Final = 10
_KEY_BITS: Final = 62
_MAX_HILBERT_COLUMNS: Final = 5  # the table has n * 4**n entries at most
_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_FLOATS: Final = frozenset({"float", "double"})


def bits_of(columns: int) -> int:
    """Bits of each column's range id, so that the key of all fits into a long."""
    return max(1, min(_MOST_BITS, _KEY_BITS // columns))


def sortable(column: Column, data_type: DataType) -> Column:
    """Make a bigint, double or string that sorts as the column does; times to the microsecond, decimals roughly."""
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in _INTEGERS:
        return column.cast("bigint")
    if name in _FLOATS or isinstance(data_type, DecimalType):
        return column.cast("double")
    if name == "date":
        return F.unix_date(column).cast("bigint")
    if name in ("timestamp", "timestamp_ntz"):
        return F.unix_micros(column.cast("timestamp"))
    return column.cast("string")


def boundaries(values: pl.Series, ranges: int) -> tuple[list[Any], list[int]]:
    """Find values that divide a sample into parts of about the same size.

    Nulls, NaN and infinities are left out.

    Args:
        values: The sample.
        ranges: How many parts there would be if no value occurred often.

    Returns:
        At most ``ranges - 1`` ascending values; and the number, below ``ranges``, of the part before the first of them
        and of the part from each of them on. The numbers are spread over all there are, however few the values: columns
        with few values weigh as much as those with many.
    """
    clean = values.drop_nulls()
    if clean.dtype.is_float():
        clean = clean.filter(clean.is_finite())
    if clean.is_empty():
        return [], [0]
    ordered = clean.sort()
    at = [len(ordered) * part // ranges for part in range(1, ranges)]
    drawn = pl.DataFrame({"value": ordered.gather(at), "part": range(1, ranges)}, schema_overrides={"part": pl.Int64})
    first = drawn.group_by("value").agg(pl.col("part").min()).sort("value")
    return first["value"].to_list(), [0, *first["part"].to_list()]


def range_id(jvm: Jvm, value: Column, bounds: Sequence[Any], parts: Sequence[int]) -> Column:
    """Number a value by its part, from 1; 0 for null; see ``boundaries``."""
    if not bounds:
        return F.when(value.isNull(), F.lit(0)).otherwise(F.lit(1)).cast("bigint")
    found = jvm.binary_search(bounds, value)
    no_greater = F.when(found >= 0, found + 1).otherwise(-found - 1)
    return F.when(value.isNull(), F.lit(0).cast("bigint")).otherwise(_array(parts)[no_greater] + 1)


def _array(numbers: Sequence[int]) -> Column:
    """A constant array, parsed at once: one call to the JVM and not one a value."""
    return F.expr("array(" + ",".join(f"{number}L" for number in numbers) + ")")


def interleave(ids: Sequence[Column], bits: int) -> Column:
    """Interleave bits for a Z-order: the highest bit of each id, first column first, then the next bit of each."""
    count = len(ids)
    key = F.lit(0).cast("bigint")
    for number, value in enumerate(ids):
        for bit in range(bits):
            position = bit * count + (count - 1 - number)
            key = key.bitwiseOR(F.shiftleft(F.shiftright(value, bit).bitwiseAND(F.lit(1).cast("bigint")), position))
    return key


def hilbert_index(ids: Sequence[Column], bits: int) -> Column:
    """Compute the position along the Hilbert curve through all ids: neighbours differ in one id by one."""
    count = len(ids)
    if count > _MAX_HILBERT_COLUMNS:
        return interleave(ids, bits)
    turns, places = hilbert_tables(count)
    turn_table, place_table = (F.expr("array(" + ",".join(map(str, table)) + ")") for table in (turns, places))
    one = F.lit(1).cast("bigint")
    key = F.lit(0).cast("bigint")
    state = F.lit(0)
    for bit in range(bits - 1, -1, -1):
        corner = F.lit(0).cast("bigint")
        for number, value in enumerate(ids):
            of_column = F.shiftright(value, bit).bitwiseAND(one)
            corner = corner.bitwiseOR(F.shiftleft(of_column, count - 1 - number))
        at = (F.shiftleft(state, count) + corner).cast("int")
        key = F.shiftleft(key, count).bitwiseOR(place_table[at].cast("bigint"))
        state = turn_table[at]
    return key


@functools.cache
def hilbert_tables(count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Describe the Hilbert curve in ``count`` dimensions as a machine: one bit of each coordinate per step.

    Returns:
        For each state and corner (``state * 2**count + corner``): the next state, and the corner's place along the
        curve. The machine starts in state 0.

    Hamilton's description: a state is where the curve enters a cube and the axis along which it leaves it.
    """
    corners = 1 << count
    numbers: dict[tuple[int, int], int] = {(0, 0): 0}
    queue = [(0, 0)]
    turns: list[int] = []
    places: list[int] = []
    for entry, axis in queue:
        for corner in range(corners):
            place = _gray_inverse(_rotated_right(corner ^ entry, axis + 1, count))
            after = (
                entry ^ _rotated_left(_entry(place), axis + 1, count),
                (axis + _axis(place, count) + 1) % count,
            )
            if after not in numbers:
                numbers[after] = len(numbers)
                queue.append(after)
            turns.append(numbers[after])
            places.append(place)
    return tuple(turns), tuple(places)


def _gray(number: int) -> int:
    return number ^ (number >> 1)


def _gray_inverse(code: int) -> int:
    number = code
    while code := code >> 1:
        number ^= code
    return number


def _entry(place: int) -> int:
    """Corner at which the curve enters the sub-cube of a place."""
    return 0 if place == 0 else _gray(2 * ((place - 1) // 2))


def _axis(place: int, count: int) -> int:
    """Axis along which the curve runs within the sub-cube of a place."""
    if place == 0:
        return 0
    odd = place if place % 2 else place - 1
    return _trailing_ones(odd) % count


def _trailing_ones(number: int) -> int:
    ones = 0
    while number & 1:
        number >>= 1
        ones += 1
    return ones


def _rotated_right(value: int, by: int, count: int) -> int:
    by %= count
    return ((value >> by) | (value << (count - by))) & ((1 << count) - 1)


def _rotated_left(value: int, by: int, count: int) -> int:
    return _rotated_right(value, count - by % count, count)


def with_curve_key(
    spark: SparkSession, rows: DataFrame, key: str, columns: Sequence[Column], *, sample: DataFrame, curve: str
) -> DataFrame:
    """Add a column to sort rows by.

    Args:
        spark: The session.
        rows: The rows.
        key: Name of the new column.
        columns: What to order by: columns of ``rows`` as ``sortable`` gives them.
        sample: Some rows, the same values in the same order and nothing else; read once.
        curve: ``zorder`` or ``hilbert``.
    """
    if len(columns) == 1:
        return rows.withColumn(key, columns[0])
    jvm = Jvm.of(spark)
    bits = bits_of(len(columns))
    drawn = pl.DataFrame(pl.from_arrow(sample.toArrow()))
    ids = [f"{key}_{number}" for number in range(len(columns))]
    found = {
        name: range_id(jvm, value, *boundaries(drawn.to_series(number), (1 << bits) - 1))
        for number, (name, value) in enumerate(zip(ids, columns, strict=True))
    }
    # In a projection of their own, so that each is computed once and not for each of its bits.
    rows = rows.withColumns(found)
    of_ids = [rows[name] for name in ids]
    whole = hilbert_index(of_ids, bits) if curve == "hilbert" else interleave(of_ids, bits)
    return rows.withColumn(key, whole).drop(*ids)
