"""Keep tables in memory for the targets, and note what is asked for outside of a table's root.

``lake_store()`` is the store of ``s3a://lake/t``. Every other location that the engine opens, whatever its scheme, is
an empty store that notes its calls, so that nothing real can be reached.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from pydelta.storage import MemoryStore, register_store
from pydelta.storage.interface import DeleteReport, ObjectInfo, PutOutcome
from pydelta.storage.uris import check_path
from tests.fuzz.contract import Broken

__all__ = ["ROOT", "GuardedStore", "lake_store", "refuse_strays"]

ROOT: Final = "s3a://lake/t"
_SCHEMES: Final = ("file", "memory", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "az", "hdfs")
_NUMBERS: Final = itertools.count()


class GuardedStore(MemoryStore):
    """Objects in memory under a root of any scheme; notes what it reads, writes and deletes.

    Attributes:
        reads, writes, deletes: Locations, in order.
    """

    def __init__(self, root: str) -> None:
        super().__init__(f"memory://guarded{next(_NUMBERS)}/t")
        self._root = root.rstrip("/")
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.deletes: list[str] = []

    def _at(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list_from``."""
        self.reads.append(self._at(prefix) if prefix else self._root)
        return super().list_from(start, prefix=prefix)

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ``Store.list_all``."""
        self.reads.append(self._at(prefix) if prefix else self._root)
        return super().list_all(prefix)

    def read(self, path: str) -> bytes:
        """See ``Store.read``."""
        self.reads.append(self._at(path))
        return super().read(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See ``Store.read_range``; as stores do, it refuses a range that is none."""
        self.reads.append(self._at(path))
        if start < 0 or length < 0:
            raise Broken(f"a range from {start} of {length} bytes was asked for")
        return super().read(path)[start : start + length]

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        self.reads.append(self._at(path))
        return super().head(path)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """See ``Store.put_if_absent``."""
        self.writes.append(self._at(path))
        return super().put_if_absent(path, data)

    def put(self, path: str, data: bytes) -> None:
        """See ``Store.put``."""
        self.writes.append(self._at(path))
        super().put(path, data)

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """See ``Store.delete_many``."""
        names = list(paths)
        self.deletes += map(self._at, names)
        return super().delete_many(names)


_OPENED: Final[list[GuardedStore]] = []


def _open(uri: str, options: Mapping[str, str]) -> GuardedStore:
    del options
    store = GuardedStore(uri)
    _OPENED.append(store)
    return store


def lake_store() -> GuardedStore:
    """Make the table's own store, empty, and forget what was opened before."""
    for scheme in _SCHEMES:
        register_store(scheme, _open)
    _OPENED.clear()
    return GuardedStore(ROOT)


def refuse_strays(named: str) -> None:
    """Check what was done outside of the table's root.

    Args:
        named: All text in which a location outside may be spelt out: only such a one may be read.

    Raises:
        Broken: Something outside was written or deleted, or was read though no absolute path names it.
    """
    plain = _single(named + unquote(named) + unquote(unquote(named)))
    plain += _without_parents(plain)
    for store in _OPENED:
        if store.writes or store.deletes:
            raise Broken(f"it changed {[*store.writes, *store.deletes][0]}")
        for location in store.reads:
            if not any(_names(plain, spelled) for spelled in (location, unquote(location))):
                raise Broken(f"it read {location}, which no path names")


def _names(plain: str, location: str) -> bool:
    """Tell whether a place that was read stands in the text of its path."""
    tail = _single(location.partition(":")[2]).strip("/")
    key = tail.partition("/")[2]  # a path without a scheme is one of the table's own bucket
    return tail.rpartition("/")[0].rstrip("/") in plain or f"/{key}" in plain


def _without_parents(text: str) -> str:
    """Drop each ``..`` with the name before it, as the path with them means the same place."""
    shorter = re.sub(r"(?:/(?!\.\./)[^/]+)?/\.\.(?=/)", "", text, count=1)
    return text if shorter == text else _without_parents(shorter)


def _single(text: str) -> str:
    """Write one slash for several, and for those with a dot between them, since a path means the same with them."""
    return re.sub(r"/+(?:\./+)*", "/", text)
