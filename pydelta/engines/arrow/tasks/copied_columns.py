"""Find the columns of a Parquet file that another file can take over without decoding them.

::

    file --> footer --> columns whose type, codec and statistics are what a new file would have --> their chunks
                    --> rows of each row group, which the new file keeps

An UPDATE of one column would otherwise decode and encode all others. Only files that this version of Arrow wrote are
copied from: readers decide by the writer's name in the footer which of a column's statistics they trust.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.engines.arrow.tasks import footers as ids
from pydelta.engines.arrow.tasks.footers import Chunk, footer_of, read_chunks
from pydelta.engines.arrow.tasks.stats import needs_values
from pydelta.engines.arrow.tasks.thrift import Struct
from pydelta.engines.arrow.tasks.write_files import WriteTask, format_options

__all__ = ["CopiedColumns", "columns_to_copy"]

_LEAST_SHARE: Final = 0.25
"""Least share of a file's bytes that is worth copying."""
_MOST_GROUP_BYTES: Final = 128 * 1024 * 1024
"""Most bytes of a row group, which is held in memory: its copied columns as they are stored, the others decoded."""

_CHUNK_FIELDS: Final = frozenset({2, 3, 4, 5, 6, 7})
"""Offsets, page indexes and the column's own structure. A file elsewhere and keys of encryption are other fields."""
_COLUMN_FIELDS: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 16})
"""All that has no offset but those of pages. An index page and a Bloom filter are other fields."""
_CODECS: Final = {"none": 0, "snappy": 1, "gzip": 2, "zstd": 6, "lz4": 7}
"""Parquet's numbers of the codecs in Arrow's names."""


@dataclass(frozen=True, slots=True)
class CopiedColumns:
    """The columns that a new file takes over from an old one.

    Args:
        names: The columns.
        group_rows: Rows of each row group.
        structs: The structures of the columns' chunks, for each row group.
        read: Returns the bytes of the old file at an offset, of a size.
    """

    names: frozenset[str]
    group_rows: Sequence[int]
    structs: Sequence[Sequence[Struct]]
    read: Callable[[int, int], memoryview] = field(repr=False)

    def chunks(self, group: int) -> list[Chunk]:
        """Read the columns of a row group."""
        return read_chunks(self.read, self.structs[group])


def columns_to_copy(
    read: Callable[[int, int], memoryview],
    size: int,
    task: WriteTask,
    changed: Collection[str],
    required: Collection[str],
) -> CopiedColumns | None:
    """Decide which columns of a file can be copied to a file of a task, which has the same rows.

    Args:
        read: Returns the bytes of the file at an offset, of a size.
        size: The file's size in bytes.
        task: How the new file is written.
        changed: Columns that get other values.
        required: Columns that are NOT NULL. One that may hold a null is not copied, so that it is found.

    Returns:
        The columns, or None if all have to be encoded.
    """
    try:
        footer = _read_footer(read, size)
        groups = list(footer[ids.ROW_GROUPS][1][1])
        expected = _expected(task)
        same = all(footer.get(key) == expected.get(key) for key in (ids.SCHEMA, ids.CREATED_BY))
        if not same or ids.ENCRYPTION in footer or not groups or not all(map(_is_usual, groups)):
            return None
        names = set(task.file_schema.names) - set(changed) - needs_values(task.file_schema, task.indexed, task.int96)
        names -= {item.name for item in task.file_schema if _has_floats(item.type)}
        names -= {
            _name_of(struct)
            for group in groups
            for struct in group[ids.CHUNKS][1][1]
            if not _is_plain(struct, group, task)
        }
        names -= {name for name in required if not all(_has_no_null(group, name) for group in groups)}
    except (ValueError, IndexError, KeyError, TypeError):
        return None  # The code that decodes the file reports what is wrong with it.
    structs = [[struct for struct in group[ids.CHUNKS][1][1] if _name_of(struct) in names] for group in groups]
    copied = sum(struct[ids.COLUMN][1][ids.COMPRESSED_BYTES][1] for group in structs for struct in group)
    if not copied or copied < size * _LEAST_SHARE or len(names) == len(task.file_schema):
        return None  # Arrow makes the structure of a row group, so it has to encode a column.
    return CopiedColumns(frozenset(names), [group[ids.GROUP_ROWS][1] for group in groups], structs, read)


def _read_footer(read: Callable[[int, int], memoryview], size: int) -> Struct:
    tail = read(size - 8, 8)
    length = int.from_bytes(tail[:4], "little") + 8
    if length > size:
        raise ValueError("the footer is longer than the file")
    return footer_of(read(size - length, length))


def _expected(task: WriteTask) -> Mapping[int, Any]:
    """Return the footer of a file of a task without rows."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, task.file_schema, **format_options(task)):
        pass
    return footer_of(memoryview(sink.getvalue()).cast("B"))


def _is_usual(group: Struct) -> bool:
    """Return whether a row group has rows, and fits into memory."""
    return bool(group[ids.GROUP_ROWS][1] > 0 and group[ids.GROUP_BYTES][1] <= _MOST_GROUP_BYTES)


def _name_of(struct: Struct) -> str:
    name: bytes = struct[ids.COLUMN][1][ids.PATH][1][1][0]
    return name.decode()


def _is_plain(struct: Struct, group: Struct, task: WriteTask) -> bool:
    """Return whether a chunk is what a task would write: its codec, a page index, and nothing unknown."""
    column = struct[ids.COLUMN][1]
    nested = len(column[ids.PATH][1][1]) > 1
    return (
        struct.keys() <= _CHUNK_FIELDS
        and column.keys() <= _COLUMN_FIELDS
        and ids.OFFSET_INDEX in struct
        and column[ids.CODEC][1] == _CODECS[format_options(task)["compression"]]
        and (nested or column[ids.VALUES][1] == group[ids.GROUP_ROWS][1])
    )


def _has_no_null(group: Struct, name: str) -> bool:
    """Return whether the statistics of a column in a row group show that it has no null."""
    for struct in group[ids.CHUNKS][1][1]:
        column = struct[ids.COLUMN][1]
        if column[ids.PATH][1][1] == [name.encode()]:
            statistics = column[ids.STATISTICS][1] if ids.STATISTICS in column else {}
            return bool(statistics.get(ids.NULLS, (0, None))[1] == 0)
    return False


def _has_floats(data_type: pa.DataType) -> bool:
    """Return whether a column, or a part of one, may hold NaN or -0.0, which a new file treats by its own rules."""
    if pa.types.is_nested(data_type):
        return any(_has_floats(data_type.field(index).type) for index in range(data_type.num_fields))
    return bool(pa.types.is_floating(data_type))
