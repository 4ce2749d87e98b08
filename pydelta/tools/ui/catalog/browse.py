"""Group the shown tables by database, and search their names, columns, comments and properties. Reads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pydelta.tools.ui.catalog.facts import FoundText, ShownDatabase
from pydelta.tools.ui.values import ShownTable

__all__ = ["LONGEST_QUERY", "MOST_FOUND", "database_of", "databases", "search", "tables_of"]

LONGEST_QUERY: Final = 100
MOST_FOUND: Final = 200
_TEXT_LENGTH: Final = 300


def database_of(table: ShownTable) -> str:
    """Return the database of a table: its name up to the last dot; empty if it has none, or is named by a location."""
    name = table.place.name
    return "" if "://" in name else name.rpartition(".")[0]


def databases(tables: Sequence[ShownTable]) -> list[ShownDatabase]:
    """Sum up the tables of each database, in order of names."""
    groups: dict[str, list[ShownTable]] = {}
    for table in tables:
        groups.setdefault(database_of(table), []).append(table)
    return [_summed(name, groups[name]) for name in sorted(groups)]


def _summed(name: str, tables: Sequence[ShownTable]) -> ShownDatabase:
    files = [table.files for table in tables if table.files is not None]
    return ShownDatabase(
        name=name,
        tables=len(tables),
        bad=sum(1 for table in tables if table.weight),
        files=sum(sums.live for sums in files),
        bytes=sum(sums.live_bytes for sums in files),
        newest_ms=max((table.timestamp_ms for table in tables if table.timestamp_ms is not None), default=None),
    )


def tables_of(tables: Sequence[ShownTable], database: str) -> list[ShownTable]:
    """Return the tables of a database, in order of names."""
    return sorted((table for table in tables if database_of(table) == database), key=lambda table: table.place.name)


def search(tables: Sequence[ShownTable], text: str) -> tuple[list[FoundText], bool]:
    """Find the words of a text, ignoring case, in what the page knows about tables.

    Names of tables come first, then names of columns, comments and properties.

    Args:
        tables: The tables.
        text: Words. All must be in one name or comment.

    Returns:
        At most ``MOST_FOUND`` places, and whether there are more.
    """
    words = text.casefold().split()
    found: list[FoundText] = []
    if not words:
        return found, False
    by_name = sorted(tables, key=lambda table: table.place.name)
    for kind in ("table", "column", "comment", "property"):
        for table in by_name:
            for where, candidate in _candidates(table, kind):
                folded = candidate.casefold()
                if all(word in folded for word in words):
                    if len(found) == MOST_FOUND:
                        return found, True
                    found.append(
                        FoundText(table=table.place.name, kind=kind, where=where, text=candidate[:_TEXT_LENGTH])
                    )
    return found, False


def _candidates(table: ShownTable, kind: str) -> Iterator[tuple[str, str]]:
    if kind == "table":
        yield "", table.place.name
    elif kind == "column":
        yield from ((name, name) for name, _ in table.columns)
        yield from ((path, path) for path in table.nested)
    elif kind == "comment":
        if table.description:
            yield "", table.description
        yield from table.comments.items()
    else:
        yield from ((name, f"{name} = {value}") for name, value in table.properties.items())
