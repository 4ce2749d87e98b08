"""Choose the columns of a Parquet file that are written without a dictionary. Runs on executors, with pyarrow only.

Arrow builds the dictionary of a column until it is too large, and then drops it. If most values differ, that is a
quarter of the writer's time, makes the file larger, and slows readers: Spark puts the dictionary of each row group
into a set of objects to see whether a filter can match. See ADR 0031.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.engines.arrow.tasks.arrow import float_leaves, leaf_column, struct_leaves

__all__ = ["DICTIONARY_BYTES", "estimated", "leaves", "negative_zeros", "pays", "with_dictionary"]

DICTIONARY_BYTES: Final = 1000 * 1024
"""Just under Arrow's own limit of 1 MiB, at which 2**17 longs make the table of its dictionary grow by 22 MB."""

_LEAST_ROWS: Final = 1 << 14
_SAMPLE_ROWS: Final = 8192
_SEED: Final = 11
_LAST_OF_FOUR_BYTES: Final = 9
_LAST_OF_EIGHT_BYTES: Final = 18
"""Most digits of a decimal that is stored in four, or in eight, bytes."""
_LENGTH_BYTES: Final = 4
"""Bytes of a string in addition to its characters."""
_HALVINGS: Final = 24
_SMALLER: Final = 0.75
"""Largest share of a column's size after encoding. A sample underestimates the values if some are frequent."""
_NUMBERS_BYTES: Final = 512 * 1024
"""Maximum size of a dictionary of numbers. A reader needs as long to put one into a set as to read twenty."""


def with_dictionary(table: pa.Table, without: Collection[str] = ()) -> bool | list[str]:
    """Return ``use_dictionary`` for ``ParquetWriter``: True, or the dotted names of columns with repeated values.

    Args:
        table: The first row group of the file. With few rows, every column gets one.
        without: Dotted names of columns that never get one.
    """
    plain = {*without, *(_of_many_values(table) if table.num_rows >= _LEAST_ROWS else ())}
    return [name for name in leaves(table.schema) if name not in plain] if plain else True


def negative_zeros(table: pa.Table) -> set[str]:
    """Find the dotted names of the columns that hold -0.0. Spark misses it in a dictionary when it searches for 0.0."""
    return {name for name, column in float_leaves(table) if any(map(_has_negative_zero, column.chunks))}


def _has_negative_zero(array: pa.Array) -> bool:
    bits, least = (pa.int64(), -(2**63)) if pa.types.is_float64(array.type) else (pa.int32(), -(2**31))
    return bool(pc.any(pc.equal(array.view(bits), pa.scalar(least, bits))).as_py())


def _of_many_values(table: pa.Table) -> set[str]:
    """Find by a sample the columns that a dictionary does not make much smaller."""
    rows = table.num_rows
    # Sample at random: rows at equal steps would mislead if values come in runs or periods.
    places = pa.array(np.unique(np.random.default_rng(_SEED).integers(0, rows, _SAMPLE_ROWS)))
    plain: set[str] = set()
    for path, data_type in struct_leaves(table.schema):
        if _may_be_many(data_type):
            drawn = leaf_column(table.select([path[0]]).take(places), path).drop_null()
            valid = rows * len(drawn) // len(places)
            if len(drawn) and not pays(
                rows=valid,
                different=estimated(pc.count_distinct(drawn).as_py(), len(drawn), valid),
                width=_width(drawn, data_type),
                limit=DICTIONARY_BYTES if _has_length(data_type) else _NUMBERS_BYTES,
            ):
                plain.add(".".join(path))
    return plain


def pays(*, rows: int, different: int, width: float, limit: int = DICTIONARY_BYTES) -> bool:
    """Return whether a dictionary within the limit makes a column much smaller. Pure.

    Args:
        rows: Number of values that are not null.
        different: Number of distinct values.
        width: Size of a value in bytes.
        limit: Maximum size of a dictionary in bytes.
    """
    numbers = rows * max(different - 1, 1).bit_length() / 8
    return different * width < limit and different * width + numbers < _SMALLER * rows * width


def estimated(seen: int, drawn: int, rows: int) -> int:
    """Estimate the number of distinct values of a column, from a sample without repetition. Pure.

    Args:
        seen: Number of distinct values in the sample.
        drawn: Rows of the sample.
        rows: Rows of the column. All values are assumed to be equally frequent. If some are far more frequent, the
            estimate is too low.
    """
    if seen >= drawn:
        return rows
    least, most = float(seen), float(rows)
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        if middle * (1 - (1 - drawn / rows) ** (rows / middle)) < seen:
            least = middle
        else:
            most = middle
    return round(most)


def _may_be_many(data_type: pa.DataType) -> bool:
    """Return whether a column of this type may have too many values for a dictionary."""
    types = pa.types
    numbers = (types.is_int32, types.is_int64, types.is_float32, types.is_float64, types.is_decimal)
    return _has_length(data_type) or any(
        is_one(data_type) for is_one in (*numbers, types.is_timestamp, types.is_date32)
    )


def _has_length(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_binary(data_type))


def _width(drawn: pa.Array | pa.ChunkedArray, data_type: pa.DataType) -> float:
    """Return the size in bytes of a value in a file without a dictionary."""
    types = pa.types
    if types.is_decimal(data_type):
        if data_type.precision <= _LAST_OF_EIGHT_BYTES:
            return 4 if data_type.precision <= _LAST_OF_FOUR_BYTES else 8
        return float(16)
    if _has_length(data_type):
        return _LENGTH_BYTES + float(pc.mean(pc.binary_length(drawn)).as_py())
    return float(data_type.bit_width) / 8


def leaves(fields: pa.Schema | pa.StructType, above: str = "") -> Iterator[str]:
    """Iterate over the dotted names of all columns of a file, including those inside lists and maps."""
    for number in range(len(fields)):
        field = fields.field(number)
        yield from _leaves_of(field.type, above + field.name)


def _leaves_of(data_type: pa.DataType, name: str) -> Iterator[str]:
    if pa.types.is_struct(data_type):
        yield from leaves(data_type, name + ".")
    elif pa.types.is_map(data_type):
        yield from _leaves_of(data_type.key_type, name + ".key_value.key")
        yield from _leaves_of(data_type.item_type, name + ".key_value.value")
    elif pa.types.is_list(data_type):
        yield from _leaves_of(data_type.value_type, name + ".list.element")
    else:
        yield name
