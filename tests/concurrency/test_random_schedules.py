"""Three writers with two operations each, in schedules drawn at random: every outcome is that of a serial order."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

import pytest

from pydelta.errors import DeltaConcurrentModificationException
from pydelta.log import DeltaLog
from pydelta.storage.memory import MemoryStore
from pydelta.testing.lockstep import Lockstep, run_lockstep
from pydelta.testing.operations import (
    LogOperation,
    add_file,
    append,
    append_once,
    checkpoint,
    compact,
    create_table,
    delete_partition,
    delete_value,
    optimize,
    overwrite,
    rows_of,
)

T = TypeVar("T")
_NAMES = itertools.count()


def draw(rng: random.Random, writer: int) -> LogOperation:
    partition, value = rng.choice("12"), rng.randint(1, 4)
    return rng.choice(
        [
            append(partition, [value, 100 + writer]),
            append(partition, [value]),
            append_once(rng.choice("ab"), 1, "5", [50]),
            overwrite(partition, [value, 200 + writer]),
            delete_value(value),
            delete_partition(partition),
            compact(partition),
            optimize(rng.choice((partition, None))),
            checkpoint(),
        ]
    )


def merges(sequences: Sequence[Sequence[T]]) -> Iterator[tuple[T, ...]]:
    """Every order of all items that keeps the order within each sequence."""
    if not any(sequences):
        yield ()
        return
    for number, sequence in enumerate(sequences):
        if sequence:
            rest = [*sequences[:number], sequence[1:], *sequences[number + 1 :]]
            for tail in merges(rest):
                yield (sequence[0], *tail)


@pytest.mark.parametrize("level", ["WriteSerializable", "Serializable"])
@pytest.mark.parametrize("seed", range(70))
def test_three_writers_end_up_where_a_serial_order_does(seed, level):
    rng = random.Random(seed)
    store = MemoryStore(f"memory://random{next(_NAMES)}/t")
    files = [add_file("1", [1, 2]), add_file("1", [3]), add_file("2", [1, 4]), add_file("2", [2])]
    create_table(DeltaLog(store), files, delta_isolationLevel=level, delta_checkpointInterval="2")
    beginning = rows_of(DeltaLog(store).update())
    plans = {str(writer): [draw(rng, writer) for _ in range(2)] for writer in range(3)}
    stood: dict[str, list[tuple[int | None, LogOperation]]] = {name: [] for name in plans}

    def session(name: str, step: Lockstep) -> None:
        log = DeltaLog(store)
        for operation in plans[name]:
            try:
                done = operation.run(log, step)
            except DeltaConcurrentModificationException:
                continue
            assert done is None or done.hook_failures == ()
            stood[name].append((done.version if done else None, operation))

    schedule = [rng.choice(list(plans)) for _ in range(40)]
    results = run_lockstep({name: lambda step, name=name: session(name, step) for name in plans}, schedule)
    for result in results.values():
        if isinstance(result, BaseException):
            raise result
    final = DeltaLog(store).update()
    versions = sorted(v for items in stood.values() for v, _ in items if v is not None)
    assert versions == list(range(1, final.version + 1))
    rows = rows_of(final)
    for order in merges(list(stood.values())):
        committed = [version for version, _ in order if version is not None]
        if level == "Serializable" and committed != sorted(committed):
            continue
        state = Counter(beginning)
        for _, operation in order:
            state = operation.model(state)
        if +state == rows:
            return
    pytest.fail(f"no serial order of {plans} gives {rows}; versions {stood}")
