"""Decide how long to pause before another attempt, by its number and at random."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Backoff"]

_MOST_STEPS = 64
"""Pauses stop growing here at the latest, so that a power stays a number that fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses that grow by a factor, up to a longest one.

    Args:
        first_ms: Upper end of the first pause, milliseconds.
        factor: How many times longer each pause is than the one before.
        longest_ms: Upper end of any pause.
        jitter: Share of a pause that is random, so that those who failed together do not try again together: 1 for
            anything between nothing and the upper end, 0 for the upper end itself.
        sleep: Takes seconds; a test gives its own.
        pick: Gives a number in [0, 1); a test gives its own.

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
        """Return the pause after this many attempts failed; nothing before the first one."""
        if attempt < 1:
            return 0.0
        ceiling = min(self.longest_ms, self.first_ms * self.factor ** min(attempt - 1, _MOST_STEPS))
        return ceiling * (1 - self.jitter + self.jitter * self.pick()) / 1000

    def pause(self, attempt: int) -> None:
        """Wait before another attempt, after this many failed."""
        self.sleep(self.seconds(attempt))
