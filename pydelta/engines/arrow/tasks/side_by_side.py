"""Write a Parquet file whose columns are encoded side by side, by several threads.

::

    a row group --> its columns, shared out by size --> a Parquet file of a few columns in memory each
                    their chunks, in the schema's order --> the file;   their footers, with other offsets --> its footer

Arrow encodes the columns of a row group one after the other. Chunks of columns do not depend on each other, so the file
is the one that Arrow would have written, byte for byte. For the same reason, a chunk can be that of another file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.engines.arrow.tasks import footers as ids
from pydelta.engines.arrow.tasks.footers import Chunk, footer_of, read_chunks
from pydelta.engines.arrow.tasks.thrift import I16, I32, I64, LIST, STRUCT, Struct, write_struct

__all__ = ["SideBySideWriter", "shares"]

_MAGIC: Final = b"PAR1"


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
            column = chunk.struct[ids.COLUMN][1]
            total += column[ids.UNCOMPRESSED_BYTES][1]
            compressed += column[ids.COMPRESSED_BYTES][1]
            (_, [name, *_rest]) = column[ids.PATH][1]
            by_column.setdefault(name.decode(), []).append(chunk)
        ordered = [chunk for name in self._schema.names for chunk in by_column.pop(name)]
        begin = self._written
        for chunk in ordered:
            self._place(chunk)
        whole = dict(encoded[0][0])
        whole[ids.CHUNKS] = LIST, (STRUCT, [chunk.struct for chunk in ordered])
        whole[ids.GROUP_BYTES] = I64, total
        whole[ids.GROUP_ROWS] = I64, table.num_rows
        whole[ids.GROUP_OFFSET] = I64, begin
        whole[ids.GROUP_COMPRESSED] = I64, compressed
        if ids.GROUP_ORDINAL in whole:
            whole[ids.GROUP_ORDINAL] = I16, len(self._groups)
        self._groups.append(whole)
        self._chunks.append(ordered)
        self._rows += table.num_rows

    def close(self) -> None:
        """Write the page indexes and the footer. The stream stays open."""
        for chunk in self._all_chunks():
            if chunk.column_index:
                chunk.struct[ids.COLUMN_INDEX] = I64, self._written
                chunk.struct[ids.COLUMN_INDEX_LENGTH] = I32, len(chunk.column_index)
                self._write(chunk.column_index)
        for chunk in self._all_chunks():
            if chunk.offset_index is not None:
                data = write_struct(chunk.offset_index)
                chunk.struct[ids.OFFSET_INDEX] = I64, self._written
                chunk.struct[ids.OFFSET_INDEX_LENGTH] = I32, len(data)
                self._write(data)
        footer = footer_of(self._file_of(self._schema.empty_table(), self._key_values))
        footer[ids.ROWS] = I64, self._rows
        footer[ids.ROW_GROUPS] = LIST, (STRUCT, self._groups)
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
        (_, [group]) = footer_of(data)[ids.ROW_GROUPS][1]
        return group, read_chunks(lambda begin, size: data[begin : begin + size], group[ids.CHUNKS][1][1])

    def _place(self, chunk: Chunk) -> None:
        """Write the pages of a chunk, and move its offsets to where they are."""
        column = chunk.struct[ids.COLUMN][1]
        moved = self._written - column.get(ids.DICTIONARY_PAGE, column[ids.DATA_PAGE])[1]
        for field in (ids.DATA_PAGE, ids.DICTIONARY_PAGE):
            if field in column:
                column[field] = I64, column[field][1] + moved
        if chunk.struct[ids.CHUNK_OFFSET][1]:
            chunk.struct[ids.CHUNK_OFFSET] = I64, chunk.struct[ids.CHUNK_OFFSET][1] + moved
        if chunk.offset_index is not None:
            for location in chunk.offset_index[ids.LOCATIONS][1][1]:
                location[ids.LOCATION_OFFSET] = I64, location[ids.LOCATION_OFFSET][1] + moved
        self._write(chunk.pages)
        chunk.pages = memoryview(b"")


def _is_below(path: str, columns: Sequence[str]) -> bool:
    """Return whether a dotted path may name a part of one of the columns, whose own names may hold dots."""
    return any(f"{path}.".startswith(f"{column}.") for column in columns)
