"""Read how scheduled commands do from the status files of ``jobs/schedule.py`` and ``jobs/maintain.py``.

The lines of the page, the metrics and with them the alerts are made from the same ``ScheduleState``.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydelta.errors.redaction import hide_text
from pydelta.tools.alerts.rules import LATE_SECONDS
from pydelta.tools.ui.formats import duration
from pydelta.tools.ui.values import ServiceState

__all__ = ["FailedAction", "ReadSchedules", "ScheduleState", "read_schedules"]

_SETTLED: Final = 120
"""A command that is kept running has recovered from an earlier end once it has run for this many seconds."""
_MISSED: Final = 9
"""A line without a time at which it is due is late once it has missed this many runs, and ``LATE_SECONDS``."""
_DAY_SECONDS: Final = 86_400
_NOT_A_STATUS: Final = "it is not a status file of jobs/schedule.py or jobs/maintain.py"
_LOOK: Final = "Look at the scheduler's log; in the stack: make logs SERVICE=scheduler."


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState:
    """One line of the schedule. One that is switched off is neither failed nor late.

    Args:
        name: Its commands.
        off: Whether it is switched off.
        failed: Whether its last run failed; None before the first one has ended.
        late_seconds: How long ago it should have begun, or 0; None if it is running, or has no time.
        running_seconds: How long it has been running; None if it is not, or is meant to run forever.
    """

    name: str
    off: bool = False
    failed: bool | None = None
    late_seconds: float | None = None
    running_seconds: float | None = None

    @property
    def is_late(self) -> bool:
        """Whether it should have begun so long ago that the page and the alerts call it late."""
        return (self.late_seconds or 0) > LATE_SECONDS


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSchedules:
    """What the status files say at one moment.

    Args:
        lines: A line of the page for each line of the schedule, each problem of a table, and each unreadable file.
        states: The lines of the schedule.
        failed_actions: Actions of maintenance whose last try failed.
    """

    lines: tuple[ServiceState, ...] = ()
    states: tuple[ScheduleState, ...] = ()
    failed_actions: tuple[FailedAction, ...] = ()


def read_schedules(paths: Sequence[str], *, now_ms: int) -> ReadSchedules:
    """Read several status files. One that a line of another file would write, but that is switched off, is left out.

    Args:
        paths: Status files. One that cannot be read has a line on the page, and no figures.
        now_ms: The current time, epoch milliseconds.
    """
    read = {path: _rows(path) for path in paths}
    rows = {path: found for path, found in read.items() if not isinstance(found, str)}
    off = {word for found in rows.values() for row in found if row.get("off") for word in str(row["commands"]).split()}
    lines, states, failed = [], [], []
    for path, found in read.items():
        if path in off:
            continue
        if isinstance(found, str):
            lines.append(_unreadable(path, found, now_ms))
            continue
        for row in found:
            state = _state(row, now_ms / 1000)
            lines.append(_line(row, state, now_ms))
            if not row.get("warning"):
                states.append(state)
        failed += _failed_actions(found)
    return ReadSchedules(lines=tuple(lines), states=tuple(states), failed_actions=tuple(failed))


def _rows(path: str) -> list[Mapping[str, Any]] | str:
    """Return the rows of a status file, or the reason why it cannot be read."""
    try:
        rows = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or _NOT_A_STATUS
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "commands" in row for row in rows):
        return _NOT_A_STATUS
    return rows


def _failed_actions(rows: Sequence[Mapping[str, Any]]) -> list[FailedAction]:
    found = []
    for row in rows:
        table, action, tries = row.get("table"), row.get("action"), row.get("tries")
        if isinstance(table, str) and isinstance(action, str) and isinstance(tries, int):
            found.append(FailedAction(table=hide_text(table), action=action, tries=tries))
    return found


def _state(row: Mapping[str, Any], now: float) -> ScheduleState:
    name = hide_text(str(row["commands"]))
    if row.get("off"):
        return ScheduleState(name=name, off=True)
    since, ended, keeps = _time(row, "since"), _time(row, "ended"), bool(row.get("keeps"))
    failed = bool(row["code"]) if row.get("code") else None if ended is None else False
    if failed and keeps and since is not None and now - since > _SETTLED:
        failed = False
    return ScheduleState(
        name=name,
        failed=failed,
        late_seconds=None if since is not None else _overdue(row, ended, now),
        running_seconds=None if since is None or keeps else max(now - since, 0.0),
    )


def _overdue(row: Mapping[str, Any], ended: float | None, now: float) -> float | None:
    """Return how long ago a line should have begun, or 0; None if it has no time.

    The scheduler says when a line is due. Other files only say when it last ended: it may then miss some runs, because
    maintenance writes its file after it has looked at all tables.
    """
    due, every = _time(row, "due"), row.get("every")
    if due is not None:
        return max(now - due, 0.0)
    if ended is None:
        return None
    if isinstance(every, (int, float)):
        overdue = now - ended - every
        return overdue if overdue > _MISSED * every + LATE_SECONDS else 0.0
    return max(now - ended - _DAY_SECONDS, 0.0) if row.get("at") else None


def _line(row: Mapping[str, Any], state: ScheduleState, now_ms: int) -> ServiceState:
    """Describe a row as a line among the services."""
    name = f"Scheduled: {state.name}"
    if state.off:
        return ServiceState(name=name, ok=None, said="off", idle=True, kind="schedule", checked_ms=now_ms)
    code, since, ended = row.get("code"), _time(row, "since"), _time(row, "ended")
    parts = []
    if since is not None:
        parts.append(f"running for {duration(max(now_ms / 1000 - since, 0.0))}")
    if ended is not None:
        parts.append(f"last ended {duration(max(now_ms / 1000 - ended, 0.0))} ago")
    if code:
        words = str(row.get("said") or "").strip().splitlines()
        parts.append(f"with exit code {code}" + (f": {hide_text(words[-1])}" if words else ""))
    if row.get("warning") and not code:
        parts.append(hide_text(str(row.get("said"))))
    if state.is_late:
        parts.append(f"late: it should {_when(row)}")
    is_good = not state.failed and not state.is_late
    return ServiceState(
        name=name,
        ok=is_good,
        said=", ".join(parts) or ("has not run yet" + (f", daily at {row['at']} UTC" if row.get("at") else "")),
        next=None if is_good else _LOOK,
        kind="schedule",
        checked_ms=now_ms,
    )


def _when(row: Mapping[str, Any]) -> str:
    every, at = row.get("every"), row.get("at")
    if row.get("keeps"):
        return "be running"
    if isinstance(every, (int, float)):
        return f"run every {duration(float(every))}"
    return f"run daily at {at} UTC" if at else f"have run at {row.get('due')}"


def _unreadable(path: str, reason: str, now_ms: int) -> ServiceState:
    return ServiceState(
        name="Scheduler", ok=False, said=f"{path} cannot be read: {reason}", checked_ms=now_ms,
        next="Look whether the scheduler runs with --status and this file; in the stack: make status.",
    )  # fmt: skip


def _time(row: Mapping[str, Any], name: str) -> float | None:
    """Return a time of a row in epoch seconds; None if it has none that can be read."""
    try:
        return dt.datetime.fromisoformat(row[name]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None
