"""Make the plan of a run from a seed: operations of each process, store faults and kills. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

from pydelta.errors import InvalidArgumentError
from pydelta.tools.certify.history import CertifyPlan, Fault, FaultKind, Kind, PlannedStep, Process

__all__ = ["KEYS", "kinds_without", "make_plan"]

KEYS: Final = 5
_WEIGHTS: Final[Mapping[str, Mapping[Kind, int]]] = {
    "pydelta": {
        "append": 6, "stream": 3, "delete": 3, "update": 3, "replace": 2, "optimize": 2, "vacuum": 1, "restore": 1,
        "checkpoint": 1, "read": 6,
    },
    "delta-rs": {"append": 6, "delete": 3, "update": 3, "merge": 3, "optimize": 2, "checkpoint": 1, "read": 6},
    "spark": {
        "append": 5, "delete": 3, "update": 3, "merge": 4, "replace": 1, "optimize": 2, "vacuum": 1, "restore": 1,
        "read": 5,
    },
    "trino": {"append": 5, "delete": 3, "update": 3, "merge": 4, "optimize": 2, "read": 5},
}  # fmt: skip
_CALLS_PER_OPERATION: Final = 12
"""Approximate store calls per operation. Faults are spread over this many calls."""
_FAULTS: Final[Mapping[FaultKind, int]] = {"delay": 5, "fail": 3, "lose": 4, "die": 1, "die after": 1}
_FAULTS_PER_OPERATION: Final = 0.25
_MOST_MS: Final = 250


def kinds_without(texts: Sequence[str]) -> dict[str, dict[Kind, int]]:
    """Return the operations of each engine with their weights, without the excluded ones.

    Args:
        texts: ``optimize`` excludes an operation of every engine, ``delta-rs:optimize`` that of one engine.

    Raises:
        InvalidArgumentError: An engine or operation does not exist, or no operation that writes rows is left.
    """
    left = {engine: dict(weights) for engine, weights in _WEIGHTS.items()}
    for text in texts:
        engine, colon, kind = text.rpartition(":")
        places = [left[engine]] if engine in left else []
        if not colon:
            places = list(left.values())
        if not any(kind in weights for weights in places):
            known = "; ".join(f"{name}: {', '.join(weights)}" for name, weights in _WEIGHTS.items())
            raise InvalidArgumentError(
                f"There is no operation {text!r} to leave out.",
                hint=f"Write OPERATION or ENGINE:OPERATION of: {known}.",
            )
        for weights in places:
            weights.pop(kind, None)  # type: ignore[call-overload]
    for engine, weights in left.items():
        if not set(weights) & {"append", "stream"}:
            raise InvalidArgumentError(
                f"Nothing that {engine} does would write rows.", hint="Do not leave out append and stream."
            )
    return left


def make_plan(
    seed: int,
    *,
    engines: Sequence[str],
    operations: int,
    properties: Mapping[str, str] | None = None,
    faults: bool = True,
    kinds: Mapping[str, Mapping[Kind, int]] = _WEIGHTS,
) -> CertifyPlan:
    """Make a plan. The same arguments give the same plan.

    Args:
        seed: Any whole number.
        engines: One engine per process.
        operations: Total number of operations.
        properties: Properties of the table.
        faults: Whether stores fail and processes are killed.
        kinds: Operations of each engine with their weights.
    """
    chance = random.Random(seed)
    processes = []
    for number, engine in enumerate(engines, start=1):
        count = operations // len(engines) + (number <= operations % len(engines))
        steps = _steps(chance, number, kinds[engine], count)
        troubles = _faults(chance, count) if faults and engine == "pydelta" else ()
        kills = _kills(chance, steps) if faults and count > 1 else ()
        processes.append(Process(number=number, engine=engine, steps=steps, faults=troubles, kills=kills))
    return CertifyPlan(
        seed=seed,
        processes=tuple(processes),
        properties=dict(properties or {}),
        proxy_faults=faults,
    )


def _steps(chance: random.Random, process: int, weights: Mapping[Kind, int], count: int) -> tuple[PlannedStep, ...]:
    kinds = chance.choices(list(weights), list(weights.values()), k=count)
    steps = []
    for number, kind in enumerate(kinds, start=1):
        rows = chance.randint(1, 3) if kind in ("append", "stream", "replace") else 0
        key = chance.randrange(KEYS) if rows or kind in ("delete", "update", "merge") else 0
        back = chance.randint(1, 4) if kind == "restore" else 0
        steps.append(PlannedStep(op=f"{process}-{number}", kind=kind, key=key, rows=rows, back=back))
    return tuple(steps)


def _faults(chance: random.Random, operations: int) -> tuple[Fault, ...]:
    calls = operations * _CALLS_PER_OPERATION
    count = min(round(operations * _FAULTS_PER_OPERATION), calls)
    found = []
    for call in sorted(chance.sample(range(calls), count)):
        kind = chance.choices(list(_FAULTS), list(_FAULTS.values()))[0]
        ms = chance.randint(5, _MOST_MS) if kind == "delay" else 0
        found.append(Fault(call=call, kind=kind, ms=ms))
    return tuple(found)


def _kills(chance: random.Random, steps: Sequence[PlannedStep]) -> tuple[tuple[str, int], ...]:
    """Choose whether and when a process is killed from outside: every second one, once, in an operation that writes."""
    writing = [step.op for step in steps if step.kind != "read"]
    if not writing or chance.random() < 0.5:
        return ()
    return ((chance.choice(writing), chance.randint(0, _MOST_MS)),)
