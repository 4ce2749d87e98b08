"""Judge the row of a check: each boolean has to be true, no column NULL, and the others show what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["what_is_wrong"]


def what_is_wrong(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str | None:
    """Say what is wrong with the answer to a check, with all that was seen; None if it holds.

    Args:
        columns: Names of the columns.
        rows: The rows; a check has one.
    """
    if len(rows) != 1:
        return f"A check returns one row, but this one returned {len(rows)}."
    found = dict(zip(columns, rows[0], strict=True))
    seen = ", ".join(f"{name}={_shown(value)}" for name, value in found.items())
    if not any(isinstance(value, bool) for value in found.values()):
        return f"A check returns a boolean, but this one returned {seen}."
    wrong = [name for name, value in found.items() if value is None or value is False]
    return f"Not true: {', '.join(wrong)}. Seen: {seen}." if wrong else None


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, bool) else str(value)
