"""Make a plan that breaks a promise smaller, as long as it still does: processes first, then operations, then faults.

A store that fails by chance does not fail in each run: a plan counts as one that breaks it if one of some runs does, so
what is left may be larger than it had to be, never one that was not seen to break it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from pydelta.tools.certify.history import CertifyPlan, Process

__all__ = ["shrink"]

_Item = TypeVar("_Item")


def shrink(plan: CertifyPlan, breaks: Callable[[CertifyPlan], bool], *, tries: int) -> tuple[CertifyPlan, int]:
    """Look for a smaller plan that still breaks.

    Args:
        plan: One that does.
        breaks: Runs a plan, and tells whether it does.
        tries: How many plans are run at most.

    Returns:
        The smallest found, and how many were run.
    """
    used, smaller = 0, True
    while smaller:
        smaller = False
        for candidate in _smaller(plan):
            if used >= tries:
                return plan, used
            used += 1
            if breaks(candidate):
                plan, smaller = candidate, True
                break
    return plan, used


def _smaller(plan: CertifyPlan) -> Iterator[CertifyPlan]:
    """Plans with less, the boldest first."""
    if plan.proxy_faults:
        yield msgspec.structs.replace(plan, proxy_faults=False)
    if any(process.faults or process.kills for process in plan.processes):
        calm = tuple(msgspec.structs.replace(process, faults=(), kills=()) for process in plan.processes)
        yield msgspec.structs.replace(plan, processes=calm)
    if len(plan.processes) > 1:
        for pieces in sorted({2, len(plan.processes)}):
            for left in _without(plan.processes, pieces):
                yield msgspec.structs.replace(plan, processes=left)
    for place, process in enumerate(plan.processes):
        for part in _parts(process):
            processes = (*plan.processes[:place], part, *plan.processes[place + 1 :])
            yield msgspec.structs.replace(plan, processes=processes)


def _parts(process: Process) -> Iterator[Process]:
    if len(process.steps) > 1:
        for pieces in (2, 4, 8):
            if pieces <= len(process.steps) or pieces == 2:
                for steps in _without(process.steps, pieces):
                    yield msgspec.structs.replace(process, steps=steps)
        if 2 < len(process.steps) <= 8:
            for steps in _without(process.steps, len(process.steps)):
                yield msgspec.structs.replace(process, steps=steps)
    for fault in process.faults:
        left = tuple(other for other in process.faults if other is not fault)
        yield msgspec.structs.replace(process, faults=left)


def _without(items: Sequence[_Item], pieces: int) -> Iterator[tuple[_Item, ...]]:
    """The items without one of so many pieces of about one size, the last piece first."""
    size = -(-len(items) // pieces)
    for start in reversed(range(0, len(items), size)):
        left = (*items[:start], *items[start + size :])
        if left:
            yield left
