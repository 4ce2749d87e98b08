"""Decide whether the metastore applied a change whose reply was lost. Pure.

A call that timed out may still be running. If it were sent again, the metastore could do the same work twice at once;
so the metastore is only asked for its state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["has_entry", "has_partitions"]

_OURS = "pydelta."


def has_entry(found: Any, told: Any) -> bool:
    """Return whether an entry has the columns, the location and this package's parameters that were sent."""
    return found is not None and _said(found, found.sd) == _said(told, told.sd)


def has_partitions(found: Sequence[Any], told: Sequence[Any], *, as_told: bool) -> bool:
    """Return whether all partitions exist; with ``as_told``, also with the columns, locations and versions sent."""
    there = {tuple(part.values): part for part in found}
    for part in told:
        other = there.get(tuple(part.values))
        if other is None or (as_told and _said(other, other.sd) != _said(part, part.sd)):
            return False
    return True


def _said(item: Any, storage: Any) -> tuple[Any, ...]:
    own = sorted((key, value) for key, value in (item.parameters or {}).items() if key.startswith(_OURS))
    place = (storage.location or "").rstrip("/")
    if place.startswith("file:"):
        place = f"file:///{place.removeprefix('file:').lstrip('/')}"
    return own, place, [(column.name, column.type) for column in storage.cols]
