"""Find the partitions whose files commits changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydelta.log.pruning import PartitionSpec
from pydelta.protocol.actions import Action, AddFile, Metadata, RemoveFile
from pydelta.protocol.types import parse_schema

__all__ = ["PartitionChanges", "changed_partitions", "partition_types"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChanges:
    """The partitions that commits changed, as the log spells their values, in the order of the partition columns.

    Args:
        values: A row for each distinct partition that a commit touched.
        unknown: Why the partitions are not known, as a phrase, or None if they are.
    """

    values: frozenset[tuple[str | None, ...]]
    unknown: str | None = None


def partition_types(spec: PartitionSpec) -> tuple[str, ...]:
    """Return the types of the partition columns, in order. A type change can give a text another meaning."""
    return tuple(str(field.data_type) for field in spec.partition_schema().fields)


def changed_partitions(commits: Iterable[tuple[int, Sequence[Action]]], spec: PartitionSpec) -> PartitionChanges:
    """Find the partitions that gained or lost a file. They are unknown if the partition columns changed.

    Args:
        commits: Versions and their actions.
        spec: Partition columns after these commits.
    """
    names = frozenset(spec.physical_names)
    found: set[tuple[str | None, ...]] = set()
    for version, actions in commits:
        for action in actions:
            if isinstance(action, Metadata) and _is_partitioned_otherwise(action, spec):
                return _unknown(f"version {version} changes the partition columns")
            if not isinstance(action, AddFile | RemoveFile):
                continue
            values = action.partition_values
            if values is None:
                if names:
                    return _unknown(f"version {version} removes a file without naming its partition")
                values = {}
            if values.keys() != names:
                return _unknown(f"version {version} has a file of other partition columns")
            found.add(tuple(values[name] or None for name in spec.physical_names))
    return PartitionChanges(values=frozenset(found))


def _unknown(why: str) -> PartitionChanges:
    return PartitionChanges(values=frozenset(), unknown=why)


def _is_partitioned_otherwise(metadata: Metadata, spec: PartitionSpec) -> bool:
    if metadata.partition_columns != spec.partition_columns:
        return True
    schema = parse_schema(metadata.schema_string)
    return partition_types(PartitionSpec.of(schema, metadata.partition_columns, spec.mode)) != partition_types(spec)
