"""Read an object as a seekable file over its byte ranges, without holding more than is being read."""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterable
from typing import Final

from pydelta.storage.interface import Store
from pydelta.storage.readers import read_all

__all__ = ["RangeReader", "open_stream"]

_NEAR_BYTES: Final = 256 * 1024
_STREAM_BYTES: Final = 8 * 1024 * 1024


class RangeReader(io.RawIOBase):
    """A seekable file over ``Store.read_range``. Each read is a request.

    Args:
        store: Store of the object.
        path: Path in the store.
        size: Size of the object in bytes.
    """

    def __init__(self, store: Store, path: str, size: int) -> None:
        self._store, self._path, self._size, self._position = store, path, size, 0
        self._blocks: list[tuple[int, bytes]] = []

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def size(self) -> int:
        """Return the size in bytes, as Arrow expects."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Read the next bytes, or all remaining ones if no size is given.

        Raises:
            StorageError: The store failed.
        """
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        data = self._fetched(self._position, length) if length else b""
        if data is None:
            data = self._store.read_range(self._path, self._position, length)
        self._position += len(data)
        return data

    def readinto(self, buffer: object, /) -> int:
        """Read into a buffer, as ``read`` does."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch byte ranges (start, length) in parallel, with adjacent or near ones in one request."""
        merged: list[tuple[int, int]] = []
        for start, length in sorted(ranges):
            if merged and start - sum(merged[-1]) <= _NEAR_BYTES:
                first = merged[-1][0]
                merged[-1] = (first, max(sum(merged[-1]), start + length) - first)
            else:
                merged.append((start, length))
        if not merged:
            return
        blocks = read_all(lambda one: self._store.read_range(self._path, *one), merged)
        self._blocks = [(start, block) for (start, _), block in zip(merged, blocks, strict=True)]

    def _fetched(self, start: int, length: int) -> bytes | None:
        at = bisect.bisect_right(self._blocks, start, key=lambda block: block[0]) - 1
        if at < 0:
            return None
        first, data = self._blocks[at]
        return data[start - first : start - first + length] if start + length <= first + len(data) else None


def open_stream(store: Store, path: str) -> io.BufferedReader:
    """Open an object for sequential reading, with some megabytes per request.

    Raises:
        ObjectNotFoundError: The object does not exist.
        StorageError: The store failed.
    """
    info = store.head(path)
    if info is None:
        store.read(path)  # This raises the error.
    return io.BufferedReader(RangeReader(store, path, info.size if info else 0), _STREAM_BYTES)
