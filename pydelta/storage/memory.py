"""Keep a store in memory for tests and trials: one dictionary per name, shared by all stores of that name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from operator import attrgetter, itemgetter
from typing import BinaryIO, cast

from pydelta.errors import InvalidArgumentError, ObjectNotFoundError
from pydelta.settings.clock import epoch_ms
from pydelta.storage.interface import DeleteReport, ObjectInfo, PutOutcome
from pydelta.storage.pages import PAGE_KEYS, ListPage, in_range
from pydelta.storage.streams import ObjectWriter
from pydelta.storage.uris import check_path, split_location

__all__ = ["MemoryStore"]


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    at_ms: int
    etag: str


class _Space:
    """The objects of one name and their lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, _Object] = {}


_SPACES: dict[str, _Space] = {}
_SPACES_LOCK = threading.Lock()
_VERSIONS = count(1)


class MemoryStore:
    """Objects in memory under ``memory://name/prefix``. They exist until the process ends."""

    def __init__(self, root: str) -> None:
        scheme, name, key = split_location(root)
        if scheme != "memory" or not name:
            raise InvalidArgumentError(f"{root!r} is not a memory URI.", hint="Write it as memory://name/table.")
        with _SPACES_LOCK:
            self._space = _SPACES.setdefault(name, _Space())
        self._prefix = key
        self._root = root.rstrip("/")

    def __repr__(self) -> str:
        return f"MemoryStore({self._root!r})"

    @property
    def root(self) -> str:
        """The URI that the store was opened with."""
        return self._root

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list_from``."""
        folder = self._folder(prefix)
        with self._space.lock:
            found = [
                (key[len(folder) :], item)
                for key, item in self._space.objects.items()
                if key.startswith(folder) and "/" not in key[len(folder) :] and key[len(folder) :] >= start
            ]
        for name, item in sorted(found, key=itemgetter(0)):
            yield _info(f"{prefix}/{name}" if prefix else name, item)

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ``Store.list_all``."""
        folder = self._folder(prefix)
        cut = len(self._prefix) + 1 if self._prefix else 0
        with self._space.lock:
            found = [(key[cut:], item) for key, item in self._space.objects.items() if key.startswith(folder)]
        for path, item in found:
            yield _info(path, item)

    head_has_exact_time = True
    """See ``Store.head``."""

    put_if_absent_is_atomic = True
    """See ``Store.put_if_absent``."""

    @property
    def has_directories(self) -> bool:
        """See ``PagedStore.has_directories``."""
        return False

    @property
    def has_key_ranges(self) -> bool:
        """See ``PagedStore.has_key_ranges``."""
        return True

    def list_pages(
        self, *, after: str = "", before: str = "", enter: Callable[[str], bool] | None = None
    ) -> Iterator[ListPage]:
        """See ``PagedStore.list_pages``. As in an object store, pages are in order and have up to a thousand keys."""
        del enter
        found = [info for info in self.list_all() if in_range(info.path, after, before)]
        found.sort(key=attrgetter("path"))
        for first in range(0, max(len(found), 1), PAGE_KEYS):
            page = ListPage()
            for info in found[first : first + PAGE_KEYS]:
                page.add(info)
            yield page

    def remove_directories(self, paths: list[str]) -> list[str]:
        """See ``PagedStore.remove_directories``. This store has no directories."""
        del paths
        return []

    def read(self, path: str) -> bytes:
        """See ``Store.read``."""
        with self._space.lock:
            found = self._space.objects.get(self._key(path))
        if found is None:
            raise ObjectNotFoundError(f"{self._root}/{path} does not exist.")
        return found.data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See ``Store.read_range``."""
        return self.read(path)[start : start + length]

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See ``Store.put_if_absent``."""
        key, item = self._key(path), _new(data)
        with self._space.lock:
            kept = self._space.objects.setdefault(key, item)
        return PutOutcome.CREATED if kept is item else PutOutcome.ALREADY_EXISTS

    def put(self, path: str, data: bytes) -> None:
        """See ``Store.put``."""
        key, item = self._key(path), _new(data)
        with self._space.lock:
            self._space.objects[key] = item

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        with self._space.lock:
            found = self._space.objects.get(self._key(path))
        return None if found is None else _info(path, found)

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """See ``Store.delete_many``."""
        names = list(paths)
        with self._space.lock:
            for path in names:
                self._space.objects.pop(self._key(path), None)
        return DeleteReport(deleted=len(names))

    def set_time(self, path: str, at_ms: int) -> None:
        """Set the modification time of an object, for tests. Raises ``ObjectNotFoundError``."""
        key = self._key(path)
        with self._space.lock:
            found = self._space.objects.get(key)
            if found is None:
                raise ObjectNotFoundError(f"{self._root}/{path} does not exist.")
            self._space.objects[key] = replace(found, at_ms=at_ms)

    def open_writer(self, path: str) -> BinaryIO:
        """See ``Store.open_writer``."""
        check_path(path)
        return cast(BinaryIO, _MemoryWriter(self, path))

    def _key(self, path: str) -> str:
        check_path(path)
        return f"{self._prefix}/{path}" if self._prefix else path

    def _folder(self, prefix: str) -> str:
        folder = "/".join(part for part in (self._prefix, check_path(prefix) if prefix else "") if part)
        return folder + "/" if folder else ""


class _MemoryWriter(ObjectWriter):
    """Collects bytes, and puts them as an object at the end."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._buffer = bytearray()

    def _append(self, view: memoryview) -> None:
        self._buffer += view

    def _publish(self) -> None:
        self._store.put(self._path, bytes(self._buffer))

    def _drop(self) -> None:
        self._buffer.clear()


def _new(data: bytes) -> _Object:
    return _Object(bytes(data), epoch_ms(), str(next(_VERSIONS)))


def _info(path: str, item: _Object) -> ObjectInfo:
    return ObjectInfo(path=path, size=len(item.data), modification_time_ms=item.at_ms, etag=item.etag)
