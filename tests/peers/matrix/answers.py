"""Compare what an engine read, as an Arrow table, with the rows that a table has to have."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import Any

import pyarrow as pa

__all__ = ["SAME", "outcome", "said", "values"]

SAME = "same"


def values(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as JSON has them, in the words of ``Case.rows``."""
    types = {column.name: column.type for column in table.schema}
    return [{name: _value(value, types[name]) for name, value in row.items()} for row in table.to_pylist()]


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {part.name: _value(value[part.name], part.type) for part in kind}
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return sorted([_value(key, kind.key_type), _value(item, kind.item_type)] for key, item in pairs)
    if isinstance(value, list):
        return [_value(item, kind.value_type) for item in value]
    if isinstance(value, dt.datetime):
        return (value.astimezone(dt.UTC) if value.tzinfo else value).isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return value.hex() if isinstance(value, bytes) else value


def outcome(found: list[dict[str, Any]], expected: list[dict[str, Any]], *, without: str | None = None) -> str:
    """``same``, or how the rows differ.

    Args:
        found: What was read.
        expected: What is there.
        without: A column that is not compared.
    """
    have, want = (sorted(_text(row, without) for row in rows) for rows in (found, expected))
    if have == want:
        return SAME if without is None else f"same, {without} as stored"
    return f"other rows: {'; '.join(_differing(found, expected, without))[:300]}"


def _differing(found: list[dict[str, Any]], expected: list[dict[str, Any]], without: str | None) -> list[str]:
    """Say in which columns the rows differ, or all rows that were found where their number does."""
    if len(found) != len(expected) or set(found[0]) != set(expected[0]):
        return sorted(_text(row, without) for row in found)
    columns = [name for name in expected[0] if name != without]
    have, want = (
        {name: sorted(json.dumps(row[name]) for row in rows) for name in columns} for rows in (found, expected)
    )
    return [
        f"{name} is {', '.join(have[name])}, not {', '.join(want[name])}"
        for name in columns
        if have[name] != want[name]
    ]


def _text(row: dict[str, Any], without: str | None) -> str:
    return json.dumps({name: value for name, value in row.items() if name != without}, sort_keys=True)


def said(error: BaseException, *places: str) -> str:
    """The first line of an error, without the places of this machine."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    for place in places:
        text = text.replace(f"file://{place}", "…").replace(place, "…")
    return text[:200]
