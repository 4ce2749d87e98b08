"""Restore a table to an older version in one commit (RESTORE).

The old version's files that are no longer live return as ``add``, and files it did not have leave as ``remove``; the
history stays. If VACUUM or a user has deleted one of the files that would return, nothing is committed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import polars as pl

from pydelta.commands.alter.clustering import restored_clustering
from pydelta.commands.run import Attempt, Command, Refusal, refuse_append_only
from pydelta.commands.vacuum.notes import find_running
from pydelta.errors import InvalidArgumentError, UnsafeOperationError, VersionNotFoundError
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.runs import changing, joined, loose_adds, num_bytes, removes_of
from pydelta.protocol.actions import Action, AddFile, Metadata
from pydelta.protocol.features import implied_features, upgrade
from pydelta.protocol.identity import HIGH_WATER_MARK, with_marks_of
from pydelta.protocol.types import parse_schema
from pydelta.protocol.vectors import vector_path
from pydelta.txn import Operation

__all__ = ["Restore", "RestorePlan", "RestoreResult", "plan_restore"]

_REMOVES: Final = Refusal(
    "RESTORE cannot remove files from it", "Set delta.appendOnly to false first, if you really want to restore."
)
_SHOWN_MISSING = 10
_CLOCKS_APART_MS = 600_000
_MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
_TIMESTAMPS = "delta.enableInCommitTimestamps"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """Rows of two file tables: the files that return and those that leave. The columns are those of
    ``FileTable.core``.
    """

    returning: pl.DataFrame
    leaving: pl.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """The result of a RESTORE. Sizes are in bytes. ``version`` is None if the table already is at that version."""

    table_size_after_restore: int
    num_of_files_after_restore: int
    num_removed_files: int
    num_restored_files: int
    removed_files_size: int
    restored_files_size: int
    version: int | None

    @classmethod
    def of(cls, metrics: Mapping[str, int], *, version: int | None) -> RestoreResult:
        """Build the result from a commit's metrics."""
        return cls(
            table_size_after_restore=metrics["tableSizeAfterRestore"],
            num_of_files_after_restore=metrics["numOfFilesAfterRestore"],
            num_removed_files=metrics["numRemovedFiles"],
            num_restored_files=metrics["numRestoredFiles"],
            removed_files_size=metrics["removedFilesSize"],
            restored_files_size=metrics["restoredFilesSize"],
            version=version,
        )


def plan_restore(*, current: pl.DataFrame, target: pl.DataFrame) -> RestorePlan:
    """Compare two file tables by file key (path and deletion vector). Pure."""
    key = ["path", "dv_id"]
    return RestorePlan(
        returning=target.join(current.select(key), on=key, how="anti", nulls_equal=True),
        leaving=current.join(target.select(key), on=key, how="anti", nulls_equal=True),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore(Command[RestoreResult]):
    """RESTORE: make an earlier version the current state, as a new version.

    Args:
        version: The version to restore.
        timestamp_ms: Epoch milliseconds, instead of a version: restore the newest version at or before this time.

    Raises:
        InvalidArgumentError: Neither or both of version and time were given.
        VersionNotFoundError: The log does not reach it.
        UnsafeOperationError: Files of that version no longer exist (the error names them), a running VACUUM may delete
            them, or the table is append-only.

    Protocol: "Add File and Remove File", "Change Metadata".
    """

    version: int | None = None
    timestamp_ms: int | None = None

    def __post_init__(self) -> None:
        """Check that exactly one of version and time is given."""
        if (self.version is None) == (self.timestamp_ms is None):
            raise InvalidArgumentError(
                "RESTORE needs either a version or a timestamp.",
                hint="Give exactly one of the two.",
                condition=Condition.of("DELTA_ONEOF_IN_TIMETRAVEL"),
            )

    def execute(self, attempt: Attempt) -> RestoreResult:
        """See ``Command.execute``."""
        log, txn, current = attempt.log, attempt.txn, attempt.snapshot
        target = _target(log, self.version, self.timestamp_ms)
        if target.version == current.version:
            return RestoreResult.of(_metrics(current), version=None)
        txn.read_whole_table(exactly=True)
        plan = plan_restore(current=current.files.core, target=target.files.core)
        if plan.leaving.height:
            refuse_append_only(current, _REMOVES)
        returning, leaving = target.files.add_actions(plan.returning), current.files.add_actions(plan.leaving)
        if returning:
            txn.bring_back()
            _refuse_vacuumed(log, current, plan.returning)
            _refuse_missing(log, plan.returning, returning, version=target.version)
        if target.metadata is not None and current.metadata is not None:
            stamped = current.in_commit_timestamps_enabled
            txn.update_metadata(restored_metadata(target.metadata, current.metadata, stamped=stamped))
        if target.protocol is not None and current.protocol is not None:
            txn.update_protocol(upgrade(current.protocol, implied_features(target.protocol)))
        clustering = restored_clustering(current, target)
        actions: Sequence[Action] = joined(
            removes_of(leaving, deletion_timestamp=attempt.now_ms()),
            changing(returning, True),
            () if clustering is None else (clustering,),
        )
        metrics = _metrics(target, leaving=leaving, returning=returning)
        parameters = {"version": self.version, "timestamp": self.timestamp_ms}
        committed = txn.commit(actions, Operation(name="RESTORE", parameters=parameters, metrics=dict(metrics)))
        return RestoreResult.of(metrics, version=committed.version)


def _metrics(after: Snapshot, *, leaving: Sequence[AddFile] = (), returning: Sequence[AddFile] = ()) -> dict[str, int]:
    return {
        "tableSizeAfterRestore": after.size_bytes,
        "numOfFilesAfterRestore": after.num_files,
        "numRemovedFiles": len(leaving),
        "numRestoredFiles": len(returning),
        "removedFilesSize": num_bytes(leaving),
        "restoredFilesSize": num_bytes(returning),
    }


def restored_metadata(target: Metadata, current: Metadata, *, stamped: bool) -> Metadata:
    """Return the old version's metadata, with the current value of everything that only moves forward. Pure.

    Args:
        target: The metadata of the version to restore.
        current: The metadata of the newest version.
        stamped: Whether commits currently carry in-commit timestamps. Then they must continue, because the versions in
            between have them.

    Protocol: "Column Mapping" (``maxColumnId`` never falls), "In-Commit Timestamps", "Identity Columns" (no value is
    generated twice).
    """
    configuration = dict(target.configuration)
    if stamped:
        configuration[_TIMESTAMPS] = current.configuration[_TIMESTAMPS]
    ids = [meta.configuration[_MAX_COLUMN_ID] for meta in (target, current) if _MAX_COLUMN_ID in meta.configuration]
    if ids:
        configuration[_MAX_COLUMN_ID] = max(ids, key=int)
    schema_string = target.schema_string
    if HIGH_WATER_MARK in current.schema_string:
        marked = with_marks_of(parse_schema(schema_string), parse_schema(current.schema_string))
        schema_string = marked.to_json()
    return target.replace(configuration=configuration, schema_string=schema_string)


def _target(log: DeltaLog, version: int | None, timestamp_ms: int | None) -> Snapshot:
    """Return the version to restore; its errors are about restoring rather than reading."""
    try:
        return log.snapshot(version=version, timestamp_ms=timestamp_ms)
    except VersionNotFoundError as error:
        given = error.parameters
        if error.code == "DELTA_VERSION_NOT_FOUND":
            start, end = given.get("earliest"), given.get("latest")
            error.called(
                Condition.of("DELTA_CANNOT_RESTORE_TABLE_VERSION", version=version, startVersion=start, endVersion=end)
            )
        elif error.code == "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION":
            asked, oldest = given["userTimestamp"], given["commitTs"]
            error.called(
                Condition.of(
                    "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER", requestedTimestamp=asked, earliestTimestamp=oldest
                )
            )
        elif error.code == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT":
            asked, newest = given["providedTimestamp"], given["lastCommitTimestamp"]
            error.called(
                Condition.of("DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER", requestedTimestamp=asked, latestTimestamp=newest)
            )
        raise


def _refuse_vacuumed(log: DeltaLog, current: Snapshot, returning: pl.DataFrame) -> None:
    """Refuse files that a running VACUUM may be deleting: those without a tombstone recent enough to retain them."""
    if not log.settings.vacuum_check:
        return
    key = ["path", "dv_id"]
    tombstones = current.tombstones().select(*key, pl.col("deletion_timestamp").fill_null(0) - _CLOCKS_APART_MS)
    removed = returning.select(key).join(tombstones, on=key, how="left", nulls_equal=True)
    removed = removed.with_columns(pl.col("deletion_timestamp").fill_null(0))
    running = find_running(log, current.version, since_ms=int(removed["deletion_timestamp"].min() or 0))  # type: ignore[arg-type]
    if running is None:
        return
    doubtful = removed.filter(pl.col("deletion_timestamp") < running.cutoff_ms)
    if doubtful.height:
        until = dt.datetime.fromtimestamp(running.given_up_ms / 1000, tz=dt.UTC).isoformat(timespec="seconds")
        raise UnsafeOperationError(
            f"A VACUUM that began with version {running.version} has not ended, and it may delete {doubtful.height} of "
            f"the files that would come back, such as {doubtful['path'][0]}.",
            hint=f"Run it again when the history shows its VACUUM END, or after {until}, when it is considered "
            "dead. If it is dead already, set spark.pydelta.restore.vacuumCheck=false. Nothing was changed.",
            table=current.table_uri,
        )


def _refuse_missing(log: DeltaLog, returning: pl.DataFrame, adds: Sequence[AddFile], *, version: int) -> None:
    """Look up every returning file, in parallel because each look-up is a round trip to an object store."""
    vectors = [add.deletion_vector for add in loose_adds(adds) if add.deletion_vector is not None]
    paths = returning["path"].to_list()
    paths += dict.fromkeys(path for vector in vectors if (path := vector_path(vector)) is not None)
    with ThreadPoolExecutor(max_workers=16) as pool:
        missing = [path for path, exists in zip(paths, pool.map(log.file_exists, paths), strict=True) if not exists]
    if missing:
        shown = ", ".join(missing[:_SHOWN_MISSING]) + (", …" if len(missing) > _SHOWN_MISSING else "")
        raise UnsafeOperationError(
            f"Version {version} cannot be restored: {len(missing)} of its files no longer exist: {shown}.",
            hint="They were vacuumed or deleted by hand. Choose a newer version, or bring the files back first. "
            "Nothing was changed.",
        )
