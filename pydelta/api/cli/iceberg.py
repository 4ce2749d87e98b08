"""Describe what was published as an Iceberg entry, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydelta.manifests.iceberg import IcebergPublished

__all__ = ["entry_lines", "entry_row"]


def entry_row(result: IcebergPublished) -> dict[str, Any]:
    """Return the result of publishing an Iceberg entry as one JSON object."""
    entry, previous = result.entry, result.previous
    return {
        "version": entry.version,
        "previous": previous.version if previous is not None else None,
        "location": entry.location,
        "metadataLocation": entry.metadata_location,
        "snapshotId": entry.snapshot_id,
        "full": result.full,
        "reason": result.reason,
        "manifestsWritten": result.manifests_written,
        "manifestsKept": result.manifests_kept,
        "filesAdded": result.files_added,
        "filesRemoved": result.files_removed,
        "deleteFiles": result.delete_files,
        "puts": result.puts,
        "leftOut": list(result.left_out),
        "int96": list(result.int96),
    }


def entry_lines(result: IcebergPublished) -> list[str]:
    """Return the result of publishing an Iceberg entry as lines of text. The last one is the metadata's location."""
    entry = result.entry
    if not result.puts:
        return [f"The Iceberg entry is already at version {entry.version}.", entry.metadata_location]
    why = f" (all files: {result.reason})" if result.reason else ""
    lines = [
        f"Version {entry.version}: {result.files_added} files added, {result.files_removed} removed, "
        f"{result.delete_files} files of hidden rows and {result.manifests_written} manifests written, "
        f"{result.manifests_kept} kept{why}."
    ]
    if result.left_out:
        lines.append(f"Left out, because Iceberg cannot hold them: {', '.join(result.left_out)}.")
    if result.int96:
        lines.append(
            f"Some files store times as INT96, which engines read differently: {', '.join(result.int96)}. Rewrite them "
            "with OPTIMIZE or REORG, with spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS."
        )
    return [*lines, entry.metadata_location]
