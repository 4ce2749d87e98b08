"""Keep the results of callbacks alive until the JVM has fetched them.

::

    the JVM calls Python --> a plan is returned by its number --> the JVM looks it up
                             Python's own reference ends -------> "release it", over another connection

py4j sends both at once in no particular order. If the release arrives first, as on a busy machine, the JVM finds null.
So objects that Python no longer needs are released some seconds later.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

__all__ = ["LateRelease", "release_late"]

_LATER: Final = 10.0
"""Seconds. A busy machine needs tenths of a second to read an answer that was sent."""
_AT_ONCE: Final = float("-inf")


class LateRelease:
    """Replaces py4j's queue of objects to release. It hands each to py4j's worker after a delay and takes no lock.

    Args:
        tasks: The tasks in py4j's own queue.
        now: A clock, in seconds.
    """

    def __init__(self, tasks: deque[Any], now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waiting: deque[tuple[float, Any]] = deque((now(), task) for task in reversed(tasks))

    def appendleft(self, task: Any) -> None:
        """Add a task.

        Args:
            task: The client and the number of an object, or py4j's signal to stop its worker, which is not delayed.
        """
        if isinstance(task, str):
            self._waiting.appendleft((_AT_ONCE, task))
        else:
            self._waiting.append((self._now(), task))

    def pop(self) -> Any:
        """Return the oldest task. Only py4j's worker calls this, repeatedly.

        Raises:
            IndexError: No task has waited long enough. The worker asks again a tenth of a second later.
        """
        since, task = self._waiting.popleft()
        if self._now() - since < _LATER:
            self._waiting.appendleft((since, task))
            raise IndexError
        return task


def release_late(gateway: Any) -> None:
    """Release unused Python references some seconds later, for all sessions of the process. Idempotent.

    Args:
        gateway: PySpark's gateway. With ``PYSPARK_PIN_THREAD=false``, which has no thread per caller, nothing changes.
    """
    client = gateway._gateway_client
    queue = getattr(client, "finalizer_deque", None)
    if not isinstance(queue, deque):
        return
    late = LateRelease(queue)
    for thread in threading.enumerate():
        if getattr(thread, "deque", None) is queue:  # py4j's worker looks the attribute up each time.
            thread.deque = late  # type: ignore[attr-defined]
            client.finalizer_deque = late
