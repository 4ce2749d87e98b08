"""Delete the rows of a condition in at most one commit (DELETE).

::

    no condition ----------------------> remove every file          no data read
    partition columns only ------------> remove matching files      no data read
    anything else -> candidates (partition values, statistics)
                  -> matching rows of files (reads the condition's columns, once)
                       none -> no commit
                       some -> rewrite them without the rows -> remove + add in one commit
                            -> or, if the table enables deletion vectors: hide the rows, rewrite nothing

It deletes the rows for which the condition is true, and keeps those for which it is false or null. With a
``txnVersion`` in the session the command runs once for that version; one that finds no row does not use it up.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydelta.commands.change.candidates import (
    counted,
    find_rows,
    hide,
    read_candidates,
    rows_by_statistics,
    vectors_of_rewritten,
)
from pydelta.commands.change.hidden_rows import VectorOutput, writes_vectors
from pydelta.commands.engine import NOTHING_WRITTEN, BoundCondition, RewriteOutput
from pydelta.commands.optimize.command import compact_after_write
from pydelta.commands.run import Attempt, Command, Refusal
from pydelta.log.runs import joined, num_bytes, removes_of
from pydelta.protocol.actions import Action, encode_json
from pydelta.protocol.names import camel_case
from pydelta.settings import Settings
from pydelta.txn import Operation

__all__ = ["Delete", "DeleteResult", "DeleteScope", "delete_scope"]


class DeleteScope(enum.Enum):
    """The part of the table that a DELETE must examine."""

    WHOLE_TABLE = "whole table"
    PARTITIONS = "partitions"
    ROWS = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteResult:
    """The result of a DELETE. Times are in milliseconds.

    ``num_deleted_rows`` is None if files were removed unread and have no ``numRecords``.
    ``version`` is the new version, or None when no row matched and nothing was committed. ``skipped`` means that the
    table already had the session's ``txnVersion``, so that nothing was examined.
    """

    condition: str | None = None
    num_files_total: int
    num_touched_files: int = 0
    num_rewritten_files: int = 0
    num_deleted_rows: int | None = 0
    num_copied_rows: int = 0
    scan_time_ms: int = 0
    rewrite_time_ms: int = 0
    execution_time_ms: int
    version: int | None = None
    num_deletion_vectors_added: int = 0
    num_deletion_vectors_removed: int = 0
    num_deletion_vectors_updated: int = 0
    skipped: bool = False

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the fields under their names in the history: ``numFilesTotal``, ``scanTimeMs`` …"""
        return {camel_case(name): getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Removed:
    """The removal of rows, before the commit. Times are in milliseconds.

    Args:
        going: Actions that remove old files, or hide their rows.
        num_touched: Files with such a row.
        num_rows: Rows that are removed; None if unknown.
        num_files: Files that are removed.
        num_bytes: The size of these files.
        vectors: Counts of deletion vectors, under their names in the history.
        scan_ms: Time from the command's start until the rows were found.
        rewrite_ms: Time to write after that.
        written: New files with the other rows.
        hidden: Files with new vectors.
        notes: How rows were read and written.
    """

    going: Sequence[Action]
    num_touched: int
    num_rows: int | None
    num_files: int
    num_bytes: int
    vectors: Mapping[str, int]
    scan_ms: int
    rewrite_ms: int = 0
    written: RewriteOutput = NOTHING_WRITTEN
    hidden: VectorOutput | None = None
    notes: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, int | str]:
        """Counts under their names in the history."""
        known = {} if self.num_rows is None else {"numDeletedRows": self.num_rows}
        return {
            "numRemovedFiles": self.num_files,
            "numRemovedBytes": self.num_bytes,
            "numAddedFiles": len(self.written.adds),
            "numAddedBytes": sum(add.size for add in self.written.adds),
            "numAddedChangeFiles": len(self.written.changes),
            **known,
            "numCopiedRows": self.written.num_rows,
            **self.vectors,
            "scanTimeMs": self.scan_ms,
            "rewriteTimeMs": self.rewrite_ms,
        }


def delete_scope(condition: BoundCondition | None, *, partition_columns: Iterable[str]) -> DeleteScope:
    """Decide how much a DELETE must examine, from its condition and the partitioning alone. Pure.

    Args:
        condition: The bound condition, or None for all rows.
        partition_columns: Logical names of the partition columns; names compare ignoring case.
    """
    if condition is None:
        return DeleteScope.WHOLE_TABLE
    partitions = {name.lower() for name in partition_columns}
    only_partitions = {name.lower() for name in condition.references} <= partitions
    return DeleteScope.PARTITIONS if only_partitions else DeleteScope.ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(Command[DeleteResult]):
    """DELETE: delete the rows for which a condition is true.

    Args:
        condition: SQL text or an expression of the engine; None deletes every row.
        always: The predicate that the history shows without a condition; SQL statements have ``true``.
        truncates: The history shows it as TRUNCATE.

    Raises:
        ParseError, BindError, InvalidArgumentError: The condition cannot be used; see ``Engine.bind_condition``.
        RowsDoNotAddUpError: Rows would have been lost or duplicated. Nothing was changed.

    Protocol: "Add File and Remove File", "Append-only Tables".
    """

    condition: Any = None
    always: Sequence[str] = ()
    truncates: bool = False

    is_statement = True

    def append_only(self) -> Refusal:
        """See ``Command.append_only``."""
        return Refusal("no row can be deleted from it")

    def transaction(self, settings: Settings) -> tuple[str | None, int | None]:
        """See ``Command.transaction``: the session's."""
        return settings.transaction

    def skipped(self, attempt: Attempt) -> DeleteResult:
        """See ``Command.skipped``."""
        return DeleteResult(
            num_files_total=attempt.snapshot.num_files, execution_time_ms=attempt.elapsed_ms, skipped=True
        )

    def execute(self, attempt: Attempt) -> DeleteResult:
        """See ``Command.execute``."""
        snapshot = attempt.snapshot
        condition = attempt.bind(self.condition)
        scope = delete_scope(condition, partition_columns=snapshot.partition_columns)
        if condition is None or scope is not DeleteScope.ROWS:
            removed = _remove_files(attempt, condition)
        elif writes_vectors(snapshot):
            removed = _hide_rows(attempt, condition)
        else:
            removed = _rewrite_files(attempt, condition)
        version = self._commit(attempt, condition, removed) if removed.going else None
        vectors = {} if removed.hidden is None else removed.vectors
        return DeleteResult(
            condition=condition.sql if condition else None,
            num_files_total=snapshot.num_files,
            num_touched_files=removed.num_touched,
            num_rewritten_files=len(removed.written.adds),
            num_deleted_rows=removed.num_rows,
            num_copied_rows=removed.written.num_rows,
            scan_time_ms=removed.scan_ms,
            rewrite_time_ms=removed.rewrite_ms,
            execution_time_ms=attempt.elapsed_ms,
            version=version,
            num_deletion_vectors_added=vectors.get("numDeletionVectorsAdded", 0),
            num_deletion_vectors_removed=vectors.get("numDeletionVectorsRemoved", 0),
            num_deletion_vectors_updated=vectors.get("numDeletionVectorsUpdated", 0),
        )

    def _commit(self, attempt: Attempt, condition: BoundCondition | None, removed: _Removed) -> int:
        metrics = {**removed.metrics, "executionTimeMs": attempt.elapsed_ms, **removed.notes}
        if self.truncates:
            metrics = {name: metrics[name] for name in ("numRemovedFiles", "executionTimeMs")}
        predicates = list(self.always) if condition is None else [condition.for_history]
        operation = Operation(
            name="TRUNCATE" if self.truncates else "DELETE",
            parameters={} if self.truncates else {"predicate": encode_json(predicates)},
            metrics={**metrics, **attempt.statement.metrics},
        )
        committed = attempt.txn.commit(joined(removed.going, removed.written.files), operation)
        hidden = () if removed.hidden is None else removed.hidden.adds
        added = (*removed.written.adds, *hidden)
        if attempt.context.compacts(committed, added):
            compact_after_write(attempt.context, committed, added)
        return committed.version


def _remove_files(attempt: Attempt, condition: BoundCondition | None) -> _Removed:
    """Remove files without other rows: the log alone decides, and no data is read."""
    txn, snapshot = attempt.txn, attempt.snapshot
    if condition is None:
        txn.read_whole_table()
        doomed = snapshot.files.core
    else:
        candidates = read_candidates(txn, condition.conjuncts, time_zone=attempt.engine.time_zone())
        doomed = attempt.engine.match_partitions(snapshot, candidates, condition)
        txn.mark_read(doomed)
    scanned = attempt.elapsed_ms
    adds = snapshot.files.add_actions(doomed)
    return _Removed(
        going=removes_of(adds, deletion_timestamp=attempt.now_ms()),
        num_touched=len(adds),
        num_rows=rows_by_statistics(adds),
        num_files=len(adds),
        num_bytes=num_bytes(adds),
        vectors=vectors_of_rewritten(adds),
        scan_ms=scanned,
    )


def _rewrite_files(attempt: Attempt, condition: BoundCondition) -> _Removed:
    """Find the matching rows, and rewrite only their files."""
    touched = find_rows(attempt, condition)
    scanned = attempt.elapsed_ms
    written = NOTHING_WRITTEN
    if touched.rows:
        written = attempt.stage(attempt.engine.write_without(attempt.snapshot, touched.frame, touched.rows))
        counted(attempt.txn, touched, written=written, updates=False)
    return _Removed(
        going=removes_of(touched.adds, deletion_timestamp=attempt.now_ms()),
        num_touched=len(touched.adds),
        num_rows=touched.num_rows or 0,
        num_files=len(touched.adds),
        num_bytes=num_bytes(touched.adds),
        vectors=vectors_of_rewritten(touched.adds),
        scan_ms=scanned,
        rewrite_ms=attempt.elapsed_ms - scanned if touched.rows else 0,
        written=written,
        notes=attempt.engine.ways(),
    )


def _hide_rows(attempt: Attempt, condition: BoundCondition) -> _Removed:
    """Find the matching rows, and hide them with deletion vectors."""
    attempt.txn.rows_stand_alone()
    touched = find_rows(attempt, condition)
    scanned = attempt.elapsed_ms
    hidden = VectorOutput()
    if touched.adds:
        hidden = hide(attempt, touched.adds, touched.positions())
        counted(attempt.txn, touched, hidden=hidden, updates=False)
    return _Removed(
        going=hidden.actions,
        num_touched=len(hidden.removes),
        num_rows=hidden.num_deleted_rows,
        num_files=hidden.num_removed_files,
        num_bytes=hidden.removed_bytes,
        vectors=hidden.metrics,
        scan_ms=scanned,
        rewrite_ms=attempt.elapsed_ms - scanned if touched.adds else 0,
        hidden=hidden,
        notes=attempt.engine.ways(),
    )
