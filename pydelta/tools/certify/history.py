"""Keep what happened in a run: events of the processes, and the log as it was found; as JSON, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

__all__ = [
    "SETUP",
    "CertifyPlan",
    "Commit",
    "EngineRead",
    "Event",
    "Fault",
    "FaultKind",
    "History",
    "LostFile",
    "PlannedStep",
    "Process",
    "Row",
    "acknowledged",
    "rows_written",
]

Row: TypeAlias = tuple[str, int, int, str]
"""Of the table: the operation that wrote it, its number there, its key, the operation that updated it last (or "")."""

SETUP: Final = "setup"
"""The operation that made the table."""

Kind: TypeAlias = Literal[
    "append", "stream", "delete", "update", "merge", "replace", "optimize", "vacuum", "restore", "checkpoint", "read"
]
FaultKind: TypeAlias = Literal["delay", "fail", "lose", "die", "die after"]
Outcome: TypeAlias = Literal["ok", "failed", "unknown"]
Trouble: TypeAlias = Literal["", "conflict", "store", "refused", "broken"]


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operation of a process, as planned.

    Args:
        op: Its id, which each row that it writes and its commit carry: process and number.
        kind: What it does.
        key: Of the rows that it writes or looks for.
        rows: How many it writes.
        back: How many versions a restore goes back.
    """

    op: str
    kind: Kind
    key: int = 0
    rows: int = 0
    back: int = 0


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What goes wrong with a process's call of the store.

    Args:
        call: Which of its calls, from 0.
        kind: ``delay``; ``fail`` before it takes effect; ``lose`` the reply; ``die`` before it, ``die after`` it.
        ms: How long a delay takes.
    """

    call: int
    kind: FaultKind
    ms: int = 0


class Process(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process of a plan.

    Args:
        number: Which.
        engine: What it writes with: pydelta, delta-rs, spark or trino.
        steps: What it does, in order.
        faults: What goes wrong with its store.
        kills: Operations in which it is killed from outside, with milliseconds after they began.
    """

    number: int
    engine: str
    steps: tuple[PlannedStep, ...]
    faults: tuple[Fault, ...] = ()
    kills: tuple[tuple[str, int], ...] = ()


class CertifyPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a run does, so that it can be run again.

    Args:
        seed: What it was made from.
        processes: Who does what.
        properties: Of the table.
        retention_seconds: How long VACUUM keeps removed files.
        proxy_faults: Whether requests pass a proxy that delays, cuts and loses replies; for stores with an endpoint.
    """

    seed: int
    processes: tuple[Process, ...]
    properties: dict[str, str] = {}
    retention_seconds: int = 300
    proxy_faults: bool = False

    @property
    def operations(self) -> int:
        """How many operations there are."""
        return sum(len(process.steps) for process in self.processes)


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a process did and was told. Times are of one clock for all processes, in nanoseconds.

    Args:
        step: The operation.
        process: Which process.
        engine: Of the process.
        invoked_ns: When it began.
        returned_ns: When it was answered; None where it never was.
        outcome: ``unknown`` where the answer was lost, or the process died.
        attempt: From 1; only a stream's batch is tried again.
        version: What it committed (None: nothing), or what it read.
        rows: What it read.
        target: Which version a restore went back to.
        trouble: What kind of failure; ``broken`` is one that no conflict and no failing store explains.
        error: In the engine's words.
        wall_ms: When it began by the wall clock, epoch milliseconds.
    """

    step: PlannedStep
    process: int
    engine: str = "pydelta"
    invoked_ns: int
    returned_ns: int | None
    outcome: Outcome
    attempt: int = 1
    version: int | None = None
    rows: tuple[Row, ...] | None = None
    target: int | None = None
    trouble: Trouble = ""
    error: str = ""
    wall_ms: int = 0


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version of the log as it was found after the run.

    Args:
        version: Its number.
        op: Who says to have made it; None where it names nobody.
        operation: What the history calls it.
        time_ms: By the engine's history, epoch milliseconds.
        stamp_ms: Its in-commit timestamp, where it has one.
        added: Rows of the files that it added.
        removed: Rows of the files that it removed.
        rewritten: Whether its bytes were others when it was first seen.
        first_op: Who had made it then.
    """

    version: int
    op: str | None
    operation: str = ""
    time_ms: int = 0
    stamp_ms: int | None = None
    added: tuple[Row, ...] = ()
    removed: tuple[Row, ...] = ()
    rewritten: bool = False
    first_op: str | None = None


class LostFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that the log names and the store does not have: live from a version on, until it was removed by another.

    ``until`` is None where nothing removed it.
    """

    path: str
    since: int
    until: int | None = None


class EngineRead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an engine read after the run: rows of a version, or why it could not. ``how`` says by which way."""

    engine: str
    version: int
    rows: tuple[Row, ...] | None = None
    error: str = ""
    how: str = ""


class History(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is judged.

    Args:
        level: ``delta.isolationLevel`` of the table.
        events: In no particular order.
        commits: Versions that are there, ascending.
        lost: Files that are not.
        reads: Of engines, after the run.
        retention_seconds: Of the table.
        unreadable: Versions whose commit cannot be read as one, with the reason.
        race: What a race of 64 writers for one object showed, where it showed something wrong.
    """

    level: str = "Serializable"
    events: tuple[Event, ...] = ()
    commits: tuple[Commit, ...] = ()
    lost: tuple[LostFile, ...] = ()
    reads: tuple[EngineRead, ...] = ()
    retention_seconds: int = 300
    unreadable: tuple[tuple[int, str], ...] = ()
    race: str = ""


def rows_written(step: PlannedStep) -> tuple[Row, ...]:
    """Return the rows that an operation brings when it brings any."""
    return tuple((step.op, number, step.key, "") for number in range(step.rows))


def acknowledged(events: Sequence[Event]) -> list[Event]:
    """Return the events of operations that were told that a version is theirs."""
    others = ("read", "checkpoint", "vacuum")
    return [
        event
        for event in events
        if event.outcome == "ok" and event.step.kind not in others and event.version is not None
    ]
