"""Compare a table with its Iceberg entry: which version readers of Iceberg see, and whose metadata it is."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from catalog_sync.errors import NotOursError
from catalog_sync.iceberg.entry import (
    FoundIceberg,
    IcebergDriftError,
    asks_for_iceberg,
    check_iceberg_ours,
    found_iceberg,
    metadata_number,
)
from catalog_sync.iceberg.publishing import why_drifted, why_refused
from catalog_sync.names import TableName
from catalog_sync.thrift.client import Metastore
from pydelta.log import DeltaLog, Snapshot

__all__ = ["IcebergState", "IcebergStatus", "iceberg_status"]


class IcebergState(enum.Enum):
    """The state of an Iceberg entry as its readers see it."""

    CURRENT = "current"
    BEHIND = "behind"
    NOT_SYNCED = "not synced"
    """The table asks for an entry, and has none yet."""
    BLOCKED = "blocked"
    """Iceberg lacks a type of the newest version, so readers see an older one until a user acts."""
    DRIFT = "drift"
    """Another writer has committed to the entry."""
    NOT_OURS = "not ours"
    """The entry belongs to another program, another table, or an earlier table at the location."""
    STOPPED = "stopped"
    """The table's property stops the sync, and the entry is still there."""
    NO_TABLE = "no table"
    """There is no longer a Delta table at the location."""

    @property
    def is_bad(self) -> bool:
        """Whether a user has to act."""
        return self in (IcebergState.BLOCKED, IcebergState.DRIFT, IcebergState.NOT_OURS, IcebergState.NO_TABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergStatus:
    """The state of a table's Iceberg entry.

    Args:
        name: Name of the entry.
        state: State of the entry.
        version: Delta version that its readers see, or None if that is not known.
        lag_versions: Versions that it is behind, or None without a version.
        lag_seconds: Age of the oldest version that its readers do not see yet, or 0 if they see all.
        metadata: Its current ``metadata_location``.
        problem: Why the state is not good, and what to do. None if it is.
    """

    name: str
    state: IcebergState
    version: int | None = None
    lag_versions: int | None = None
    lag_seconds: float | None = None
    metadata: str | None = None
    problem: str | None = None


def iceberg_status(
    log: DeltaLog, metastore: Metastore, name: TableName, *, now_ms: int, snapshot: Snapshot | None = None
) -> IcebergStatus | None:
    """Compare the versions. Takes one metastore call and the log.

    Args:
        log: Log of the table.
        metastore: Metastore of the entry.
        name: Name of the entry.
        now_ms: Current time.
        snapshot: Newest snapshot, if the caller has just read it.

    Returns:
        The state, or None if the table has no entry and asks for none.

    Raises:
        StorageError, MetastoreError: The store or the metastore does not answer.
    """
    snapshot = log.update() if snapshot is None else snapshot
    entry = metastore.table(name.database, name.name)
    asks = asks_for_iceberg(snapshot)
    if entry is None:
        if not asks:
            return None
        refused = why_refused(log, snapshot)
        state = IcebergState.NOT_SYNCED if refused is None else IcebergState.BLOCKED
        return IcebergStatus(name=str(name), state=state, problem=refused)
    found = found_iceberg(entry)
    if snapshot.version < 0 or snapshot.metadata is None:
        state, problem = IcebergState.NO_TABLE, f"there is no Delta table; catalog_sync drop {name} removes the entry"
        return IcebergStatus(name=str(name), state=state, version=found.version, problem=problem)
    try:
        check_iceberg_ours((snapshot.table_uri, snapshot.metadata.id), entry, str(name), adopt=False)
    except IcebergDriftError as error:
        return _told(name, IcebergState.DRIFT, found, f"{error.message} {error.hint}")
    except NotOursError as error:
        return _told(name, IcebergState.NOT_OURS, found, f"{error.message} {error.hint}")
    lag = snapshot.version - found.version if found.version is not None else None
    if asks is False:
        problem = f"the table's property stops the sync, and its readers see version {found.version}; "
        return _told(name, IcebergState.STOPPED, found, f"{problem}catalog_sync drop {name} removes the entry", lag)
    if lag != 0 and (drifted := why_drifted(log)) is not None:
        return _told(name, IcebergState.DRIFT, found, drifted, lag)
    waiting = None
    if lag is not None:
        late = log.history(limit=lag) if lag > 0 else []
        waiting = max((now_ms - late[-1].timestamp_ms) / 1000, 0.0) if late else 0.0
    number = metadata_number(found.metadata, snapshot.table_uri)
    refused = why_refused(log, snapshot) if lag else None
    state = IcebergState.CURRENT
    if refused is not None:
        state = IcebergState.BLOCKED
    elif lag is None or number is None or lag != 0:
        state = IcebergState.BEHIND
    return IcebergStatus(
        name=str(name),
        state=state,
        version=found.version,
        lag_versions=lag,
        lag_seconds=waiting,
        metadata=found.metadata,
        problem=refused,
    )


def _told(
    name: TableName, state: IcebergState, found: FoundIceberg, problem: str, lag: int | None = None
) -> IcebergStatus:
    version = None if state is IcebergState.NOT_OURS else found.version
    return IcebergStatus(
        name=str(name), state=state, version=version, lag_versions=lag, metadata=found.metadata, problem=problem
    )
