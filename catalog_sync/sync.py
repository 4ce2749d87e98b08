"""Bring a table's manifests and its metastore entry to the newest version of its log.

::

    already at that version? -> one call, done
    the metastore answers -> manifests, under their lease
        -> the twin's lease -> create / alter -> add -> move -> drop -> version and schema hash, last
           -> forget the manifests of dropped partitions
A crash anywhere leaves the old version in the entry: the next run does the same again, and every step of it may be done
twice. The twin's lease keeps two syncs of one table apart, so that none drops what the other has just filled. The
manifests' lease is never held while the metastore is waited for: whoever publishes goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from catalog_sync.atomic import ATOMIC_KEY, Moves, Site, is_atomic, move_partitions
from catalog_sync.columns import ColumnsRefusedError, change_columns, columns_refused
from catalog_sync.diff import (
    FoundPartition,
    FoundTable,
    KnownPartitions,
    SyncPlan,
    TableAction,
    check_ours,
    has_columns_of,
    is_partitioned_alike,
    plan_sync,
    why_full,
)
from catalog_sync.errors import MetastoreError, MetastoreUnavailableError, NotOursError
from catalog_sync.limits import check_partitions, partition_directory
from catalog_sync.names import TableName
from catalog_sync.thrift.client import (
    Metastore,
    found_partition,
    found_table,
    hive_name,
    is_symlink,
    partition_entry,
    table_entry,
)
from catalog_sync.twin import GENERATOR, GENERATOR_KEY, SCHEMA_KEY, VERSION_KEY, Twin, twin_of
from catalog_sync.withdrawal import withdraw
from pydelta.errors import SchemaError, TableNotFoundError, UnsupportedFeatureError, VersionNotFoundError
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests import (
    EMPTY_DIR,
    MANIFESTS,
    TWIN,
    Lease,
    ManifestOptions,
    ManifestsBusyError,
    ManifestState,
    PublishResult,
    forget_emptied,
    holding,
    is_doubted,
    publish,
    publish_ahead,
    read_state,
    values_of_directory,
)
from pydelta.manifests.changes import changed_partitions
from pydelta.manifests.contents import DEFAULT_SCHEMES, FOLDER_PATH
from pydelta.settings.clock import Deadline

__all__ = ["SyncOptions", "SyncResult", "add_partition", "partitions_of", "sync_table"]

_LATE_MS: Final = 600_000
"""How long a metastore may yet act upon a request whose reply did not come: after that everything is compared once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOptions:
    """How to sync.

    Args:
        dry_run: Plan only; manifests are not published either.
        full: Write every manifest and compare every partition.
        prune: Drop partitions that somebody else added.
        adopt: Take over the twin of an earlier table at the same location.
        atomic: Move all changed partitions by one call, each version's manifests in a directory of their own; None as
            the entry was made. Without partition columns a sync is atomic anyway.
        schemes: Scheme of a location -> scheme in manifests.
        wait_seconds: How long to wait for another sync of the table.
        deadline: Of whoever waits for this sync; it then waits no longer than that either.
    """

    dry_run: bool = False
    full: bool = False
    prune: bool = False
    adopt: bool = False
    atomic: bool | None = None
    schemes: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_SCHEMES))
    wait_seconds: float = 60.0
    deadline: Deadline = field(default_factory=lambda: Deadline(None))

    def patience(self) -> float:
        """Return the seconds that it may wait for others now."""
        return min(self.wait_seconds, self.deadline.remaining())


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """What a sync did, or with ``dry_run`` would do.

    Args:
        twin: Name of the entry.
        version: Version of the table that manifests and entry are of now.
        previous: Version that the entry carried; None when there was none.
        plan: What was changed in the metastore.
        manifests: What was published; None in a dry run.
        calls: How many Thrift calls it took.
        left_out: The table's property says that it has no twin; one that it had was dropped.
    """

    twin: TableName
    version: int
    previous: int | None
    plan: SyncPlan
    manifests: PublishResult | None
    calls: int
    left_out: bool = False


def sync_table(log: DeltaLog, metastore: Metastore, twin: TableName, options: SyncOptions | None = None) -> SyncResult:
    """Bring manifests and twin to the newest version.

    Args:
        log: The table.
        metastore: Where the twin is.
        twin: Its name.
        options: How; see there.

    Raises:
        TableNotFoundError: There is no table.
        SchemaError: Columns that Hive cannot have. The twin is withdrawn: its readers get that as an error.
        UnsupportedFeatureError: Columns with other names in the files: the twin is withdrawn. Or deletion vectors:
            nothing was changed.
        PartitionTooLongError: The metastore cannot hold a partition. Nothing was changed.
        NotOursError: The metastore has something else of that name. Nothing was changed.
        ColumnsRefusedError: The metastore does not take the columns. Partitions are those of the newest version.
        MetastoreUnavailableError, MetastoreError, StorageError: Run it again; it goes on from there.
    """
    options = options or SyncOptions()
    before = len(metastore.calls)
    snapshot = _newest(log)
    try:
        wanted = twin_of(snapshot)
    except (SchemaError, UnsupportedFeatureError) as error:
        if not options.dry_run:
            withdraw(metastore, twin, snapshot, error)
        raise
    entry = _entry(metastore, twin, wanted, options)  # first: nobody waits for a lease of ours while it does not answer
    if options.dry_run:
        check_partitions(snapshot, value_length=log.settings.sync_partition_value_length)
        previous = found_table(entry).version if entry is not None else None
        plan = _plan(Site(log=log, metastore=metastore, name=twin), snapshot, wanted, entry, options, state=None)
        return SyncResult(
            twin=twin,
            version=wanted.version,
            previous=previous,
            plan=plan,
            manifests=None,
            calls=len(metastore.calls) - before,
        )
    if entry is not None and _is_current(read_state(log.store), wanted, entry, options) and _is_certain(log):
        previous = found_table(entry).version
        done = SyncPlan()
        return SyncResult(twin=twin, version=wanted.version, previous=previous, plan=done, manifests=None, calls=1)
    check_partitions(snapshot, value_length=log.settings.sync_partition_value_length)
    how = ManifestOptions(keep_emptied=True, schemes=options.schemes, full=options.full)
    manifests = publish(log, replace(how, wait_seconds=options.patience()))
    with holding(log, TWIN, wait_seconds=options.patience()) as lease:
        assert lease is not None
        with lease.kept():  # thousands of partitions take the metastore longer than the lease lasts
            try:
                entry = _entry(metastore, twin, wanted, options)  # under the lease: nobody else changes it any more
                previous = found_table(entry).version if entry is not None else None
                version, plan = _sync(Site(log=log, metastore=metastore, name=twin), entry, options, lease)
            finally:
                if metastore.unsettled:
                    lease.doubt(for_ms=_LATE_MS)
                    metastore.unsettled = False
    return SyncResult(
        twin=twin,
        version=version,
        previous=previous,
        plan=plan,
        manifests=manifests,
        calls=len(metastore.calls) - before,
    )


def add_partition(log: DeltaLog, metastore: Metastore, twin: TableName, values: Mapping[str, str | None]) -> str:
    """Add a partition before it has rows, with an empty manifest, after a sync.

    Args:
        log: The table.
        metastore: Where the twin is.
        twin: Its name.
        values: Partition column -> value as the log spells it.

    Returns:
        The partition's directory.

    Raises:
        InvalidArgumentError, LogCorruptedError: Not just the partition columns; no value of a column's type.
        Others as ``sync_table``.
    """
    sync_table(log, metastore, twin)
    with holding(log, wait_seconds=60.0) as lease:
        assert lease is not None
        directory = publish_ahead(log, values, ManifestOptions(keep_emptied=True), lease)
    with holding(log, TWIN, wait_seconds=60.0) as lease:
        assert lease is not None
        current = twin_of(_newest(log))
        lease.check()
        found = metastore.table(twin.database, twin.name)
        atomic = found is not None and is_atomic(found.parameters or {})
        location = f"{current.table_location}/{EMPTY_DIR}" if atomic else None
        entry = partition_entry(current, twin.database, twin.name, directory, location=location)
        metastore.add_partitions(twin.database, twin.name, [entry])
        return directory


def _becomes_atomic(options: SyncOptions, found: FoundTable | None) -> bool:
    return options.atomic if options.atomic is not None else found is not None and is_atomic(found.parameters)


def _moves_at_once(options: SyncOptions, twin: Twin, found: FoundTable | None) -> bool:
    return bool(twin.partition_columns) and _becomes_atomic(options, found)


def _changes_atomic(options: SyncOptions, found: FoundTable) -> bool:
    """Whether every partition has to move, since the twin changes the way it is synced."""
    return bool(found.partition_columns) and _becomes_atomic(options, found) != is_atomic(found.parameters)


def _entry(metastore: Metastore, name: TableName, wanted: Twin, options: SyncOptions) -> Any:
    """The entry as it is, or None; one that is not this table's is refused."""
    entry = metastore.table(name.database, name.name)
    if entry is not None and not is_symlink(entry):  # a table's own entry names its location and id, too
        raise NotOursError(
            f"The metastore has a table {name} that is not a twin (at {found_table(entry).location}).",
            hint="Choose another name for the twin.",
        )
    if entry is not None:
        check_ours(wanted, found_table(entry), str(name), adopt=options.adopt)
    return entry


def _newest(log: DeltaLog) -> Snapshot:
    snapshot = log.update()
    if snapshot.version < 0:
        raise TableNotFoundError.at(log.uri)
    return snapshot


def _is_current(state: ManifestState | None, twin: Twin, entry: Any, options: SyncOptions) -> bool:
    """Whether nothing is to be done: told from one metastore call and the small state file."""
    found = found_table(entry)
    if found.version != twin.version or why_full(twin, found, full=options.full or options.prune):
        return False
    if _changes_atomic(options, found):
        return False
    if not has_columns_of(twin, found) or not is_partitioned_alike(twin, found):
        return False
    return (
        state is not None
        and state.version == twin.version
        and not state.emptied
        and state.location == twin.table_location
        and state.table_id == twin.table_id
        and state.schemes == dict(options.schemes)
    )


def _is_certain(log: DeltaLog) -> bool:
    """Whether nothing that was done before has to be done anew."""
    return not any(is_doubted(log.store, name) for name in (MANIFESTS, TWIN))


def _sync(site: Site, entry: Any, options: SyncOptions, lease: Lease) -> tuple[int, SyncPlan]:
    log, metastore, name = site.log, site.metastore, site.name
    state = read_state(log.store)
    if state is None or state.version < 0:
        raise ManifestsBusyError(
            "The state of the manifests was deleted after they were published.", retryable=True, hint="Run it again."
        )
    if lease.is_doubted:
        options = replace(options, full=True)
    snapshot = log.snapshot(version=state.version)
    check_partitions(snapshot, value_length=log.settings.sync_partition_value_length)  # there may be newer ones by now
    twin = twin_of(snapshot)
    plan = _plan(site, snapshot, twin, entry, options, state=state)
    before = found_table(entry) if entry is not None else None
    atomic = _moves_at_once(options, twin, before)
    stamped = {VERSION_KEY: str(twin.version), SCHEMA_KEY: twin.schema_hash, GENERATOR_KEY: GENERATOR}
    if atomic:
        stamped[ATOMIC_KEY] = "true"
    lease.check()
    twin, refused = _change_entry(site, entry, twin, plan.table, options, partitions=len(state.partitions))
    lease.check()
    if atomic:
        moves = Moves(
            since=None if plan.full or before is None else before.version, empty=state.ahead, dropped=plan.drop
        )
        moved, dropped = move_partitions(site, twin, snapshot, moves, schemes=options.schemes, lease=lease)
        plan = replace(plan, move=moved, drop=dropped)
    else:
        metastore.add_partitions(name.database, name.name, _entries(twin, name, plan.add))
        lease.check()
        metastore.alter_partitions(name.database, name.name, _entries(twin, name, plan.move))
        lease.check()
        _drop(site, twin, plan.drop)
    lease.check()
    if refused is not None:
        stamped[SCHEMA_KEY] = before.parameters.get(SCHEMA_KEY, "") if before is not None else ""
    if plan.stamp:
        last = table_entry(twin, name.database, name.name, parameters=dict(twin.identity()) | stamped, before=entry)
        metastore.alter(last)
    lease.settle()
    theirs = {drift.partition for drift in plan.drift} - set(plan.drop)
    gone = [directory for directory in state.emptied if directory not in theirs]
    forget_emptied(log, gone, wait_seconds=options.patience())  # what has got files since then is not forgotten
    if refused is not None:
        raise refused
    return twin.version, plan


def _change_entry(
    site: Site, entry: Any, twin: Twin, action: TableAction, options: SyncOptions, *, partitions: int
) -> tuple[Twin, ColumnsRefusedError | None]:
    """Create, replace or alter the entry, as planned; see ``_alter`` for what is returned."""
    metastore, name = site.metastore, site.name
    before = found_table(entry) if entry is not None else None
    atomic = _moves_at_once(options, twin, before)
    if action is TableAction.RECREATE:
        metastore.drop(name.database, name.name)
    if action in (TableAction.CREATE, TableAction.RECREATE):
        if not partitions and twin.partition_columns:  # else the metastore makes the folder, and may not be allowed to
            site.log.store.put(FOLDER_PATH, b"")
        _create(metastore, twin, name, atomic=atomic, before=entry)
    elif before is not None and _changes_atomic(options, before):
        # without a version, so that an interruption is followed by a comparison of everything
        said = {ATOMIC_KEY: "true"} if atomic else {}
        return _alter(metastore, name, entry, twin, said, partitions=partitions)
    elif action is TableAction.ALTER:
        kept = {key: value for key, value in (entry.parameters or {}).items() if key.startswith("pydelta.sync.")}
        return _alter(metastore, name, entry, twin, kept, partitions=partitions)
    return twin, None


def _drop(site: Site, twin: Twin, directories: Sequence[str]) -> None:
    """Drop partitions without files. Manifests are published meanwhile: one that gets files is there, or comes back."""
    metastore, name = site.metastore, site.name

    def live() -> set[str]:
        state = read_state(site.log.store)
        return state.live() if state is not None else set()

    filled = live()
    doomed = [directory for directory in directories if directory not in filled]
    if not doomed:
        return
    metastore.drop_partitions(name.database, name.name, doomed)
    filled = live()
    metastore.add_partitions(
        name.database, name.name, _entries(twin, name, [directory for directory in doomed if directory in filled])
    )


def _alter(
    metastore: Metastore, name: TableName, entry: Any, twin: Twin, parameters: Mapping[str, str], *, partitions: int
) -> tuple[Twin, ColumnsRefusedError | None]:
    """Bring the entry to the twin's columns and place.

    Where the metastore does not take the columns, those that it has serve: partitions follow all the same, since a
    manifest says which files there are and nothing of columns.

    Returns:
        The twin with the columns that the entry has now, and what the metastore refused.
    """
    said = dict(twin.identity()) | dict(parameters)
    found = found_table(entry)
    try:
        wanted = table_entry(twin, name.database, name.name, parameters=said, before=entry)
        change_columns(metastore, entry, wanted, cascade=bool(twin.partition_columns), partitions=partitions)
        return twin, None
    except MetastoreUnavailableError:
        raise
    except MetastoreError as error:
        kept = replace(twin, columns=found.columns)
        metastore.alter(table_entry(kept, name.database, name.name, parameters=said, before=entry))
        return kept, columns_refused(name, found, twin, error)


def _create(metastore: Metastore, twin: Twin, name: TableName, *, atomic: bool, before: Any) -> None:
    """Create the entry, without a version yet: whoever finds it so compares everything."""
    parameters = dict(twin.identity()) | ({ATOMIC_KEY: "true"} if atomic else {})
    fresh = table_entry(twin, name.database, name.name, parameters=parameters, before=before)
    try:
        metastore.create(fresh)
    except MetastoreError:
        if metastore.database_exists(name.database):
            raise
        parent = twin.table_location.rpartition("/")[0]
        metastore.create_database(name.database, f"{parent}/{name.database}")
        metastore.create(fresh)


def _entries(twin: Twin, name: TableName, directories: Iterable[str]) -> list[Any]:
    return [partition_entry(twin, name.database, name.name, directory) for directory in directories]


def _plan(
    site: Site, snapshot: Snapshot, twin: Twin, entry: Any, options: SyncOptions, *, state: ManifestState | None
) -> SyncPlan:
    live = _live(snapshot, state)
    found = found_table(entry) if entry is not None else None
    if found is None or not twin.partition_columns or not is_partitioned_alike(twin, found):
        return plan_sync(twin, found, KnownPartitions(live=live), full=options.full)
    full = options.full or options.prune or _changes_atomic(options, found)
    touched = None
    if why_full(twin, found, full=full) is None:
        assert found.version is not None
        touched = _touched(site.log, snapshot, found.version)
        if touched is not None and state is not None:
            touched |= set(state.emptied)
    existing = partitions_of(site.metastore, site.name, snapshot.partition_columns, only=touched)
    known = KnownPartitions(live=live, touched=touched, existing=existing)
    return plan_sync(twin, found, known, full=full, prune=options.prune)


def _live(snapshot: Snapshot, state: ManifestState | None) -> set[str]:
    """Partitions with files."""
    if state is not None:
        return state.live()
    keys = [f"pv:{name}" for name in snapshot.files.spec.physical_names]
    if not keys:
        return set()
    return {partition_directory(snapshot, row) for row in snapshot.files.core.select(keys).unique().iter_rows()}


def _touched(log: DeltaLog, snapshot: Snapshot, since: int) -> set[str] | None:
    """Partitions that commits after ``since`` touched; None where the log cannot tell."""
    try:
        changes = changed_partitions(log.changes(since, snapshot.version), snapshot.files.spec)
    except VersionNotFoundError:
        return None
    if changes.unknown is not None:
        return None
    return {partition_directory(snapshot, values) for values in changes.values}


def partitions_of(
    metastore: Metastore, name: TableName, columns: Sequence[str], *, only: Collection[str] | None = None
) -> dict[str, FoundPartition]:
    """Return partitions of an entry by directory.

    Args:
        metastore: Where it is.
        name: Of the entry.
        columns: Its partition columns as the table spells them.
        only: Directories of those that are asked for; None for all. Directories of other columns are none of them.
    """
    if only is None:
        names = metastore.partition_names(name.database, name.name)
    else:
        keys = [column.lower() for column in columns]
        own = (item for item in only if [key.lower() for key in values_of_directory(item)] == keys)
        names = sorted({hive_name(directory) for directory in own})
    found = (found_partition(part, columns) for part in metastore.partitions(name.database, name.name, names))
    return {partition.directory: partition for partition in found}
