"""Keep a table's Iceberg entry in step with VACUUM: no snapshot outlives its files, and no file its snapshots.

::

    before files are deleted  --> drop the snapshots of versions that are not retained, in shallow clones too
    after files were deleted  --> delete files of the entry's folder that nothing refers to and that are older
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pydelta.commands.vacuum.needed import CommitTimeline
from pydelta.errors import (
    DeltaEnvironmentError,
    DeltaError,
    LogCorruptedError,
    SchemaError,
    StorageError,
    UnsafeOperationError,
    UnsupportedFeatureError,
)
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg.entry import find_newest
from pydelta.manifests.iceberg.metadata import FOLDER, is_ours, snapshot_version
from pydelta.manifests.lease import ICEBERG
from pydelta.manifests.publish import holding
from pydelta.storage import ObjectInfo

__all__ = ["ExpiredSnapshots", "delete_unreferenced", "expire_clones", "expire_entry", "unreferenced"]

_LOG: Final = logging.getLogger(__name__)
_WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredSnapshots:
    """The snapshots that were dropped from Iceberg entries.

    Args:
        count: How many.
        warnings: Sentences that the caller should show.
    """

    count: int = 0
    warnings: tuple[str, ...] = ()


def expire_entry(log: DeltaLog, *, newest: int, cutoff_ms: int) -> ExpiredSnapshots:
    """Drop the snapshots of versions whose files VACUUM may delete. The current one is replaced by the newest version.

    Args:
        log: Log of the table.
        newest: Version of the table whose needed files are kept.
        cutoff_ms: VACUUM's cut-off, epoch milliseconds.

    Raises:
        UnsafeOperationError: The current snapshot would lose its files, but no newer one can be published.
        DeltaEnvironmentError: Snapshots have to be dropped, but PyIceberg is not installed.
        ManifestsBusyError, LeaseLostError: Another process publishes.
        StorageError: The store failed.
    """
    found = find_newest(log.store)
    if found is None:
        return ExpiredSnapshots()
    if not is_ours(found.metadata):
        text = f"The Iceberg entry in {FOLDER} was changed by another writer, so its snapshots were not dropped."
        return ExpiredSnapshots(warnings=(text,))
    timeline = CommitTimeline.of(log, newest)

    def is_retained(version: int | None) -> bool:
        return version is not None and (version > newest or timeline.is_retained(version, cutoff_ms))

    doomed = [item for item in found.metadata["snapshots"] if not is_retained(snapshot_version(item))]
    if not doomed and found.hint == found.number:  # An older hint could name a snapshot that was dropped.
        return ExpiredSnapshots()
    from pydelta.manifests.iceberg import expire_snapshots  # It imports PyIceberg.

    try:
        expire_snapshots(log, is_retained=is_retained)
    except (SchemaError, UnsupportedFeatureError) as error:
        raise UnsafeOperationError(
            "Nothing was deleted: the Iceberg entry reads files that would go, and the newest version cannot be "
            f"published in it: {error.message}",
            hint=f"{error.hint or 'Publish the entry.'} Without use for the entry, delete the folder {FOLDER}.",
            table=log.uri,
        ) from error
    return ExpiredSnapshots(count=len(doomed))


def expire_clones(clones: Iterable[DeltaLog], *, cutoff_ms: int) -> ExpiredSnapshots:
    """Drop snapshots of the entries of shallow clones whose files are those of a source that is vacuumed.

    Args:
        clones: The clones.
        cutoff_ms: The cut-off of the source's VACUUM, which keeps the files of the clones' versions since then.
    """
    count, warnings = 0, []
    for clone in clones:
        try:
            expired = expire_entry(clone, newest=clone.update().version, cutoff_ms=cutoff_ms)
        except DeltaError as error:
            warnings.append(
                f"The Iceberg entry of the shallow clone {clone.uri} could not be brought forward, so snapshots of it "
                f"may have lost files: {error.message}"
            )
            continue
        count += expired.count
        warnings += expired.warnings
    return ExpiredSnapshots(count=count, warnings=tuple(warnings))


def unreferenced(log: DeltaLog, *, cutoff_ms: int) -> list[ObjectInfo]:
    """List files of the entry's folder that its newest metadata does not refer to and that are older than a time.

    None are found without PyIceberg, or if the entry is damaged: they stay until a later VACUUM.
    """
    if find_newest(log.store) is None:
        return []
    try:
        from pydelta.manifests.iceberg import unreferenced_files
    except DeltaEnvironmentError as error:
        _LOG.warning("Files of the Iceberg entry stay: %s", error.message, extra={"table": log.uri})
        return []
    try:
        return unreferenced_files(log, older_than_ms=cutoff_ms)
    except (StorageError, LogCorruptedError) as error:
        _LOG.warning("Files of the Iceberg entry stay: %s", error.message, extra={"table": log.uri})
        return []


def delete_unreferenced(log: DeltaLog, *, cutoff_ms: int) -> int:
    """Delete these files while no publisher is at work, and return how many there were.

    Raises:
        ManifestsBusyError, LeaseLostError: Another process publishes.
        StorageError: The store failed.
    """
    if not unreferenced(log, cutoff_ms=cutoff_ms):
        return 0
    with holding(log, ICEBERG, wait_seconds=_WAIT_SECONDS) as lease:
        assert lease is not None, "nobody else can delete them"
        paths = [info.path for info in unreferenced(log, cutoff_ms=cutoff_ms)]
        lease.check()
        report = log.store.delete_many(paths)
    if report.failed:
        _LOG.warning(
            "%d files of the Iceberg entry stay until the next VACUUM: %s: %s",
            len(report.failed), *report.failed[0], extra={"table": log.uri},
        )  # fmt: skip
    return report.deleted
