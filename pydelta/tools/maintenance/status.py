"""Write the status of maintenance to a file, in the format of the status file of ``jobs/schedule.py``."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydelta.tools.files import replace_json
from pydelta.tools.maintenance.decide import NO_INVENTORY
from pydelta.tools.maintenance.journal import Row
from pydelta.tools.maintenance.scheduler import Looked

__all__ = ["StatusOf", "write_status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusOf:
    """The problems of the maintained tables.

    Args:
        what: The subject of this status.
        every: Seconds between turns.
        failing: Actions whose last try failed and which their tables still need.
        unreadable: Error message and exit code per table that could not be read.
        waiting: Tables whose VACUUM waits for an inventory.
    """

    what: str
    every: float
    failing: tuple[Row, ...] = ()
    unreadable: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()

    def after(self, found: Sequence[Looked], failing: Sequence[Row], *, all_of_them: bool) -> StatusOf:
        """Return the status after a turn.

        Args:
            found: The results of the turn.
            failing: Failing actions in the journal.
            all_of_them: Whether all tables were looked at. Otherwise the status of the others stays.
        """
        wanted = {(item.place.location, action.kind) for item in found for action in item.actions}
        bad = {item.place.name: (item.error, item.exit_code) for item in found if item.error is not None}
        if not all_of_them:
            names = {item.place.name for item in found}
            bad = {name: error for name, error in self.unreadable.items() if name not in names} | bad
            looked = {item.place.location for item in found}
            wanted |= {(row.location, row.action) for row in self.failing if row.location not in looked}
        waiting = frozenset(
            item.place.name for item in found if any(action.held == NO_INVENTORY for action in item.actions)
        )
        if not all_of_them:
            waiting |= self.waiting - names
        still = tuple(row for row in failing if (row.location, row.action) in wanted)
        return dataclasses.replace(self, failing=still, unreadable=bad, waiting=waiting)

    def rows(self, problem: str | None, now: dt.datetime) -> list[dict[str, Any]]:
        """Return the rows of the file. Problems of single tables are warnings, because the service works.

        Args:
            problem: Why the whole turn failed; None if it did not.
            now: The current time in UTC.
        """
        ended = now.isoformat(timespec="seconds")
        rows = [
            {"commands": self.what, "command": self.what, "every": self.every, "since": None, "ended": ended,
             "code": int(problem is not None), "said": problem or ""}
        ]  # fmt: skip
        rows += [
            {"commands": f"look at {name}", "command": f"look at {name}", "every": None, "since": None, "ended": ended,
             "code": code, "said": error, "warning": True, "table": name, "action": "look", "tries": 1}
            for name, (error, code) in sorted(self.unreadable.items())
        ]  # fmt: skip
        if self.waiting:
            name = f"vacuum inventory of {', '.join(sorted(self.waiting))}"
            rows.append(
                {"commands": name, "command": name, "every": None, "since": None, "ended": None, "code": 0,
                 "said": NO_INVENTORY, "warning": True}
            )  # fmt: skip
        for row in self.failing:
            at = dt.datetime.fromtimestamp(row.at_ms / 1000, tz=dt.UTC).isoformat(timespec="seconds")
            name = f"{row.action} of {row.table} (try {row.attempt})"
            rows.append(
                {"commands": name, "command": name, "every": None, "since": None, "ended": at, "code": 2,
                 "said": row.error or "", "warning": True, "table": row.table, "action": str(row.action),
                 "tries": row.attempt}
            )  # fmt: skip
        return rows


def write_status(path: Path | None, status: StatusOf, problem: str | None) -> None:
    """Replace the status file atomically. Does nothing without a path."""
    if path is not None:
        replace_json(path, status.rows(problem, dt.datetime.now(dt.UTC)))
