"""A store in memory, for tests and trials: one dictionary a name, shared by all stores of that name in the process."""

from __future__ import annotations

import hashlib
import io
import threading
import time
from collections.abc import Iterable, Iterator
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from pydelta.errors import InvalidArgumentError, ObjectNotFoundError
from pydelta.storage.interface import DeleteReport, ObjectInfo, PutOutcome

__all__ = ["MemoryStore"]


class _Space:
    """The objects of one name, with a lock over them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, int]] = {}


_SPACES: dict[str, _Space] = {}
_SPACES_LOCK = threading.Lock()


class MemoryStore:
    """Objects in memory under ``memory://name/prefix``; gone when the process ends."""

    def __init__(self, root: str) -> None:
        parts = urlsplit(root)
        if parts.scheme != "memory" or not parts.netloc:
            raise InvalidArgumentError(f"{root!r} is no memory URI.", hint="Write it as memory://name/table.")
        with _SPACES_LOCK:
            self._space = _SPACES.setdefault(parts.netloc, _Space())
        self._prefix = unquote(parts.path).strip("/")
        self._root = root.rstrip("/")

    def __repr__(self) -> str:
        return f"MemoryStore({self._root!r})"

    @property
    def root(self) -> str:
        """The URI it was opened with."""
        return self._root

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list_from``."""
        folder = self._key(prefix) + "/" if prefix or self._prefix else ""
        with self._space.lock:
            found = [
                (key[len(folder) :], data, at)
                for key, (data, at) in self._space.objects.items()
                if key.startswith(folder) and "/" not in key[len(folder) :] and key[len(folder) :] >= start
            ]
        for name, data, at in sorted(found):
            yield _info(f"{prefix}/{name}" if prefix else name, data, at)

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ``Store.list_all``."""
        folder = self._key(prefix) + "/" if prefix or self._prefix else ""
        cut = len(self._prefix) + 1 if self._prefix else 0
        with self._space.lock:
            found = [(key[cut:], *value) for key, value in self._space.objects.items() if key.startswith(folder)]
        yield from (_info(*item) for item in found)

    def read(self, path: str) -> bytes:
        """See ``Store.read``."""
        with self._space.lock:
            found = self._space.objects.get(self._key(path))
        if found is None:
            raise ObjectNotFoundError(f"{self._root}/{path} does not exist.")
        return found[0]

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See ``Store.read_range``."""
        return self.read(path)[start : start + length]

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See ``Store.put_if_absent``."""
        with self._space.lock:
            if self._key(path) in self._space.objects:
                return PutOutcome.ALREADY_EXISTS
            self._space.objects[self._key(path)] = (bytes(data), _now_ms())
        return PutOutcome.CREATED

    def put(self, path: str, data: bytes) -> None:
        """See ``Store.put``."""
        with self._space.lock:
            self._space.objects[self._key(path)] = (bytes(data), _now_ms())

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        with self._space.lock:
            found = self._space.objects.get(self._key(path))
        return None if found is None else _info(path, *found)

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """See ``Store.delete_many``."""
        names = list(paths)
        with self._space.lock:
            for path in names:
                self._space.objects.pop(self._key(path), None)
        return DeleteReport(deleted=len(names))

    def open_writer(self, path: str) -> BinaryIO:
        """See ``Store.open_writer``."""
        return _MemoryWriter(self, path)

    def _key(self, path: str) -> str:
        return "/".join(part for part in (self._prefix, path) if part)


class _MemoryWriter(io.BytesIO):
    """Collects bytes; ``close`` puts them, ``abort`` drops them."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        super().__init__()
        self._store = store
        self._path = path

    def close(self) -> None:
        if not self.closed:
            self._store.put(self._path, self.getvalue())
            super().close()

    def abort(self) -> None:
        """Drop what was written."""
        super().close()

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            self.abort()
        else:
            self.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _info(path: str, data: bytes, at: int) -> ObjectInfo:
    return ObjectInfo(
        path=path, size=len(data), modification_time_ms=at, etag=hashlib.md5(data, usedforsecurity=False).hexdigest()
    )
