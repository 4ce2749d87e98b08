"""Order rows by several columns along a space-filling curve: the ranges, the curves, and the order in this process.

::

    column --quantiles of a sample--> range id (0 for null, then upwards) --bits--> Z-order:  bits interleaved
                                                                        `--------> Hilbert: one table of turns per level

Range ids make columns of any type and distribution comparable. ``pydelta.engines.spark.maintenance.curves`` computes
the same keys as expressions of Spark.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.protocol.types import DataType, DecimalType, PrimitiveType

__all__ = ["MAX_HILBERT_COLUMNS", "bits_of", "boundaries", "curve_keys", "hilbert_tables", "row_order", "sortable_as"]

_MOST_BITS: Final = 10
_KEY_BITS: Final = 62
MAX_HILBERT_COLUMNS: Final = 5
"""With more columns Z-order keys are used, because the table has ``n * 4**n`` entries."""

_SAMPLE_ROWS: Final = 100_000
_SEED: Final = 17
_SLICE_ROWS: Final = 131_072
_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_FLOATS: Final = frozenset({"float", "double"})


def bits_of(columns: int) -> int:
    """Return the number of bits per range id with which the key of all columns fits into a long."""
    return max(1, min(_MOST_BITS, _KEY_BITS // columns))


def sortable_as(data_type: DataType) -> str:
    """Return how a column is ordered: ``whole``, ``float``, ``date``, ``time`` or ``text``."""
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in _INTEGERS:
        return "whole"
    if name in _FLOATS or isinstance(data_type, DecimalType):
        return "float"
    if name == "date":
        return "date"
    return "time" if name in ("timestamp", "timestamp_ntz") else "text"


def boundaries(values: pl.Series, ranges: int) -> tuple[list[Any], list[int]]:
    """Find values that divide a sample into parts of similar size.

    Nulls, NaN and infinities are ignored.

    Args:
        values: The sample.
        ranges: Number of parts if no value occurred often.

    Returns:
        At most ``ranges - 1`` ascending values, and the number, below ``ranges``, of the part before the first of them
        and of the part from each of them on. The numbers are spread over the whole range, so that columns with few
        values weigh as much as those with many.
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


def row_order(columns: Sequence[tuple[pa.Array, DataType]], *, curve: str) -> npt.NDArray[np.int64]:
    """Find the order of rows along a curve, or by the values themselves for one column.

    Args:
        columns: Values and type of each column.
        curve: ``zorder`` or ``hilbert``.

    Returns:
        The positions of the rows in their new order. The sort is stable.
    """
    if len(columns) == 1:
        frame = pl.DataFrame({"key": _sortable(*columns[0])})
        found = frame.select(pl.arg_sort_by("key", nulls_last=False, maintain_order=True)).to_series()
        return found.to_numpy().astype(np.int64)

    def part(start: int) -> list[pl.Series]:
        return [_sortable(values.slice(start, _SLICE_ROWS), data_type) for values, data_type in columns]

    rows = len(columns[0][0])
    places = pa.array(_drawn(rows)) if rows > _SAMPLE_ROWS else None
    samples = [_sortable(v if places is None else v.take(places), data_type) for v, data_type in columns]
    return np.argsort(_keys(part, rows, samples, curve), kind="stable")


def curve_keys(series: Sequence[pl.Series], *, curve: str) -> npt.NDArray[np.int64]:
    """Compute the place of each row along a curve through at least two columns."""
    rows = len(series[0])
    samples = [values.gather(_drawn(rows)) if rows > _SAMPLE_ROWS else values for values in series]
    return _keys(lambda start: [values.slice(start, _SLICE_ROWS) for values in series], rows, samples, curve)


def _keys(
    part: Callable[[int], Sequence[pl.Series]], rows: int, samples: Sequence[pl.Series], curve: str
) -> npt.NDArray[np.int64]:
    """Compute the keys of all rows in slices. Intermediate results take several times the memory of the keys."""
    bits = bits_of(len(samples))
    bounds = [boundaries(sample, (1 << bits) - 1) for sample in samples]
    place = _hilbert if curve == "hilbert" and len(samples) <= MAX_HILBERT_COLUMNS else _interleaved
    keys = np.empty(rows, dtype=np.int64)
    for start in range(0, rows, _SLICE_ROWS):
        ids = [_range_ids(values, *bound) for values, bound in zip(part(start), bounds, strict=True)]
        keys[start : start + _SLICE_ROWS] = place(ids, bits)
    return keys


def _drawn(rows: int) -> npt.NDArray[np.int64]:
    """Return the positions of a sample, the same each time."""
    return np.random.default_rng(_SEED).integers(0, rows, _SAMPLE_ROWS)


def _sortable(values: pa.Array, data_type: DataType) -> pl.Series:
    """Convert values to a form that Polars sorts like the column."""
    kind = sortable_as(data_type)
    if kind == "whole":
        values = values.cast(pa.int64())
    elif kind == "float":
        values = values.cast(pa.float64())
    elif kind == "date":
        values = values.cast(pa.int32()).cast(pa.int64())
    elif kind == "time":
        values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    elif pa.types.is_boolean(values.type):
        values = pc.if_else(values, "true", "false")
    return pl.Series(pl.from_arrow(values))


def _range_ids(values: pl.Series, bounds: Sequence[Any], parts: Sequence[int]) -> npt.NDArray[np.int64]:
    """Number each value by its part, from 1, with 0 for null. See ``boundaries``."""
    present = values.is_not_null().to_numpy()
    if not bounds:
        return present.astype(np.int64)
    if values.dtype.is_numeric():
        numbers = values.fill_null(0).to_numpy()
        at = np.searchsorted(np.array(bounds, dtype=numbers.dtype), numbers, side="right")
    else:
        known = values.fill_null(bounds[0])
        at = pl.Series(bounds, dtype=values.dtype).search_sorted(known, side="right").to_numpy()
    return np.where(present, np.array(parts, dtype=np.int64)[at] + 1, 0)


def _interleaved(ids: Sequence[npt.NDArray[np.int64]], bits: int) -> npt.NDArray[np.int64]:
    """Interleave bits for a Z-order: the highest bit of each id, first column first, then the next bit of each."""
    count = len(ids)
    values = np.arange(1 << bits, dtype=np.int64)
    spread = np.zeros(1 << bits, dtype=np.int64)
    for bit in range(bits):
        spread |= ((values >> bit) & 1) << (bit * count)
    key = np.zeros(len(ids[0]), dtype=np.int64)
    for number, of_column in enumerate(ids):
        key |= spread[of_column] << (count - 1 - number)
    return key


def _hilbert(ids: Sequence[npt.NDArray[np.int64]], bits: int) -> npt.NDArray[np.int64]:
    """Compute the position along the Hilbert curve through all ids, on which neighbours differ in one id by one."""
    count = len(ids)
    turns, places = (np.array(table, dtype=np.int64) for table in hilbert_tables(count))
    key = np.zeros(len(ids[0]), dtype=np.int64)
    state = np.zeros(len(ids[0]), dtype=np.int64)
    for bit in range(bits - 1, -1, -1):
        at = state << count
        for number, of_column in enumerate(ids):
            at |= ((of_column >> bit) & 1) << (count - 1 - number)
        key = (key << count) | places[at]
        state = turns[at]
    return key


@functools.cache
def hilbert_tables(count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Describe the Hilbert curve in ``count`` dimensions as a machine: one bit of each coordinate per step.

    Returns:
        For each state and corner (``state * 2**count + corner``): the next state, and the corner's place along the
        curve. The machine starts in state 0.

    By Hamilton's description, a state is the corner where the curve enters a cube and the axis along which it leaves.
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
    """Return the corner at which the curve enters a sub-cube."""
    return 0 if place == 0 else _gray(2 * ((place - 1) // 2))


def _axis(place: int, count: int) -> int:
    """Return the axis along which the curve runs within a sub-cube."""
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
