"""Make a failing plan smaller while it still breaks a promise: first processes, then operations, then faults.

A store that fails by chance does not fail in every run, so a plan counts as breaking if one of several runs breaks. The
result may be larger than necessary, but a run of it did break a promise.
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
        plan: A plan that breaks a promise.
        breaks: Runs a plan and returns whether it breaks one.
        tries: Maximum number of plans to run.

    Returns:
        The smallest plan found, and the number of plans run.
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
    """Yield smaller plans, the boldest cuts first."""
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
    """Divide the items into pieces of about equal size, and yield all but one piece, leaving out the last one first."""
    size = -(-len(items) // pieces)
    for start in reversed(range(0, len(items), size)):
        left = (*items[:start], *items[start + size :])
        if left:
            yield left
