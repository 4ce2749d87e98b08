"""Decide whether the metastore did what it was told, when its reply was lost. Pure.

A call that was not answered in time may still be under way. To send it again would let the metastore do the same work
twice at once; so it is asked what it has, and told nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["has_entry", "has_partitions"]

_OURS = "pydelta."


def has_entry(found: Any, told: Any) -> bool:
    """Tell whether an entry is there as it was told: columns, place and what this package says of the table."""
    return found is not None and _said(found, found.sd) == _said(told, told.sd)


def has_partitions(found: Sequence[Any], told: Sequence[Any], *, as_told: bool) -> bool:
    """Tell whether all partitions are there; with ``as_told``, with the same columns, places and versions, too."""
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
