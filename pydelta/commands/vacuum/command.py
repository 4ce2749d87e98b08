"""Delete a table's files that no retained version needs (VACUUM).

::

    log ---------------> needed: live files, unexpired tombstones, change data, published manifests --+
    listing, or inventory, or removals of the log --> files older than the cut-off -- minus --> doomed
    VACUUM START -> bulk deletion, parallel, checking new commits -> VACUUM END
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import polars as pl

from pydelta.commands.run import Context, Task, commit_alone, existing_table
from pydelta.commands.vacuum.delete import Deletion, Doomed, VacuumOptions, delete_files, not_deleted
from pydelta.commands.vacuum.iceberg import delete_unreferenced, expire_clones, expire_entry, unreferenced
from pydelta.commands.vacuum.inventory import Inventory, InventoryReader
from pydelta.commands.vacuum.listing import ListedBatch, Sieve, key_ranges, left_empty, list_batches, tables_among
from pydelta.commands.vacuum.needed import Needed, find_needed
from pydelta.commands.vacuum.notes import (
    START_VERSION,
    noted_clones,
    plan_lite,
    read_clean_version,
    removed_files,
    write_clean_version,
)
from pydelta.commands.vacuum.plan import (
    DOOMED_SCHEMA,
    Names,
    checksums_of,
    directories_above,
    folders_of,
    in_partitions,
    names_of,
    outside,
    split_checksums,
)
from pydelta.errors import (
    BindError,
    DeltaError,
    InvalidArgumentError,
    StorageError,
    UnsafeOperationError,
)
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.load import commit_info
from pydelta.predicate import Expr, is_partition_only, parse_predicate
from pydelta.protocol.features import ensure_writable
from pydelta.settings.clock import epoch_ms
from pydelta.storage.pages import PAGE_KEYS, paged
from pydelta.txn import Operation
from pydelta.txn.footprint import VACUUM_END, VACUUM_START

__all__ = ["Vacuum", "VacuumMode", "VacuumOptions", "VacuumProgress", "VacuumResult"]

_HOUR_MS: Final = 3_600_000
_LONGEST_HOURS: Final = 10**9  # This is longer than tables have existed.
_SHOWN: Final = 5
_CLOCKS_DIFFER_MS: Final = 60_000


VacuumMode = Literal["full", "lite", "inventory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumProgress:
    """The progress of a run.

    Args:
        phase: ``needed`` while the log is read, ``listing``, ``deleting``, ``done``.
        listed: Number of files examined.
        kept: Number of these that stay.
        doomed: Number of these that will be deleted.
        deleted: Number of files deleted.
        doomed_bytes: Size of the doomed files.
        deleted_bytes: Size of the deleted files.
    """

    phase: str
    listed: int = 0
    kept: int = 0
    doomed: int = 0
    deleted: int = 0
    doomed_bytes: int = 0
    deleted_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumResult:
    """The result of a VACUUM, or of a dry run. Sizes are in bytes, times in epoch milliseconds.

    Args:
        root: URI of the table.
        mode: ``full``, ``lite`` or ``inventory``.
        dry_run: Whether nothing was deleted and nothing committed.
        version: Version of the table whose needed files were kept.
        cutoff_ms: Files younger than this stay, and so do files that versions since then need.
        retention_ms: Time between the cut-off and now.
        files: Files to delete: ``path`` (plain, under the root), ``size`` (null if the log lacks it),
            ``modification_time``, ``partition`` (the directory, such as ``day=2024-01-01``, or empty).
        listed: Number of files examined.
        deleted: Number of files deleted, 0 in a dry run.
        directories: Number of directories examined, including the table's own.
        removed_directories: Number of empty directories that were removed or, in a dry run, would be.
        bytes: Size of the files that were deleted or, in a dry run, would be.
        list_requests: Number of LIST requests for finding the files.
        delete_requests: Number of DELETE requests sent.
        listing_requests: Number of LIST requests that a flat listing takes (or would have taken), a thousand keys each.
        directory_requests: Number of LIST requests that walking the directories one by one would have taken.
        start_version, end_version: Versions of the ``VACUUM START`` and ``VACUUM END`` commits, None in a dry run.
        inventory_age_ms: Age of the inventory, None without one.
        noncurrent_files, noncurrent_bytes: Noncurrent versions of the table's objects, which deleting files does not
            free. None without an inventory of versions.
        delete_markers: Markers left by deletions in a bucket with versions. None as above.
        iceberg_snapshots: Snapshots dropped from the Iceberg entry, since their files may go. 0 in a dry run.
        iceberg_files: Files of the entry that nothing refers to, which were deleted or, in a dry run, would be.
        warnings: Sentences that the caller should show.
    """

    root: str
    mode: VacuumMode
    dry_run: bool
    version: int
    cutoff_ms: int
    retention_ms: int
    files: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=DOOMED_SCHEMA))
    listed: int = 0
    deleted: int = 0
    directories: int = 1
    removed_directories: int = 0
    bytes: int = 0
    list_requests: int = 0
    delete_requests: int = 0
    listing_requests: int = 0
    directory_requests: int = 0
    start_version: int | None = None
    end_version: int | None = None
    inventory_age_ms: int | None = None
    noncurrent_files: int | None = None
    noncurrent_bytes: int | None = None
    delete_markers: int | None = None
    iceberg_snapshots: int = 0
    iceberg_files: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def partitions(self) -> pl.DataFrame:
        """Files and bytes to delete, by partition directory, the largest first: ``partition files bytes``."""
        return (
            self.files.group_by("partition")
            .agg(files=pl.len(), bytes=pl.col("size").sum())
            .sort("bytes", "partition", descending=[True, False])
        )

    @property
    def sentence(self) -> str:
        """The last line of a run."""
        gone = self.deleted + self.removed_directories
        if self.dry_run:
            found = self.files.height + self.removed_directories
            return f"Found {found} files and directories to delete in a total of {self.directories} directories."
        return f"Deleted {gone} files and directories in a total of {self.directories} directories."


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuum(Task[VacuumResult]):
    """VACUUM: delete files that are older than the retention and that no version since then needs.

    Everything stays that a version read which was current at any time since the cut-off: its files, their deletion
    vectors, its change data. So do the files of published symlink manifests, files younger than the cut-off (a writer
    may be about to commit them), files in directories that begin with ``_`` or ``.``, and other Delta tables below this
    one. Snapshots of the Iceberg entry are dropped before their files go. The next run continues an interrupted one.

    Args:
        retention_hours: Time for which versions stay readable, or None for the table's
            ``delta.deletedFileRetentionDuration`` (a week).
        dry_run: Whether to report the files without deleting them.
        mode: ``full`` lists the table. ``lite`` reads the removals of the log, and misses files that were never
            committed. ``inventory`` reads a list.
        inventory: List of files for ``inventory``. Giving one chooses that mode. An outdated list makes it delete less,
            never more.
        where: Condition over partition columns, to delete only files in directories of these partitions.
        time_zone: Zone of times in ``where`` that name none. None refuses them.
        enforce_retention: Whether to refuse a retention below the table's. The session's setting can turn that off too.
        progress: Function that is called with the progress from time to time.
        options: Parallelism, limits and retries.

    Returns:
        The files that were deleted, or would be.

    Raises:
        TableNotFoundError: There is no table.
        UnsupportedFeatureError: The table needs a feature that this engine cannot write.
        UnsafeOperationError: The retention is below the table's.
        CannotVacuumLiteError: The log no longer has everything that LITE would have to delete.
        InvalidArgumentError, ParseError, BindError, SchemaMismatchError: An argument is invalid, or the inventory is
            not one or belongs to another place.
        StoragePermissionError, StorageError: Files could not be deleted. The message has the number of deleted files.

    Protocol: "Add File and Remove File", "Vacuum Protocol Check".
    """

    retention_hours: float | None = None
    dry_run: bool = False
    mode: VacuumMode = "full"
    inventory: Inventory | None = None
    where: Expr | str | None = None
    time_zone: str | None = None
    enforce_retention: bool = True
    progress: Callable[[VacuumProgress], None] | None = field(default=None, repr=False)
    options: VacuumOptions = field(default_factory=VacuumOptions)

    def perform(self, context: Context) -> VacuumResult:
        """See ``Task.perform``."""
        log = context.log
        snapshot = existing_table(log.update())
        assert snapshot.protocol is not None
        ensure_writable(snapshot.protocol, table=log.uri)
        mode, enforced = _mode(self.mode, self.inventory), self.enforce_retention and log.settings.retention_check
        run = _Run(
            request=self,
            context=context,
            snapshot=snapshot,
            mode=mode,
            where=_condition(self, snapshot),
            retention_ms=_retention_ms(self.retention_hours, snapshot, enforced=enforced),
            enforced=enforced,
            now_ms=context.clock(),
        )
        return run.run()


def _mode(mode: VacuumMode, inventory: Inventory | None) -> VacuumMode:
    if mode not in ("full", "lite", "inventory"):
        raise InvalidArgumentError(f"There is no VACUUM mode {mode!r}.", hint="Use full, lite or inventory.")
    if inventory is not None and mode == "lite":
        raise InvalidArgumentError(
            "VACUUM LITE uses only the log, so it takes no inventory.",
            hint="Leave out LITE, or USING INVENTORY.",
        )
    if inventory is None and mode == "inventory":
        raise InvalidArgumentError("There is no inventory to read.", hint="Give one, or choose another mode.")
    return "inventory" if inventory is not None else mode


def _retention_ms(hours: float | None, snapshot: Snapshot, *, enforced: bool) -> int:
    own = snapshot.properties.deleted_file_retention_ms
    if hours is None:
        return own
    if not math.isfinite(hours) or hours < 0:
        raise InvalidArgumentError(
            f"The retention is {hours} hours.",
            hint="Give 0 or more.",
            condition=Condition.of("DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE"),
        )
    chosen = round(min(hours, _LONGEST_HOURS) * _HOUR_MS)
    if enforced and chosen < own:
        least = -(-own // _HOUR_MS)
        raise UnsafeOperationError(
            f"A retention of {hours:g} hours is below the table's own, {least} hours: versions that are still read, "
            "and files that a running writer is about to commit, would lose their files.",
            hint=f"Retain {least} hours or more. If nothing reads or writes the table, turn the check off with "
            "spark.databricks.delta.retentionDurationCheck.enabled=false (or spark.pydelta.vacuum.retentionCheck).",
            condition=Condition.of("DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT", configuredRetentionHours=least),
        )
    return chosen


def _condition(request: Vacuum, snapshot: Snapshot) -> Expr | None:
    where = request.where
    if where is None:
        return None
    if not snapshot.partition_columns:
        raise InvalidArgumentError(
            "The table has no partition columns, so there are no partitions to choose.", hint="Leave the WHERE out."
        )
    schema, zone = snapshot.schema, request.time_zone
    condition = parse_predicate(where, schema, time_zone=zone) if isinstance(where, str) else where
    if not is_partition_only(condition, snapshot.partition_columns):
        raise BindError(
            f"The condition {where} reads a column that is not a partition column.",
            hint=f"The partition columns are: {', '.join(snapshot.partition_columns)}.",
        )
    return condition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The files to delete: those of ``result``, and others that are not counted."""

    checksums: pl.DataFrame
    empty: tuple[str, ...]
    result: VacuumResult
    clean_version: int | None
    clones: tuple[DeltaLog, ...] = ()

    @property
    def bytes(self) -> int:
        return int(self.result.files["size"].sum() or 0)

    def warned(self, *texts: str) -> _Found:
        return replace(self, result=replace(self.result, warnings=(*self.result.warnings, *texts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One VACUUM with its arguments resolved."""

    request: Vacuum
    context: Context
    snapshot: Snapshot
    mode: VacuumMode
    where: Expr | None
    retention_ms: int
    enforced: bool
    now_ms: int

    @property
    def log(self) -> DeltaLog:
        return self.context.log

    @property
    def cutoff_ms(self) -> int:
        return self.now_ms - self.retention_ms

    def tell(self, state: VacuumProgress) -> None:
        if self.request.progress is not None:
            self.request.progress(state)

    def run(self) -> VacuumResult:
        """Find the files, then delete them between two commits."""
        self.tell(VacuumProgress(phase="needed"))
        found = self._find()
        if not self.request.dry_run:
            return self._delete(found)
        self.tell(self._progress(found, "done"))
        entry = len(unreferenced(self.log, cutoff_ms=self.cutoff_ms))
        gone = len(found.empty)
        return replace(found.result, dry_run=True, bytes=found.bytes, removed_directories=gone, iceberg_files=entry)

    # -- finding ------------------------------------------------------------------------------------------------

    def _find(self) -> _Found:
        clones = noted_clones(self.log)
        needed = find_needed(self.log, self.snapshot, cutoff_ms=self.cutoff_ms, clones=clones)
        found = self._find_unneeded(needed)
        if not clones:
            return found
        shown = ", ".join(clone.uri for clone in clones[:_SHOWN]) + (", …" if len(clones) > _SHOWN else "")
        found = replace(found, clones=tuple(clones))
        return found.warned(f"Shallow clones read files of this table, so these files are kept: {shown}.")

    def _find_unneeded(self, needed: Needed) -> _Found:
        names = names_of(self.snapshot)
        if self.mode == "lite":
            return self._find_in_log(needed, names)
        sieve = Sieve(names=names, needed=needed, cutoff_ms=self.cutoff_ms)
        inventory = self.request.inventory
        reader = None
        if inventory is not None:
            reader = InventoryReader(inventory, root=self.log.uri, needed=needed, now_ms=self.now_ms)
            batches: Iterator[ListedBatch] = reader.batches()
        else:
            folders = folders_of(self.where, self.snapshot) if self.where is not None else None
            ranges = key_ranges(needed.sample, ranges=self.request.options.list_workers, folders=folders)
            batches = list_batches(self.log.store, ranges=ranges, enter=names.enters)
        for batch in batches:
            sieve.take(batch)
            self.tell(
                VacuumProgress(
                    phase="listing",
                    listed=sieve.listed,
                    kept=sieve.listed - sieve.doomed_rows,
                    doomed=sieve.doomed_rows,
                    doomed_bytes=sieve.doomed_bytes,
                )
            )
        clean = None
        if reader is None and self.where is None:
            expired = needed.timeline.before(self.cutoff_ms)
            clean = expired[-1] if expired and not needed.held_back else None
        return self._found(needed, sieve, clean_version=clean, reader=reader)

    def _find_in_log(self, needed: Needed, names: Names) -> _Found:
        clean = read_clean_version(self.log.store)
        versions = plan_lite(needed.timeline, clean_version=clean, cutoff_ms=self.cutoff_ms)
        removed = removed_files(self.log, versions, needed.timeline)
        sieve = Sieve(names=names, needed=needed, cutoff_ms=self.cutoff_ms)
        sieve.take(ListedBatch(files=removed))
        kept = removed.filter(needed.others.may_hold(removed["path"]) & ~needed.live.may_hold(removed["path"]))
        last = versions.last if kept.is_empty() else int(kept["version"].min()) - 1  # type: ignore[arg-type]
        advanced = last if self.where is None and last >= versions.first else None
        return self._found(needed, sieve, clean_version=advanced)

    def _found(
        self, needed: Needed, sieve: Sieve, *, clean_version: int | None, reader: InventoryReader | None = None
    ) -> _Found:
        warnings: tuple[str, ...] = ()
        age_ms: int | None = None
        if reader is not None:
            created = self.snapshot.metadata.created_time if self.snapshot.metadata else None
            warnings, age_ms = reader.finish(has_files=bool(needed.live), created_ms=created)
        sifted, listed = sieve.result(), sieve.listed
        doomed, empty = sifted.doomed, pl.Series(sifted.empty, dtype=pl.String).to_frame("path")
        if self.where is not None:
            doomed = in_partitions(doomed, self.snapshot, self.where)
            inside = empty.with_columns(partition=pl.col("path").str.strip_prefix("_change_data/"))
            empty = in_partitions(inside, self.snapshot, self.where)
        tables, asked = self._tables_inside(doomed, needed, listed)
        doomed, empty = outside(doomed, tables), outside(empty, tables)
        files, checksums = split_checksums(doomed)
        if self.log.uri.startswith("file:"):  # Hadoop keeps checksums there, but a log or an inventory may lack them.
            checksums = pl.concat([checksums, checksums_of(files)]).unique("path")
        store = paged(self.log.store)
        folders = empty["path"].to_list() if store is not None and store.has_directories else []
        if folders and reader is not None and store is not None:
            gone = pl.concat([files["path"], checksums["path"]])
            folders = left_empty(store, folders, gone=gone, cutoff_ms=self.cutoff_ms)
        directories = len(sifted.directories) + 1
        result = VacuumResult(
            root=self.log.uri,
            mode=self.mode,
            dry_run=False,
            version=self.snapshot.version,
            cutoff_ms=self.cutoff_ms,
            retention_ms=self.retention_ms,
            files=files,
            listed=listed,
            directories=directories,
            list_requests=sieve.requests + asked,
            listing_requests=max(1, -(-listed // PAGE_KEYS)),
            directory_requests=directories + listed // PAGE_KEYS,
            inventory_age_ms=age_ms,
            noncurrent_files=reader.noncurrent_files if reader and reader.tells_versions else None,
            noncurrent_bytes=reader.noncurrent_bytes if reader and reader.tells_versions else None,
            delete_markers=reader.delete_markers if reader and reader.tells_versions else None,
            warnings=warnings,
        )
        return _Found(checksums=checksums, empty=tuple(folders), result=result, clean_version=clean_version)

    def _tables_inside(self, doomed: pl.DataFrame, needed: Needed, listed: int) -> tuple[frozenset[str], int]:
        """Find tables above files to delete that no listing has shown. Returns them and the number of requests.

        A listing of a file system does not follow links, and a log may be one.
        """
        store = paged(self.log.store)
        if self.mode == "full" and store is not None and not store.has_directories:
            return frozenset(), 0
        return tables_among(
            self.log.store,
            directories_above(doomed["path"]),
            files=max(listed, needed.sample.count),
            workers=self.request.options.list_workers,
        )

    # -- deleting -----------------------------------------------------------------------------------------------

    def _delete(self, found: _Found) -> VacuumResult:
        before_ms = epoch_ms()  # The command's clock may differ on purpose, so compare this machine's.
        start = self._record(
            VACUUM_START,
            {
                "retentionCheckEnabled": self.enforced,
                "defaultRetentionMillis": self.snapshot.properties.deleted_file_retention_ms,
                **({} if self.request.retention_hours is None else {"specifiedRetentionMillis": self.retention_ms}),
            },
            {"numFilesToDelete": found.result.files.height, "sizeOfDataToDelete": found.bytes},
        )
        state = Deletion()

        def on_deleted(current: Deletion) -> None:
            self.tell(self._progress(found, "deleting", current))

        try:
            ahead_ms = self._ahead_ms(before_ms, start)
            if ahead_ms > _CLOCKS_DIFFER_MS:
                found = self._by_the_stores_clock(ahead_ms)
            found = self._expire(found)
            files = found.result.files
            if files.height or found.checksums.height:
                doomed = Doomed(files=files, uncounted=found.checksums, version=self.snapshot.version)
                delete_files(self.log, doomed, self.request.options, on_deleted=on_deleted, state=state)
            removed = self._remove_directories(found)
            entry = delete_unreferenced(self.log, cutoff_ms=found.result.cutoff_ms)
        except BaseException:
            self._record_failure(start, found, state)
            raise
        failed = bool(state.failed or state.untouched)
        end = self._record_end(start, found, state.files + removed, "FAILED" if failed else "COMPLETED")
        self.tell(self._progress(found, "done", state))
        if failed:
            raise self._incomplete(found, state)
        if found.clean_version is not None and not state.spared:
            write_clean_version(self.log.store, found.clean_version)
        return replace(
            found.result,
            deleted=state.files,
            removed_directories=removed,
            bytes=state.bytes,
            delete_requests=state.requests,
            start_version=start,
            end_version=end,
            iceberg_files=entry,
        )

    def _expire(self, found: _Found) -> _Found:
        """Drop the snapshots of Iceberg entries whose files may go."""
        cutoff_ms = found.result.cutoff_ms
        own = expire_entry(self.log, newest=self.snapshot.version, cutoff_ms=cutoff_ms)
        others = expire_clones(found.clones, cutoff_ms=cutoff_ms)
        found = found.warned(*own.warnings, *others.warnings)
        return replace(found, result=replace(found.result, iceberg_snapshots=own.count + others.count))

    def _ahead_ms(self, before_ms: int, start: int) -> int:
        """Return at least how far this machine's clock is ahead of the store's, from a commit made since a time."""
        try:
            info = commit_info(self.log.store, start)
        except StorageError:
            return 0
        return 0 if info is None else before_ms - info.modification_time_ms

    def _by_the_stores_clock(self, ahead_ms: int) -> _Found:
        """Find the files again with a corrected clock, since the store decides how old files are."""
        found = replace(self, now_ms=self.now_ms - ahead_ms)._find()
        return found.warned(
            f"The clock of this machine is {ahead_ms // 60_000} minutes ahead of the store's: files are as old as the "
            "store says."
        )

    def _remove_directories(self, found: _Found) -> int:
        store = paged(self.log.store)
        return len(store.remove_directories(list(found.empty))) if store is not None and found.empty else 0

    def _record_end(self, start: int, found: _Found, gone: int, status: str) -> int:
        metrics = {"numDeletedFiles": gone, "numVacuumedDirectories": found.result.directories}
        return self._record(VACUUM_END, {"status": status, START_VERSION: start}, metrics)

    def _record_failure(self, start: int, found: _Found, state: Deletion) -> None:
        """Record in the history that the run failed, if possible. The original error is the one that is raised."""
        try:
            self._record_end(start, found, state.files, "FAILED")
        except DeltaError:
            return

    def _record(self, name: str, parameters: Mapping[str, object], metrics: Mapping[str, str | int]) -> int:
        """Commit without changes."""
        return commit_alone(self.context, Operation(name=name, parameters=parameters, metrics=metrics))

    def _incomplete(self, found: _Found, state: Deletion) -> StorageError:
        shown = "; ".join(f"{path}: {reason}" for path, reason in state.failed[:_SHOWN])
        left = len(state.failed) + state.untouched
        message = (
            f"VACUUM deleted {state.files} files ({state.bytes} bytes), and {left} of {found.result.files.height} are "
            f"still there. {shown}{'; …' if len(state.failed) > _SHOWN else ''}"
        )
        return not_deleted(state, message)

    def _progress(self, found: _Found, phase: str, state: Deletion | None = None) -> VacuumProgress:
        listed, doomed = found.result.listed, found.result.files.height
        return VacuumProgress(
            phase=phase,
            listed=listed,
            kept=listed - doomed,
            doomed=doomed,
            deleted=state.files if state else 0,
            doomed_bytes=found.bytes,
            deleted_bytes=state.bytes if state else 0,
        )
