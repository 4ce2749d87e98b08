"""Write a Parquet file whose columns are encoded side by side, by several threads.

::

    a row group --> its columns, shared out by size --> a Parquet file of a few columns in memory each
                    their chunks, in the schema's order --> the file;   their footers, with other offsets --> its footer

Arrow encodes the columns of a row group one after the other. Chunks of columns do not depend on each other, so the file
is the one that Arrow would have written, byte for byte. For the same reason, a chunk can be that of another file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.engines.arrow.tasks.thrift import I16, I32, I64, LIST, STRUCT, Struct, read_struct, write_struct

__all__ = ["Chunk", "SideBySideWriter", "footer_of", "read_chunks", "shares"]

_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8

# Field ids of the structures in Parquet's footer.
_ROWS, _ROW_GROUPS = 3, 4
_CHUNKS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_COMPRESSED, _ORDINAL = 1, 2, 3, 5, 6, 7
_CHUNK_OFFSET, _COLUMN, _OFFSET_INDEX, _OFFSET_INDEX_LENGTH, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH = 2, 3, 4, 5, 6, 7
_PATH, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 3, 6, 7, 9, 11
_LOCATIONS, _LOCATION_OFFSET = 1, 1


def shares(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Share out columns so that the largest share is small.

    Args:
        sizes: Bytes of each column.
        count: Maximum number of shares.

    Returns:
        The columns' positions in each share, ascending. No share is empty.
    """
    found: list[list[int]] = [[] for _ in range(min(count, len(sizes)))]
    totals = [0] * len(found)
    for position in sorted(range(len(sizes)), key=lambda position: (-sizes[position], position)):
        least = min(range(len(found)), key=lambda share: (totals[share], len(found[share]), share))
        found[least].append(position)
        totals[least] += sizes[position]
    return [sorted(share) for share in found if share]


@dataclass(slots=True)
class Chunk:
    """One column of a row group.

    Args:
        pages: Its bytes, from the first page on.
        struct: Its structure in the footer.
        column_index, offset_index: Its page indexes, empty and None if it has none.
    """

    pages: memoryview
    struct: Struct
    column_index: bytes
    offset_index: Struct | None


class SideBySideWriter:
    """Writes row groups to a stream, as ``pyarrow.parquet.ParquetWriter`` does.

    Args:
        sink: The stream.
        schema: The file's schema.
        threads: How many columns are encoded at once.
        options: Those of ``ParquetWriter``.
    """

    def __init__(self, sink: Any, schema: pa.Schema, *, threads: int, **options: Any) -> None:
        self._sink = sink
        self._schema = schema
        self._threads = threads
        self._options = options
        self._groups: list[Struct] = []
        self._chunks: list[list[Chunk]] = []
        self._rows = 0
        self._key_values: dict[str, str] = {}
        self._written = sink.write(_MAGIC) or len(_MAGIC)
        self.metadata: pq.FileMetaData | None = None

    def add_key_value_metadata(self, values: Mapping[str, str]) -> None:
        """Add metadata to the footer."""
        self._key_values.update(values)

    def write_table(self, table: pa.Table, row_group_size: int, copied: Sequence[Chunk] = ()) -> None:
        """Write rows as one row group, which must have room for them.

        Args:
            table: The rows, without the columns that are copied.
            row_group_size: Maximum number of rows.
            copied: The other columns of the same rows, encoded. The writer owns them from now on.
        """
        assert table.num_rows <= row_group_size
        parts = shares([column.nbytes for column in table.columns], self._threads)
        with ThreadPoolExecutor(len(parts)) as pool:
            encoded = list(pool.map(lambda part: self._encode(table.select(part)), parts))
        by_column: dict[str, list[Chunk]] = {}
        total = compressed = 0
        for chunk in (*(chunk for _, chunks in encoded for chunk in chunks), *copied):
            column = chunk.struct[_COLUMN][1]
            total += column[_UNCOMPRESSED][1]
            compressed += column[_COMPRESSED][1]
            (_, [name, *_rest]) = column[_PATH][1]
            by_column.setdefault(name.decode(), []).append(chunk)
        ordered = [chunk for name in self._schema.names for chunk in by_column.pop(name)]
        begin = self._written
        for chunk in ordered:
            self._place(chunk)
        whole = dict(encoded[0][0])
        whole[_CHUNKS] = LIST, (STRUCT, [chunk.struct for chunk in ordered])
        whole[_GROUP_BYTES] = I64, total
        whole[_GROUP_ROWS] = I64, table.num_rows
        whole[_GROUP_OFFSET] = I64, begin
        whole[_GROUP_COMPRESSED] = I64, compressed
        if _ORDINAL in whole:
            whole[_ORDINAL] = I16, len(self._groups)
        self._groups.append(whole)
        self._chunks.append(ordered)
        self._rows += table.num_rows

    def close(self) -> None:
        """Write the page indexes and the footer. The stream stays open."""
        for chunk in self._all_chunks():
            if chunk.column_index:
                chunk.struct[_COLUMN_INDEX] = I64, self._written
                chunk.struct[_COLUMN_INDEX_LENGTH] = I32, len(chunk.column_index)
                self._write(chunk.column_index)
        for chunk in self._all_chunks():
            if chunk.offset_index is not None:
                data = write_struct(chunk.offset_index)
                chunk.struct[_OFFSET_INDEX] = I64, self._written
                chunk.struct[_OFFSET_INDEX_LENGTH] = I32, len(data)
                self._write(data)
        footer = footer_of(self._file_of(self._schema.empty_table(), self._key_values))
        footer[_ROWS] = I64, self._rows
        footer[_ROW_GROUPS] = LIST, (STRUCT, self._groups)
        data = write_struct(footer)
        end = data + len(data).to_bytes(4, "little") + _MAGIC
        self._write(end)
        self.metadata = pq.read_metadata(pa.BufferReader(_MAGIC + end))

    def _all_chunks(self) -> Iterator[Chunk]:
        return (chunk for group in self._chunks for chunk in group)

    def _write(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self._written += len(data)

    def _file_of(self, table: pa.Table, key_values: Mapping[str, str] | None = None) -> memoryview:
        """Return a file of some of the columns."""
        sink = pa.BufferOutputStream()
        options = dict(self._options)
        for name in ("use_dictionary", "write_statistics"):
            if isinstance(options[name], list):
                options[name] = [path for path in options[name] if _is_below(path, table.column_names)]
        with pq.ParquetWriter(sink, table.schema, **options) as writer:
            if table.num_rows:
                writer.write_table(table, row_group_size=table.num_rows)
            if key_values:
                writer.add_key_value_metadata(dict(key_values))
        return memoryview(sink.getvalue()).cast("B")

    def _encode(self, table: pa.Table) -> tuple[Struct, list[Chunk]]:
        """Encode columns of a row group. Runs in a thread of its pool."""
        data = self._file_of(table)
        (_, [group]) = footer_of(data)[_ROW_GROUPS][1]
        return group, read_chunks(lambda begin, size: data[begin : begin + size], group[_CHUNKS][1][1])

    def _place(self, chunk: Chunk) -> None:
        """Write the pages of a chunk, and move its offsets to where they are."""
        column = chunk.struct[_COLUMN][1]
        moved = self._written - column.get(_DICTIONARY_PAGE, column[_DATA_PAGE])[1]
        for field in (_DATA_PAGE, _DICTIONARY_PAGE):
            if field in column:
                column[field] = I64, column[field][1] + moved
        if chunk.struct[_CHUNK_OFFSET][1]:
            chunk.struct[_CHUNK_OFFSET] = I64, chunk.struct[_CHUNK_OFFSET][1] + moved
        if chunk.offset_index is not None:
            for location in chunk.offset_index[_LOCATIONS][1][1]:
                location[_LOCATION_OFFSET] = I64, location[_LOCATION_OFFSET][1] + moved
        self._write(chunk.pages)
        chunk.pages = memoryview(b"")


def footer_of(data: memoryview) -> Struct:
    """Return the structure at the end of a file.

    Args:
        data: The file, or its last bytes from the beginning of the structure on.

    Raises:
        ValueError, IndexError: It is damaged.
    """
    size = int.from_bytes(data[-_TAIL_BYTES:-4], "little")
    footer, _ = read_struct(data, len(data) - _TAIL_BYTES - size)
    return footer


def read_chunks(read: Callable[[int, int], memoryview], structs: Sequence[Struct]) -> list[Chunk]:
    """Read columns of a row group without decoding them.

    Args:
        read: Returns the bytes of the file at an offset, of a size.
        structs: The structures of the columns' chunks, from the file's footer.
    """
    chunks = []
    for struct in structs:
        column = struct[_COLUMN][1]
        pages = read(column.get(_DICTIONARY_PAGE, column[_DATA_PAGE])[1], column[_COMPRESSED][1])
        chunk = Chunk(pages, struct, b"", None)
        if _COLUMN_INDEX in struct:
            chunk.column_index = bytes(read(struct[_COLUMN_INDEX][1], struct[_COLUMN_INDEX_LENGTH][1]))
        if _OFFSET_INDEX in struct:
            chunk.offset_index, _ = read_struct(read(struct[_OFFSET_INDEX][1], struct[_OFFSET_INDEX_LENGTH][1]))
        chunks.append(chunk)
    return chunks


def _is_below(path: str, columns: Sequence[str]) -> bool:
    """Return whether a dotted path may name a part of one of the columns, whose own names may hold dots."""
    return any(f"{path}.".startswith(f"{column}.") for column in columns)
