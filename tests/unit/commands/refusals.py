"""Stores that refuse a commit: at once, or after the reply to the first put was lost."""

from __future__ import annotations

from pydelta.errors import StorageError
from pydelta.testing import FaultyStore


class RefusingStore(FaultyStore):
    """Takes no commit."""

    def put_if_absent(self, path, data):
        raise StorageError("read-only")


class ExpiringStore(FaultyStore):
    """The first put lands and its reply is lost; then the credentials are no longer valid."""

    def __init__(self, inner):
        super().__init__(inner)
        self._store = inner
        self._lost = False

    def put_if_absent(self, path, data):
        if self._lost:
            raise StorageError("denied")
        self._lost = True
        self._store.put_if_absent(path, data)
        raise StorageError("no reply", retryable=True)

    def read(self, path):
        if self._lost:
            raise StorageError("denied")
        return self._store.read(path)
