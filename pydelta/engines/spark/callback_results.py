"""Keep what a callback returns to the JVM until the JVM has taken it.

::

    the JVM calls Python --> a plan is returned by its number --> the JVM looks it up
                             Python's own reference ends -------> "let it go", by another connection

py4j sends both at once, and nothing orders them: on a busy machine the second came first, and the JVM found null. What
Python lets go is therefore let go some seconds later.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

__all__ = ["LateRelease", "release_late"]

_LATER: Final = 10.0
"""Seconds; a busy machine takes tenths of one to read an answer that was sent."""
_AT_ONCE: Final = float("-inf")


class LateRelease:
    """Stands for py4j's queue of objects to let go, and gives each to py4j's worker when it has waited. Takes no lock.

    Args:
        tasks: Those of py4j's own queue.
        now: A clock, in seconds.
    """

    def __init__(self, tasks: deque[Any], now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waiting: deque[tuple[float, Any]] = deque((now(), task) for task in reversed(tasks))

    def appendleft(self, task: Any) -> None:
        """Take one more.

        Args:
            task: The client and the number of an object; or py4j's word that its worker is to end, which does not wait.
        """
        if isinstance(task, str):
            self._waiting.appendleft((_AT_ONCE, task))
        else:
            self._waiting.append((self._now(), task))

    def pop(self) -> Any:
        """Give the oldest; py4j's worker alone asks, again and again.

        Raises:
            IndexError: None has waited long enough; the worker asks again a tenth of a second later.
        """
        since, task = self._waiting.popleft()
        if self._now() - since < _LATER:
            self._waiting.appendleft((since, task))
            raise IndexError
        return task


def release_late(gateway: Any) -> None:
    """Let what Python no longer refers to go some seconds later, for all sessions of a process; again changes nothing.

    Args:
        gateway: PySpark's. One without threads of its own per caller (``PYSPARK_PIN_THREAD=false``) is left as it is.
    """
    client = gateway._gateway_client
    queue = getattr(client, "finalizer_deque", None)
    if not isinstance(queue, deque):
        return
    late = LateRelease(queue)
    for thread in threading.enumerate():
        if getattr(thread, "deque", None) is queue:  # py4j's worker looks it up each time
            thread.deque = late  # type: ignore[attr-defined]
            client.finalizer_deque = late
