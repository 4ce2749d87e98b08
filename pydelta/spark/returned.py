"""Keep what a callback returns to the JVM until the JVM has taken it.

::

    the JVM calls Python --> a plan is returned by its number --> the JVM looks it up
                             Python's own reference ends -------> "let it go", by another connection

py4j sends both at once, and nothing orders them: on a busy machine the second came first, and the JVM found null. What
Python lets go is therefore let go some seconds later.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

__all__ = ["LateRelease", "release_late"]

_LATER: Final = 10.0
"""Seconds; a busy machine takes tenths of one to read an answer that was sent."""


class LateRelease:
    """Stands before py4j's queue of objects to let go, and hands each on when it has waited. Takes no lock.

    Args:
        queue: py4j's own.
        now: A clock, in seconds.
    """

    def __init__(self, queue: Any, now: Callable[[], float] = time.monotonic) -> None:
        self._queue = queue
        self._now = now
        self._waiting: deque[tuple[float, Any]] = deque()

    def appendleft(self, task: Any) -> None:
        """Take one more, and hand on those that have waited.

        Args:
            task: The client and the number of an object; or py4j's word that its worker is to end, which does not wait.
        """
        if isinstance(task, str):
            self._queue.appendleft(task)
            return
        now = self._now()
        self._waiting.append((now, task))
        while self._waiting:
            try:
                oldest = self._waiting.popleft()
            except IndexError:  # another thread took it
                return
            if now - oldest[0] < _LATER:
                self._waiting.appendleft(oldest)
                return
            self._queue.appendleft(oldest[1])


def release_late(gateway: Any) -> None:
    """Let what Python no longer refers to go some seconds later, for all sessions of a process; again changes nothing.

    Args:
        gateway: PySpark's. One without threads of its own per caller (``PYSPARK_PIN_THREAD=false``) is left as it is.
    """
    client = gateway._gateway_client
    queue = getattr(client, "finalizer_deque", None)
    if queue is not None and not isinstance(queue, LateRelease):
        client.finalizer_deque = LateRelease(queue)
