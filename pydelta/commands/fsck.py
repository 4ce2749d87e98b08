"""Find damage in a table; with repair, remove entries of missing files from the log (FSCK).

::

    log directory  --> holes, commits and checkpoints that cannot be read
    live files     -- minus the store's listing --> missing
    live files     -- of another size than in the listing --> damaged
    listing        -- minus the files that any version in the log names --> stray
    Iceberg entry  --> its own files that are missing or damaged
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl

from pydelta.commands.run import Context, Task
from pydelta.commands.vacuum.listing import list_batches
from pydelta.commands.vacuum.needed import find_needed
from pydelta.commands.vacuum.plan import LISTED_SCHEMA, doomed_files, names_of, nested_tables, outside, own_paths
from pydelta.errors import (
    DeltaEnvironmentError,
    DeltaError,
    LogCorruptedError,
    LogGapError,
    TableNotFoundError,
    UnsafeOperationError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.checkpoint.read import read_checkpoint
from pydelta.log.replay import State, apply_actions, partition_spec
from pydelta.log.segment import CheckpointFiles, Listing, read_listing
from pydelta.log.side_files import HINT_PATH, read_hint
from pydelta.manifests.iceberg.metadata import METADATA_DIR
from pydelta.protocol.actions import AddFile
from pydelta.protocol.paths import LOG_DIR, LogFileKind, decode_log_path, parse_log_name
from pydelta.protocol.vectors import stored_range, vector_path
from pydelta.storage import open_store
from pydelta.storage.interface import ObjectInfo
from pydelta.storage.readers import read_all
from pydelta.txn import Operation, OptimisticTransaction

__all__ = ["Fsck", "FsckReport"]

_LOG: Final = logging.getLogger(__name__)

_READERS: Final = 16
_WRITING_MS: Final = 24 * 3_600_000
"""How long after its last change an incomplete checkpoint may still be in progress."""
_CHECKPOINTS: Final = (LogFileKind.CHECKPOINT_CLASSIC, LogFileKind.CHECKPOINT_PART, LogFileKind.CHECKPOINT_V2)


def _nothing() -> pl.DataFrame:
    return pl.DataFrame(schema=LISTED_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckReport:
    """The damage that was found, and what was repaired.

    Args:
        root: URI of the table.
        version: Its newest version; None if it cannot be read.
        unreadable: Why it cannot be read; None if it can.
        holes: Versions whose commit is missing between the oldest and the newest one.
        damaged_commits: Version and reason.
        damaged_checkpoints: File names and reasons, including parts of incomplete checkpoints.
        damaged_hint: Whether ``_last_checkpoint`` is unusable.
        checked_files: How many live files were checked.
        missing_files: Live files that no longer exist, as the log spells them.
        missing_vectors: Live files whose deletion vector no longer exists, so that their hidden rows are unknown.
        damaged_files: Live files whose size differs from the log, with both sizes.
        damaged_vectors: Live files whose deletion vector is cut short, with the sizes.
        unreachable: Folders outside the table whose files could not be checked, with the reason.
        stray_files: Files that no version in the log names: ``path size modification_time``.
        damaged_entry: Missing and damaged files of the Iceberg entry, with the reason. They are not repaired: delete
            the folder ``_pydelta/iceberg`` and publish the entry again.
        repaired_version: The commit that removed the missing files from the log; None without one.
        removed_checkpoints: Damaged checkpoint files that were deleted or replaced by a sound one.
    """

    root: str
    version: int | None
    unreadable: str | None = None
    holes: tuple[int, ...] = ()
    damaged_commits: tuple[tuple[int, str], ...] = ()
    damaged_checkpoints: tuple[tuple[str, str], ...] = ()
    damaged_hint: bool = False
    checked_files: int = 0
    missing_files: tuple[str, ...] = ()
    missing_vectors: tuple[str, ...] = ()
    damaged_files: tuple[tuple[str, str], ...] = ()
    damaged_vectors: tuple[tuple[str, str], ...] = ()
    unreachable: tuple[tuple[str, str], ...] = ()
    stray_files: pl.DataFrame = field(default_factory=_nothing)
    damaged_entry: tuple[tuple[str, str], ...] = ()
    repaired_version: int | None = None
    removed_checkpoints: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the table is sound. Stray files are harmless; VACUUM deletes them in time."""
        return not (
            self.unreadable
            or self.holes
            or self.damaged_commits
            or self.damaged_checkpoints
            or self.damaged_hint
            or self.missing_files
            or self.missing_vectors
            or self.damaged_files
            or self.damaged_vectors
            or self.unreachable
            or self.damaged_entry
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsck(Task[FsckReport]):
    """Check a table; change nothing unless ``repair`` is set.

    A repair removes the entries of missing data files from the log, in one commit: their rows are lost in any case, and
    the rest of the table becomes readable. It deletes damaged checkpoints after writing a new one. It cannot restore
    lost data: holes in the log, damaged commits, truncated files and missing deletion vectors stay.

    Args:
        repair: Whether to repair.

    Returns:
        The damage that was found, before any repair.

    Raises:
        TableNotFoundError: There is no log.
        UnsafeOperationError: The table is append-only, so no entry may be removed; or a folder outside the table cannot
            be reached, so it is not known whether its files are missing.
        UnsupportedFeatureError: The table has a feature that this engine does not know.
        StorageError: The store failed.
    """

    repair: bool = False

    def perform(self, context: Context) -> FsckReport:
        """See ``Task.perform``."""
        log = context.log
        objects = list(log.store.list_from("", prefix=LOG_DIR))
        listing = read_listing(objects)
        if listing.is_empty:
            raise TableNotFoundError.at(log.uri)
        report = replace(_check_log(log, objects, listing), damaged_entry=_damage_of_entry(log))
        try:
            txn = context.start()
            checked = _check_files(log, txn.snapshot, report, now_ms=context.clock())
        except (LogCorruptedError, LogGapError) as error:
            return replace(report, unreadable=error.message)
        return _repair(context, txn, checked) if self.repair else checked


# --- the log -----------------------------------------------------------------------------------------------------


def _check_log(log: DeltaLog, objects: Sequence[ObjectInfo], listing: Listing) -> FsckReport:
    versions = sorted(listing.commits)
    holes = sorted(set(range(versions[0], listing.last_version + 1)) - set(versions)) if versions else []
    with ThreadPoolExecutor(max_workers=_READERS) as pool:
        commits = [found for found in pool.map(lambda version: _damage_of_commit(log, version), versions) if found]
        checkpoints = [part for found in pool.map(lambda files: _damage_of(log, files), listing.checkpoints)
                       for part in found]  # fmt: skip
    complete = {info.path for files in listing.checkpoints for info in files.files}
    for info in objects:
        name = info.path.rpartition("/")[2]
        file = parse_log_name(name)
        if file is not None and file.kind in _CHECKPOINTS and info.path not in complete:
            why = "it is empty" if info.size == 0 else "other parts of it are missing"
            checkpoints.append((name, why))
    hinted = log.store.head(HINT_PATH) is not None
    hint = read_hint(log.store) if hinted else None
    known = {files.version for files in listing.checkpoints}
    return FsckReport(
        root=log.uri,
        version=None,
        holes=tuple(holes),
        damaged_commits=tuple(commits),
        damaged_checkpoints=tuple(checkpoints),
        damaged_hint=hinted and (hint is None or hint.version not in known),
    )


def _damage_of_commit(log: DeltaLog, version: int) -> tuple[int, str] | None:
    try:
        log.actions(version)
    except LogCorruptedError as error:
        return version, error.message
    except VersionNotFoundError:  # Log cleanup deleted it after the listing.
        return None
    return None


def _damage_of(log: DeltaLog, files: CheckpointFiles) -> list[tuple[str, str]]:
    """Return why a checkpoint cannot be read, for each of its files; nothing for a sound one."""
    try:
        found = read_checkpoint(log.store, files)
        found.core(partition_spec(apply_actions(State(), found.state)).physical_names)
        found.tombstones()
    except LogCorruptedError as error:
        return [(info.path.rpartition("/")[2], error.message) for info in files.files]
    except UnsupportedFeatureError:
        return []
    return []


def _damage_of_entry(log: DeltaLog) -> tuple[tuple[str, str], ...]:
    """Return missing and damaged files of the Iceberg entry, which is not checked without PyIceberg."""
    if next(iter(log.store.list_from("", prefix=METADATA_DIR)), None) is None:
        return ()
    try:
        from pydelta.manifests.iceberg import damaged_files
    except DeltaEnvironmentError as error:
        _LOG.warning("The Iceberg entry is not checked: %s", error.message, extra={"table": log.uri})
        return ()
    return tuple(damaged_files(log))


# --- files -------------------------------------------------------------------------------------------------------


def _check_files(log: DeltaLog, snapshot: Snapshot, report: FsckReport, *, now_ms: int) -> FsckReport:
    names = names_of(snapshot)
    batches = [batch.files for batch in list_batches(log.store, enter=names.enters)]
    listed = pl.concat(batches) if batches else _nothing()
    adds = snapshot.files.core
    listed_sizes = listed.select(key="path", found="size").unique("key")
    sized = adds.with_columns(key=own_paths(adds["path"], log.uri)).join(listed_sizes, on="key", how="left")
    wrong = sized.filter(pl.col("found") != pl.col("size")).select("path", "size", "found").rows()
    looked = _Looked(log)
    suspects = snapshot.files.adds(sized.filter(pl.col("found").is_null()).select(adds.columns))
    looked.look([add.path for add in suspects])
    for add in suspects:
        size = looked.sizes.get(add.path)
        if size is not None and size != add.size:
            wrong.append((add.path, add.size, size))
    vectors = adds.filter(pl.col("dv_id").is_not_null() & ~pl.col("dv_id").str.starts_with("i"))
    missing, short = _check_vectors(looked, snapshot.files.adds(vectors), listed_sizes) if vectors.height else ([], [])
    return replace(
        report,
        version=snapshot.version,
        checked_files=adds.height,
        missing_files=tuple(add.path for add in suspects if add.path in looked.missing),
        missing_vectors=tuple(missing),
        damaged_files=tuple((path, _sizes(found, logged)) for path, logged, found in wrong),
        damaged_vectors=tuple(short),
        unreachable=tuple(sorted(looked.unreachable.items())),
        stray_files=_nothing() if report.damaged_commits else _stray(log, snapshot, listed, now_ms=now_ms),
    )


def _sizes(found: int, logged: int) -> str:
    return f"it has {found} bytes, but the log says {logged}"


class _Looked:
    """Looks up files that the listing lacks: those of a shallow clone's source, or very new ones.

    A file elsewhere counts as missing only if something of its table exists there. Otherwise its disk may not be
    mounted, and all of its files would look missing.
    """

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self.root = log.uri
        self.sizes: dict[str, int] = {}
        self.missing: set[str] = set()
        self.unreachable: dict[str, str] = {}
        self._seen: dict[str, bool] = {}

    def look(self, paths: Sequence[str]) -> None:
        """Look up files by their paths in the log."""
        log = self._log
        absent = []
        folders = {path: decode_log_path(path).place(log.uri)[0] for path in paths}
        for path, found in zip(paths, read_all(self._head, list(paths)), strict=True):
            folder = folders[path]
            if isinstance(found, ObjectInfo):
                self.sizes[path] = found.size
                self._seen[folder or ""] = True
            elif found is None:
                absent.append(path)
            elif folder is None:
                raise found
            else:
                self.unreachable[folder] = found.message
        for path in absent:
            folder = folders[path]
            if folder is None or self._is_seen(folder):
                self.missing.add(path)
            elif folder not in self.unreachable:
                self.unreachable[folder] = (
                    "neither the files that the log names nor the table that they are of is there"
                )

    def _head(self, path: str) -> ObjectInfo | DeltaError | None:
        try:
            return self._log.head_file(path)
        except DeltaError as error:
            return error

    def _is_seen(self, folder: str) -> bool:
        """Return whether a folder elsewhere holds a file of ours, or is inside a Delta table."""
        if folder not in self._seen:
            try:
                log = open_store(folder, self._log.options).list_from("", prefix=LOG_DIR)
                above = folder.rpartition("/")[0]
                self._seen[folder] = next(iter(log), None) is not None or (
                    not above.endswith("/") and ":" in above and self._is_seen(above)
                )
            except DeltaError as error:
                self.unreachable[folder] = error.message
                self._seen[folder] = False
        return self._seen[folder]


def _check_vectors(
    looked: _Looked, adds: Sequence[AddFile], listed_sizes: pl.DataFrame
) -> tuple[list[str], list[tuple[str, str]]]:
    """Find files whose deletion vector is missing, and files whose vector is cut short."""
    paths, ends = [], []
    for add in adds:
        vector = add.deletion_vector
        stored = stored_range(vector) if vector is not None else None
        paths.append((vector_path(vector) if vector is not None else None) or "")
        ends.append(sum(stored) if stored is not None else 0)
    frame = pl.DataFrame({"vector": paths, "end": ends}, schema={"vector": pl.String, "end": pl.Int64})
    known = frame.with_columns(key=own_paths(frame["vector"], looked.root)).join(
        listed_sizes, on="key", how="left", maintain_order="left"
    )
    looked.look(known.filter(pl.col("found").is_null())["vector"].unique(maintain_order=True).to_list())
    missing, short = [], []
    for add, path, end, listed in zip(adds, paths, ends, known["found"], strict=True):
        size = looked.sizes.get(path) if listed is None else listed
        if size is None and path in looked.missing:
            missing.append(add.path)
        elif size is not None and size < end:
            short.append((add.path, f"{path} has {size} bytes, but the vector ends at {end}"))
    return missing, short


def _stray(log: DeltaLog, snapshot: Snapshot, listed: pl.DataFrame, *, now_ms: int) -> pl.DataFrame:
    """Return files that no version in the log names, of any age."""
    needed = find_needed(log, snapshot, cutoff_ms=0)
    found = doomed_files(listed, needed, cutoff_ms=2 * now_ms, names=names_of(snapshot))
    return outside(found, nested_tables(listed["path"])).select(list(LISTED_SCHEMA))


# --- repair ------------------------------------------------------------------------------------------------------


def _repair(context: Context, txn: OptimisticTransaction, report: FsckReport) -> FsckReport:
    log, snapshot, repaired = txn.log, txn.snapshot, None
    if report.unreachable:
        folder, why = report.unreachable[0]
        more = f" ({len(report.unreachable)} folders in all)" if len(report.unreachable) > 1 else ""
        raise UnsafeOperationError(
            f"The log names files in {folder}, which cannot be searched: {why}{more}. Nothing is repaired, since "
            "their rows would be lost.",
            hint="Mount the disk, or make the store reachable, and repair again.",
            table=log.uri,
        )
    if report.missing_files:
        missing = snapshot.files.core.filter(pl.col("path").is_in(list(report.missing_files)))
        txn.mark_read(missing)
        now = context.clock()
        actions = [add.remove(deletion_timestamp=now) for add in snapshot.files.adds(missing)]
        operation = Operation(name="FSCK", parameters={}, metrics={"numMissingFiles": len(actions)})
        repaired = txn.commit(actions, operation).version
    removed: tuple[str, ...] = ()
    if report.damaged_checkpoints:
        # Write a complete new one first: the damaged one may be the only record of the versions before it.
        written = log.checkpoint(log.update(), whole=True)
        kept = {written.name, *written.sidecars, *_under_way(log, now_ms=context.clock())}
        paths = [f"{LOG_DIR}/{name}" for name, _ in report.damaged_checkpoints]
        log.store.delete_many([path for path in paths if path not in kept])
        replaced = [path for path in paths if path == written.name or path not in kept]
        removed = tuple(path.rpartition("/")[2] for path in replaced)
    elif report.damaged_hint:
        log.checkpoint(log.update())
    return replace(report, repaired_version=repaired, removed_checkpoints=removed)


def _under_way(log: DeltaLog, *, now_ms: int) -> list[str]:
    """List parts of checkpoints that another writer may still be writing."""
    since = now_ms - _WRITING_MS
    found = []
    for info in log.store.list_from("", prefix=LOG_DIR):
        file = parse_log_name(info.path.rpartition("/")[2])
        if file is not None and file.kind is LogFileKind.CHECKPOINT_PART and info.modification_time_ms >= since:
            found.append(info.path)
    return found
