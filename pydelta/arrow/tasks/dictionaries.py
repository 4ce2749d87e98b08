"""Choose the columns of a Parquet file that are written without a dictionary. Runs on executors; pyarrow only.

Arrow builds the dictionary of a column until it is too large, and then gives it up. Where nearly all values differ,
that is a quarter of the writer's time and leaves a larger file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.arrow.tasks.arrow import leaf_column, struct_leaves

__all__ = ["DICTIONARY_BYTES", "with_dictionary"]

DICTIONARY_BYTES: Final = 1000 * 1024
"""Just under Arrow's own limit of 1 MiB, at which 2**17 longs make the table of its dictionary grow by 22 MB."""

_LEAST_ROWS: Final = 1 << 17
_SAMPLE_ROWS: Final = 8192
_SEED: Final = 11
_DIFFERENT: Final = {8: 0.97, 4: 0.984}
"""Of a column with 2**17 values of eight bytes or 2**18 of four, which fill a dictionary, a sample has so many that
differ: by the bytes that a value takes."""
_LAST_OF_FOUR_BYTES: Final = 9
"""Digits of a decimal up to which it is written in four bytes."""


def with_dictionary(table: pa.Table) -> bool | list[str]:
    """Return what ``ParquetWriter`` takes as ``use_dictionary``: True, or the dotted names of the columns that repeat.

    Args:
        table: The first row group of the file. One of few rows says nothing.
    """
    rows = table.num_rows
    if rows < _LEAST_ROWS:
        return True
    # At random: rows at equal steps would all differ where values come in runs, and often where they come round.
    places = np.unique(np.random.default_rng(_SEED).integers(0, rows, _SAMPLE_ROWS))
    plain = set()
    for path, data_type in struct_leaves(table.schema):
        if width := _bytes_of(data_type):
            drawn = leaf_column(table.select([path[0]]).take(pa.array(places)), path)
            if pc.count_distinct(drawn, mode="only_valid").as_py() >= _DIFFERENT[width] * len(places):
                plain.add(".".join(path))
    return [name for name in _leaves(table.schema) if name not in plain] if plain else True


def _bytes_of(data_type: pa.DataType) -> int:
    """The bytes that a value takes at least, 4 or 8; 0 for a type whose values a dictionary always holds."""
    types = pa.types
    if types.is_decimal(data_type):
        return 4 if data_type.precision <= _LAST_OF_FOUR_BYTES else 8
    if types.is_int32(data_type) or types.is_float32(data_type):
        return 4
    if types.is_string(data_type) or types.is_binary(data_type):
        return 8
    return 8 if types.is_int64(data_type) or types.is_float64(data_type) or types.is_timestamp(data_type) else 0


def _leaves(fields: pa.Schema | pa.StructType, above: str = "") -> Iterator[str]:
    """The dotted names of all columns of a file, those inside lists and maps among them."""
    for number in range(len(fields)):
        field = fields.field(number)
        yield from _leaves_of(field.type, above + field.name)


def _leaves_of(data_type: pa.DataType, name: str) -> Iterator[str]:
    if pa.types.is_struct(data_type):
        yield from _leaves(data_type, name + ".")
    elif pa.types.is_map(data_type):
        yield from _leaves_of(data_type.key_type, name + ".key_value.key")
        yield from _leaves_of(data_type.item_type, name + ".key_value.value")
    elif pa.types.is_list(data_type):
        yield from _leaves_of(data_type.value_type, name + ".list.element")
    else:
        yield name
