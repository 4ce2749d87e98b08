"""Read the structures of a Parquet file that Arrow does not give: its footer, and columns as they are stored.

The names of fields are their numbers in the structures of Parquet's format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pydelta.engines.arrow.tasks.thrift import Struct, read_struct

__all__ = ["Chunk", "footer_of", "read_chunks"]

_TAIL_BYTES: Final = 8

# The footer, and a row group.
SCHEMA, ROWS, ROW_GROUPS, CREATED_BY, ENCRYPTION = 2, 3, 4, 6, 8
CHUNKS, GROUP_BYTES, GROUP_ROWS, GROUP_OFFSET, GROUP_COMPRESSED, GROUP_ORDINAL = 1, 2, 3, 5, 6, 7

# A column of a row group: where it is, and what it holds.
CHUNK_OFFSET, COLUMN, OFFSET_INDEX, OFFSET_INDEX_LENGTH, COLUMN_INDEX, COLUMN_INDEX_LENGTH = 2, 3, 4, 5, 6, 7
PATH, CODEC, VALUES, UNCOMPRESSED_BYTES, COMPRESSED_BYTES = 3, 4, 5, 6, 7
DATA_PAGE, DICTIONARY_PAGE, STATISTICS = 9, 11, 12

# Statistics, an offset index, and the place of a page.
NULLS, LOCATIONS, LOCATION_OFFSET = 3, 1, 1


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
        column = struct[COLUMN][1]
        pages = read(column.get(DICTIONARY_PAGE, column[DATA_PAGE])[1], column[COMPRESSED_BYTES][1])
        chunk = Chunk(pages, struct, b"", None)
        if COLUMN_INDEX in struct:
            chunk.column_index = bytes(read(struct[COLUMN_INDEX][1], struct[COLUMN_INDEX_LENGTH][1]))
        if OFFSET_INDEX in struct:
            chunk.offset_index, _ = read_struct(read(struct[OFFSET_INDEX][1], struct[OFFSET_INDEX_LENGTH][1]))
        chunks.append(chunk)
    return chunks
