"""Commits in, the partitions whose files they changed out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydelta.protocol.actions import Action, AddFile, RemoveFile

__all__ = ["PartitionChanges", "changed_partitions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChanges:
    """Partitions by the log's own texts of their values, in the order of the partition columns.

    Args:
        values: A row for each distinct partition that a commit touched.
        unknown: Why they cannot be told, as a phrase; None when they can.
    """

    values: frozenset[tuple[str | None, ...]]
    unknown: str | None = None


def changed_partitions(
    commits: Iterable[tuple[int, Sequence[Action]]], physical_names: Sequence[str]
) -> PartitionChanges:
    """Which partitions gained or lost a file.

    Args:
        commits: Versions and their actions.
        physical_names: Keys of ``partitionValues``, in the order of the partition columns.
    """
    found: set[tuple[str | None, ...]] = set()
    for version, actions in commits:
        for action in actions:
            if not isinstance(action, AddFile | RemoveFile):
                continue
            values = action.partition_values
            if values is None:
                if physical_names:
                    return PartitionChanges(
                        values=frozenset(), unknown=f"version {version} removes a file without naming its partition"
                    )
                values = {}
            found.add(tuple(values.get(name) or None for name in physical_names))
    return PartitionChanges(values=frozenset(found))
