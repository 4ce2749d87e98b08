"""Find the rows with a key in Parquet files of any age: those of versions, of the change feed, or of no version at all.

::

    footer --bounds of row groups--> row groups that may hold a key --key columns--> positions of rows

A file is read by what it holds itself, not by the table's present schema: its column may have another type than the
table's has today. In doubt a row counts as found.
"""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pydelta.commands.erase.keys import KeyColumn
from pydelta.errors import StorageError
from pydelta.log.footers import read_footer
from pydelta.protocol.roaring import Positions
from pydelta.storage import Store
from pydelta.storage.ranges import RangeReader

__all__ = ["FoundRows", "find_keys"]

_BUFFER_BYTES: Final = 4 << 20
_FIELD_ID: Final = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRows:
    """The rows of a file with a key.

    Args:
        rows: Their positions in the file, ascending, hidden rows included.
        num_rows: Number of rows in the file.
    """

    rows: Positions
    num_rows: int


def find_keys(store: Store, path: str, size: int, columns: Sequence[KeyColumn]) -> FoundRows | None:
    """Find the rows of a file that have a key in one of the columns.

    Args:
        store: The store of the file.
        path: Its path there.
        size: Its size in bytes.
        columns: The columns. Those that the file does not have are passed over.

    Returns:
        None if it is not a Parquet file.

    Raises:
        ObjectNotFoundError: The file does not exist.
        StorageError: It is damaged, or the store failed.
    """
    footer = read_footer(store, path, size)
    if footer is None:
        return None
    try:
        wanted = [(leaf, column) for column in columns if (leaf := _leaf_of(footer.schema.to_arrow_schema(), column))]
        reader: Any = None
        parts = [np.empty(0, dtype=np.uint64)]
        start = 0
        for group in range(footer.num_row_groups):
            chunks = footer.row_group(group)
            for leaf, column in wanted:
                if _may_hold(chunks.column(leaf.number).statistics, leaf, column):
                    reader = reader or _open(store, path, size, footer)
                    parts.append(start + _positions(reader, group, leaf, column))
            start += chunks.num_rows
        return FoundRows(rows=np.unique(np.concatenate(parts)), num_rows=footer.num_rows)
    except StorageError:
        raise
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise StorageError(
            f"The file {path} cannot be read, so that it is not known whether it holds a key: {text}",
            hint="It is damaged. Restore it from a backup, or delete it if nothing needs it.",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    """A column of a file.

    Args:
        number: Its number among the file's leaf columns.
        path: Positions of the fields on the way to it, from the second on.
        type: Its Arrow type.
    """

    number: int
    path: tuple[int, ...]
    type: pa.DataType


def _leaf_of(schema: pa.Schema, column: KeyColumn) -> _Leaf | None:
    """Find a column in a file: by its id, or by its name, ignoring case where no name is the same."""
    if column.field_id is not None:
        found = next((leaf for leaf, _, given in _leaves(schema) if given == column.field_id), None)
        if found is not None:
            return found
    by_name = [(leaf, names) for leaf, names, _ in _leaves(schema)]
    same = next((leaf for leaf, names in by_name if names == column.physical), None)
    folded = tuple(name.lower() for name in column.physical)
    return same or next((leaf for leaf, names in by_name if tuple(map(str.lower, names)) == folded), None)


def _leaves(fields: Any, names: tuple[str, ...] = (), at: tuple[int, ...] = (), first: int = 0
            ) -> Iterator[tuple[_Leaf, tuple[str, ...], int | None]]:  # fmt: skip
    """Iterate over the columns that lie in no list and no map, with their names and ids."""
    for position, field in enumerate(fields):
        path, where = (*names, field.name), (*at, position)
        if pa.types.is_struct(field.type):
            yield from _leaves(list(field.type), path, where, first)
        elif field.type.num_fields == 0:
            text = (field.metadata or {}).get(_FIELD_ID)
            yield _Leaf(number=first, path=where[1:], type=field.type), path, int(text) if text else None
        first += _width(field.type)


def _width(data_type: pa.DataType) -> int:
    """Return how many leaf columns of a file a type takes."""
    if pa.types.is_dictionary(data_type) or not data_type.num_fields:
        return 1
    return sum(_width(data_type.field(index).type) for index in range(data_type.num_fields))


def _may_hold(statistics: Any, leaf: _Leaf, column: KeyColumn) -> bool:
    """Return whether a row group may hold a key by its bounds. In doubt it may."""
    if statistics is None or not statistics.has_min_max or not _is_kind(leaf.type, column):
        return True
    try:
        low, high = statistics.min, statistics.max
        keys = sorted(column.values)
        at = bisect.bisect_left(keys, low)
        return at < len(keys) and bool(keys[at] <= high)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        return True


def _is_kind(found: pa.DataType, column: KeyColumn) -> bool:
    """Return whether bounds of a file's column are of the same kind as the keys, so that they can be compared."""
    if column.is_text:
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    if pa.types.is_date(found):
        return str(column.data_type) == "date"
    return bool(pa.types.is_integer(found)) and all(isinstance(value, int) for value in column.values)


def _open(store: Store, path: str, size: int, footer: pq.FileMetaData) -> Any:
    source = io.BufferedReader(RangeReader(store, path, size), buffer_size=_BUFFER_BYTES)
    return pq.ParquetFile(source, metadata=footer).reader


def _positions(reader: Any, group: int, leaf: _Leaf, column: KeyColumn) -> Positions:
    """Return the positions in a row group of the rows with a key."""
    table: pa.Table = reader.read_row_group(group, column_indices=[leaf.number], use_threads=False)
    values: Any = table.column(0)
    for _ in leaf.path:  # Only the fields on the way to the column were read.
        values = pc.struct_field(values, [0])
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    found: Positions = np.flatnonzero(_is_key(values, column).to_numpy(zero_copy_only=False)).astype(np.uint64)
    return found


def _is_key(values: Any, column: KeyColumn) -> Any:
    """Return for each value whether it is a key. Null is none."""
    keys = _keys_as(values.type, column)
    if len(keys) == 0:
        return pa.array(np.zeros(len(values), dtype=bool))
    found = pc.is_in(values, value_set=keys)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _keys_as(kind: pa.DataType, column: KeyColumn) -> pa.Array:
    """Return the keys in a file's type. Keys that the type cannot hold are left out: no value equals them."""
    texts = pa.array(column.texts, pa.string())
    try:
        return texts.cast(pa.binary()).cast(kind) if pa.types.is_binary(kind) else texts.cast(kind)
    except pa.ArrowException:
        found = []
        for text in texts:
            try:
                found.append(text.cast(kind))
            except pa.ArrowException:
                continue
        return pa.array([item.as_py() for item in found], kind)
