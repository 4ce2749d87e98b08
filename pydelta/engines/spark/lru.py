"""Keep recently used values, up to a total size."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["LruCache"]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class LruCache(Generic[_K, _V]):
    """The most recently used values by key. Thread-safe. A key must always stand for one value, so none gets stale.

    Args:
        limit: Maximum total size, in bytes or any other unit. A single larger value is not cached.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[_K, tuple[_V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _K) -> _V | None:
        """Return the cached value of a key, or None."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: _K, value: _V, size: int) -> None:
        """Cache a value, evicting the least recently used ones if there is no room."""
        with self._lock:
            if key in self._kept or size > self._limit:
                return
            self._kept[key] = value, size
            self._size += size
            while self._size > self._limit:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._size -= dropped
