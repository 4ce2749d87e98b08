"""Bring all entries of a table to its newest version: its own, its twin and its Iceberg entry.

One that cannot be synced does not stop the others: a table with hidden rows has no twin, one with a variant column has
no Iceberg entry.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from catalog_sync.errors import MetastoreUnavailableError, NotOursError
from catalog_sync.iceberg.entry import IcebergDriftError, asks_for_iceberg
from catalog_sync.iceberg.sync import IcebergResult, sync_iceberg
from catalog_sync.names import TableName, iceberg_name
from catalog_sync.native import native_location
from catalog_sync.removal import drop_twin
from catalog_sync.sync import SyncOptions, SyncResult
from catalog_sync.target_sync import sync_target
from catalog_sync.targets import SyncTarget, is_left_out, spark_scheme
from catalog_sync.thrift.client import Metastore
from pydelta.errors import DeltaError, InvalidArgumentError, TableNotFoundError
from pydelta.log import Snapshot
from pydelta.storage import normalize_uri

__all__ = ["SyncedEntries", "iceberg_of", "sync_entries", "sync_iceberg_target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedEntries:
    """The results for the entries of a table.

    Args:
        twin: Result for the twin, or None if it failed.
        twin_error: Why it failed.
        native_changed: Whether the table's own entry was changed.
        iceberg: Result for the Iceberg entry, or None if it failed, or if there is none and none was asked for.
        iceberg_error: Why it failed.
    """

    twin: SyncResult | None = None
    twin_error: DeltaError | None = None
    native_changed: bool = False
    iceberg: IcebergResult | None = None
    iceberg_error: DeltaError | None = None

    def check(self) -> SyncResult:
        """Raise the first error, or return the result for the twin."""
        error = self.twin_error or self.iceberg_error
        if error is not None:
            raise error
        assert self.twin is not None
        return self.twin


def iceberg_of(target: SyncTarget) -> TableName | None:
    """Return the name of a table's Iceberg entry, or None if the table's own name is not known.

    Raises:
        InvalidArgumentError: The naming rule gives the table's own database.
    """
    return iceberg_name(target.native, target.log.settings.sync_iceberg_name) if target.native is not None else None


def sync_entries(
    metastore: Metastore,
    target: SyncTarget,
    how: SyncOptions,
    *,
    iceberg: bool | None = None,
    snapshot: Snapshot | None = None,
) -> SyncedEntries:
    """Bring all entries of a table to its newest version.

    Args:
        metastore: Metastore of the entries.
        target: Table to sync.
        how: The options of a sync.
        iceberg: Whether the table has an Iceberg entry, as in ``sync_iceberg``.
        snapshot: Newest snapshot, if the caller has just read it.

    Raises:
        TableNotFoundError: The table's own entry is gone, or now belongs to another table.
        MetastoreUnavailableError: The metastore does not answer.
    """
    twin, twin_error, changed = None, None, False
    try:
        twin, changed = sync_target(metastore, target, how, snapshot=snapshot)
    except (MetastoreUnavailableError, TableNotFoundError):
        raise
    except DeltaError as error:
        twin_error = error
    try:
        found = sync_iceberg_target(metastore, target, how, iceberg=iceberg, snapshot=snapshot)
    except DeltaError as error:
        return SyncedEntries(twin=twin, twin_error=twin_error, native_changed=changed, iceberg_error=error)
    return SyncedEntries(twin=twin, twin_error=twin_error, native_changed=changed, iceberg=found)


def sync_iceberg_target(
    metastore: Metastore,
    target: SyncTarget,
    how: SyncOptions,
    *,
    iceberg: bool | None = None,
    snapshot: Snapshot | None = None,
) -> IcebergResult | None:
    """Bring a table's Iceberg entry to its newest version, see ``sync_iceberg``.

    A table whose property ``pydelta.sync.enabled`` is ``false`` loses the entry together with its twin, unless its
    property ``pydelta.sync.iceberg`` or the caller asks for it.

    Raises:
        InvalidArgumentError: The entry was asked for, but the table's own name is not known.
        TableNotFoundError: The table was dropped while its entry was made; the entry was dropped again.
        Others: As ``sync_iceberg``.
    """
    name = iceberg_of(target)
    if name is None:
        if iceberg:
            raise InvalidArgumentError(
                f"The name of {target.log.uri} in the metastore is not known.",
                hint="Give --entry database.name: the Iceberg entry is named after it.",
            )
        return None
    snapshot = target.log.update() if snapshot is None else snapshot
    if is_left_out(snapshot) and iceberg is None and not asks_for_iceberg(snapshot):
        with suppress(TableNotFoundError, NotOursError, IcebergDriftError):  # There is no entry of ours.
            drop_twin(metastore, name, location=target.log.uri, dry_run=how.dry_run, options=target.log.options)
        return None
    result = sync_iceberg(target.log, metastore, name, how, iceberg=iceberg, snapshot=snapshot)
    if target.registered and result is not None and result.previous is None and not how.dry_run:
        _refuse_gone_since(metastore, target, name)
    return result


def _refuse_gone_since(metastore: Metastore, target: SyncTarget, name: TableName) -> None:
    """Drop a new Iceberg entry again if the table's own entry was dropped while it was made."""
    native = target.native
    assert native is not None
    entry = metastore.table(native.database, native.name)
    location = native_location(entry) if entry is not None else None
    if location is not None and normalize_uri(spark_scheme(location)) == target.log.uri:
        return
    with suppress(TableNotFoundError, NotOursError):
        drop_twin(metastore, name, location=target.log.uri, options=target.log.options)
    raise TableNotFoundError(
        f"{native} was dropped, renamed or moved while {name} was made, which was dropped again.",
        hint="There is nothing left to do for it under this name.",
        table=target.log.uri,
    )
