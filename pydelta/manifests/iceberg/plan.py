"""Decide which manifests stay, which are written again and which are merged. Pure: no store, no log, no PyIceberg.

::

    manifest has              then
    no live file              it is left out
    lost files                it is written again without them, with new files of the same partitions
    neither                   it is named again
    few files, and many such  they become one, with the new files

Files that find no manifest go into new ones. So a sync writes the manifests of changed partitions, and the list.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["MAX_FILES", "Held", "ManifestPlan", "Ranges", "chunks", "homes", "plan_manifests"]

MAX_FILES: Final = 10_000
"""Number of files that a manifest is filled up to."""
_MANY_SMALL: Final = 24
_SMALL: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A manifest of the snapshot before.

    Args:
        files: Number of its live files.
        lost: How many of them the new snapshot does not have.
        is_current: Whether it is of the partition spec of new files.
    """

    files: int
    lost: int = 0
    is_current: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPlan:
    """What becomes of the manifests, by their positions.

    Args:
        kept: Named again as they are.
        rewritten: Written again one by one.
        merged: Written as one together with new files; none, or at least two.
    """

    kept: tuple[int, ...] = ()
    rewritten: tuple[int, ...] = ()
    merged: tuple[int, ...] = ()


def plan_manifests(
    held: Sequence[Held], *, new_files: int = 0, max_files: int = MAX_FILES, many: int = _MANY_SMALL
) -> ManifestPlan:
    """Decide what becomes of the manifests of one kind of content.

    Args:
        held: The manifests of the snapshot before.
        new_files: Number of new files.
        max_files: Number of files that a manifest is filled up to.
        many: How many small manifests there may be.
    """
    rewritten = tuple(at for at, one in enumerate(held) if one.lost)
    kept = [at for at, one in enumerate(held) if one.files and not one.lost]
    small = [at for at in kept if held[at].is_current and held[at].files * _SMALL < max_files]
    merged: list[int] = []
    if len(small) + (new_files > 0) > many:
        room = max_files - min(new_files, max_files)
        for at in sorted(small, key=lambda at: held[at].files):
            if held[at].files > room:
                break
            room -= held[at].files
            merged.append(at)
    if len(merged) < 2:
        merged = []
    return ManifestPlan(
        kept=tuple(at for at in kept if at not in set(merged)), rewritten=rewritten, merged=tuple(sorted(merged))
    )


def homes(lost: Sequence[tuple[int, frozenset[Hashable]]], partitions: Sequence[Hashable]) -> list[int | None]:
    """Choose the manifest of each new file: one that lost a file of the same partition. So partitions stay together.

    Args:
        lost: Positions of the manifests that are written again, and the partitions of the files they lost.
        partitions: Partition of each new file.

    Returns:
        The position of a manifest for each file, or None for a new one.
    """
    by_partition: dict[Hashable, int] = {}
    for at, gone in lost:
        for partition in gone:
            by_partition.setdefault(partition, at)
    return [by_partition.get(partition) for partition in partitions]


def chunks(count: int, *, max_files: int = MAX_FILES) -> list[tuple[int, int]]:
    """Cut a number of files into ranges of nearly equal length. One may be half as long again as ``max_files``.

    Example:
        >>> chunks(5, max_files=2)
        [(0, 2), (2, 5)]
    """
    number = max(1, math.floor(count / max_files + 0.5)) if count else 0
    return [(count * at // number, count * (at + 1) // number) for at in range(number)]


class Ranges:
    """The partitions of some files, to find the manifests that may hold one of them.

    Args:
        partitions: Values of each partition, with None for null. NaN makes every manifest one to search.
    """

    def __init__(self, partitions: Sequence[Sequence[Any]]) -> None:
        columns = list(zip(*partitions, strict=True)) if partitions else []
        self._nulls = [any(value is None for value in column) for column in columns]
        self._values = [sorted({value for value in column if value is not None}) for column in columns]
        self._anywhere = any(value != value for column in columns for value in column)

    def may_meet(self, bounds: Sequence[tuple[bool, Any, Any]]) -> bool:
        """Return whether a manifest may hold a file of one of the partitions.

        Args:
            bounds: For each column: whether it has nulls, the smallest and the largest value (None if all are null).
        """
        if self._anywhere or len(bounds) != len(self._values):
            return True
        return all(map(self._meets, self._values, self._nulls, bounds))

    @staticmethod
    def _meets(values: list[Any], null: bool, bounds: tuple[bool, Any, Any]) -> bool:
        has_null, low, high = bounds
        if null and has_null:
            return True
        if low is None or high is None:
            return False
        at = bisect.bisect_left(values, low)
        return at < len(values) and bool(values[at] <= high)
