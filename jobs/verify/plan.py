"""Run hops in their order and say how each went; nothing here knows Spark, Trino or a store.

::

    run_plan([Hop, …]) -> one Outcome each -> told at once -> exit code 0 if all are right, else 4
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pydelta.errors import first_line

__all__ = [
    "Answer",
    "Hop",
    "Outcome",
    "State",
    "Timing",
    "exit_code",
    "lines_of",
    "percentile",
    "reason_of",
    "run_plan",
    "summary",
    "table_of",
]

CHECK_FAILED = 4
_LONGEST: Final = 500


class State(Enum):
    """How a hop went."""

    RIGHT = "ok"
    WRONG = "WRONG"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a hop expected and what it found, in words; ``right`` says whether they agree."""

    expected: str
    found: str
    right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One step of the plan.

    Args:
        name: What is checked.
        work: Does it; what it raises of the errors that the plan knows makes the hop wrong.
        hint: What to do next where it is wrong.
        needs: Names of hops without which it cannot be run.
    """

    name: str
    work: Callable[[], Answer]
    hint: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a hop."""

    name: str
    state: State
    expected: str = ""
    found: str = ""
    hint: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long commits took until a reader saw them.

    Args:
        name: Which reader.
        seconds: Of each commit that was seen.
        target: What their p95 should not exceed.
    """

    name: str
    seconds: tuple[float, ...]
    target: float


def run_plan(
    hops: Iterable[Hop],
    tell: Callable[[Outcome], None],
    *,
    errors: tuple[type[Exception], ...],
    clock: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Run each hop whose needs are right; one that is wrong stops only what needs it.

    Args:
        hops: In their order.
        tell: Gets each outcome as soon as it is known.
        errors: What a hop may raise; anything else is a fault of the plan itself and ends the run.
        clock: Seconds.
    """
    outcomes: list[Outcome] = []
    bad: set[str] = set()
    for hop in hops:
        outcome = _run(hop, [name for name in hop.needs if name in bad], errors, clock)
        if outcome.state is not State.RIGHT:
            bad.add(hop.name)
        outcomes.append(outcome)
        tell(outcome)
    return outcomes


def _run(hop: Hop, missing: Sequence[str], errors: tuple[type[Exception], ...], clock: Callable[[], float]) -> Outcome:
    if missing:
        return Outcome(name=hop.name, state=State.NOT_RUN, found=f"needs what was not right: {', '.join(missing)}")
    began, hint = clock(), hop.hint
    try:
        answer = hop.work()
    except errors as error:
        hint = getattr(error, "hint", None) or hint  # the error knows more than the plan
        answer = Answer(expected="an answer", found=reason_of(error), right=False)
    state = State.RIGHT if answer.right else State.WRONG
    return Outcome(
        name=hop.name,
        state=state,
        expected=answer.expected,
        found=answer.found,
        hint="" if answer.right else hint,
        seconds=clock() - began,
    )


def reason_of(error: Exception) -> str:
    """Say an error in a line of bounded length, or by its class if it has no text."""
    return (first_line(error).strip() or type(error).__name__)[:_LONGEST]


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Tell the process's exit code: 0 where every hop is right, 4 as for every check that failed."""
    return 0 if outcomes and all(outcome.state is State.RIGHT for outcome in outcomes) else CHECK_FAILED


def lines_of(outcome: Outcome) -> list[str]:
    """Write an outcome: one line where it is right, what was expected, found and to do next where it is not."""
    head = f"{outcome.state.value:<8}{outcome.seconds:6.1f} s  {outcome.name}"
    if outcome.state is State.RIGHT:
        same = outcome.expected == outcome.found
        return [f"{head}: expected and found {outcome.found}" if same else f"{head}: {outcome.found}"]
    if outcome.state is State.NOT_RUN:
        return [f"{head}: {outcome.found}"]
    rest = {"expected": outcome.expected, "found": outcome.found, "next": outcome.hint}
    return [head, *(f"{'':18}{name:<9} {text}" for name, text in rest.items())]


def summary(outcomes: Sequence[Outcome], seconds: float) -> list[str]:
    """Say how the run went in its last lines, naming what is not right."""
    bad = [outcome for outcome in outcomes if outcome.state is not State.RIGHT]
    took = f"{seconds:.0f} s"
    if not bad and outcomes:
        return [f"The stack is right: {len(outcomes)} hops, values as Polars has them, {took}."]
    wrong = [outcome.name for outcome in bad if outcome.state is State.WRONG]
    left = [outcome.name for outcome in bad if outcome.state is State.NOT_RUN]
    lines = [f"The stack is not right: of {len(outcomes)} hops {len(wrong)} wrong, {len(left)} not run, {took}."]
    return lines + [f"  wrong: {name}" for name in wrong] + [f"  not run: {name}" for name in left]


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values does not exceed; None without values.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    if not values:
        return None
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def table_of(timings: Sequence[Timing]) -> list[str]:
    """Draw commit-to-visible times, a row per reader; a target that is missed fails nothing."""
    if not timings:
        return []
    rows = [f"{'commit to visible, seconds':<34}{'commits':>8}{'p50':>8}{'p95':>8}{'target':>8}"]
    for timing in timings:
        middle, high = percentile(timing.seconds, 0.5), percentile(timing.seconds, 0.95)
        if middle is None or high is None:
            rows.append(f"{timing.name:<34}{0:>8}{'-':>8}{'-':>8}{timing.target:>8g}  never seen")
            continue
        verdict = "met" if high <= timing.target else "missed"
        rows.append(
            f"{timing.name:<34}{len(timing.seconds):>8}{middle:>8.2f}{high:>8.2f}{timing.target:>8g}  {verdict}"
        )
    return rows
