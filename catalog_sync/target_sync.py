"""Bring the twin and the native entry of a table to its newest version."""

from __future__ import annotations

from contextlib import suppress

from catalog_sync.diff import SyncPlan
from catalog_sync.errors import NotOursError
from catalog_sync.native import native_location, sync_entries, sync_native
from catalog_sync.removal import drop_twin
from catalog_sync.sync import SyncOptions, SyncResult
from catalog_sync.targets import SyncTarget, is_left_out, spark_scheme
from catalog_sync.thrift.client import Metastore
from pydelta.errors import TableNotFoundError
from pydelta.storage import normalize_uri

__all__ = ["sync_target"]


def sync_target(metastore: Metastore, target: SyncTarget, how: SyncOptions) -> tuple[SyncResult, bool]:
    """Sync a table's twin and its own entry.

    One that was found by its own entry, and was dropped or renamed since, gets neither back. One whose property says
    that it has no twin gets none, and loses the one that it had.

    Returns:
        What was done for the twin, and whether the table's own entry was changed.

    Raises:
        TableNotFoundError: The entry is gone, or stands for another table now.
        Others as ``sync_entries``.
    """
    if target.registered:
        _refuse_gone(metastore, target)  # a list of many tables is old when its last one comes
    create = not target.registered
    if is_left_out(target.log.update()):
        return _leave_out(metastore, target, how, create=create)
    result, changed = sync_entries(target.log, metastore, target.native, target.twin, how, create=create)
    if target.registered and result.manifests is not None:  # whoever drops a table looks for a twin after that
        try:
            _refuse_gone(metastore, target)
        except TableNotFoundError:
            with suppress(TableNotFoundError, NotOursError):
                drop_twin(metastore, target.twin, location=target.log.uri, options=target.log.options)
            raise
    return result, changed


def _leave_out(metastore: Metastore, target: SyncTarget, how: SyncOptions, *, create: bool) -> tuple[SyncResult, bool]:
    before, snapshot, changed = len(metastore.calls), target.log.update(), False
    with suppress(TableNotFoundError, NotOursError):  # no twin, or an entry of that name that is not this table's
        drop_twin(metastore, target.twin, location=target.log.uri, dry_run=how.dry_run, options=target.log.options)
    if target.native is not None and not how.dry_run:
        changed = sync_native(metastore, target.native, snapshot, create=create)
    calls = len(metastore.calls) - before
    version = snapshot.version
    return (
        SyncResult(
            twin=target.twin,
            version=version,
            previous=None,
            plan=SyncPlan(),
            manifests=None,
            calls=calls,
            left_out=True,
        ),
        changed,
    )


def _refuse_gone(metastore: Metastore, target: SyncTarget) -> None:
    assert target.native is not None
    entry = metastore.table(target.native.database, target.native.name)
    location = native_location(entry) if entry is not None else None
    if location is None or normalize_uri(spark_scheme(location)) != target.log.uri:
        raise TableNotFoundError(
            f"{target.native} was dropped, renamed or moved since it was looked up; its twin was not made again.",
            hint="There is nothing left to do for it under this name.",
            table=target.log.uri,
        )
