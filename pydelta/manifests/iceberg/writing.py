"""Write the new files of an entry, several at a time. No file is replaced: each has a new name."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final

from pydelta.manifests.iceberg.metadata import FOLDER, METADATA_DIR
from pydelta.storage import Store

__all__ = ["FileWriter"]

_WRITERS: Final = 4
_WAITING: Final = 8


class FileWriter:
    """Writes files into the entry's folder. Leave its block to wait for them; the first error is raised then.

    Args:
        store: Store of the table.
        location: Location of the table's root as readers spell it, with a trailing slash.
        check: Called before each write, to renew a lease.
    """

    def __init__(self, store: Store, location: str, check: Callable[[], None]) -> None:
        self._store = store
        self._location = location
        self._check = check
        self._id = uuid.uuid4().hex
        self._names = 0
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[None]] = deque()
        self.puts = 0

    def __enter__(self) -> FileWriter:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all writes."""
        try:
            while self._waiting and kind is None:
                self._waiting.popleft().result()
        finally:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)

    def new_manifest(self) -> str:
        """Return a path for a manifest."""
        return f"{METADATA_DIR}/{self._new_name()}-m.avro"

    def new_list(self, snapshot_id: int) -> str:
        """Return a path for a manifest list."""
        return f"{METADATA_DIR}/snap-{snapshot_id}-{self._id}.avro"

    def new_delete_file(self) -> str:
        """Return a path for a file of hidden rows."""
        return f"{FOLDER}/deletes/{self._new_name()}.parquet"

    def new_puffin_file(self) -> str:
        """Return a path for a file of deletion vectors."""
        return f"{FOLDER}/deletes/{self._new_name()}.puffin"

    def _new_name(self) -> str:
        self._names += 1
        return f"{self._id}-{self._names}"

    def location(self, path: str) -> str:
        """Return the location of a path, as readers spell it."""
        return self._location + path

    def path(self, location: str) -> str:
        """Return the path of a location, the reverse of ``location``."""
        return location.removeprefix(self._location)

    def put(self, path: str, data: bytes) -> None:
        """Write a file, now or soon. An error of an earlier write is raised here."""
        self.puts += 1
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="pydelta-iceberg")
        while len(self._waiting) >= _WAITING:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._put, path, data))

    def settle(self) -> None:
        """Wait for all writes so far."""
        while self._waiting:
            self._waiting.popleft().result()

    def _put(self, path: str, data: bytes) -> None:
        self._check()
        self._store.put(path, data)
