"""Count refused commits per table in a file, from the notices of programs that gave up a change."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from pydelta.tools.files import replace_json

__all__ = ["RefusalTally", "is_error_code", "read_refusals"]

_FRESH: Final = dt.timedelta(minutes=10)
"""The file is written each turn of maintenance. An older one says nothing about the present."""
_MOST_CODES: Final = 50

RefusalCounts = dict[str, dict[str, int]]


def is_error_code(text: object) -> bool:
    """Return whether a text has the form of an error's code, since anyone in the network may send a notice."""
    return isinstance(text, str) and re.fullmatch(r"[A-Z][A-Z0-9_.]{0,99}", text) is not None


class RefusalTally:
    """Counts that continue after a restart. Does nothing without a path.

    Args:
        path: The file.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._counts: RefusalCounts = {}
        if path is not None and path.exists():
            try:
                self._counts = _counts(json.loads(path.read_text()))
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                self._counts = {}  # A counter that begins at 0 again is right: readers expect restarts.

    def add(self, refused: Mapping[tuple[str, str], int], known: Collection[str], now: dt.datetime) -> None:
        """Add refusals and replace the file.

        Args:
            refused: Number of refusals by the location of a table and the code of the error.
            known: Locations of all tables, which are in the file even without refusals. Others are ignored.
            now: The current time in UTC.

        Raises:
            OSError: The file cannot be written.
        """
        if self._path is None:
            return
        self._counts = {location: self._counts.get(location, {}) for location in sorted(known)}
        for (location, code), count in refused.items():
            of_table = self._counts.get(location)
            if of_table is not None and (code in of_table or len(of_table) < _MOST_CODES):
                of_table[code] = of_table.get(code, 0) + count
        replace_json(self._path, {"at": now.isoformat(timespec="seconds"), "tables": self._counts})


def _counts(found: Any) -> RefusalCounts:
    return {
        str(location): {str(code): int(count) for code, count in of_table.items() if is_error_code(code)}
        for location, of_table in found["tables"].items()
    }


def read_refusals(path: str, now: dt.datetime) -> RefusalCounts | None:
    """Read the counts by location and error code; None if they are not known.

    Args:
        path: The file of a ``RefusalTally``.
        now: The current time in UTC.
    """
    try:
        found = json.loads(Path(path).read_text())
        if now - dt.datetime.fromisoformat(found["at"]) > _FRESH:
            return None
        return _counts(found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
