"""Summarize a snapshot of an Iceberg entry. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydelta.log import Snapshot
from pydelta.manifests.iceberg.build import Built
from pydelta.manifests.iceberg.metadata import (
    COVERED_PROPERTY,
    TIMESTAMP_PROPERTY,
    VERSION_PROPERTY,
    current_snapshot,
)

__all__ = ["snapshot_summary"]


def snapshot_summary(
    snapshot: Snapshot, metadata: Mapping[str, Any] | None, data: Built, deletes: Built, *, data_change: bool
) -> dict[str, str]:
    """Return the summary of a new snapshot: what changed, what there is, and what it was made from.

    Args:
        snapshot: Snapshot of the Delta version.
        metadata: The metadata before, or None to start a table.
        data: Manifests of data files.
        deletes: Manifests of delete files.
        data_change: Whether rows changed, not only where they lie.
    """
    before = current_snapshot(metadata) if metadata is not None else None
    size = int(before["summary"].get("total-files-size", 0)) if before is not None else 0
    info = snapshot.commit_info
    counts = {
        "added-data-files": data.added.files,
        "added-records": data.added.rows,
        "added-delete-files": deletes.added.files,
        "added-dvs": deletes.added.vectors,
        "added-position-deletes": deletes.added.rows,
        "added-files-size": data.added.size + deletes.added.size,
        "deleted-data-files": data.removed.files,
        "deleted-records": data.removed.rows,
        "removed-delete-files": deletes.removed.files,
        "removed-dvs": deletes.removed.vectors,
        "removed-position-deletes": deletes.removed.rows,
        "removed-files-size": data.removed.size + deletes.removed.size,
        "changed-partition-count": len(data.partitions | deletes.partitions),
    }
    totals = {
        "total-records": data.rows,
        "total-data-files": data.files,
        "total-delete-files": deletes.files,
        "total-position-deletes": deletes.rows,
        "total-equality-deletes": 0,
        "total-files-size": size + counts["added-files-size"] - counts["removed-files-size"],
    }
    return {
        "operation": _operation(data, deletes, data_change=data_change),
        **{name: str(count) for name, count in counts.items() if count},
        **{name: str(count) for name, count in totals.items()},
        COVERED_PROPERTY: str(deletes.covered),
        VERSION_PROPERTY: str(snapshot.version),
        TIMESTAMP_PROPERTY: str(snapshot.timestamp_ms),
        "pydelta.operation": (info.operation if info is not None else None) or "",
    }


def _operation(data: Built, deletes: Built, *, data_change: bool) -> str:
    """Return Iceberg's name for what changed."""
    if not data_change and (data.added.files or data.removed.files):
        return "replace"
    if not (data.removed.files or deletes.added.files or deletes.removed.files):
        return "append"
    return "overwrite" if data.added.files or deletes.removed.rows > deletes.added.rows else "delete"
