"""Make the plan of a run from a seed: who does what, what goes wrong with its store, when it is killed. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

from pydelta.certify.history import Fault, Kind, Plan, Process, Step

__all__ = ["ENGINES", "KEYS", "make_plan"]

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
}  # fmt: skip
ENGINES: Final = tuple(_WEIGHTS)
_CALLS_PER_OPERATION: Final = 12
"""About how often an operation calls the store; faults are spread over so many calls."""
_FAULTS_PER_OPERATION: Final = 0.25
_MOST_MS: Final = 250


def make_plan(
    seed: int,
    *,
    engines: Sequence[str],
    operations: int,
    properties: Mapping[str, str] | None = None,
    retention_seconds: int = 300,
    faults: bool = True,
) -> Plan:
    """Make a plan; the same for the same arguments.

    Args:
        seed: Any whole number.
        engines: One per process.
        operations: In all.
        properties: Of the table.
        retention_seconds: How long VACUUM keeps removed files.
        faults: Whether stores fail and processes are killed.
    """
    chance = random.Random(seed)
    processes = []
    for number, engine in enumerate(engines, start=1):
        count = operations // len(engines) + (number <= operations % len(engines))
        steps = _steps(chance, number, engine, count)
        troubles = _faults(chance, count) if faults and engine == "pydelta" else ()
        kills = _kills(chance, steps) if faults and count > 1 else ()
        processes.append(Process(number=number, engine=engine, steps=steps, faults=troubles, kills=kills))
    return Plan(
        seed=seed,
        processes=tuple(processes),
        properties=dict(properties or {}),
        retention_seconds=retention_seconds,
        proxy_faults=faults,
    )


def _steps(chance: random.Random, process: int, engine: str, count: int) -> tuple[Step, ...]:
    weights = _WEIGHTS[engine]
    kinds = chance.choices(list(weights), list(weights.values()), k=count)
    steps = []
    for number, kind in enumerate(kinds, start=1):
        rows = chance.randint(1, 3) if kind in ("append", "stream", "replace") else 0
        key = chance.randrange(KEYS) if rows or kind in ("delete", "update", "merge") else 0
        back = chance.randint(1, 4) if kind == "restore" else 0
        steps.append(Step(op=f"{process}-{number}", kind=kind, key=key, rows=rows, back=back))
    return tuple(steps)


def _faults(chance: random.Random, operations: int) -> tuple[Fault, ...]:
    calls = operations * _CALLS_PER_OPERATION
    count = min(round(operations * _FAULTS_PER_OPERATION), calls)
    found = []
    for call in sorted(chance.sample(range(calls), count)):
        kind = chance.choices(("delay", "fail", "lose", "die", "die after"), (5, 3, 4, 1, 1))[0]
        ms = chance.randint(5, _MOST_MS) if kind == "delay" else 0
        found.append(Fault(call=call, kind=kind, ms=ms))
    return tuple(found)


def _kills(chance: random.Random, steps: Sequence[Step]) -> tuple[tuple[str, int], ...]:
    """One process in two is killed once from outside, in an operation that writes."""
    writing = [step.op for step in steps if step.kind != "read"]
    if not writing or chance.random() < 0.5:
        return ()
    return ((chance.choice(writing), chance.randint(0, _MOST_MS)),)
