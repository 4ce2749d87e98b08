"""Remember which users sent requests in which sessions of Spark Connect."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

__all__ = ["SeenSessions"]

_MOST: Final = 10_000


class SeenSessions:
    """The last sessions. Safe to use from several threads."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, user: str, session: str) -> None:
        """Remember a session.

        Args:
            user: The user who was authenticated.
            session: The client's id of the session.
        """
        with self._lock:
            self._pairs[user, session] = None
            self._pairs.move_to_end((user, session))
            while len(self._pairs) > _MOST:
                self._pairs.popitem(last=False)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        with self._lock:
            return iter(list(reversed(self._pairs)))
