"""Bring the twin and the native entry of a table to its newest version."""

from __future__ import annotations

from contextlib import suppress

from catalog_sync.errors import NotOursError
from catalog_sync.native import native_location, sync_entries
from catalog_sync.removal import drop_twin
from catalog_sync.sync import SyncOptions, SyncResult
from catalog_sync.targets import Target, spark_scheme
from catalog_sync.thrift.client import Metastore
from pydelta.errors import TableNotFoundError
from pydelta.storage import normalize_uri

__all__ = ["sync_target"]


def sync_target(metastore: Metastore, target: Target, how: SyncOptions) -> tuple[SyncResult, bool]:
    """Sync a table's twin and its own entry.

    One that was found by its own entry, and was dropped or renamed since, gets neither back.

    Returns:
        What was done for the twin, and whether the table's own entry was changed.

    Raises:
        TableNotFoundError: The entry is gone, or stands for another table now.
        Others as ``sync_entries``.
    """
    if target.registered:
        _refuse_gone(metastore, target)  # a list of many tables is old when its last one comes
    create = not target.registered
    result, changed = sync_entries(target.log, metastore, target.native, target.twin, how, create=create)
    if target.registered and result.manifests is not None:  # whoever drops a table looks for a twin after that
        try:
            _refuse_gone(metastore, target)
        except TableNotFoundError:
            with suppress(TableNotFoundError, NotOursError):
                drop_twin(metastore, target.twin, location=target.log.uri, options=target.log.options)
            raise
    return result, changed


def _refuse_gone(metastore: Metastore, target: Target) -> None:
    assert target.native is not None
    entry = metastore.table(target.native.database, target.native.name)
    location = native_location(entry) if entry is not None else None
    if location is None or normalize_uri(spark_scheme(location)) != target.log.uri:
        raise TableNotFoundError(
            f"{target.native} was dropped, renamed or moved since it was looked up; its twin was not made again.",
            hint="There is nothing left to do for it under this name.",
            table=target.log.uri,
        )
