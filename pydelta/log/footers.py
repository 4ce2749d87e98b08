"""Read the Parquet footers of data files, and count their rows by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.errors import StorageError
from pydelta.log.vector_files import place_of
from pydelta.storage import Store
from pydelta.storage.readers import read_all

__all__ = ["count_rows", "read_footer", "read_footers"]

_TAIL_BYTES: Final = 64 * 1024
_MAGIC: Final = b"PAR1"
_FOOTER_BYTES: Final = 8
"""Bytes after the footer: its length, and the magic."""


def count_rows(
    files: Sequence[tuple[str, int]], *, store: Store, root: str, options: Mapping[str, str] | None
) -> list[int]:
    """Count the rows in data files, hidden ones too. See ``read_footers``."""
    return [int(footer.num_rows) for footer in read_footers(files, store=store, root=root, options=options)]


def read_footers(
    files: Sequence[tuple[str, int]], *, store: Store, root: str, options: Mapping[str, str] | None
) -> list[pq.FileMetaData]:
    """Read the footers of data files, in parallel.

    Args:
        files: Path in the log and size in bytes of each file.
        store: The table's store.
        root: The table's URI.
        options: Storage options for files outside the table.

    Raises:
        StorageError: A file cannot be read.
    """

    def read(file: tuple[str, int]) -> pq.FileMetaData:
        path, size = file
        holder, there = place_of(path, store=store, root=root, options=options)
        footer = read_footer(holder, there, size)
        if footer is None:
            raise StorageError(
                f"The footer of {path!r} cannot be read, so its rows and columns are not known.",
                hint="The file is damaged. Restore it from a backup, or restore a version before it.",
                table=root,
            )
        return footer

    return read_all(read, files)


def read_footer(store: Store, path: str, size: int) -> pq.FileMetaData | None:
    """Read the footer of a Parquet file, in one or two requests. Returns None if the file does not end with one.

    Args:
        store: The store that holds it.
        path: Path relative to the store's root.
        size: Size in bytes.
    """
    tail = store.read_range(path, max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))
    if len(tail) < len(_MAGIC) * 3 or not tail.endswith(_MAGIC):
        return None
    length = int.from_bytes(tail[-_FOOTER_BYTES : -len(_MAGIC)], "little") + _FOOTER_BYTES
    if length > size:
        return None
    if length > len(tail):
        tail = store.read_range(path, size - length, length)
    try:
        return pq.read_metadata(pa.BufferReader(_MAGIC + tail[-length:]))
    except (pa.ArrowInvalid, OSError):
        return None
