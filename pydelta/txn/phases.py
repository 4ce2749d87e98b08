"""Name the points of a transaction at which a test (or a monitor) may step in; pause between attempts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

__all__ = ["COMMIT", "PHASES", "POST_COMMIT", "PREPARE", "READ", "SILENT", "Backoff", "Observer", "Silent"]

READ: Final = "read"
"""The snapshot is chosen; nothing was read from it yet."""
PREPARE: Final = "prepare"
"""``commit`` was called; nothing was checked yet."""
COMMIT: Final = "commit"
"""A commit file is ready and is put next; comes once for each attempt."""
POST_COMMIT: Final = "post-commit"
"""The version is in the log; hooks come next."""
PHASES: Final = (READ, PREPARE, COMMIT, POST_COMMIT)


class Observer(Protocol):
    """Told when a transaction reaches a phase. May block; what it raises ends the transaction there."""

    def at(self, phase: str) -> None:
        """Observe that ``phase``, one of ``PHASES``, begins."""


class Silent:
    """An observer that does nothing."""

    def at(self, phase: str) -> None:
        """Do nothing."""


SILENT: Final = Silent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Jittered pauses: the n-th lasts between nothing and ``first_ms * 2**(n-1)``, never above ``longest_ms``.

    Args:
        first_ms: Upper end of the first pause, milliseconds.
        longest_ms: Upper end of any pause.
        sleep: Takes seconds; a test gives its own.
        pick: Gives a number in [0, 1); a test gives its own.
    """

    first_ms: int = 20
    longest_ms: int = 2_000
    sleep: Callable[[float], None] = time.sleep
    pick: Callable[[], float] = field(default=random.random)

    def pause(self, attempt: int) -> None:
        """Wait before another try; ``attempt`` counts from 1."""
        ceiling = min(self.longest_ms, self.first_ms * 2 ** min(attempt - 1, 20))
        self.sleep(self.pick() * ceiling / 1000)
