"""Drop snapshots whose data files VACUUM is about to delete, then find the files of the entry that nothing refers to.

VACUUM drops snapshots first, so that no reader is given one whose files are gone, and deletes files afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pydelta.log import DeltaLog
from pydelta.manifests.iceberg.entry import Found, IcebergEntry, IcebergOptions, find_newest
from pydelta.manifests.iceberg.manifests import decode_list, decode_manifest
from pydelta.manifests.iceberg.metadata import (
    FOLDER,
    HINT_PATH,
    current_snapshot,
    encoded,
    is_ours,
    metadata_path,
    snapshot_version,
    without_snapshots,
)
from pydelta.manifests.iceberg.publish import known_specs, move_hint, publish_iceberg, put_metadata
from pydelta.manifests.lease import ICEBERG, ManifestsBusyError
from pydelta.manifests.publish import holding
from pydelta.settings.clock import epoch_ms
from pydelta.storage import ObjectInfo

__all__ = ["ExpireResult", "expire_snapshots", "unreferenced_files"]

_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireResult:
    """The result of dropping snapshots.

    Args:
        entry: The entry's present state, or None if the table has none, or another writer changed it.
        dropped: Delta versions whose snapshots were dropped.
        published: Whether the newest version was published first, because the current snapshot had to go.
    """

    entry: IcebergEntry | None
    dropped: tuple[int, ...] = ()
    published: bool = False


def expire_snapshots(
    log: DeltaLog, *, is_retained: Callable[[int], bool], options: IcebergOptions | None = None
) -> ExpireResult:
    """Drop the snapshots of versions whose files may be deleted. One of such a version is replaced by the newest.

    Args:
        log: Log of the table.
        is_retained: Returns whether every file of a version stays: it is the newest, or the version after it was
            committed at or after VACUUM's cutoff.
        options: The options of publishing.

    Raises:
        UnsafeOperationError: Another writer changed the entry while it had to be published.
        ManifestsBusyError, LeaseLostError: Another process publishes; try again.
        StorageError: The store failed; try again before any file is deleted.
    """
    options = options or IcebergOptions()
    found = find_newest(log.store)
    if found is None or not is_ours(found.metadata):
        return ExpireResult(entry=None)
    published = False
    if not _is_retained(found, is_retained):
        publish_iceberg(log, options)
        published = True
    for _ in range(_ATTEMPTS):
        found = find_newest(log.store)
        if found is None or not is_ours(found.metadata):
            return ExpireResult(entry=None, published=published)
        if _without(found, is_retained, options) is None:
            return ExpireResult(entry=_entry(found), published=published)
        result = _expire(log, is_retained, options)
        if result is not None:
            return ExpireResult(entry=result.entry, dropped=result.dropped, published=published)
    raise ManifestsBusyError(
        f"Other publishers of the Iceberg entry were faster {_ATTEMPTS} times.",
        retryable=True,
        hint="Run it again.",
        table=log.uri,
    )


def _expire(log: DeltaLog, is_retained: Callable[[int], bool], options: IcebergOptions) -> ExpireResult | None:
    """Drop snapshots under the lease. Returns None if another publisher was faster."""
    with holding(log, ICEBERG, wait_seconds=options.wait_seconds) as lease:
        assert lease is not None, "nobody else can drop them"
        found = find_newest(log.store)
        after = None if found is None or not is_ours(found.metadata) else _without(found, is_retained, options)
        if found is None or after is None:
            return None
        number = found.number + 1
        if not put_metadata(log.store, number, encoded(after), lease):
            return None
        move_hint(log.store, number, lease)
        left = {item["snapshot-id"] for item in after["snapshots"]}
        gone = [item for item in found.metadata["snapshots"] if item["snapshot-id"] not in left]
        versions = [version for item in gone if (version := snapshot_version(item)) is not None]
        now = Found(number=number, metadata=after, data=b"", hint=number)
        return ExpireResult(entry=_entry(now), dropped=tuple(versions))


def _entry(found: Found) -> IcebergEntry:
    return found.entry(f"{found.metadata['location']}/metadata/v{found.number}.metadata.json")


def _is_retained(found: Found, is_retained: Callable[[int], bool]) -> bool:
    snapshot = current_snapshot(found.metadata)
    version = snapshot_version(snapshot) if snapshot is not None else None
    return version is not None and is_retained(version)


def _without(found: Found, is_retained: Callable[[int], bool], options: IcebergOptions) -> dict[str, Any] | None:
    return without_snapshots(
        found.metadata,
        lambda version: version is not None and is_retained(version),
        now_ms=epoch_ms(),
        previous_location=f"{found.metadata['location']}/metadata/v{found.number}.metadata.json",
        keep=options.keep_snapshots,
    )


def unreferenced_files(log: DeltaLog, *, older_than_ms: int) -> list[ObjectInfo]:
    """List files of the entry's folder that the newest metadata does not refer to. Data files are never among them.

    Args:
        log: Log of the table.
        older_than_ms: Files modified at or after this time, epoch milliseconds, are left out: a publisher may be about
            to refer to them.

    Raises:
        LogCorruptedError: The newest metadata file is damaged.
        StorageError: The store failed.
    """
    # The folder is listed before the metadata is read, so that a file of a later publication is not in the list.
    listed = [info for info in log.store.list_all(FOLDER) if info.modification_time_ms < older_than_ms]
    found = find_newest(log.store)
    if found is None or not is_ours(found.metadata):
        return []
    needed = _referenced(log, found)
    return [info for info in listed if info.path not in needed]


def _referenced(log: DeltaLog, found: Found) -> set[str]:
    """Return the paths of the files that the newest metadata refers to."""
    root = f"{found.metadata['location'].removesuffix(FOLDER)}"
    needed = {HINT_PATH, metadata_path(found.number), metadata_path(found.number + 1)}
    for item in found.metadata["metadata-log"]:
        needed.add(item["metadata-file"].removeprefix(root))
    specs = known_specs(found.metadata)
    seen: set[str] = set()
    for snapshot in found.metadata["snapshots"]:
        listed = snapshot["manifest-list"].removeprefix(root)
        needed.add(listed)
        for manifest in decode_list(log.store.read(listed)):
            path = manifest.manifest_path.removeprefix(root)
            if path in seen:
                continue
            seen.add(path)
            if manifest.content:
                spec, schema = specs[manifest.partition_spec_id]
                entries = decode_manifest(log.store.read(path), manifest, spec=spec, schema=schema)
                needed |= {entry.path.removeprefix(root) for entry in entries}
    return needed | seen
