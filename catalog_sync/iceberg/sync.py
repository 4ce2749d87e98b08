"""Publish a table's Iceberg metadata, and move its entry in the metastore to it.

::

    entry already at that version? -> one call, done
    publish the metadata in the table's folder          readers of the metastore still see the old one
        -> the twin's lease, the metastore's lock -> read the entry again -> is it ours, unmoved, and older?
           -> one change of metadata_location, which the metastore refuses if another writer was faster
A crash leaves the old metadata in the entry, and the next run moves it. A lost race starts again at "read the entry".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from catalog_sync.errors import MetastoreError, MetastoreUnavailableError
from catalog_sync.iceberg.columns import hive_columns
from catalog_sync.iceberg.entry import (
    METADATA_KEY,
    WantedIceberg,
    asks_for_iceberg,
    check_iceberg_ours,
    found_iceberg,
    iceberg_entry,
    metadata_number,
    same_columns,
)
from catalog_sync.iceberg.publishing import published_iceberg
from catalog_sync.inputs import SyncOptions
from catalog_sync.names import TableName
from catalog_sync.thrift.client import Metastore
from catalog_sync.thrift.locks import table_lock
from pydelta.errors import TableNotFoundError
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests import TWIN, holding
from pydelta.manifests.iceberg.metadata import metadata_path
from pydelta.manifests.native_entry import columns_to_keep_first
from pydelta.protocol.malformed import MALFORMED_JSON

__all__ = ["IcebergResult", "sync_iceberg"]

_TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergResult:
    """The changes that a sync made to an Iceberg entry, or with ``dry_run`` would make.

    Args:
        name: Name of the entry.
        version: Delta version that readers of the entry now see, or None if it has none.
        previous: Version that the entry had before, or None if it had none.
        metadata: URI of the Iceberg metadata in the entry.
        full: Whether all metadata was written again.
        reason: Reason for that, as a phrase.
        manifests_written: Number of written Iceberg manifests.
        files_added: Number of data files that became visible.
        files_removed: Number of data files that disappeared.
        delete_files: Number of written files of hidden rows.
        calls: Number of Thrift calls.
        stopped: Whether the entry is there, but the table's property or the option says not to sync it.
    """

    name: TableName
    version: int | None
    previous: int | None = None
    metadata: str | None = None
    full: bool = False
    reason: str | None = None
    manifests_written: int = 0
    files_added: int = 0
    files_removed: int = 0
    delete_files: int = 0
    calls: int = 0
    stopped: bool = False

    @property
    def is_changed(self) -> bool:
        """Whether the entry was moved."""
        return not self.stopped and (self.previous != self.version or self.full)


def sync_iceberg(
    log: DeltaLog,
    metastore: Metastore,
    name: TableName,
    options: SyncOptions | None = None,
    *,
    iceberg: bool | None = None,
    snapshot: Snapshot | None = None,
) -> IcebergResult | None:
    """Bring a table's Iceberg entry to its newest version.

    Args:
        log: Log of the table.
        metastore: Metastore of the entry.
        name: Name of the entry.
        options: The options of a sync; ``dry_run``, ``full``, ``adopt``, ``schemes`` and the waiting times are used.
        iceberg: True makes a missing entry, and False leaves an existing one alone. None does what the table's property
            says, and without it syncs an existing entry.
        snapshot: Newest snapshot, if the caller has just read it.

    Returns:
        The result, or None if the table has no entry and asks for none.

    Raises:
        TableNotFoundError: There is no table.
        UnsupportedFeatureError, SchemaError: Iceberg lacks some of the table's types. Nothing was changed.
        NotOursError, IcebergDriftError: The entry is another program's, or another writer has moved it. Nothing was
            changed.
        DeltaEnvironmentError: The extra ``iceberg`` is not installed.
        MetastoreUnavailableError, MetastoreError, StorageError: The sync stopped. The next one continues it.
    """
    options = options or SyncOptions()
    before = len(metastore.calls)
    snapshot = log.update() if snapshot is None else snapshot
    if snapshot.version < 0 or snapshot.metadata is None:
        raise TableNotFoundError.at(log.uri)
    wanted = asks_for_iceberg(snapshot) if iceberg is None else iceberg
    entry = metastore.table(name.database, name.name)
    if entry is None and not wanted:
        return None
    found = found_iceberg(entry) if entry is not None else None
    previous = found.version if found is not None else None
    if wanted is False:
        calls = len(metastore.calls) - before
        return IcebergResult(name=name, version=previous, previous=previous, calls=calls, stopped=True)
    owner = (snapshot.table_uri, snapshot.metadata.id)
    if entry is not None:
        check_iceberg_ours(owner, entry, str(name), adopt=options.adopt)
    is_there = found is not None and (found.table, found.table_id, found.version) == (*owner, snapshot.version)
    if is_there and found is not None and not found.has_drifted and not options.full:
        calls = len(metastore.calls) - before
        return IcebergResult(name=name, version=previous, previous=previous, metadata=found.metadata, calls=calls)
    if options.dry_run:
        calls = len(metastore.calls) - before
        return IcebergResult(name=name, version=snapshot.version, previous=previous, calls=calls)
    published = published_iceberg(log, options)
    with holding(log, TWIN, wait_seconds=options.patience()) as lease:
        assert lease is not None
        lease.check()
        moved = _move(log, metastore, name, options, published.entry)
    return IcebergResult(
        name=name,
        version=moved.version,
        previous=previous,
        metadata=moved.metadata,
        full=published.full,
        reason=published.reason,
        manifests_written=published.manifests_written,
        files_added=published.files_added,
        files_removed=published.files_removed,
        delete_files=published.delete_files,
        calls=len(metastore.calls) - before,
    )


def _move(log: DeltaLog, metastore: Metastore, name: TableName, options: SyncOptions, published: Any) -> WantedIceberg:
    """Move the entry to published metadata, unless it is already there or further.

    Returns:
        The entry that the metastore now has.
    """
    current: WantedIceberg | None = None
    with table_lock(metastore, name.database, name.name, wait_seconds=options.patience()):
        for attempt in range(_TRIES):
            entry = metastore.table(name.database, name.name)
            if current is None:
                current = _wanted(log, published)
            if entry is not None:
                check_iceberg_ours((current.table, current.table_id), entry, str(name), adopt=options.adopt)
                further = _not_behind(log, entry, current, published.number)
                if further is not None:
                    return further
            try:
                _change(metastore, name, current, entry)
                return current
            except MetastoreUnavailableError:
                raise
            except MetastoreError:
                after = metastore.table(name.database, name.name)
                is_same = (entry is None) == (after is None) and (
                    after is None or found_iceberg(after).metadata == found_iceberg(entry).metadata
                )
                if is_same or attempt == _TRIES - 1:  # It was not a lost race.
                    raise
    raise AssertionError("the last attempt returns or raises")


def _wanted(log: DeltaLog, published: Any) -> WantedIceberg:
    metadata = _read(log, published.number)
    snapshot = log.update()
    return WantedIceberg(
        table=log.uri,
        table_id=published.table_id,
        version=published.version,
        metadata=published.metadata_location,
        columns=hive_columns(metadata),
        comment=snapshot.metadata.description if snapshot.metadata is not None else None,
    )


def _read(log: DeltaLog, number: int) -> Mapping[str, Any]:
    path = metadata_path(number)
    try:
        found: Mapping[str, Any] = msgspec.json.decode(log.store.read(path))
    except MALFORMED_JSON as error:
        raise MetastoreError(
            f"{log.uri}/{path} is not Iceberg metadata: {error}.", hint="Write it again: catalog_sync sync --full"
        ) from error
    return found


def _not_behind(log: DeltaLog, entry: Any, wanted: WantedIceberg, number: int) -> WantedIceberg | None:
    """Return what the entry has if it must not be moved to ``wanted``, which would take it back."""
    found = found_iceberg(entry)
    if found.has_drifted or found.table_id != wanted.table_id or found.version is None:
        return None
    there = metadata_number(found.metadata, wanted.table)
    if there is None or there < number or (there > number and log.store.head(metadata_path(there)) is None):
        return None
    if there == number and not same_columns(entry, wanted.columns):
        return None
    assert found.metadata is not None
    return WantedIceberg(table=wanted.table, table_id=wanted.table_id, version=found.version, metadata=found.metadata)


def _change(metastore: Metastore, name: TableName, wanted: WantedIceberg, entry: Any) -> None:
    """Create the entry, or move it in one change that fails if another writer was faster."""
    fresh = iceberg_entry(wanted, name.database, name.name, before=entry)
    if entry is None:
        _create(metastore, name, fresh, wanted)
        return
    at = found_iceberg(entry).metadata
    expected = (METADATA_KEY, at) if at is not None else None
    unsettled = metastore.unsettled
    try:
        metastore.alter(fresh, expected=expected)
    except MetastoreUnavailableError:
        raise
    except MetastoreError:
        kinds = [[column.type for column in item.sd.cols] for item in (entry, fresh)]
        first = columns_to_keep_first(*kinds)
        after = metastore.table(name.database, name.name)
        if first is None or after is None or found_iceberg(after).metadata != at:
            raise
        # The metastore compares types by position, and refuses some changes. Readers of Iceberg take the columns from
        # the metadata: so the entry moves with fewer columns, and gets the others afterwards.
        all_columns, fresh.sd.cols = fresh.sd.cols, entry.sd.cols[:first]
        metastore.alter(fresh, expected=expected)
        fresh.sd.cols = all_columns
        metastore.alter(fresh, expected=(METADATA_KEY, wanted.metadata))
    finally:
        metastore.unsettled = unsettled  # A late change is conditional, and takes nothing back.


def _create(metastore: Metastore, name: TableName, fresh: Any, wanted: WantedIceberg) -> None:
    try:
        metastore.create(fresh)
    except MetastoreError:
        if metastore.database_exists(name.database):
            raise
        metastore.create_database(name.database, f"{wanted.table.rpartition('/')[0]}/{name.database}")
        metastore.create(fresh)
