"""Read the clock: epoch milliseconds for what is written down, a monotonic clock for how long something took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Clock", "elapsed_ms", "epoch_ms"]

Clock: TypeAlias = Callable[[], int]
"""Gives epoch milliseconds."""


def epoch_ms() -> int:
    """Return the time of this machine's clock, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def elapsed_ms(started: float) -> int:
    """Return the milliseconds since ``started``, a value of ``time.monotonic()``."""
    return int((time.monotonic() - started) * 1000)
