"""Print the result of a command as a JSON document or a table."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence

from pydelta.log.times import utc_time

__all__ = ["moment", "print_json", "print_table"]


def moment(epoch_ms: int | None) -> dt.datetime | int | None:
    """Return epoch milliseconds as a time in UTC, or unchanged if beyond the calendar."""
    return None if epoch_ms is None else utc_time(epoch_ms) or epoch_ms


def print_json(value: object) -> None:
    """Print a value as one indented JSON document, with times in ISO 8601."""

    def plain(item: object) -> object:
        if isinstance(item, dt.datetime):
            return item.isoformat(timespec="milliseconds")
        return str(item)

    print(json.dumps(value, indent=2, ensure_ascii=False, default=plain))


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dt.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Print rows as a table, with maps and lists as short strings."""
    from pydelta.api.console.terminal import Terminal

    Terminal().table(columns, [[_text(value) for value in row] for row in rows], title=title, file_width=200)
