"""Show what a sync did to an Iceberg entry, as a row for programs and a line for people. Pure."""

from __future__ import annotations

from typing import Any

from catalog_sync.iceberg.sync import IcebergResult

__all__ = ["iceberg_line", "iceberg_row"]


def iceberg_row(result: IcebergResult) -> dict[str, Any]:
    """Return the result under the names that JSON readers expect."""
    return {
        "name": str(result.name),
        "version": result.version,
        "previous": result.previous,
        "metadata": result.metadata,
        "full": result.full,
        "reason": result.reason,
        "manifestsWritten": result.manifests_written,
        "filesAdded": result.files_added,
        "filesRemoved": result.files_removed,
        "deleteFilesWritten": result.delete_files,
        "stopped": result.stopped,
        "calls": result.calls,
    }


def iceberg_line(result: IcebergResult) -> str:
    """Return the result in one line."""
    if result.stopped:
        version = "no version" if result.version is None else f"version {result.version}"
        return f"{result.name}: not synced, stays at {version}; catalog_sync drop {result.name} removes it"
    what = "nothing to change"
    if result.is_changed:
        parts = (
            (result.files_added, "files added"),
            (result.files_removed, "files removed"),
            (result.manifests_written, "manifests written"),
            (result.delete_files, "files of hidden rows written"),
        )
        what = ", ".join(f"{count:,} {words}" for count, words in parts if count) or "moved"
        if result.full and result.previous is not None:
            what += f"; written in full, since {result.reason}" if result.reason else "; written in full"
    return f"{result.name}: version {result.version}, {what} ({result.calls} calls)"
