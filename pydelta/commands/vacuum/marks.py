"""Find the VACUUM that is under way in commit records: it began and has not said that it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from pydelta.commands.vacuum.needed import CommitTimeline
from pydelta.log import CommitRecord, DeltaLog
from pydelta.settings.clock import epoch_ms
from pydelta.txn.staged import VACUUM_END, VACUUM_START

__all__ = ["START_VERSION", "RunningVacuum", "find_running", "running_vacuum"]

_LONGEST_RUN_MS: Final = 24 * 3_600_000
_RETENTIONS: Final = ("specifiedRetentionMillis", "defaultRetentionMillis")
START_VERSION: Final = "startVersion"
"""Parameter of our ``VACUUM END``: the version of the start that it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningVacuum:
    """A VACUUM that has begun.

    Args:
        version: Of its ``VACUUM START``.
        started_ms: When that was committed, epoch milliseconds.
        cutoff_ms: It may delete what was removed before this time.
    """

    version: int
    started_ms: int
    cutoff_ms: int

    @property
    def given_up_ms(self) -> int:
        """When it is considered dead if it has not ended, epoch milliseconds."""
        return self.started_ms + _LONGEST_RUN_MS


def running_vacuum(records: Sequence[CommitRecord], *, now_ms: int) -> RunningVacuum | None:
    """Find the VACUUM that began within a day and has not ended; of several the one that may delete most.

    An end of ours says which run it is of. One of another engine does not: it counts for the last run that began and
    was none of ours, and what goes on is taken to delete as much as any of those that ran with it.

    Args:
        records: Newest first, as ``DeltaLog.history`` gives them.
        now_ms: Epoch milliseconds.
    """
    ours: dict[int, RunningVacuum] = {}
    others: list[RunningVacuum] = []
    for record in reversed(records):
        operation = record.commit_info.operation if record.commit_info is not None else None
        if operation == VACUUM_START:
            run = RunningVacuum(
                version=record.version,
                started_ms=record.timestamp_ms,
                cutoff_ms=record.timestamp_ms - (_number(record, *_RETENTIONS) or 0),  # unsaid: may delete everything
            )
            if _is_ours(record):
                ours[run.version] = run
            else:
                others.append(run)
        elif operation == VACUUM_END and _is_ours(record):
            ours.pop(_number(record, START_VERSION) or 0, None)
        elif operation == VACUUM_END and others:
            ended = others.pop()
            if others:
                others[-1] = replace(others[-1], cutoff_ms=max(others[-1].cutoff_ms, ended.cutoff_ms))
    alive = [run for run in (*ours.values(), *others) if now_ms < run.given_up_ms]
    return max(alive, key=lambda run: run.cutoff_ms, default=None)


def _is_ours(record: CommitRecord) -> bool:
    engine = record.commit_info.get("engineInfo") if record.commit_info is not None else None
    return isinstance(engine, str) and engine.startswith("pydelta/")


def _number(record: CommitRecord, *names: str) -> int | None:
    """The first of some operation parameters that is a whole number."""
    parameters: Any = record.commit_info.get("operationParameters") if record.commit_info is not None else None
    for name in names:
        value = parameters.get(name) if isinstance(parameters, dict) else None
        try:
            found = msgspec.convert(value, int | None, strict=False)
        except msgspec.ValidationError:
            found = None
        if found is not None:
            return found
    return None


def find_running(log: DeltaLog, version: int, *, since_ms: int = 0) -> RunningVacuum | None:
    """Find the VACUUM of a table that is under way at a version, in the commits of the last day.

    Args:
        log: The table.
        version: Its newest one.
        since_ms: Only one that began after this time, epoch milliseconds, spares reading what came before.
    """
    now_ms = epoch_ms()
    recent = CommitTimeline.of(log, version).since(max(since_ms, now_ms - _LONGEST_RUN_MS))
    if not recent:
        return None
    limit = len(recent)
    records = log.history(limit=limit)
    while len(records) == limit and records[-1].version > recent[0]:  # more commits have come
        limit += records[-1].version - recent[0]
        records = log.history(limit=limit)
    return running_vacuum([record for record in records if record.version <= version], now_ms=now_ms)
