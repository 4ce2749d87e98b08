"""Keep what was made last, up to a size."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["LruCache"]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class LruCache(Generic[_K, _V]):
    """Values used last, by key; for threads. A key must stand for one value for ever, so that none goes stale.

    Args:
        limit: The sum of sizes to keep at most, bytes or whatever they are given in; a value that alone is larger is
            not kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[_K, tuple[_V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _K) -> _V | None:
        """Return what is kept under a key; None when nothing is."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: _K, value: _V, size: int) -> None:
        """Keep a value, and drop those that were not used for longest where there is no room."""
        with self._lock:
            if key in self._kept or size > self._limit:
                return
            self._kept[key] = value, size
            self._size += size
            while self._size > self._limit:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._size -= dropped
