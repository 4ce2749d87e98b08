"""Read the clock: epoch milliseconds for stored times, a monotonic clock for durations."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Clock", "Deadline", "elapsed_ms", "epoch_ms"]

Clock: TypeAlias = Callable[[], int]
"""Returns epoch milliseconds."""


def epoch_ms() -> int:
    """Return the time of this machine's clock, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def elapsed_ms(started: float) -> int:
    """Return the milliseconds since ``started``, a value of ``time.monotonic()``."""
    return int((time.monotonic() - started) * 1000)


class Deadline:
    """The time limit of a wait.

    Args:
        seconds: Seconds from now on, or None without a limit.
        clock: Monotonic clock in seconds.

    Example:
        >>> now = iter([100.0, 103.0, 111.0])
        >>> deadline = Deadline(10, clock=lambda: next(now))
        >>> deadline.remaining(), deadline.remaining()
        (7.0, 0.0)
    """

    def __init__(self, seconds: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = math.inf if seconds is None else clock() + seconds

    def __repr__(self) -> str:
        return f"Deadline({self.seconds})"

    def remaining(self) -> float:
        """Return the remaining seconds: 0 after the end, infinite without a limit."""
        return math.inf if self._end == math.inf else max(self._end - self._clock(), 0.0)
