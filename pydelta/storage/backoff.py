"""Decide how long to pause before another attempt, by its number and with jitter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Backoff"]

_MOST_STEPS = 64
"""Pauses stop growing after this many attempts, so that the power does not overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses that grow by a factor, up to a maximum.

    Args:
        first_ms: Upper end of the first pause, milliseconds.
        factor: Ratio of each pause to the one before.
        longest_ms: Upper end of any pause.
        jitter: Random share of a pause, so that processes which failed together do not retry together. 1 gives any
            pause up to the upper end, 0 the upper end itself.
        sleep: Sleeps for a number of seconds; a test may replace it.
        pick: Returns a number in [0, 1); a test may replace it.

    Example:
        >>> backoff = Backoff(first_ms=100, longest_ms=500, jitter=0.5, pick=lambda: 0.5)
        >>> [backoff.seconds(attempt) for attempt in (1, 2, 3, 4)]
        [0.075, 0.15, 0.3, 0.375]
    """

    first_ms: float
    factor: float = 2.0
    longest_ms: float = 2_000.0
    jitter: float = 1.0
    sleep: Callable[[float], None] = field(default=time.sleep)
    pick: Callable[[], float] = field(default=random.random)

    def seconds(self, attempt: int) -> float:
        """Return the pause in seconds after this many failed attempts, or 0 before the first one."""
        if attempt < 1:
            return 0.0
        ceiling = min(self.longest_ms, self.first_ms * self.factor ** min(attempt - 1, _MOST_STEPS))
        return ceiling * (1 - self.jitter + self.jitter * self.pick()) / 1000

    def pause(self, attempt: int) -> None:
        """Wait before another attempt, after this many have failed."""
        self.sleep(self.seconds(attempt))
