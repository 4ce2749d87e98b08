"""Publish a table's manifests at its newest version: only the changes, each in an atomic put, never backwards.

::

    state + log --plan--> nothing | partitions to write | everything
        under the lease: write --> delete or empty directories without files --> state, last

A crash leaves the old state, so that the next run writes the same partitions again, and those of later commits.
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
from pydelta.manifests.changes import PartitionChanges, changed_partitions
from pydelta.manifests.contents import (
    DEFAULT_SCHEMES,
    MANIFEST_DIR,
    MANIFEST_NAME,
    check_publishable,
    manifest_path,
    manifests_of,
    values_of_directory,
)
from pydelta.manifests.lease import MANIFESTS, Lease, acquire, is_doubted
from pydelta.manifests.plan import (
    FoundManifests,
    manifests_of_changes,
    partition_directory,
    plan_publication,
    why_full,
)
from pydelta.manifests.state import STATE_PATH, ManifestState, read_state
from pydelta.predicate import Expr, NotEvaluable, is_partition_only, parse_predicate, partition_mask
from pydelta.protocol.partitions import typed_frame
from pydelta.storage import ObjectInfo, Store
from pydelta.storage.pages import paged

__all__ = [
    "MANY_FILES",
    "ManifestOptions",
    "PublishResult",
    "changes_since",
    "delete_manifests",
    "directories_with_manifest",
    "forget_emptied",
    "holding",
    "listed_manifests",
    "publish",
    "publish_ahead",
    "publish_from",
    "publish_under",
    "put_manifests",
]

_WRITERS: Final = 16
MANY_FILES: Final = 1000
"""Number of files in a manifest beyond which readers plan slowly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestOptions:
    """The options of publishing.

    Args:
        where: SQL condition over partition columns. Only these partitions are published.
        time_zone: Time zone of times in ``where`` without a zone. None refuses them.
        keep_emptied: Keep an empty manifest for a partition without files until ``forget_emptied``, since a metastore
            still has the partition.
        schemes: Scheme of a location -> scheme in manifests.
        full: Write every manifest, regardless of the state.
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
    """The result of publishing.

    Args:
        version: Version that the manifests now have.
        previous: Version that they had before, or None if there were none.
        full: Whether every manifest was written.
        reason: Reason for writing every manifest, as a phrase, or None if only changes were written.
        written: Partitions whose manifest was written, with their values; ``""`` without partition columns.
        emptied: Partitions without files that keep an empty manifest for now.
        removed: Partitions whose manifest was deleted.
        files: Number of lines written.
        crowded: Partition -> number of files, if there are more than ``MANY_FILES``.
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


def publish(log: DeltaLog, options: ManifestOptions | None = None) -> PublishResult:
    """Bring the manifests to the newest version.

    Args:
        log: Log of the table.
        options: The options of publishing.

    Raises:
        TableNotFoundError: There is no table.
        UnsupportedFeatureError: Files have deletion vectors, or column names that differ from the table's.
        InvalidArgumentError, ParseError, BindError: ``where`` is not a condition over partition columns.
        ManifestsBusyError, LeaseLostError: Another process publishes; try again.
        StorageError: The store failed. The state is unchanged, and the next run writes the rest.
    """
    return publish_from(log, _newest(log), read_state(log.store), options or ManifestOptions())


def publish_from(
    log: DeltaLog, snapshot: Snapshot, before: ManifestState | None, options: ManifestOptions
) -> PublishResult:
    """Do what ``publish`` does, for a caller that has just read the newest snapshot and the state."""
    store = log.store

    def is_published(state: ManifestState | None) -> bool:
        return _is_current(state, snapshot, options) and not is_doubted(store, MANIFESTS)

    done = PublishResult(version=snapshot.version, previous=before.version if before is not None else None)
    if is_published(before):
        return done
    with holding(log, wait_seconds=options.wait_seconds, done=lambda: is_published(read_state(store))) as lease:
        return done if lease is None else publish_under(log, options, lease)[0]


@contextmanager
def holding(
    log: DeltaLog, name: str = MANIFESTS, *, wait_seconds: float, done: Callable[[], bool] = lambda: False
) -> Iterator[Lease | None]:
    """Hold a lease of the table for the block, or yield None if ``done`` became true during the wait.

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
    """Publish as ``publish`` does, for a caller that holds the lease. Includes commits made in the meantime.

    Returns:
        The result, and the state that is now stored with the table.
    """
    # Both are read under the lease: an earlier holder may have published a later version, which must not go back.
    state, snapshot = read_state(log.store), _newest(log)
    if lease.is_doubted:
        options = replace(options, full=True, where=None)
    elif state is not None and _is_current(state, snapshot, options):
        return PublishResult(version=state.version, previous=state.version), state
    result, after = _publish(log, snapshot, state, options, lease)
    if lease.is_doubted:
        lease.settle()
        result = replace(result, reason="a publisher was stopped for longer than its lease, and may have written late")
    return result, after


def _newest(log: DeltaLog) -> Snapshot:
    snapshot = log.update()
    if snapshot.version < 0:
        raise TableNotFoundError.at(log.uri)
    check_publishable(snapshot)
    return snapshot


def _is_current(state: ManifestState | None, snapshot: Snapshot, options: ManifestOptions) -> bool:
    return (
        state is not None
        and options.where is None
        and state.version == snapshot.version
        and why_full(state, ManifestState.of(snapshot, options.schemes), asked=options.full) is None
        and (options.keep_emptied or not state.emptied)
    )


def _publish(
    log: DeltaLog, snapshot: Snapshot, state: ManifestState | None, options: ManifestOptions, lease: Lease
) -> tuple[PublishResult, ManifestState]:
    store, table = log.store, ManifestState.of(snapshot, options.schemes)
    found = _find(log, snapshot, state, options, why_full(state, table, asked=options.full))
    is_whole = found.reason is not None and not found.partial
    listed = directories_with_manifest(store) if is_whole else ()
    plan = plan_publication(state, table, found, listed=listed, keep_emptied=options.keep_emptied)
    writes = {manifest_path(name): manifest.text for name, manifest in found.manifests.items()}
    put_manifests(store, writes | {manifest_path(name): b"" for name in plan.emptied}, lease)
    delete_manifests(store, [manifest_path(name) for name in plan.removed], lease)
    after = _put_state(store, plan.after, lease)
    files = {name: manifest.num_files for name, manifest in found.manifests.items()}
    result = PublishResult(
        version=after.version,
        previous=state.version if state is not None else None,
        full=found.reason is not None,
        reason=found.reason,
        written={name: manifest.values for name, manifest in found.manifests.items()},
        emptied=plan.emptied,
        removed=plan.removed,
        files=sum(files.values()),
        crowded={name: count for name, count in files.items() if count > MANY_FILES},
    )
    return result, after


# --- which manifests ---------------------------------------------------------------------------------------


def changes_since(log: DeltaLog, version: int, snapshot: Snapshot) -> PartitionChanges:
    """Find the partitions that commits after a version touched, up to a snapshot."""
    try:
        return changed_partitions(log.changes(version, snapshot.version), snapshot.files.spec)
    except VersionNotFoundError:
        why = f"the log no longer reaches back to version {version}"
        return PartitionChanges(values=frozenset(), unknown=why)


def _find(
    log: DeltaLog, snapshot: Snapshot, state: ManifestState | None, options: ManifestOptions, reason: str | None
) -> FoundManifests:
    if options.where is not None:
        return _find_where(snapshot, state, options, reason)
    if state is not None and reason is None:
        changes = changes_since(log, state.version, snapshot)
        if changes.unknown is None:
            manifests, gone = manifests_of_changes(snapshot, changes.values, options.schemes)
            return FoundManifests(manifests=manifests, without_files=gone)
        reason = changes.unknown
    every = manifests_of(snapshot, snapshot.files.core, schemes=options.schemes)
    missing = () if snapshot.partition_columns or every else ("",)
    return FoundManifests(manifests=every, without_files=missing, reason=reason)


def _find_where(
    snapshot: Snapshot, state: ManifestState | None, options: ManifestOptions, reason: str | None
) -> FoundManifests:
    """Find the chosen partitions of a table. The others stay unchanged."""
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
    return FoundManifests(manifests=manifests, without_files=gone, reason=reason, partial=True)


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
    """Write manifests by path, as long as the lease is held."""

    def put(item: tuple[str, bytes]) -> None:
        lease.check()
        store.put(*item)

    if len(writes) == 1:
        put(next(iter(writes.items())))
    elif writes:
        with ThreadPoolExecutor(_WRITERS) as pool:
            for _ in pool.map(put, writes.items()):
                pass


def _put_state(store: Store, state: ManifestState, lease: Lease) -> ManifestState:
    lease.check()
    written = msgspec.structs.replace(state, generation=lease.number)
    store.put(STATE_PATH, written.encode())
    return written


def delete_manifests(store: Store, paths: Sequence[str], lease: Lease) -> None:
    """Delete manifests, and the folders that become empty. Missing ones are not an error.

    MSCK takes every folder for a partition, even an empty one. A store without folders has nothing to remove.
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
    """Return the partition folders in the paths of manifests, the deepest first."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while "=" in folder.rpartition("/")[2]:  # Folders above the partitions are shared by all partitions.
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return sorted(found, key=lambda folder: (-folder.count("/"), folder))


def listed_manifests(store: Store) -> list[ObjectInfo]:
    """List the existing manifests."""
    return [info for info in store.list_all(MANIFEST_DIR) if info.path.endswith(f"/{MANIFEST_NAME}")]


def directories_with_manifest(store: Store) -> list[str]:
    """List the directories that have a manifest."""
    name = f"/{MANIFEST_NAME}"
    return [
        info.path.removesuffix(name).removeprefix(MANIFEST_DIR).removeprefix("/") for info in listed_manifests(store)
    ]


def publish_ahead(log: DeltaLog, values: Mapping[str, str | None], options: ManifestOptions, lease: Lease) -> str:
    """Publish an empty manifest for a partition before it has rows. One that already has rows is left unchanged.

    Args:
        log: Log of the table.
        values: Partition column -> value as the log spells it.
        options: Options of ``publish``, which is called first.
        lease: Lease held by the caller.

    Returns:
        The partition's directory.

    Raises:
        InvalidArgumentError: The columns are not the table's partition columns.
        LogCorruptedError: A value does not fit its column's type.
    """
    _, state = publish_under(log, options, lease)
    snapshot = log.snapshot(version=state.version)
    by_name = {name.lower(): value for name, value in values.items()}
    columns = snapshot.partition_columns
    if not columns or set(by_name) != {name.lower() for name in columns}:
        raise InvalidArgumentError(
            f"A partition of this table is named by {', '.join(columns) or 'nothing: it has no partition columns'}, "
            f"but given were {', '.join(values) or 'no values'}.",
            hint="Write each as column=value.",
            table=snapshot.table_uri,
        )
    directory = partition_directory(snapshot, [by_name[name.lower()] for name in columns])
    if directory in state.live():
        return directory
    lease.check()
    log.store.put(manifest_path(directory), b"")
    after = msgspec.structs.replace(
        state,
        partitions={**state.partitions, directory: state.version},
        emptied=tuple(name for name in state.emptied if name != directory),
        ahead=tuple(sorted({*state.ahead, directory})),
    )
    _put_state(log.store, after, lease)
    return directory


def forget_emptied(log: DeltaLog, directories: Iterable[str], *, wait_seconds: float = 60.0) -> tuple[str, ...]:
    """Delete the empty manifests of partitions that the metastore has dropped.

    A partition that has files again keeps its manifest.

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
            partitions={name: version for name, version in state.partitions.items() if name not in gone},
            emptied=tuple(name for name in state.emptied if name not in gone),
        )
        _put_state(store, after, lease)
    return tuple(gone)
