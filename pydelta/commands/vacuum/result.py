"""Define VACUUM's options, its progress messages and its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

import polars as pl

__all__ = ["DOOMED_SCHEMA", "VacuumMode", "VacuumOptions", "VacuumProgress", "VacuumResult"]

VacuumMode = Literal["full", "lite", "inventory"]

DOOMED_SCHEMA: Final[dict[str, pl.DataType]] = {
    "path": pl.String(),
    "size": pl.Int64(),
    "modification_time": pl.Int64(),
    "partition": pl.String(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumOptions:
    """How to go about it.

    Args:
        list_workers: Listings under way at once; as many key ranges are listed on an object store.
        delete_workers: Bulk deletions under way at once.
        deletes_per_second: Files deleted in a second at most, all workers together; None for no limit.
        attempts: How often a deletion that the store asks to repeat is sent.
        remove_empty_directories: On file systems, directories in which nothing is left and nothing has happened
            since the cut-off go as well.
        sleep: Waits; replaced in tests.
    """

    list_workers: int = 16
    delete_workers: int = 8
    deletes_per_second: float | None = None
    attempts: int = 6
    remove_empty_directories: bool = True
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumProgress:
    """How far a run has got.

    Args:
        phase: ``needed`` while the log is read, ``listing``, ``deleting``, ``done``.
        listed: Files looked at.
        kept: Of these, the ones that stay.
        doomed: Of these, the ones that go.
        deleted: Files deleted.
        doomed_bytes: Size of those that go.
        deleted_bytes: Size of those that were deleted.
    """

    phase: str
    listed: int = 0
    kept: int = 0
    doomed: int = 0
    deleted: int = 0
    doomed_bytes: int = 0
    deleted_bytes: int = 0


def _no_files() -> pl.DataFrame:
    return pl.DataFrame(schema=DOOMED_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumResult:
    """What a VACUUM did, or would do. Sizes in bytes, times in epoch milliseconds.

    Args:
        root: URI of the table.
        mode: ``full``, ``lite`` or ``inventory``.
        dry_run: Nothing was deleted and nothing committed.
        version: Of the table whose needs were looked at.
        cutoff_ms: Files younger than this stay, and what versions since then need.
        retention_ms: How far back that lies.
        files: What goes: ``path`` (plain, under the root), ``size`` (null where the log does not say),
            ``modification_time``, ``partition`` (the directory, such as ``day=2024-01-01``; empty without one).
        listed: Files that were looked at.
        deleted: Files deleted; in a dry run none.
        directories: Directories that were looked at, the table's own included.
        removed_directories: Empty ones that were removed; in a dry run, that would be.
        bytes: Size of what was deleted; in a dry run, of what would be.
        list_requests: LIST requests that finding the files took.
        delete_requests: DELETE requests sent.
        listing_requests: LIST requests that a flat listing takes (or would have taken), a thousand keys each.
        directory_requests: LIST requests that walking the directories one by one would have taken.
        start_version, end_version: Versions of the ``VACUUM START`` and ``VACUUM END`` commits; None in a dry run.
        inventory_age_ms: How old the inventory was; None without one.
        noncurrent_files, noncurrent_bytes: Versions of the table's objects that are no longer current, which deleting
            files does not free; None where no inventory tells.
        delete_markers: Left by deletions on a bucket with versions; None likewise.
        warnings: Sentences that the caller should show.
    """

    root: str
    mode: VacuumMode
    dry_run: bool
    version: int
    cutoff_ms: int
    retention_ms: int
    files: pl.DataFrame = field(default_factory=_no_files)
    listed: int = 0
    deleted: int = 0
    directories: int = 1
    removed_directories: int = 0
    bytes: int = 0
    list_requests: int = 0
    delete_requests: int = 0
    listing_requests: int = 0
    directory_requests: int = 0
    start_version: int | None = None
    end_version: int | None = None
    inventory_age_ms: int | None = None
    noncurrent_files: int | None = None
    noncurrent_bytes: int | None = None
    delete_markers: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def partitions(self) -> pl.DataFrame:
        """Files and bytes that go, by partition directory, the largest first: ``partition files bytes``."""
        return (
            self.files.group_by("partition")
            .agg(files=pl.len(), bytes=pl.col("size").sum())
            .sort("bytes", "partition", descending=[True, False])
        )

    @property
    def sentence(self) -> str:
        """The last line of a run."""
        gone = self.deleted + self.removed_directories
        if self.dry_run:
            found = self.files.height + self.removed_directories
            return f"Found {found} files and directories to delete in a total of {self.directories} directories."
        return f"Deleted {gone} files and directories in a total of {self.directories} directories."
