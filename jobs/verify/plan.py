"""Run hops in order and report how each went. This module does not know Spark, Trino or a store.

::

    run_plan([Hop, …]) -> one Outcome each -> reported at once -> exit code 0 if all are right, else 4
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
    """The state of a hop."""

    RIGHT = "ok"
    WRONG = "WRONG"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The expected and the actual result of a hop, in words. ``right`` means that they agree."""

    expected: str
    found: str
    right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One step of the plan.

    Args:
        name: Name of the check.
        work: Runs the check. If it raises an error that the plan knows, the hop is wrong.
        hint: What to do next if it is wrong.
        needs: Names of hops that must be right first.
    """

    name: str
    work: Callable[[], Answer]
    hint: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a hop."""

    name: str
    state: State
    expected: str = ""
    found: str = ""
    hint: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The times until a reader saw each commit.

    Args:
        name: Name of the reader.
        seconds: Seconds for each commit that was seen.
        target: Upper bound for their p95.
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
    """Run each hop whose needs are right. A wrong hop only stops those that need it.

    Args:
        hops: Hops in order.
        tell: Receives each outcome once it is known.
        errors: Errors that a hop may raise. Any other error is a fault of the plan itself and ends the run.
        clock: Returns seconds.
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
        hint = getattr(error, "hint", None) or hint  # The error knows more than the plan.
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
    """Format an error in a line of bounded length. An error without text is shown by its class."""
    return (first_line(error).strip() or type(error).__name__)[:_LONGEST]


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return the process's exit code: 0 if every hop is right, 4 as for any failed check."""
    return 0 if outcomes and all(outcome.state is State.RIGHT for outcome in outcomes) else CHECK_FAILED


def lines_of(outcome: Outcome) -> list[str]:
    """Format an outcome: one line if it is right, otherwise more lines with both results and the next step."""
    head = f"{outcome.state.value:<8}{outcome.seconds:6.1f} s  {outcome.name}"
    if outcome.state is State.RIGHT:
        same = outcome.expected == outcome.found
        return [f"{head}: expected and found {outcome.found}" if same else f"{head}: {outcome.found}"]
    if outcome.state is State.NOT_RUN:
        return [f"{head}: {outcome.found}"]
    rest = {"expected": outcome.expected, "found": outcome.found, "next": outcome.hint}
    return [head, *(f"{'':18}{name:<9} {text}" for name, text in rest.items())]


def summary(outcomes: Sequence[Outcome], seconds: float) -> list[str]:
    """Summarize the run in its last lines, naming hops that are not right."""
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
    """Format commit-to-visible times, one row per reader. A missed target does not fail the run."""
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
