"""UPDATE: assignments and a condition in, at most one commit out.

::

    candidates (partition values, statistics) -> files with a matching row (reads the condition's columns)
        none -> no commit
        some -> rewrite them, matching rows with their new values -> remove + add in one commit
             -> or, where the table enables deletion vectors: hide the matching rows, write them anew, copy nothing

A row is updated when the condition is true; one for which it is false or null stays as it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import polars as pl

from pydelta.commands.candidates import read_candidates
from pydelta.commands.engine import BoundCondition, Engine, RewriteOutput
from pydelta.commands.optimize import compact_after_change
from pydelta.commands.vectors import VectorOutput, mark_deleted, writes_vectors
from pydelta.errors import DeltaError, UnsafeOperationError
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import Action
from pydelta.settings import Settings
from pydelta.txn import Committed, Operation, OptimisticTransaction, start_transaction

__all__ = ["UpdateResult", "UpdatingEngine", "update"]


@runtime_checkable
class UpdatingEngine(Engine, Protocol):
    """An engine that also computes new values for rows."""

    def bind_update(self, snapshot: Snapshot, assignments: Mapping[str, Any]) -> Any:
        """Resolve assignments against the table; the engine's own form of them comes back.

        Raises:
            BindError: A column that is not there, as a target or in an expression.
            SchemaMismatchError: A value of a type that its column cannot hold.
            InvalidArgumentError: Nothing is set, something is set twice.
        """

    def write_updated(
        self,
        snapshot: Snapshot,
        frame: pl.DataFrame,
        condition: BoundCondition | None,
        assignments: Any,
        *,
        copy_others: bool,
    ) -> RewriteOutput:
        """Write the matching rows of files with their new values, and with ``copy_others`` the other rows as well.

        Where the table records a change data feed, both images of each matching row go to ``changes``.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """What an UPDATE did. Times in milliseconds; ``version`` is None when no row matched."""

    condition: str | None
    num_touched_files: int
    num_updated_rows: int
    num_copied_rows: int
    execution_time_ms: int
    version: int | None
    committed: Committed | None = field(default=None, repr=False)


def update(
    log: DeltaLog,
    engine: UpdatingEngine,
    assignments: Mapping[str, Any],
    condition: Any = None,
    *,
    begin: Callable[[DeltaLog], OptimisticTransaction] = start_transaction,
    settings: Settings | None = None,
) -> UpdateResult:
    """Set columns of the rows for which ``condition`` is true.

    Args:
        log: The table.
        engine: Runs the queries.
        assignments: Column, or ``struct.field`` -> SQL text or an expression of the engine.
        condition: SQL text or an expression; None for every row.
        begin: Starts the transaction.
        settings: The session's, for auto-compaction afterwards; None for no auto-compaction.

    Raises:
        UnsafeOperationError: The table is append-only.
        ParseError, BindError, InvalidArgumentError: Condition or assignments cannot be used.
        SchemaMismatchError: A value of a type that its column cannot hold.
        ConstraintViolatedError: A new row that the table's constraints do not allow, or a value too large for its
            column. Nothing was changed.
        DeltaConcurrentModificationException: Another transaction won; nothing was changed.
        CommitStateUnknownError: The reply to the commit was lost for good.

    Protocol: "Add File and Remove File", "Add CDC File".
    """
    started = time.monotonic()
    txn = begin(log)
    snapshot = txn.snapshot
    if snapshot.properties.append_only:
        raise UnsafeOperationError(
            "This table is append-only (delta.appendOnly=true), so no row of it can be updated.",
            hint="Set delta.appendOnly to false first, if changing rows is really meant.",
            table=snapshot.table_uri,
        )
    bound = engine.bind_update(snapshot, assignments)
    where = None if condition is None else engine.bind_condition(snapshot, condition)
    positions = None
    if where is None:
        txn.read_whole_table()
        touched = snapshot.files.core
    else:
        if writes_vectors(snapshot):
            txn.rows_stand_alone()
        candidates = read_candidates(txn, where, time_zone=engine.time_zone())
        if writes_vectors(snapshot):
            positions = engine.match_rows(snapshot, candidates, where)
            touched = candidates[sorted(positions)]
            positions = {number: positions[place] for number, place in enumerate(sorted(positions))}
        else:
            counted = engine.count_matches(snapshot, candidates, where) if candidates.height else None
            touched = candidates.head(0) if counted is None else counted.drop("matched")
    scanned = _elapsed_ms(started)
    if not touched.height:
        return UpdateResult(
            condition=where.sql if where else None,
            num_touched_files=0,
            num_updated_rows=0,
            num_copied_rows=0,
            execution_time_ms=_elapsed_ms(started),
            version=None,
        )
    written = engine.write_updated(snapshot, touched, where, bound, copy_others=positions is None)
    hidden = VectorOutput()
    adds = snapshot.files.adds(touched)
    try:
        if positions is not None:
            hidden = mark_deleted(snapshot, log.store, adds, positions, options=log.options)
    except DeltaError:
        engine.discard(snapshot, written.files)
        raise
    if positions is not None or where is None:
        updated, copied = written.num_rows, 0
    else:
        assert counted is not None
        updated = int(counted["matched"].sum())
        copied = written.num_rows - updated
    now_ms = time.time_ns() // 1_000_000
    going: list[Action] = (
        [add.remove(deletion_timestamp=now_ms) for add in adds] if positions is None else list(hidden.actions)
    )
    metrics = {
        "numRemovedFiles": len(adds) if positions is None else hidden.num_removed_files,
        "numRemovedBytes": sum(add.size for add in adds) if positions is None else hidden.removed_bytes,
        "numAddedFiles": len(written.adds),
        "numAddedBytes": sum(add.size for add in written.adds),
        "numAddedChangeFiles": len(written.changes),
        "numUpdatedRows": updated,
        "numCopiedRows": copied,
        **(hidden.metrics if positions is not None else {}),
        "scanTimeMs": scanned,
        "rewriteTimeMs": _elapsed_ms(started) - scanned,
        "executionTimeMs": _elapsed_ms(started),
    }
    predicate = json.dumps([where.sql] if where else [])
    operation = Operation(name="UPDATE", parameters={"predicate": predicate}, metrics=metrics)
    committed = _commit(txn, engine, [*going, *written.files], operation, written, hidden)
    compact_after_change(log, engine, settings, committed, written.adds)
    return UpdateResult(
        condition=where.sql if where else None,
        num_touched_files=touched.height,
        num_updated_rows=updated,
        num_copied_rows=copied,
        execution_time_ms=_elapsed_ms(started),
        version=committed.version,
        committed=committed,
    )


def _commit(
    txn: OptimisticTransaction,
    engine: Engine,
    actions: list[Action],
    operation: Operation,
    written: RewriteOutput,
    hidden: VectorOutput,
) -> Committed:
    try:
        committed = txn.commit(actions, operation)
    except DeltaError:
        if txn.surely_not_landed:
            engine.discard(txn.snapshot, written.files)
            txn.log.store.delete_many(hidden.files_written)
        raise
    engine.committed(committed.snapshot)
    return committed


def _elapsed_ms(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
