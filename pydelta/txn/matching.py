"""Find the first file among a winner's adds that a scan would have had to read.

The same pruning that chose what was read decides it, so the two can never disagree about a condition.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pydelta.log.deltas import build_delta
from pydelta.log.files import FileTable
from pydelta.log.partition_spec import PartitionSpec
from pydelta.protocol.actions import AddFile, Metadata
from pydelta.protocol.schema import parse_schema
from pydelta.txn.reads import FileMatcher, ReadPredicate

__all__ = ["matcher_for"]


def matcher_for(metadata: Metadata, *, root: str, mode: str) -> FileMatcher:
    """Make a matcher for a table.

    Args:
        metadata: Of the snapshot that was read. A winner that changed it is refused before files are compared.
        root: URI of the table.
        mode: The column mapping mode in force, which the protocol has to support.
    """

    @functools.cache
    def spec() -> PartitionSpec:
        return PartitionSpec.of(parse_schema(metadata.schema_string), metadata.partition_columns, mode)

    def first_match(predicate: ReadPredicate, adds: Sequence[AddFile]) -> AddFile | None:
        if not predicate.partition_filters and not predicate.data_filters:
            return adds[0] if adds else None
        delta = build_delta(adds, version=0, partition_names=spec().physical_names, root=root)
        added = FileTable(root=root, spec=spec(), deltas=(delta,))
        conditions = (*predicate.partition_filters, *predicate.data_filters)
        found = added.select(data_filters=conditions, time_zone=predicate.time_zone)
        paths = set(found["path"])
        return next((add for add in adds if add.path in paths), None)

    return first_match
