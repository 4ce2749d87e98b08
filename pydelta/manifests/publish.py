"""Publish a table's manifests at its newest version: only what changed, one atomic put each, never backwards.

::

    state + log --plan--> nothing | partitions to write | everything
        under the lease: write --> delete or empty what has no files any more --> state, last

A crash at any point leaves the old state: the next run writes the same partitions, and those of later commits, again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import polars as pl

from pydelta.errors import BindError, InvalidArgumentError, StorageError, TableNotFoundError, VersionNotFoundError
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.columns import PV_PREFIX
from pydelta.manifests.changes import changed_partitions, partition_types
from pydelta.manifests.contents import (
    DEFAULT_SCHEMES,
    MANIFEST_DIR,
    MANIFEST_NAME,
    Manifest,
    check_publishable,
    hive_values,
    manifest_path,
    manifests_of,
    values_of_directory,
)
from pydelta.manifests.lease import MANIFESTS, Lease, acquire, is_doubted
from pydelta.manifests.state import STATE_PATH, ManifestState, read_state
from pydelta.predicate import Expr, NotEvaluable, is_partition_only, parse_predicate, partition_mask
from pydelta.protocol.partitions import partition_dir, typed_frame
from pydelta.storage import ObjectInfo, Store
from pydelta.storage.pages import paged

__all__ = [
    "MANY_FILES",
    "ManifestOptions",
    "PublishResult",
    "delete_manifests",
    "directories_with_manifest",
    "forget_emptied",
    "holding",
    "listed_manifests",
    "manifests_of_changes",
    "publish",
    "publish_ahead",
    "publish_from",
    "publish_under",
    "put_manifests",
]

_WRITERS: Final = 16
MANY_FILES: Final = 1000
"""Files in one manifest from which on readers are slow to plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestOptions:
    """How to publish.

    Args:
        where: SQL over partition columns: publish these partitions alone.
        time_zone: Of times in ``where`` that name none; None refuses them.
        keep_emptied: A partition without files keeps an empty manifest until ``forget_emptied``, since a metastore
            still has the partition.
        schemes: Scheme of a location -> scheme in manifests.
        full: Write every manifest, whatever the state says.
        wait_seconds: How long to wait for another publisher.
    """

    where: str | None = None
    time_zone: str | None = None
    keep_emptied: bool = False
    schemes: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_SCHEMES))
    full: bool = False
    wait_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """What was published.

    Args:
        version: Version that the manifests are of now.
        previous: Version that they were of before; None when there were none.
        full: Every manifest was written.
        reason: Why so, as a phrase; None for a difference.
        written: Partitions whose manifest was written, with their values. (``""`` without partition columns.)
        emptied: Partitions that have no files and keep an empty manifest for now.
        removed: Partitions whose manifest was deleted.
        files: Lines written.
        crowded: Partition -> number of files, where there are more than ``MANY_FILES``.
    """

    version: int
    previous: int | None
    full: bool = False
    reason: str | None = None
    written: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    emptied: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    files: int = 0
    crowded: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Manifests to write, directories that have no files (any more), and which directories are then known."""

    manifests: Mapping[str, Manifest]
    without_files: tuple[str, ...]
    full: bool
    reason: str | None
    partial: bool


def publish(log: DeltaLog, options: ManifestOptions | None = None) -> PublishResult:
    """Bring the manifests to the newest version.

    Args:
        log: The table.
        options: How; see there.

    Raises:
        TableNotFoundError: There is no table.
        UnsupportedFeatureError: Files have deletion vectors, or column names that differ from the table's.
        InvalidArgumentError, ParseError, BindError: ``where`` is not a condition over partition columns.
        ManifestsBusyError, LeaseLostError: Another process publishes; try again.
        StorageError: The store failed; the state is that of before, and the next run writes what is missing.
    """
    return publish_from(log, _newest(log), read_state(log.store), options or ManifestOptions())


def publish_from(
    log: DeltaLog, snapshot: Snapshot, before: ManifestState | None, options: ManifestOptions
) -> PublishResult:
    """Do what ``publish`` does, for a caller that has just read the newest snapshot, and the state."""
    store = log.store

    def is_published(state: ManifestState | None) -> bool:
        wanted = not options.full and options.where is None and _is_current(state, snapshot, options)
        return wanted and not is_doubted(store, MANIFESTS)

    if is_published(before):
        assert before is not None
        return PublishResult(version=before.version, previous=before.version)

    def published() -> bool:
        return is_published(read_state(store))

    with holding(log, wait_seconds=options.wait_seconds, done=published) as lease:
        if lease is None:
            return PublishResult(version=snapshot.version, previous=before.version if before else None)
        result, _ = publish_under(log, options, lease)
        return result


@contextmanager
def holding(
    log: DeltaLog, name: str = MANIFESTS, *, wait_seconds: float, done: Callable[[], bool] = lambda: False
) -> Iterator[Lease | None]:
    """Hold a lease of the table for the block; gives None when ``done`` became true while this waited.

    Raises:
        ManifestsBusyError: Another process held it all the time.
    """
    lease = acquire(log.store, name, wait_seconds=wait_seconds, done=done)
    try:
        yield lease
    finally:
        if lease is not None:
            lease.release()


def publish_under(log: DeltaLog, options: ManifestOptions, lease: Lease) -> tuple[PublishResult, ManifestState]:
    """Publish as ``publish`` does, for a caller that holds the lease: what was committed meanwhile goes out as well.

    Returns:
        What was done, and the state that now lies beside the table.
    """
    state, snapshot = read_state(log.store), _newest(log)
    if lease.is_doubted:
        result, after = _publish(log, snapshot, state, replace(options, full=True, where=None), lease)
        lease.settle()
        return replace(
            result, reason="a publisher was stopped for longer than its lease, and may have written late"
        ), after
    if options.where is None and not options.full and _is_current(state, snapshot, options):
        assert state is not None
        return PublishResult(version=state.version, previous=state.version), state
    return _publish(log, snapshot, state, options, lease)


def _newest(log: DeltaLog) -> Snapshot:
    snapshot = log.update()
    if snapshot.version < 0:
        raise TableNotFoundError.at(log.uri)
    check_publishable(snapshot)
    return snapshot


def _why_full(state: ManifestState | None, snapshot: Snapshot, options: ManifestOptions) -> str | None:
    if options.full:
        return "it was asked for"
    if state is None:
        return "nothing was published yet"
    assert snapshot.metadata is not None
    reason = state.why_not_from(
        table_id=snapshot.metadata.id,
        location=snapshot.table_uri,
        partition_columns=snapshot.partition_columns,
        partition_types=partition_types(snapshot.files.spec),
        schemes=options.schemes,
    )
    if reason is None and state.version > snapshot.version:
        reason = f"version {state.version} was published, and the table is at {snapshot.version}"
    return reason


def _is_current(state: ManifestState | None, snapshot: Snapshot, options: ManifestOptions) -> bool:
    return (
        state is not None
        and state.version == snapshot.version
        and _why_full(state, snapshot, options) is None
        and (options.keep_emptied or not state.emptied)
    )


def _publish(
    log: DeltaLog, snapshot: Snapshot, state: ManifestState | None, options: ManifestOptions, lease: Lease
) -> tuple[PublishResult, ManifestState]:
    plan = _plan(log, snapshot, state, options)
    store = log.store
    known = None if plan.full else state
    stale = list(plan.without_files)
    emptied = set(known.emptied if known else ())
    assert snapshot.metadata is not None
    ahead = _still_ahead(state, snapshot) - set(plan.manifests)
    if plan.full and not plan.partial:
        stale += [name for name in directories_with_manifest(store) if name not in plan.manifests and name not in stale]
    elif not options.keep_emptied:
        stale += [name for name in emptied if name not in plan.manifests and name not in stale]
    stale = [name for name in stale if name not in ahead]
    outdated = {name for name in stale if tuple(values_of_directory(name)) != snapshot.partition_columns}
    kept_empty = [name for name in stale if name not in outdated and (options.keep_emptied or not name)]
    writes = {manifest_path(name): manifest.text for name, manifest in plan.manifests.items()}
    writes |= {manifest_path(name): b"" for name in kept_empty}
    put_manifests(store, writes, lease)
    # What was partitioned in another way shows its old rows until the metastore knows the new partitions.
    kept = {*kept_empty, *(outdated if options.keep_emptied else ())}
    removed = [name for name in stale if name not in kept]
    delete_manifests(store, [manifest_path(name) for name in removed], lease)
    partitions = dict(known.partitions) if known else {}
    for name in (*plan.manifests, *kept_empty):
        partitions[name] = snapshot.version
    left_over = (emptied | kept) - set(plan.manifests) - set(removed)
    for name in ahead:
        partitions.setdefault(name, snapshot.version)
    for name in removed:
        partitions.pop(name, None)
    after = ManifestState(
        table_id=snapshot.metadata.id,
        location=snapshot.table_uri,
        version=(known.version if known else -1) if plan.partial else snapshot.version,
        generation=lease.number,
        partition_columns=snapshot.partition_columns,
        partition_types=partition_types(snapshot.files.spec),
        schemes=dict(options.schemes),
        partitions=partitions,
        emptied=tuple(sorted(left_over - (set() if snapshot.partition_columns else {""}))),
        ahead=tuple(sorted(ahead)),
    )
    lease.check()
    store.put(STATE_PATH, after.encode())
    result = PublishResult(
        version=after.version,
        previous=state.version if state else None,
        full=plan.full,
        reason=plan.reason,
        written={name: manifest.values for name, manifest in plan.manifests.items()},
        emptied=tuple(sorted(kept_empty)),
        removed=tuple(sorted(removed)),
        files=sum(manifest.num_files for manifest in plan.manifests.values()),
        crowded={name: item.num_files for name, item in plan.manifests.items() if item.num_files > MANY_FILES},
    )
    return result, after


def _still_ahead(state: ManifestState | None, snapshot: Snapshot) -> set[str]:
    """Partitions that were asked for before they had files, of the table as it is partitioned."""
    assert snapshot.metadata is not None
    if state is not None and (state.table_id, state.partition_columns, state.partition_types) == (
        snapshot.metadata.id,
        snapshot.partition_columns,
        partition_types(snapshot.files.spec),
    ):
        return set(state.ahead)
    return set()


# --- what to write -----------------------------------------------------------------------------------------


def _plan(log: DeltaLog, snapshot: Snapshot, state: ManifestState | None, options: ManifestOptions) -> _Plan:
    reason = _why_full(state, snapshot, options)
    if options.where is not None:
        return _plan_where(snapshot, state, options, reason)
    if reason is None:
        assert state is not None
        try:
            commits = log.changes(state.version, snapshot.version)
            changes = changed_partitions(commits, snapshot.files.spec)
            reason = changes.unknown
        except VersionNotFoundError:
            reason = f"the log no longer reaches back to version {state.version}"
        else:
            if reason is None:
                manifests, gone = manifests_of_changes(snapshot, changes.values, options.schemes)
                return _Plan(manifests=manifests, without_files=gone, full=False, reason=None, partial=False)
    manifests = manifests_of(snapshot, snapshot.files.core, schemes=options.schemes)
    missing = [] if snapshot.partition_columns or manifests else [""]
    return _Plan(manifests=manifests, without_files=tuple(missing), full=True, reason=reason, partial=False)


def manifests_of_changes(
    snapshot: Snapshot, changed: Iterable[tuple[str | None, ...]], schemes: Mapping[str, str]
) -> tuple[Mapping[str, Manifest], tuple[str, ...]]:
    """Make the manifests of touched partitions with files; list those that lost their last file."""
    touched = sorted(changed, key=lambda values: tuple(value or "" for value in values))
    spec = snapshot.files.spec
    keys = [PV_PREFIX + name for name in spec.physical_names]
    frame = snapshot.files.core
    directories = [_directory(snapshot, values) for values in touched]
    if keys:
        wanted = pl.DataFrame(
            {key: [values[at] for values in touched] for at, key in enumerate(keys)},
            schema=dict.fromkeys(keys, pl.String()),
        )
        frame = frame.join(wanted, on=keys, how="semi", nulls_equal=True)
        frame = _with_other_spellings(snapshot, frame, set(directories), keys)
    manifests = manifests_of(snapshot, frame, schemes=schemes) if touched else {}
    return manifests, tuple(dict.fromkeys(name for name in directories if name not in manifests))


def _with_other_spellings(
    snapshot: Snapshot, frame: pl.DataFrame, directories: set[str], keys: Sequence[str]
) -> pl.DataFrame:
    """Files of the same partitions whose value the log spells in another way, such as ``01`` for ``1``."""
    types = {str(field.data_type) for field in snapshot.files.spec.partition_schema().fields}
    if types <= {"string", "binary"}:
        return frame  # one spelling a value
    distinct = snapshot.files.core.select(keys).unique()
    same = [row for row in distinct.iter_rows() if _directory(snapshot, row) in directories]
    wanted = pl.DataFrame(same, schema=dict.fromkeys(keys, pl.String()), orient="row")
    return snapshot.files.core.join(wanted, on=list(keys), how="semi", nulls_equal=True)


def _directory(snapshot: Snapshot, values: Sequence[str | None]) -> str:
    types = [field.data_type for field in snapshot.files.spec.partition_schema().fields]
    return partition_dir(dict(zip(snapshot.partition_columns, hive_values(values, types), strict=True)))


def _plan_where(snapshot: Snapshot, state: ManifestState | None, options: ManifestOptions, reason: str | None) -> _Plan:
    """Chosen partitions of a table whose others stay as they are."""
    assert options.where is not None
    if not snapshot.partition_columns:
        raise InvalidArgumentError(
            "The table has no partition columns, so there are no partitions to choose.",
            hint="Leave the WHERE out.",
            table=snapshot.table_uri,
        )
    condition = parse_predicate(options.where, snapshot.schema, time_zone=options.time_zone)
    if not is_partition_only(condition, snapshot.partition_columns):
        raise BindError(
            f"{options.where!r} reads a column that is not a partition column.",
            hint=f"The partition columns are: {', '.join(snapshot.partition_columns)}.",
            table=snapshot.table_uri,
        )
    zone = options.time_zone or "UTC"
    frame = snapshot.files.select(condition, time_zone=zone)
    manifests = manifests_of(snapshot, frame, schemes=options.schemes)
    published = [name for name in (state.partitions if state and reason is None else ()) if name not in manifests]
    gone = [name for name in published if _matches(name, condition, snapshot, zone)]
    return _Plan(manifests=manifests, without_files=tuple(gone), full=reason is not None, reason=reason, partial=True)


def _matches(directory: str, condition: Expr, snapshot: Snapshot, time_zone: str) -> bool:
    values = values_of_directory(directory)
    schema = snapshot.files.spec.partition_schema()
    types = dict.fromkeys(schema.names, pl.String())
    texts = pl.DataFrame({name: [values.get(name)] for name in schema.names}, schema=types)
    try:
        return bool(partition_mask(condition, typed_frame(texts, schema, time_zone=time_zone))[0])
    except NotEvaluable as error:
        raise InvalidArgumentError(str(error), hint="Compare partition columns with constants.") from error


# --- writing -----------------------------------------------------------------------------------------------


def put_manifests(store: Store, writes: Mapping[str, bytes], lease: Lease) -> None:
    """Write manifests, by path, as long as the lease holds."""

    def put(item: tuple[str, bytes]) -> None:
        lease.check()
        store.put(*item)

    if len(writes) == 1:
        put(next(iter(writes.items())))
    elif writes:
        with ThreadPoolExecutor(_WRITERS) as pool:
            for _ in pool.map(put, writes.items()):
                pass


def delete_manifests(store: Store, paths: Sequence[str], lease: Lease) -> None:
    """Delete manifests, and the folders in which nothing is left; missing ones are not an error.

    MSCK takes a folder for a partition, whatever is in it. A store without folders has nothing to remove.
    """
    if not paths:
        return
    lease.check()
    report = store.delete_many(paths)
    if report.failed:
        path, why = report.failed[0]
        raise StorageError(
            f"{len(report.failed)} manifests of partitions without files could not be deleted, {path!r} first: {why}.",
            retryable=True,
            hint="Readers may still see rows of these partitions: allow deletes under _symlink_format_manifest/, "
            "and run it again.",
            table=store.root,
        )
    with_folders = paged(store)
    if with_folders is not None and with_folders.has_directories:
        lease.check()
        with_folders.remove_directories(_folders_of(paths))


def _folders_of(paths: Iterable[str]) -> list[str]:
    """The folders of partitions that paths of manifests lead through, the deepest first."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while "=" in folder.rpartition("/")[2]:  # above the partitions is what all of them share
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return sorted(found, key=lambda folder: (-folder.count("/"), folder))


def listed_manifests(store: Store) -> list[ObjectInfo]:
    """List the manifests that are there."""
    return [info for info in store.list_all(MANIFEST_DIR) if info.path.endswith(f"/{MANIFEST_NAME}")]


def directories_with_manifest(store: Store) -> list[str]:
    """List the directories that hold a manifest."""
    name = f"/{MANIFEST_NAME}"
    return [
        info.path.removesuffix(name).removeprefix(MANIFEST_DIR).removeprefix("/") for info in listed_manifests(store)
    ]


def publish_ahead(log: DeltaLog, values: Mapping[str, str | None], options: ManifestOptions, lease: Lease) -> str:
    """Publish an empty manifest for a partition that will have rows; one that has some is left as it is.

    Args:
        log: The table; its manifests are published by now.
        values: Partition column -> value as the log spells it.
        options: As for ``publish``.
        lease: Held by the caller.

    Returns:
        The partition's directory.

    Raises:
        InvalidArgumentError: Not just the table's partition columns.
        LogCorruptedError: A value that is none of its column's type.
    """
    _, state = publish_under(log, options, lease)
    snapshot = log.snapshot(version=state.version)
    by_name = {name.lower(): value for name, value in values.items()}
    columns = snapshot.partition_columns
    if not columns or set(by_name) != {name.lower() for name in columns}:
        raise InvalidArgumentError(
            f"A partition of this table is named by {', '.join(columns) or 'nothing: it has no partition columns'}; "
            f"given were {', '.join(values) or 'no values'}.",
            hint="Write each as column=value.",
            table=snapshot.table_uri,
        )
    directory = _directory(snapshot, [by_name[name.lower()] for name in columns])
    if directory in state.live():
        return directory
    lease.check()
    log.store.put(manifest_path(directory), b"")
    after = msgspec.structs.replace(
        state,
        generation=lease.number,
        partitions={**state.partitions, directory: state.version},
        emptied=tuple(name for name in state.emptied if name != directory),
        ahead=tuple(sorted({*state.ahead, directory})),
    )
    lease.check()
    log.store.put(STATE_PATH, after.encode())
    return directory


def forget_emptied(log: DeltaLog, directories: Iterable[str], *, wait_seconds: float = 60.0) -> tuple[str, ...]:
    """Delete the empty manifests of partitions that the metastore has dropped.

    A partition that has got files again meanwhile keeps its manifest.

    Returns:
        The directories whose manifest was deleted.

    Raises:
        ManifestsBusyError, LeaseLostError, StorageError: As ``publish``.
    """
    store = log.store
    with holding(log, wait_seconds=wait_seconds) as lease:
        assert lease is not None
        state = read_state(store)
        gone = sorted(set(directories) & set(state.emptied)) if state else []
        if state is None or not gone:
            return ()
        delete_manifests(store, [manifest_path(name) for name in gone], lease)
        after = msgspec.structs.replace(
            state,
            generation=lease.number,
            partitions={name: version for name, version in state.partitions.items() if name not in gone},
            emptied=tuple(name for name in state.emptied if name not in gone),
        )
        lease.check()
        store.put(STATE_PATH, after.encode())
    return tuple(gone)
