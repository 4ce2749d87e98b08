"""Read how scheduled commands do from the status files of ``jobs/schedule.py`` and ``jobs/maintain.py``."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydelta.errors.redaction import hide_text

__all__ = ["FailedAction", "ScheduleState", "failed_actions", "schedule_states", "status_rows"]

_SETTLED: Final = 120
"""A command that is kept running has recovered from an earlier end once it has run for this many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState:
    """One line of the schedule.

    Args:
        name: Its commands.
        failed: Whether its last run failed; None before the first one has ended.
        late_seconds: How long ago it should have begun, or 0; None if it is running, or has no time.
        running_seconds: How long it has been running; None if it is not, or is meant to run forever.
    """

    name: str
    failed: bool | None
    late_seconds: float | None
    running_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAction:
    """An action of maintenance whose last try failed.

    Args:
        table: Name of the table.
        action: What was to be done, such as ``optimize``; ``look`` if the table could not be read.
        tries: How often it was tried in a row.
    """

    table: str
    action: str
    tries: int


def status_rows(path: str) -> list[Mapping[str, Any]]:
    """Read a status file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not a status file.
    """
    rows = json.loads(Path(path).read_text())
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "commands" in row for row in rows):
        raise ValueError("not a status file")
    return rows


def schedule_states(paths: Sequence[str], *, now_ms: int) -> list[ScheduleState]:
    """Return the state of each line of the schedule. A file that cannot be read has none.

    Args:
        paths: Status files.
        now_ms: The current time, epoch milliseconds.
    """
    return [_state(row, now_ms / 1000) for row in _rows(paths) if not row.get("warning")]


def failed_actions(paths: Sequence[str]) -> list[FailedAction]:
    """Return the failed actions of maintenance. A file that cannot be read has none.

    Args:
        paths: Status files.
    """
    found = []
    for row in _rows(paths):
        table, action, tries = row.get("table"), row.get("action"), row.get("tries")
        if isinstance(table, str) and isinstance(action, str) and isinstance(tries, int):
            found.append(FailedAction(table=hide_text(table), action=action, tries=tries))
    return found


def _rows(paths: Sequence[str]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            found += status_rows(path)
    return found


def _state(row: Mapping[str, Any], now: float) -> ScheduleState:
    since, ended, due, every = _time(row, "since"), _time(row, "ended"), _time(row, "due"), row.get("every")
    keeps = bool(row.get("keeps"))
    if due is None and ended is not None and isinstance(every, (int, float)):
        due = ended + every
    failed = None if ended is None else bool(row.get("code"))
    if failed and keeps and since is not None and now - since > _SETTLED:
        failed = False
    return ScheduleState(
        name=hide_text(str(row["commands"])),
        failed=failed,
        late_seconds=None if since is not None or due is None else max(now - due, 0.0),
        running_seconds=None if since is None or keeps else max(now - since, 0.0),
    )


def _time(row: Mapping[str, Any], name: str) -> float | None:
    """Return a time of a row in epoch seconds; None if it has none that can be read."""
    try:
        return dt.datetime.fromisoformat(row[name]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None
