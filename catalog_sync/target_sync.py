"""Bring the twin and the native entry of a table to its newest version."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from catalog_sync.errors import MetastoreUnavailableError, NotOursError
from catalog_sync.native import native_location, sync_native, update_native
from catalog_sync.removal import drop_twin
from catalog_sync.sync import SyncOptions, SyncResult, sync_table
from catalog_sync.targets import SyncTarget, is_left_out, spark_scheme
from catalog_sync.thrift.client import Metastore
from pydelta.errors import DeltaError, TableNotFoundError
from pydelta.log import Snapshot
from pydelta.storage import normalize_uri

__all__ = ["sync_target"]


def sync_target(
    metastore: Metastore, target: SyncTarget, how: SyncOptions, *, snapshot: Snapshot | None = None
) -> tuple[SyncResult, bool]:
    """Bring a table's twin and its own entry to its newest version. If one of them fails, the other is still synced.

    A table that was found by its own entry gets neither entry back if it has been dropped or renamed since. A table
    whose property excludes it from syncing gets no twin, and loses one that it has.

    Args:
        metastore: Metastore of the entries.
        target: Table to sync.
        how: The options of a sync. With ``dry_run`` the table's own entry is not changed.
        snapshot: Newest snapshot, if the caller has just read it.

    Returns:
        The result for the twin, and whether the table's own entry was changed.

    Raises:
        TableNotFoundError: The entry is gone, or now belongs to another table.
        Others: As ``sync_table`` and ``sync_native``.
    """
    native, create = target.native, not target.registered
    if target.registered:  # A list of many tables may be outdated when its last one is reached.
        assert native is not None
        _refuse_gone(target, metastore.table(native.database, native.name))
    snapshot = target.log.update() if snapshot is None else snapshot
    if is_left_out(snapshot):
        return _leave_out(metastore, target, how, snapshot)
    result: SyncResult | None = None
    failed: DeltaError | None = None
    changed = False
    try:
        result = sync_table(target.log, metastore, target.twin, how, snapshot=snapshot)
    except (MetastoreUnavailableError, TableNotFoundError):
        raise
    except DeltaError as error:
        failed = error
    if native is not None and not how.dry_run:
        # Both are read again before the entry changes. A later commit may have changed it while the twin was synced,
        # and must not be undone. A concurrent DROP TABLE may have run before this twin existed.
        newest, entry = target.log.update(), metastore.table(native.database, native.name)
        changed = update_native(metastore, native, newest, entry, create=create)
        if target.registered and result is not None and result.manifests is not None:
            _refuse_gone_since(metastore, target, entry)
    if failed is not None:
        raise failed
    assert result is not None
    return result, changed


def _leave_out(
    metastore: Metastore, target: SyncTarget, how: SyncOptions, snapshot: Snapshot
) -> tuple[SyncResult, bool]:
    before, changed = len(metastore.calls), False
    with suppress(TableNotFoundError, NotOursError):  # There is no twin of this table.
        drop_twin(metastore, target.twin, location=target.log.uri, dry_run=how.dry_run, options=target.log.options)
    if target.native is not None and not how.dry_run:
        changed = sync_native(metastore, target.native, snapshot, create=not target.registered)
    calls = len(metastore.calls) - before
    return SyncResult(twin=target.twin, version=snapshot.version, calls=calls, left_out=True), changed


def _refuse_gone_since(metastore: Metastore, target: SyncTarget, entry: Any) -> None:
    """Drop the twin again if the table's own entry was dropped while the twin was made."""
    try:
        _refuse_gone(target, entry)
    except TableNotFoundError:
        with suppress(TableNotFoundError, NotOursError):
            drop_twin(metastore, target.twin, location=target.log.uri, options=target.log.options)
        raise


def _refuse_gone(target: SyncTarget, entry: Any) -> None:
    location = native_location(entry) if entry is not None else None
    if location is None or normalize_uri(spark_scheme(location)) != target.log.uri:
        raise TableNotFoundError(
            f"{target.native} was dropped, renamed or moved since it was looked up; its twin was not created again.",
            hint="There is nothing left to do for it under this name.",
            table=target.log.uri,
        )
