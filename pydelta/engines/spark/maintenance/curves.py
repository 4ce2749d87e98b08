"""Order rows by several columns: one sort key along a space-filling curve, as Spark expressions.

The ranges and the curves are those of ``pydelta.engines.arrow.curves``.

::

    column --quantiles of a sample--> range id (0 for null, then upwards) --bits--> Z-order:  bits interleaved
                                                                        `--------> Hilbert: table of turns per level

Range ids make columns comparable regardless of type and distribution. No Python runs per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.engines.arrow.curves import MAX_HILBERT_COLUMNS, bits_of, boundaries, hilbert_tables, sortable_as
from pydelta.engines.spark.jvm import Jvm
from pydelta.protocol.types import DataType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["hilbert_index", "interleave", "range_id", "sortable", "with_curve_key"]


def sortable(column: Column, data_type: DataType) -> Column:
    """Convert to a bigint, double or string that sorts like the column: times to microseconds, decimals roughly."""
    kind = sortable_as(data_type)
    if kind == "whole":
        return column.cast("bigint")
    if kind == "float":
        return column.cast("double")
    if kind == "date":
        return F.unix_date(column).cast("bigint")
    if kind == "time":
        return F.unix_micros(column.cast("timestamp"))
    return column.cast("string")


def range_id(jvm: Jvm, value: Column, bounds: Sequence[Any], parts: Sequence[int]) -> Column:
    """Return the number of the part that holds a value, from 1, or 0 for null. See ``boundaries``."""
    if not bounds:
        return F.when(value.isNull(), F.lit(0)).otherwise(F.lit(1)).cast("bigint")
    found = jvm.binary_search(bounds, value)
    no_greater = F.when(found >= 0, found + 1).otherwise(-found - 1)
    return F.when(value.isNull(), F.lit(0).cast("bigint")).otherwise(_array(parts)[no_greater] + 1)


def _array(numbers: Sequence[int]) -> Column:
    """Build a constant array by parsing, which takes one JVM call instead of one per value."""
    return F.expr("array(" + ",".join(f"{number}L" for number in numbers) + ")")


def interleave(ids: Sequence[Column], bits: int) -> Column:
    """Interleave bits for a Z-order: the highest bit of each id, first column first, then the next bits, and so on."""
    count = len(ids)
    key = F.lit(0).cast("bigint")
    for number, value in enumerate(ids):
        for bit in range(bits):
            position = bit * count + (count - 1 - number)
            key = key.bitwiseOR(F.shiftleft(F.shiftright(value, bit).bitwiseAND(F.lit(1).cast("bigint")), position))
    return key


def hilbert_index(ids: Sequence[Column], bits: int) -> Column:
    """Compute the position on the Hilbert curve through all ids. Neighbors differ by one in a single id."""
    count = len(ids)
    if count > MAX_HILBERT_COLUMNS:
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


def with_curve_key(
    spark: SparkSession, rows: DataFrame, key: str, columns: Sequence[Column], *, sample: DataFrame, curve: str
) -> DataFrame:
    """Add a column by which to sort rows.

    Args:
        spark: The session.
        rows: The rows.
        key: Name of the new column.
        columns: Columns of ``rows`` to order by, as returned by ``sortable``.
        sample: A sample of exactly these values, in the same order. It is read once.
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
    # A separate projection makes Spark compute each id once instead of once per bit.
    rows = rows.withColumns(found)
    of_ids = [rows[name] for name in ids]
    whole = hilbert_index(of_ids, bits) if curve == "hilbert" else interleave(of_ids, bits)
    return rows.withColumn(key, whole).drop(*ids)
