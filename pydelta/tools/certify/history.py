"""Define the history of a run: the events of its processes, and the log as found afterwards. It is stored as JSON."""

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
"""A row: the operation that wrote it, its number there, its key, and the last operation that updated it (or "")."""

SETUP: Final = "setup"
"""The operation that created the table."""

Kind: TypeAlias = Literal[
    "append", "stream", "delete", "update", "merge", "replace", "optimize", "vacuum", "restore", "checkpoint", "read"
]
FaultKind: TypeAlias = Literal["delay", "fail", "lose", "die", "die after"]
Outcome: TypeAlias = Literal["ok", "failed", "unknown"]
Trouble: TypeAlias = Literal["", "conflict", "store", "refused", "broken"]


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operation of a process, as planned.

    Args:
        op: Id of the form ``process-number``, carried by its commit and by each row that it writes.
        kind: The kind of operation.
        key: Key of the rows that it writes or looks for.
        rows: Number of rows that it writes.
        back: Number of versions that a restore goes back.
    """

    op: str
    kind: Kind
    key: int = 0
    rows: int = 0
    back: int = 0


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fault in one store call of a process.

    Args:
        call: Number of the call, from 0.
        kind: ``delay``; ``fail`` before it takes effect; ``lose`` the reply; ``die`` before it, ``die after`` it.
        ms: Length of a delay in milliseconds.
    """

    call: int
    kind: FaultKind
    ms: int = 0


class Process(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process of a plan.

    Args:
        number: Number of the process.
        engine: The engine that it writes with: pydelta, delta-rs, spark or trino.
        steps: Its operations, in order.
        faults: Faults of its store.
        kills: Operations during which it is killed from outside, with the milliseconds since their beginning.
    """

    number: int
    engine: str
    steps: tuple[PlannedStep, ...]
    faults: tuple[Fault, ...] = ()
    kills: tuple[tuple[str, int], ...] = ()


class CertifyPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that a run does, so that it can be repeated.

    Args:
        seed: The seed that it was made from.
        processes: Processes with their operations.
        properties: Properties of the table.
        retention_seconds: How long VACUUM keeps removed files.
        proxy_faults: Whether requests pass a proxy that delays, cuts and loses replies, for stores with an endpoint.
    """

    seed: int
    processes: tuple[Process, ...]
    properties: dict[str, str] = {}
    retention_seconds: int = 300
    proxy_faults: bool = False

    @property
    def operations(self) -> int:
        """The number of operations."""
        return sum(len(process.steps) for process in self.processes)


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operation of a process with its outcome. Times are in nanoseconds of one clock that all processes share.

    Args:
        step: The operation.
        process: Number of the process.
        engine: Engine of the process.
        invoked_ns: Time at which it began.
        returned_ns: Time of its reply; None if it never came.
        outcome: ``unknown`` if the reply was lost or the process died.
        attempt: Number of the attempt, from 1. Only a stream's batch is tried again.
        version: The version that it committed (None if it committed nothing) or read.
        rows: Rows that it read.
        target: The version that a restore went back to.
        trouble: Kind of failure; ``broken`` means that neither a conflict nor a failing store explains it.
        error: Message of the engine.
        wall_ms: Wall-clock time at which it began, in epoch milliseconds.
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
    """A version of the log as found after the run.

    Args:
        version: Its number.
        op: The operation that the commit names; None if it names none.
        operation: Name of the operation in the history.
        time_ms: Time in the engine's history, epoch milliseconds.
        stamp_ms: In-commit timestamp, if it has one.
        added: Rows of the files that it added.
        removed: Rows of the files that it removed.
        rewritten: Whether its bytes differ from those first seen.
        first_op: The operation that the first-seen bytes name.
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
    """A file that the log names but the store lacks, live from version ``since`` until version ``until`` removes it.

    ``until`` is None if no version removes it.
    """

    path: str
    since: int
    until: int | None = None


class EngineRead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of a version that an engine read after the run, or its error. ``how`` names the way of reading."""

    engine: str
    version: int
    rows: tuple[Row, ...] | None = None
    error: str = ""
    how: str = ""


class History(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that the checker judges.

    Args:
        level: ``delta.isolationLevel`` of the table.
        events: Events, in no particular order.
        commits: Existing versions, ascending.
        lost: Files that are missing.
        reads: Reads by the engines after the run.
        retention_seconds: Retention of the table.
        unreadable: Versions whose commit cannot be parsed, with the reason.
        race: Description of a failed race of 64 writers for one object; "" if it passed.
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
    """Return the rows that an operation writes if it succeeds."""
    return tuple((step.op, number, step.key, "") for number in range(step.rows))


def acknowledged(events: Sequence[Event]) -> list[Event]:
    """Return the events of operations that reported a committed version."""
    others = ("read", "checkpoint", "vacuum")
    return [
        event
        for event in events
        if event.outcome == "ok" and event.step.kind not in others and event.version is not None
    ]
