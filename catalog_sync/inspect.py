"""Compare a table with its metastore entry and manifests: their lag, their correctness and the first rows."""

from __future__ import annotations

import enum
import io
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from catalog_sync.diff import SyncPlan, compare_partitions, has_columns_of, is_partitioned_alike
from catalog_sync.errors import PartitionTooLongError
from catalog_sync.inputs import is_atomic
from catalog_sync.limits import check_partitions
from catalog_sync.names import TableName
from catalog_sync.sync import partitions_of
from catalog_sync.targets import is_left_out
from catalog_sync.thrift.client import Metastore, found_table
from catalog_sync.twin import ID_KEY, LOCATION_KEY, WITHDRAWN_KEY, twin_of
from pydelta.errors import InvalidArgumentError, ObjectNotFoundError, SchemaError, UnsupportedFeatureError
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests import ManifestReport, ManifestState, manifests_of, read_state, verify_manifests
from pydelta.manifests.contents import MANIFEST_NAME, manifest_lines, manifest_path, refuse_vectors
from pydelta.settings import Settings
from pydelta.storage import open_store

__all__ = ["SyncReport", "SyncState", "SyncStatus", "preview", "sync_status", "verify_sync"]

_READERS: Final = 16

_WITHDRAWN: Final = "(The twin is withdrawn: Trino and Presto show this error instead of old rows.)"


class SyncState(enum.Enum):
    """The state of the twin as its readers see it."""

    CURRENT = "current"
    BEHIND = "behind"
    NOT_SYNCED = "not synced"
    BLOCKED = "blocked"
    """The twin shows an older version, or older columns, until a user acts."""
    LEFT_OUT = "left out"
    """The table's property says that it has no twin."""
    NO_TABLE = "no table"
    """There is no longer a Delta table at the location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStatus:
    """The versions and the state of a table, its manifests and its twin.

    Args:
        table: Location.
        twin: Name of the entry.
        state: State of the twin.
        table_version: Newest version, or None without a table.
        manifest_version: Version that every manifest has at least, or None if none is published.
        newest_manifest: Version of the latest manifest.
        metastore_version: Version of the entry, or None without an entry of this table.
        lag_versions: Versions that the older of the two is behind, or None if one of them has no version.
        lag_seconds: Age of the oldest version that readers do not see yet, or 0 if they see all.
        partitions: Number of partitions with a manifest.
        problem: Why the newest version cannot be published, or its columns are not in the metastore. None if it can.
    """

    table: str
    twin: str
    state: SyncState
    table_version: int | None
    manifest_version: int | None
    newest_manifest: int | None
    metastore_version: int | None
    lag_versions: int | None
    lag_seconds: float | None
    partitions: int
    problem: str | None = None


def sync_status(log: DeltaLog, metastore: Metastore, twin: TableName, *, now_ms: int) -> SyncStatus:
    """Compare the versions. Takes one metastore call, one small file and the log.

    Raises:
        StorageError, MetastoreError: The store or the metastore does not answer.
    """
    snapshot = log.update()
    state = read_state(log.store)
    entry = metastore.table(twin.database, twin.name)
    synced = None
    is_withdrawn = False
    if entry is not None:
        found = found_table(entry)
        is_withdrawn = WITHDRAWN_KEY in found.parameters
        if found.parameters.get(LOCATION_KEY) == log.uri:
            synced = found.version
    published = state.version if state is not None else None
    exists = snapshot.version >= 0
    seen = None if synced is None or published is None or not exists else min(synced, published)
    lag = None if seen is None else snapshot.version - seen
    waiting = None
    if lag is not None:
        late = log.history(limit=max(lag, 0)) if lag > 0 else []
        waiting = max((now_ms - late[-1].timestamp_ms) / 1000, 0.0) if late else 0.0
    problem = _problem(snapshot, entry, behind=lag != 0, settings=log.settings) if exists else None
    if not exists:
        said = SyncState.NO_TABLE
    elif is_left_out(snapshot):
        said, problem, lag, waiting = SyncState.LEFT_OUT, None, None, None
    elif problem is not None and synced is not None:
        said = SyncState.BLOCKED
    elif lag is None:
        said = SyncState.NOT_SYNCED
    else:
        said = SyncState.BEHIND if lag > 0 else SyncState.CURRENT
    return SyncStatus(
        table=log.uri,
        twin=str(twin),
        state=said,
        table_version=snapshot.version if exists else None,
        manifest_version=published,
        newest_manifest=state.spread()[1] if state is not None else None,
        metastore_version=synced,
        lag_versions=lag,
        lag_seconds=waiting,
        partitions=len(state.partitions) if state is not None else 0,
        problem=f"{problem} {_WITHDRAWN}" if problem and is_withdrawn else problem,
    )


def _problem(snapshot: Snapshot, entry: Any, *, behind: bool, settings: Settings) -> str | None:
    """Return why no sync can bring the twin to the table's state, or None if a sync can."""
    try:
        wanted = twin_of(snapshot)
        if behind:  # These checks read the list of all files.
            refuse_vectors(snapshot, snapshot.files.core)
            check_partitions(snapshot, value_length=settings.sync_partition_value_length)
    except (SchemaError, UnsupportedFeatureError, PartitionTooLongError) as error:
        return error.message
    found = found_table(entry) if entry is not None else None
    if found is not None and found.version == wanted.version and not has_columns_of(wanted, found):
        return f"the metastore refuses the columns of version {wanted.version}; catalog_sync sync names them"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """The errors found in manifests and metastore; ``ok`` if there are none.

    Args:
        manifests: Report on the manifests.
        entry: Errors of the entry itself, as phrases.
        missing_partitions: Published partitions that are not in the metastore.
        extra_partitions: Partitions in the metastore without a manifest.
        moved_partitions: Partitions whose location is not that of their manifest. If the twin is synced atomically,
            partitions whose location has a different manifest.
    """

    manifests: ManifestReport
    entry: tuple[str, ...] = ()
    missing_partitions: tuple[str, ...] = ()
    extra_partitions: tuple[str, ...] = ()
    moved_partitions: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether readers of the twin get the rows of the published version."""
        wrong = (self.entry, self.missing_partitions, self.extra_partitions, self.moved_partitions)
        return self.manifests.ok and not any(wrong)


def verify_sync(log: DeltaLog, metastore: Metastore, twin: TableName, *, files: int | None = None) -> SyncReport:
    """Compare manifests with the log, and the metastore with the manifests, partition by partition.

    Args:
        log: Log of the table.
        metastore: Metastore of the twin.
        twin: Name of the twin.
        files: Number of data files to look for in the store, or None for all.
    """
    manifests = verify_manifests(log, files=files)
    entry = metastore.table(twin.database, twin.name)
    if entry is None:
        return SyncReport(manifests=manifests, entry=(f"there is no entry {twin}",))
    state = read_state(log.store)
    if state is None:
        return SyncReport(manifests=manifests)
    snapshot = log.snapshot(version=state.version)
    wanted, found = twin_of(snapshot), found_table(entry)
    wrong = []
    if (found.parameters.get(LOCATION_KEY), found.parameters.get(ID_KEY)) != (wanted.table_location, wanted.table_id):
        wrong.append("it is the twin of another table")
    if found.location != wanted.location:
        wrong.append(f"its location is {found.location}, the manifests lie at {wanted.location}")
    if not has_columns_of(wanted, found):
        wrong.append("its columns are not those of the table")
    if not is_partitioned_alike(wanted, found):
        return SyncReport(manifests=manifests, entry=(*wrong, "its partition columns are not those of the table"))
    if found.version != state.version:
        wrong.append(f"it has version {found.version}, but the manifests have {state.version}")
    existing = partitions_of(metastore, twin, snapshot.partition_columns) if wanted.partition_columns else {}
    plan = compare_partitions(SyncPlan(), wanted, existing, state.live(), prune=True)
    moved = plan.move
    if is_atomic(found.parameters):
        moved = _read_otherwise(log, snapshot, state, {name: existing[name].location for name in plan.move})
    return SyncReport(
        manifests=manifests,
        entry=tuple(wrong),
        missing_partitions=plan.add,
        extra_partitions=plan.drop,
        moved_partitions=moved,
    )


def _read_otherwise(
    log: DeltaLog, snapshot: Snapshot, state: ManifestState, locations: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the partitions whose location does not hold their manifest as of the snapshot."""
    expected = manifests_of(snapshot, snapshot.files.core, schemes=state.schemes)
    root = f"{snapshot.table_uri}/"

    def differs(directory: str) -> bool:
        location = locations[directory]
        try:
            text = log.store.read(f"{location.removeprefix(root)}/{MANIFEST_NAME}")
        except ObjectNotFoundError:
            return True
        wanted = expected.get(directory)
        return not location.startswith(root) or text != (wanted.text if wanted is not None else b"")

    with ThreadPoolExecutor(_READERS) as pool:
        found = zip(locations, pool.map(differs, locations), strict=True)
        return tuple(sorted(directory for directory, wrong in found if wrong))


def preview(log: DeltaLog, directory: str = "", *, limit: int = 10) -> list[dict[str, Any]]:
    """Return the first rows that readers of a manifest get, by reading its files without an engine.

    Args:
        log: Log of the table.
        directory: Partition, ``day=2024-01-01``, or empty for an unpartitioned table.
        limit: Maximum number of rows.

    Raises:
        InvalidArgumentError: The partition has no manifest. The hint names some that do.
        ObjectNotFoundError: The manifest names a missing file.
    """
    import pyarrow.parquet as pq

    try:
        path = manifest_path(directory)
        lines = manifest_lines(log.store.read(path), source=path)
    except ObjectNotFoundError as error:
        state = read_state(log.store)
        known = sorted(name for name in (state.partitions if state else {}) if name)
        hint = f"There are: {', '.join(known[:5])}{' …' if len(known) > 5 else ''}." if known else "Publish it first."
        raise InvalidArgumentError(f"{directory or 'The table'} has no manifest.", hint=hint, table=log.uri) from error
    rows: list[dict[str, Any]] = []
    for data in _contents(log, lines):
        source = pq.ParquetFile(io.BytesIO(data), coerce_int96_timestamp_unit="us")  # Nanoseconds would overflow.
        for batch in source.iter_batches(batch_size=limit):
            rows += batch.to_pylist()
            if len(rows) >= limit:
                return rows[:limit]
    return rows


def _contents(log: DeltaLog, lines: Sequence[str]) -> Iterator[bytes]:
    state = read_state(log.store)
    schemes: Mapping[str, str] = {new: old for old, new in (state.schemes if state else {}).items()}
    scheme, _, _ = log.store.root.partition("://")
    for line in lines:
        head, _, rest = line.partition("://")
        known = scheme if head != scheme and schemes.get(head) is not None else head
        folder, _, name = f"{known}://{rest}".rpartition("/")
        store = open_store(folder.replace("%", "%25") if known == "file" else folder, log.options)
        yield store.read(name)
