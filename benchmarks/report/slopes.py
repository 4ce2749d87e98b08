"""Extend the steps of large logs to more files than were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Extended", "extended", "sizes_of"]


@dataclass(frozen=True, slots=True)
class Extended:
    """A step at the most files that were measured, and at the number asked for.

    Args:
        step: Its name.
        measured: Processor seconds at the most files.
        peak_mb: The process' peak memory there.
        seconds: Processor seconds at the number asked for, along the line through the two largest sizes.
    """

    step: str
    measured: float
    peak_mb: int
    seconds: float


def sizes_of(result: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Return the steps of each size of ``large_logs``, by the number of live files in ascending order."""
    return dict(sorted((int(name.split()[0].replace(",", "")), found) for name, found in result.items()))


def extended(result: Mapping[str, Any], files: int) -> list[Extended]:
    """Extend each step that was measured at the two largest sizes. A step that does not grow stays what it is."""
    (few, before), (many, last) = list(sizes_of(result).items())[-2:]
    found = []
    for step, figures in last.items():
        if isinstance(figures, dict) and step in before:
            now, earlier = figures["processor s"], before[step]["processor s"]
            slope = max(now - earlier, 0.0) / (many - few)
            found.append(Extended(step, now, figures["peak MB"], now + slope * (files - many)))
    return found
