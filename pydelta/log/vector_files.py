"""Read and write the rows that deletion vectors hide. Neighboring vectors of a file share a request.

Protocol: "Deletion Vector File Storage Format".
"""

from __future__ import annotations

import contextlib
import random
import string
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydelta.errors import LogCorruptedError, ObjectNotFoundError, StorageError
from pydelta.protocol.actions import DeletionVectorDescriptor
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.roaring import Positions
from pydelta.protocol.vectors import deleted_rows, pack_vectors, stored_range, vector_path
from pydelta.storage import Store, open_store
from pydelta.storage.discarding import discard
from pydelta.storage.readers import read_all

__all__ = ["place_of", "read_deleted_rows", "write_vectors"]

_FORMAT_VERSION: Final = 1
_GAP_BYTES: Final = 64 * 1024
_LARGEST_READ: Final = 64 * 1024 * 1024
_ATTEMPTS: Final = 3
_FILE_BYTES: Final = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """One request to a store, with the indexes of the requested vectors that it covers."""

    path: str
    start: int
    end: int
    vectors: tuple[int, ...]


def read_deleted_rows(
    vectors: Sequence[DeletionVectorDescriptor],
    *,
    store: Store,
    root: str,
    options: Mapping[str, str] | None,
) -> list[Positions]:
    """Read the rows that each vector hides, in the given order.

    Args:
        vectors: Descriptors. Several may be in one file.
        store: The table's store.
        root: The table's URI.
        options: Storage options for vectors outside the table.

    Raises:
        LogCorruptedError: A vector is damaged or its file is missing. Ignoring it would bring deleted rows back.
        StorageError: The store failed.
    """
    found: dict[int, Positions] = {
        number: deleted_rows(vector) for number, vector in enumerate(vectors) if vector_path(vector) is None
    }

    def fetch(read: _Read) -> list[tuple[int, Positions]]:
        data = _fetch(read, store=store, root=root, options=options)
        if read.start == 0 and data[:1] != bytes([_FORMAT_VERSION]):
            raise LogCorruptedError(
                f"The deletion vector file {read.path!r} is of format {data[0] if data else 'nothing'}, not 1.",
                hint="It is damaged, or newer than this engine. Restore it from a backup.",
            )
        decoded = []
        for number in read.vectors:
            where = stored_range(vectors[number])
            assert where is not None
            begin = where[0] - read.start
            decoded.append((number, deleted_rows(vectors[number], data[begin : begin + where[1]])))
        return decoded

    for part in read_all(fetch, list(_reads(vectors))):
        found.update(part)
    return [found[number] for number in range(len(vectors))]


def _reads(vectors: Sequence[DeletionVectorDescriptor]) -> Iterator[_Read]:
    """Group neighbors in one file into requests. The format version is included if it is close."""
    by_path: dict[str, list[tuple[int, int, int]]] = {}
    for number, vector in enumerate(vectors):
        path, where = vector_path(vector), stored_range(vector)
        if path is not None and where is not None:
            by_path.setdefault(path, []).append((where[0], where[0] + where[1], number))
    for path, ranges in by_path.items():
        ranges.sort()
        start, end, members = 0 if ranges[0][0] <= _GAP_BYTES else ranges[0][0], 0, list[int]()
        for begin, stop, number in ranges:
            if members and (begin > end + _GAP_BYTES or stop - start > _LARGEST_READ):
                yield _Read(path=path, start=start, end=end, vectors=tuple(members))
                start, end, members = begin, 0, []
            end = max(end, stop)
            members.append(number)
        yield _Read(path=path, start=start, end=end, vectors=tuple(members))


def place_of(path: str, *, store: Store, root: str, options: Mapping[str, str] | None = None) -> tuple[Store, str]:
    """Find the store of a file and its path there, from the path in the log.

    Args:
        path: Escaped, relative to the table or absolute.
        store: The table's store.
        root: The table's URI.
        options: Storage options for a file outside the table.
    """
    folder, there = decode_log_path(path).place(root)
    return (store if folder is None else open_store(folder, options)), there


def _fetch(read: _Read, *, store: Store, root: str, options: Mapping[str, str] | None) -> bytes:
    holder, path = place_of(read.path, store=store, root=root, options=options)
    try:
        return holder.read_range(path, read.start, read.end - read.start)
    except ObjectNotFoundError as error:
        raise LogCorruptedError(
            f"The deletion vector file {read.path!r} is missing; without it, deleted rows would come back.",
            hint="Restore it from a backup, or read a version before it with versionAsOf.",
            table=root,
        ) from error


def write_vectors(
    vectors: Sequence[Positions], *, store: Store, random_folders: bool = False
) -> tuple[list[DeletionVectorDescriptor], list[str]]:
    """Write deletion vectors into as few files as their size allows.

    Args:
        vectors: Hidden rows of each data file, at least one per file.
        store: The table's store.
        random_folders: Whether to spread the files over randomly named folders (``delta.randomizeFilePrefixes``).

    Returns:
        A descriptor for each vector, in the given order, and the written files, relative to the table.

    Raises:
        StorageError: The store failed. Files already written are deleted again.
    """
    described: list[DeletionVectorDescriptor] = []
    written: list[str] = []
    try:
        for batch in _batches(vectors):
            folder = "".join(random.choices(string.ascii_letters + string.digits, k=2)) if random_folders else ""
            data, part = pack_vectors(batch, file_id=uuid.uuid4(), folder=folder)
            path = vector_path(part[0])
            assert path is not None
            written.append(path)
            _put(store, path, data)
            described += part
    except BaseException:
        with contextlib.suppress(StorageError):
            discard(store, written)
        raise
    return described, written


def _put(store: Store, path: str, data: bytes) -> None:
    """Write a file, retrying if the error is retryable. The name is new, so writing twice is harmless."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return store.put(path, data)
        except StorageError as error:
            if not error.retryable:
                raise
    return store.put(path, data)


def _batches(vectors: Sequence[Positions]) -> Iterator[list[Positions]]:
    """Group vectors into batches of about ``_FILE_BYTES``, at two bytes per row."""
    batch: list[Positions] = []
    size = 0
    for rows in vectors:
        if batch and size + 2 * len(rows) > _FILE_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(rows)
        size += 2 * len(rows)
    if batch:
        yield batch
