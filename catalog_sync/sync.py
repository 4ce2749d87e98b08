"""Bring a table's manifests and its metastore entry to the newest version of its log.

::

    entry already at that version? -> one call, done
    the metastore answers -> publish manifests, under their lease
        -> the twin's lease -> create / alter -> add -> move -> drop -> version and schema hash, last
           -> forget the manifests of dropped partitions
A crash leaves the old version in the entry, and the next run repeats the steps, each of which is idempotent. The twin's
lease keeps two syncs of one table apart, so that neither drops what the other has just filled. The manifests' lease is
never held while waiting for the metastore, so that other publishers can go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from catalog_sync.atomic import move_partitions
from catalog_sync.columns import ColumnsRefusedError, change_columns, columns_refused
from catalog_sync.diff import (
    FoundPartition,
    KnownPartitions,
    SyncPlan,
    TableAction,
    has_columns_of,
    is_partitioned_alike,
    plan_sync,
    why_full,
)
from catalog_sync.errors import MetastoreError, MetastoreUnavailableError
from catalog_sync.inputs import ATOMIC_KEY, SyncInputs, SyncOptions, is_atomic
from catalog_sync.limits import check_partitions
from catalog_sync.names import TableName
from catalog_sync.thrift.client import Metastore, found_partition, hive_name, partition_entry, table_entry
from catalog_sync.twin import GENERATOR, GENERATOR_KEY, SCHEMA_KEY, VERSION_KEY, Twin, twin_of
from catalog_sync.withdrawal import withdraw
from pydelta.errors import SchemaError, TableNotFoundError, UnsupportedFeatureError
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests import (
    EMPTY_DIR,
    MANIFESTS,
    TWIN,
    ManifestOptions,
    PublishResult,
    forget_emptied,
    holding,
    is_doubted,
    publish_ahead,
    publish_from,
    values_of_directory,
)
from pydelta.manifests.contents import FOLDER_PATH
from pydelta.manifests.plan import partition_directories
from pydelta.manifests.publish import changes_since

__all__ = ["SyncOptions", "SyncResult", "add_partition", "partitions_of", "sync_table"]

_LATE_MS: Final = 600_000
"""How long a metastore may still execute a request whose reply was lost. Afterwards, one sync compares everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The changes that a sync made, or with ``dry_run`` would make.

    Args:
        twin: Name of the entry.
        version: Version of the table that manifests and entry now have.
        previous: Version that the entry had before, or None if it had none.
        plan: Changes in the metastore.
        manifests: Published manifests, or None in a dry run.
        calls: Number of Thrift calls.
        left_out: Whether the table's property excludes it from syncing. An existing twin was dropped.
    """

    twin: TableName
    version: int
    previous: int | None = None
    plan: SyncPlan = field(default_factory=SyncPlan)
    manifests: PublishResult | None = None
    calls: int
    left_out: bool = False


def sync_table(
    log: DeltaLog,
    metastore: Metastore,
    twin: TableName,
    options: SyncOptions | None = None,
    *,
    snapshot: Snapshot | None = None,
) -> SyncResult:
    """Bring manifests and twin to the newest version.

    Args:
        log: Log of the table.
        metastore: Metastore of the twin.
        twin: Name of the twin.
        options: The options of a sync.
        snapshot: Newest snapshot, if the caller has just read it.

    Raises:
        TableNotFoundError: There is no table.
        SchemaError: Hive does not support some columns. The twin is withdrawn, and its readers get this error.
        UnsupportedFeatureError: Columns have other names in the files, and the twin is withdrawn; or the table has
            deletion vectors, and nothing was changed.
        PartitionTooLongError: The metastore cannot hold a partition. Nothing was changed.
        NotOursError: The metastore has a different entry of that name. Nothing was changed.
        ColumnsRefusedError: The metastore refused the columns. The partitions are those of the newest version.
        MetastoreUnavailableError, MetastoreError, StorageError: The sync stopped. The next one continues it.
    """
    options = options or SyncOptions()
    before = len(metastore.calls)
    snapshot = _existing(log, log.update() if snapshot is None else snapshot)
    try:
        inputs = SyncInputs.read(log, metastore, twin, options, snapshot)
    except (SchemaError, UnsupportedFeatureError) as error:
        if not options.dry_run:
            withdraw(metastore, twin, snapshot, error)
        raise

    def result(inputs: SyncInputs, plan: SyncPlan, manifests: PublishResult | None) -> SyncResult:
        previous = inputs.found.version if inputs.found is not None else None
        calls = len(metastore.calls) - before
        return SyncResult(
            twin=twin, version=inputs.twin.version, previous=previous, plan=plan, manifests=manifests, calls=calls
        )

    if not options.dry_run and _is_current(inputs) and _is_certain(log):
        return result(inputs, SyncPlan(), None)
    check_partitions(snapshot, value_length=log.settings.sync_partition_value_length)
    if options.dry_run:
        return result(inputs, _plan(inputs), None)
    how = ManifestOptions(
        keep_emptied=True, schemes=options.schemes, full=options.full, wait_seconds=options.patience()
    )
    manifests = publish_from(log, snapshot, inputs.manifests, how)
    with holding(log, TWIN, wait_seconds=options.patience()) as lease:
        assert lease is not None
        with lease.kept():  # Changing thousands of partitions can take longer than the lease lasts.
            try:
                inputs = inputs.under(lease)
                plan = _sync(inputs)
            finally:
                if metastore.unsettled:
                    lease.doubt(for_ms=_LATE_MS)
                    metastore.unsettled = False
    return result(inputs, plan, manifests)


def add_partition(log: DeltaLog, metastore: Metastore, twin: TableName, values: Mapping[str, str | None]) -> str:
    """Sync the table, then add a partition with an empty manifest before it has rows.

    Args:
        log: Log of the table.
        metastore: Metastore of the twin.
        twin: Name of the twin.
        values: Partition column -> value as the log spells it.

    Returns:
        The partition's directory.

    Raises:
        InvalidArgumentError, LogCorruptedError: The columns are not the partition columns, or a value does not fit its
            column's type.
        Others as ``sync_table``.
    """
    sync_table(log, metastore, twin)
    with holding(log, wait_seconds=60.0) as lease:
        assert lease is not None
        directory = publish_ahead(log, values, ManifestOptions(keep_emptied=True), lease)
    with holding(log, TWIN, wait_seconds=60.0) as lease:
        assert lease is not None
        current = twin_of(_existing(log, log.update()))
        lease.check()
        found = metastore.table(twin.database, twin.name)
        atomic = found is not None and is_atomic(found.parameters or {})
        location = f"{current.table_location}/{EMPTY_DIR}" if atomic else None
        entry = partition_entry(current, twin.database, twin.name, directory, location=location)
        metastore.add_partitions(twin.database, twin.name, [entry])
        return directory


def _existing(log: DeltaLog, snapshot: Snapshot) -> Snapshot:
    if snapshot.version < 0:
        raise TableNotFoundError.at(log.uri)
    return snapshot


def _is_current(inputs: SyncInputs) -> bool:
    """Return whether the entry and the small state file alone show that there is nothing to do."""
    found, twin, state, options = inputs.found, inputs.twin, inputs.manifests, inputs.options
    return (
        found is not None
        and state is not None
        and found.version == twin.version
        and why_full(twin, found, full=options.full or options.prune) is None
        and not inputs.changes_atomic
        and has_columns_of(twin, found)
        and is_partitioned_alike(twin, found)
        and not state.emptied
        and (state.version, state.location, state.table_id, state.schemes)
        == (twin.version, twin.table_location, twin.table_id, dict(options.schemes))
    )


def _is_certain(log: DeltaLog) -> bool:
    """Return whether no earlier step has to be repeated."""
    return not any(is_doubted(log.store, name) for name in (MANIFESTS, TWIN))


def _sync(inputs: SyncInputs) -> SyncPlan:
    """Bring the entry to the manifests' version, under the twin's lease."""
    metastore, name, lease, state, before = inputs.metastore, inputs.name, inputs.held, inputs.manifests, inputs.found
    assert state is not None
    plan = _plan(inputs)
    stamped = {
        VERSION_KEY: str(inputs.twin.version),
        SCHEMA_KEY: inputs.twin.schema_hash,
        GENERATOR_KEY: GENERATOR,
    } | _atomic_parameter(inputs)
    lease.check()
    twin, refused = _change_entry(inputs, plan.table)
    inputs = replace(inputs, twin=twin)
    lease.check()
    if inputs.moves_at_once:
        since = None if plan.full or before is None else before.version
        moved, dropped = move_partitions(inputs, since=since, dropped=plan.drop)
        plan = replace(plan, move=moved, drop=dropped)
    else:
        metastore.add_partitions(name.database, name.name, _entries(inputs, plan.add))
        lease.check()
        metastore.alter_partitions(name.database, name.name, _entries(inputs, plan.move))
        lease.check()
        _drop(inputs, plan.drop)
    lease.check()
    if refused is not None:
        stamped[SCHEMA_KEY] = before.parameters.get(SCHEMA_KEY, "") if before is not None else ""
    if plan.stamp:
        parameters = dict(twin.identity()) | stamped
        metastore.alter(table_entry(twin, name.database, name.name, parameters=parameters, before=inputs.entry))
    lease.settle()
    theirs = {drift.partition for drift in plan.drift} - set(plan.drop)
    gone = [directory for directory in state.emptied if directory not in theirs]
    if gone:  # This keeps a partition that has received files since then.
        forget_emptied(inputs.log, gone, wait_seconds=inputs.options.patience())
    if refused is not None:
        raise refused
    return plan


def _atomic_parameter(inputs: SyncInputs) -> dict[str, str]:
    return {ATOMIC_KEY: "true"} if inputs.moves_at_once else {}


def _change_entry(inputs: SyncInputs, action: TableAction) -> tuple[Twin, ColumnsRefusedError | None]:
    """Create, replace or alter the entry, as planned, and return the same as ``_alter``."""
    if action is TableAction.RECREATE:
        inputs.metastore.drop(inputs.name.database, inputs.name.name)
    if action in (TableAction.CREATE, TableAction.RECREATE):
        assert inputs.manifests is not None
        if inputs.twin.partition_columns and not inputs.manifests.partitions:
            # Otherwise the metastore would create the folder, and may lack the right to do so.
            inputs.log.store.put(FOLDER_PATH, b"")
        _create(inputs)
    elif inputs.changes_atomic:
        # The entry gets no version, so that everything is compared after an interruption.
        return _alter(inputs, _atomic_parameter(inputs))
    elif action is TableAction.ALTER:
        old = inputs.entry.parameters or {}
        return _alter(inputs, {key: value for key, value in old.items() if key.startswith("pydelta.sync.")})
    return inputs.twin, None


def _drop(inputs: SyncInputs, directories: Sequence[str]) -> None:
    """Drop partitions without files. One that gets files while manifests are published stays, or is added again."""
    if not directories:
        return
    metastore, name = inputs.metastore, inputs.name
    filled = inputs.live_now()
    doomed = [directory for directory in directories if directory not in filled]
    if not doomed:
        return
    metastore.drop_partitions(name.database, name.name, doomed)
    refilled = inputs.live_now() & set(doomed)
    metastore.add_partitions(name.database, name.name, _entries(inputs, sorted(refilled)))


def _alter(inputs: SyncInputs, parameters: Mapping[str, str]) -> tuple[Twin, ColumnsRefusedError | None]:
    """Bring the entry to the twin's columns and location.

    If the metastore refuses the columns, the entry keeps its own. Partitions are still synced, since a manifest lists
    files and does not depend on columns.

    Returns:
        The twin with the columns that the entry now has, and the error if the metastore refused the new ones.
    """
    metastore, name, twin, entry = inputs.metastore, inputs.name, inputs.twin, inputs.entry
    found, state = inputs.found, inputs.manifests
    assert found is not None
    assert state is not None
    said = dict(twin.identity()) | dict(parameters)
    try:
        wanted = table_entry(twin, name.database, name.name, parameters=said, before=entry)
        cascade = bool(twin.partition_columns)
        change_columns(metastore, entry, wanted, cascade=cascade, partitions=len(state.partitions))
        return twin, None
    except MetastoreUnavailableError:
        raise
    except MetastoreError as error:
        kept = replace(twin, columns=found.columns)
        metastore.alter(table_entry(kept, name.database, name.name, parameters=said, before=entry))
        return kept, columns_refused(name, found, twin, error)


def _create(inputs: SyncInputs) -> None:
    """Create the entry without a version, so that an interrupted sync is followed by a full comparison."""
    metastore, name, twin = inputs.metastore, inputs.name, inputs.twin
    parameters = dict(twin.identity()) | _atomic_parameter(inputs)
    fresh = table_entry(twin, name.database, name.name, parameters=parameters, before=inputs.entry)
    try:
        metastore.create(fresh)
    except MetastoreError:
        if metastore.database_exists(name.database):
            raise
        parent = twin.table_location.rpartition("/")[0]
        metastore.create_database(name.database, f"{parent}/{name.database}")
        metastore.create(fresh)


def _entries(inputs: SyncInputs, directories: Iterable[str]) -> list[Any]:
    name = inputs.name
    return [partition_entry(inputs.twin, name.database, name.name, directory) for directory in directories]


def _plan(inputs: SyncInputs) -> SyncPlan:
    twin, found, options = inputs.twin, inputs.found, inputs.options
    if found is None or not twin.partition_columns or not is_partitioned_alike(twin, found):
        return plan_sync(twin, found, KnownPartitions(live=inputs.live), full=options.full)
    full = options.full or options.prune or inputs.changes_atomic
    touched = None
    if why_full(twin, found, full=full) is None:
        assert found.version is not None
        touched = _touched(inputs, found.version)
        if touched is not None and inputs.manifests is not None:
            touched |= set(inputs.manifests.emptied)
    existing = partitions_of(inputs.metastore, inputs.name, inputs.snapshot.partition_columns, only=touched)
    known = KnownPartitions(live=inputs.live, touched=touched, existing=existing)
    return plan_sync(twin, found, known, full=full, prune=options.prune)


def _touched(inputs: SyncInputs, since: int) -> set[str] | None:
    """Return the partitions touched by commits after ``since``, or None if the log no longer has these commits."""
    changes = changes_since(inputs.log, since, inputs.snapshot)
    if changes.unknown is not None:
        return None
    return set(partition_directories(inputs.snapshot, changes.values))


def partitions_of(
    metastore: Metastore, name: TableName, columns: Sequence[str], *, only: Collection[str] | None = None
) -> dict[str, FoundPartition]:
    """Return the partitions of an entry by directory.

    Args:
        metastore: Metastore of the entry.
        name: Name of the entry.
        columns: Its partition columns as the table spells them.
        only: Directories to look up, or None for all. Directories with other partition columns are ignored.
    """
    if only is None:
        names = metastore.partition_names(name.database, name.name)
    else:
        keys = [column.lower() for column in columns]
        own = (item for item in only if [key.lower() for key in values_of_directory(item)] == keys)
        names = sorted({hive_name(directory) for directory in own})
    found = (found_partition(part, columns) for part in metastore.partitions(name.database, name.name, names))
    return {partition.directory: partition for partition in found}
