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
_DIFFERENT: Final = 0.97
"""Of a column with 2**17 different values, which fill a dictionary of longs, a sample has so many that differ."""


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
        if _is_wide(data_type):
            drawn = leaf_column(table.select([path[0]]).take(pa.array(places)), path)
            if pc.count_distinct(drawn, mode="only_valid").as_py() >= _DIFFERENT * len(places):
                plain.add(".".join(path))
    return [name for name in _leaves(table.schema) if name not in plain] if plain else True


def _is_wide(data_type: pa.DataType) -> bool:
    """Whether a value takes eight bytes or more, so that 2**17 of them are more than a dictionary holds."""
    types = pa.types
    if types.is_string(data_type) or types.is_binary(data_type):
        return True
    return bool(types.is_int64(data_type) or types.is_float64(data_type) or types.is_timestamp(data_type))


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
