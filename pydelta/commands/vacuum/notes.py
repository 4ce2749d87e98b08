"""Read and write notes next to a table for VACUUM: its runs, the progress of LITE, and shallow clones.

A VACUUM commits its start and its end. ``_delta_log/_last_vacuum_info`` records up to which version all removed files
have been deleted. A later LITE, which lists no directory, begins after it, so that it still works when log clean-up has
deleted the first versions. A FULL records it too. ``_pydelta/clones`` has the locations of shallow clones, whose files
are kept by VACUUM of their source.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import polars as pl

from pydelta.commands.vacuum.needed import CommitTimeline, files_of_commits
from pydelta.commands.vacuum.plan import LISTED_SCHEMA, own_paths
from pydelta.errors import CannotVacuumLiteError, DeltaError, ObjectNotFoundError, StorageError, UnsafeOperationError
from pydelta.log import CommitRecord, DeltaLog
from pydelta.log.given_up import GIVEN_UP_FILE
from pydelta.protocol.malformed import MALFORMED_JSON, reason
from pydelta.protocol.paths import LOG_DIR
from pydelta.protocol.vectors import vector_files
from pydelta.settings.clock import epoch_ms
from pydelta.storage import Store
from pydelta.storage.whole import read_listed
from pydelta.txn.footprint import VACUUM_END, VACUUM_START

__all__ = [
    "LAST_VACUUM",
    "START_VERSION",
    "LiteRange",
    "RunningVacuum",
    "find_running",
    "note_clone",
    "noted_clones",
    "plan_lite",
    "read_clean_version",
    "removed_files",
    "running_vacuum",
    "write_clean_version",
]

_FOLDER: Final = "_pydelta/clones"
_LOG = logging.getLogger(__name__)
LAST_VACUUM: Final = f"{LOG_DIR}/_last_vacuum_info"
_VERSION: Final = "latestCommitVersionOutsideOfRetentionWindow"
_LONGEST_RUN_MS: Final = 24 * 3_600_000
_RETENTIONS: Final = ("specifiedRetentionMillis", "defaultRetentionMillis")
START_VERSION: Final = "startVersion"
"""Parameter of our ``VACUUM END``: the version of its start."""


# --- the running VACUUM --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningVacuum:
    """A VACUUM that has begun.

    Args:
        version: Version of its ``VACUUM START``.
        started_ms: Time of that commit, epoch milliseconds.
        cutoff_ms: It may delete files that were removed before this time.
    """

    version: int
    started_ms: int
    cutoff_ms: int

    @property
    def given_up_ms(self) -> int:
        """The time, in epoch milliseconds, from which it is considered dead if it has not ended."""
        return self.started_ms + _LONGEST_RUN_MS


def running_vacuum(records: Sequence[CommitRecord], *, now_ms: int) -> RunningVacuum | None:
    """Find the VACUUM that began within a day and has not ended, and of several the one that may delete most.

    Our own end names its run. An end by another engine does not: it is matched with the last run that began and was not
    ours. Runs that remain are assumed to delete as much as any that ran at the same time.

    Args:
        records: Commits, newest first, from ``DeltaLog.history``.
        now_ms: Current time in epoch milliseconds.
    """
    ours: dict[int, RunningVacuum] = {}
    others: list[RunningVacuum] = []
    for record in reversed(records):
        operation = record.commit_info.operation if record.commit_info is not None else None
        if operation == VACUUM_START:
            run = RunningVacuum(
                version=record.version,
                started_ms=record.timestamp_ms,
                # Without a retention it may delete everything.
                cutoff_ms=record.timestamp_ms - (_number(record, *_RETENTIONS) or 0),
            )
            if _is_ours(record):
                ours[run.version] = run
            else:
                others.append(run)
        elif operation == VACUUM_END and _is_ours(record):
            ours.pop(_number(record, START_VERSION) or 0, None)
        elif operation == VACUUM_END and others:
            ended = others.pop()
            if others:
                others[-1] = replace(others[-1], cutoff_ms=max(others[-1].cutoff_ms, ended.cutoff_ms))
    alive = [run for run in (*ours.values(), *others) if now_ms < run.given_up_ms]
    return max(alive, key=lambda run: run.cutoff_ms, default=None)


def _is_ours(record: CommitRecord) -> bool:
    engine = record.commit_info.get("engineInfo") if record.commit_info is not None else None
    return isinstance(engine, str) and engine.startswith("pydelta/")


def _number(record: CommitRecord, *names: str) -> int | None:
    """Return the first of some operation parameters that is a whole number."""
    parameters: Any = record.commit_info.get("operationParameters") if record.commit_info is not None else None
    for name in names:
        value = parameters.get(name) if isinstance(parameters, dict) else None
        try:
            found = msgspec.convert(value, int | None, strict=False)
        except msgspec.ValidationError:
            found = None
        if found is not None:
            return found
    return None


def find_running(log: DeltaLog, version: int, *, since_ms: int = 0) -> RunningVacuum | None:
    """Find the VACUUM of a table that is running at a version, in the commits of the last day.

    Args:
        log: The table.
        version: Newest version of the table.
        since_ms: Ignore runs that began before this time, epoch milliseconds, so that fewer commits are read.
    """
    now_ms = epoch_ms()
    recent = CommitTimeline.of(log, version).since(max(since_ms, now_ms - _LONGEST_RUN_MS))
    if not recent:
        return None
    limit = len(recent)
    records = log.history(limit=limit)
    while len(records) == limit and records[-1].version > recent[0]:  # More commits have arrived.
        limit += records[-1].version - recent[0]
        records = log.history(limit=limit)
    return running_vacuum([record for record in records if record.version <= version], now_ms=now_ms)


# --- LITE ------------------------------------------------------------------------------------------------------


def read_clean_version(store: Store) -> int | None:
    """Read up to which version all removed files have been deleted, or return None without a valid note."""
    try:
        found = json.loads(store.read(LAST_VACUUM))
    except (ObjectNotFoundError, *MALFORMED_JSON):
        return None
    version = found.get(_VERSION) if isinstance(found, dict) else None
    return version if isinstance(version, int) and not isinstance(version, bool) else None


def write_clean_version(store: Store, version: int) -> None:
    """Record the version up to which removed files have been deleted, as the reference engine does."""
    store.put(LAST_VACUUM, json.dumps({_VERSION: version}, separators=(",", ":")).encode() + b"\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteRange:
    """Commits whose removals are examined, including both ends. ``first > last`` if there are none."""

    first: int
    last: int


def plan_lite(timeline: CommitTimeline, *, clean_version: int | None, cutoff_ms: int) -> LiteRange:
    """Choose the commits to examine: those before the cut-off that no earlier run has processed. Pure.

    Args:
        timeline: The commits that the log holds.
        clean_version: Result of ``read_clean_version``.
        cutoff_ms: Cut-off in epoch milliseconds.

    Raises:
        CannotVacuumLiteError: The log no longer holds all of them.
    """
    if clean_version is not None and clean_version > timeline.newest:
        clean_version = None  # The note belongs to an earlier table at this location.
    first = 0 if clean_version is None else clean_version + 1
    expired = timeline.before(cutoff_ms)
    last = expired[-1] if expired else -1
    if not expired and timeline.versions and timeline.versions[0] > first:
        last = timeline.versions[0] - 1  # Deleted commits are older than the remaining ones.
    missing = sorted(set(range(first, last + 1)) - set(expired))
    if missing:
        since = f"version {clean_version}" if clean_version is not None else "the table's beginning"
        raise CannotVacuumLiteError(
            f"VACUUM LITE cannot find everything that was removed since {since}: the log no longer has version "
            f"{missing[0]}{' and others' if len(missing) > 1 else ''}.",
            hint="Run VACUUM FULL (or USING INVENTORY) once; after FULL, LITE works again.",
        )
    return LiteRange(first=first, last=last)


def removed_files(log: DeltaLog, versions: LiteRange, timeline: CommitTimeline) -> pl.DataFrame:
    """Find the files, deletion vectors and change data that commits removed or left behind, under the table's root.

    Args:
        log: The table.
        versions: Versions of the commits.
        timeline: Commit times.

    Returns:
        Columns of ``LISTED_SCHEMA`` and ``version``. ``modification_time`` is the commit's, and ``size`` is null if the
        log lacks it.
    """
    times = dict(zip(timeline.versions, timeline.times_ms, strict=True))
    parts = [pl.DataFrame(schema=LISTED_SCHEMA | {"version": pl.Int64()})]
    try:
        commits = files_of_commits(log, range(versions.first, versions.last + 1), all_of_them=True)
    except ObjectNotFoundError as error:
        raise CannotVacuumLiteError(
            f"Log clean-up deleted a commit that VACUUM LITE needs: {error.message}",
            hint="Run VACUUM FULL once; then LITE works again.",
        ) from error
    for commit in commits:
        gone = commit.files
        if (gone["path"] == GIVEN_UP_FILE).any():
            raise CannotVacuumLiteError(
                f"Version {commit.version} was given up by an erasure, so the log no longer has what it removed.",
                hint="Run VACUUM FULL (or USING INVENTORY) once; after FULL, LITE works again.",
            )
        if gone.is_empty():
            continue
        sizes = gone.select(id="vector", size="vector_size").drop_nulls("id").unique("id")
        vectors = (
            vector_files(gone["vector"], offsets=False).join(sizes, on="id").group_by("path").agg(pl.col("size").sum())
        )
        found = pl.concat([gone.select("path", "size"), vectors])
        # Files elsewhere, such as those of a shallow clone's source, are not deleted.
        own = found.with_columns(path=own_paths(found["path"], log.uri)).drop_nulls("path")
        parts.append(
            own.filter(~pl.col("path").str.contains(r"(^|/)\.{0,2}(/|$)")).with_columns(
                modification_time=pl.lit(times[commit.version], dtype=pl.Int64),
                version=pl.lit(commit.version, dtype=pl.Int64),
            )
        )
    return pl.concat(parts).unique("path", keep="last", maintain_order=True)


# --- shallow clones --------------------------------------------------------------------------------------------


class _Note(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    location: str
    source_version: int


def note_clone(source: DeltaLog, location: str, *, version: int) -> None:
    """Note that a table names files of this one. Without write permission on the source, nothing is noted.

    Args:
        source: The table whose files are named.
        location: URI of the clone.
        version: Version of the source.
    """
    name = hashlib.sha256(location.encode()).hexdigest()[:32]
    note = msgspec.json.encode(_Note(location=location, source_version=version))
    try:
        source.store.put(f"{_FOLDER}/{name}.json", note)
    except StorageError as error:
        _LOG.info("The clone %s could not be noted next to its source: %s", location, error.message)


def noted_clones(source: DeltaLog) -> list[DeltaLog]:
    """Find the shallow clones that were noted, and their clones, by location, without those known to be deleted.

    Raises:
        UnsafeOperationError: A note cannot be read, so the tables that VACUUM may break are not known.
        StorageError: The store failed.
    """
    found: dict[str, DeltaLog] = {}
    waiting = [source]
    while waiting:
        for clone in _clones_of(waiting.pop()):
            if clone.uri not in found and clone.uri != source.uri:
                found[clone.uri] = clone
                waiting.append(clone)
    return [found[location] for location in sorted(found)]


def _clones_of(source: DeltaLog) -> Iterator[DeltaLog]:
    for info in source.store.list_all(_FOLDER):
        try:
            location = msgspec.json.decode(read_listed(source.store, info), type=_Note).location
        except ObjectNotFoundError:
            continue
        except MALFORMED_JSON as error:
            raise UnsafeOperationError(
                f"{source.uri}/{info.path} notes a shallow clone of this table, but cannot be read: {reason(error)}.",
                hint="Find out which table reads files of this one, and clone it again; or delete the note.",
            ) from error
        clone = DeltaLog.for_table(location, options=source.options)
        if _may_exist(clone):
            yield clone


def _may_exist(clone: DeltaLog) -> bool:
    try:
        return clone.table_exists()
    except DeltaError:  # It may be in another store for which we have no credentials.
        return True
