"""Update the rows of a condition in at most one commit (UPDATE).

::

    candidates (partition values, statistics) -> matching rows of files (reads the condition's columns, once)
        none -> no commit, or an empty one for the session's txnVersion
        some -> rewrite the files, matching rows with their new values -> remove + add in one commit
             -> or, where the table enables deletion vectors: hide the matching rows, write them anew, copy nothing

A row is updated when the condition is true; one for which it is false or null stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import polars as pl

from pydelta.commands.change.again import Statement
from pydelta.commands.change.candidates import Touched, counted, existing_table, find_rows, hide, refuse_append_only
from pydelta.commands.change.hidden_rows import VectorOutput, vectors_of_rewritten, writes_vectors
from pydelta.commands.change.reconcile import RowCounts
from pydelta.commands.engine import (
    NOTHING_WRITTEN,
    Assignments,
    BoundCondition,
    Engine,
    RewriteOutput,
    ways_of,
)
from pydelta.commands.optimize.command import compact_after_change
from pydelta.commands.session_version import landed_before
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import Action, encode_json
from pydelta.protocol.row_sets import RowSet
from pydelta.settings import Settings
from pydelta.storage.discarding import discard
from pydelta.txn import Begin, Committed, Operation, OptimisticTransaction, start_transaction

__all__ = ["BoundUpdate", "UpdateResult", "UpdatingEngine", "update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundUpdate:
    """Condition and assignments of one UPDATE, resolved together: they see one clock and one zone.

    Args:
        condition: Which rows change; None for all.
        native: The engine's own form of the assignments.
    """

    condition: BoundCondition | None
    native: Any


@runtime_checkable
class UpdatingEngine(Engine, Protocol):
    """An engine that also computes new values for rows."""

    def bind_update(self, snapshot: Snapshot, condition: Any, assignments: Assignments) -> BoundUpdate:
        """Resolve condition (or None) and assignments against the table.

        Raises:
            ParseError: A text is not an expression.
            BindError: A column that is not there, in the condition, as a target or in a value.
            SchemaMismatchError: A value of a type that its column cannot hold.
            InvalidArgumentError: The condition cannot be one, nothing is set, something is set twice.
        """

    def write_updated(
        self,
        snapshot: Snapshot,
        files: pl.DataFrame,
        rows: Mapping[int, RowSet] | None,
        bound: BoundUpdate,
        *,
        copy_others: bool,
    ) -> RewriteOutput:
        """Write rows of files with their new values, and with ``copy_others`` the other rows as they are.

        Where the table records a change data feed, both images of each changed row go to ``changes``.

        Args:
            snapshot: The table.
            files: Rows of its file table.
            rows: The rows that change, by place in ``files``, where every place is there; None for all.
            bound: What they change to.
            copy_others: Whether the other rows are written as well.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """What an UPDATE did. Times in milliseconds.

    ``version`` is None when nothing was committed: no row matched, or (``skipped``) the table had the session's
    ``txnVersion`` already. A version without rows says that the ``txnVersion`` is done.
    """

    condition: str | None
    num_touched_files: int
    num_updated_rows: int
    num_copied_rows: int
    execution_time_ms: int
    version: int | None
    skipped: bool = False
    committed: Committed | None = field(default=None, repr=False)


def update(
    log: DeltaLog,
    engine: UpdatingEngine,
    assignments: Assignments,
    condition: Any = None,
    *,
    begin: Begin = start_transaction,
    settings: Settings | None = None,
) -> UpdateResult:
    """Set columns of the rows for which ``condition`` is true.

    Args:
        log: The table.
        engine: Runs the queries.
        assignments: Column, or ``struct.field``, with SQL text or an expression of the engine.
        condition: SQL text or an expression; None for every row.
        begin: Starts the transaction.
        settings: The session's, for its ``txnVersion`` and for auto-compaction afterwards; None for neither.

    Raises:
        TableNotFoundError: There is no table.
        UnsafeOperationError: The table is append-only.
        ParseError, BindError, InvalidArgumentError: Condition or assignments cannot be used.
        SchemaMismatchError: A value of a type that its column cannot hold.
        ConstraintViolatedError: A new row that the table's constraints do not allow, or a value too large for its
            column. Nothing was changed.
        RowsDoNotAddUpError: Rows would have been lost or doubled. Nothing was changed.
        DeltaConcurrentModificationException: Another transaction won; nothing was changed.
        CommitStateUnknownError: The reply to the commit was lost for good.

    Protocol: "Add File and Remove File", "Add CDC File".
    """
    started = time.monotonic()
    statement = Statement(log, engine)

    def attempt() -> UpdateResult:
        txn = begin(log).notifying(engine.committed)
        statement.begins_on(existing_table(txn.snapshot))
        refuse_append_only(txn.snapshot, "no row of it can be updated")
        if landed_before(txn, settings):
            return _unchanged(None, started, skipped=True)
        bound = engine.bind_update(txn.snapshot, condition, assignments)
        return _update_once(txn, engine, bound, started, settings, statement)

    return statement.run(attempt)


def _update_once(
    txn: OptimisticTransaction,
    engine: UpdatingEngine,
    bound: BoundUpdate,
    started: float,
    settings: Settings | None,
    statement: Statement,
) -> UpdateResult:
    log, snapshot = txn.log, txn.snapshot
    vectors = bound.condition is not None and writes_vectors(snapshot)
    if vectors:
        txn.rows_stand_alone()
    touched = _find(txn, engine, bound.condition)
    scanned = _elapsed_ms(started)
    text = bound.condition.sql if bound.condition else None
    if not touched.adds:
        return _unchanged(text, started, committed=_commit_version(txn, engine, bound.condition))
    written, hidden = NOTHING_WRITTEN, VectorOutput()
    try:
        written = engine.write_updated(snapshot, touched.frame, touched.rows, bound, copy_others=not vectors)
        if vectors:
            hidden = hide(txn, engine, touched.adds, touched.positions())
        counts = counted(txn, touched, written=written, hidden=hidden if vectors else None, updates=True)
        now_ms = time.time_ns() // 1_000_000
        going: list[Action] = (
            list(hidden.actions) if vectors else [add.remove(deletion_timestamp=now_ms) for add in touched.adds]
        )
        metrics: dict[str, int | str] = {
            **_counts_of(touched, written, hidden if vectors else None, counts),
            "scanTimeMs": scanned,
            "rewriteTimeMs": _elapsed_ms(started) - scanned,
            "executionTimeMs": _elapsed_ms(started),
            **ways_of(engine),
            **statement.metrics,
        }
        committed = txn.commit([*going, *written.files], _operation(bound.condition, metrics))
    except Exception:
        if txn.surely_not_landed:
            engine.discard(snapshot, written.files)
            discard(log.store, hidden.files_written)
        raise
    compact_after_change(log, engine, settings, committed, written.adds)
    return UpdateResult(
        condition=text,
        num_touched_files=len(touched.adds),
        num_updated_rows=counts.updated,
        num_copied_rows=counts.copied,
        execution_time_ms=_elapsed_ms(started),
        version=committed.version,
        committed=committed,
    )


def _counts_of(
    touched: Touched, written: RewriteOutput, hidden: VectorOutput | None, counts: RowCounts
) -> dict[str, int]:
    """Counts of files and rows under the names that the history uses; ``hidden`` is None where files were rewritten."""
    return {
        "numRemovedFiles": len(touched.adds) if hidden is None else hidden.num_removed_files,
        "numRemovedBytes": sum(add.size for add in touched.adds) if hidden is None else hidden.removed_bytes,
        "numAddedFiles": len(written.adds),
        "numAddedBytes": sum(add.size for add in written.adds),
        "numAddedChangeFiles": len(written.changes),
        "numUpdatedRows": counts.updated,
        "numCopiedRows": counts.copied,
        **(vectors_of_rewritten(touched.adds) if hidden is None else hidden.metrics),
    }


def _unchanged(
    condition: str | None, started: float, *, committed: Committed | None = None, skipped: bool = False
) -> UpdateResult:
    return UpdateResult(
        condition=condition,
        num_touched_files=0,
        num_updated_rows=0,
        num_copied_rows=0,
        execution_time_ms=_elapsed_ms(started),
        version=None if committed is None else committed.version,
        skipped=skipped,
        committed=committed,
    )


def _commit_version(txn: OptimisticTransaction, engine: Engine, condition: BoundCondition | None) -> Committed | None:
    """Commit that the session's version is done, without a row; None where it names none."""
    if not txn.counts_as_version:
        return None
    return txn.commit([], _operation(condition, {"numUpdatedRows": 0, "numCopiedRows": 0}))


def _operation(condition: BoundCondition | None, metrics: Mapping[str, int | str]) -> Operation:
    predicate = encode_json([condition.for_history] if condition else [])
    return Operation(name="UPDATE", parameters={"predicate": predicate}, metrics=metrics)


def _find(txn: OptimisticTransaction, engine: Engine, condition: BoundCondition | None) -> Touched:
    if condition is not None:
        return find_rows(txn, engine, condition)
    txn.read_whole_table()
    files = txn.snapshot.files
    return Touched(frame=files.core, adds=files.adds(files.core), rows=None)


def _elapsed_ms(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
