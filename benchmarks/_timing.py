"""Time contestants in turns and compare their medians, so that a busy minute hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def interleave(contestants: Mapping[str, Callable[[], object]], *, rounds: int = 5) -> dict[str, float]:
    """Median seconds of each contestant over ``rounds`` turns, after one turn that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def ratios(medians: Mapping[str, float], *, to: str) -> dict[str, float]:
    """Each contestant's median over that of ``to``; below 1 is faster."""
    return {name: round(value / medians[to], 2) for name, value in medians.items()}
