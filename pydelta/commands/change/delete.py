"""Delete the rows of a condition in at most one commit (DELETE).

::

    no condition ----------------------> remove every file          no data read
    partition columns only ------------> remove matching files      no data read
    anything else -> candidates (partition values, statistics)
                  -> matching rows of files (reads the condition's columns, once)
                       none -> no commit
                       some -> rewrite them without the rows -> remove + add in one commit
                            -> or, where the table enables deletion vectors: hide the rows, rewrite nothing

A row goes when the condition is true; one for which it is false or null stays. With a ``txnVersion`` in the session the
command runs once for it; one that finds no row does not use it up.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydelta.commands.change.again import Statement
from pydelta.commands.change.candidates import (
    counted,
    existing_table,
    find_rows,
    hide,
    read_candidates,
    refuse_append_only,
    rows_by_statistics,
)
from pydelta.commands.change.hidden_rows import VectorOutput, vectors_of_rewritten, writes_vectors
from pydelta.commands.engine import NOTHING_WRITTEN, BoundCondition, Engine, RewriteOutput, ways_of
from pydelta.commands.optimize.command import compact_after_change
from pydelta.commands.session_version import landed_before
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.log.runs import joined, num_bytes, removes_of
from pydelta.protocol.actions import Action, AddFile, encode_json
from pydelta.settings import Settings
from pydelta.storage.discarding import discard
from pydelta.txn import Operation, OptimisticTransaction, start_transaction

__all__ = ["DeletePlan", "DeleteResult", "DeleteScope", "delete", "plan_delete"]


class DeleteScope(enum.Enum):
    """How much of the table a DELETE has to look at."""

    WHOLE_TABLE = "whole table"
    PARTITIONS = "partitions"
    ROWS = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePlan:
    """What a DELETE will do, decided from the condition and the partitioning alone."""

    scope: DeleteScope
    condition: BoundCondition | None
    always: Sequence[str] = ()
    truncates: bool = False
    told: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def predicates(self) -> list[str]:
        """What the history shows as its condition."""
        return list(self.always) if self.condition is None else [self.condition.for_history]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteResult:
    """What a DELETE did. Times in milliseconds.

    ``num_deleted_rows`` is None where files went without being read and carry no ``numRecords``.
    ``version`` is the new version, or None when no row matched and nothing was committed. ``skipped`` says that the
    table had the session's ``txnVersion`` already, so that nothing was looked at.
    """

    condition: str | None
    num_files_total: int
    num_touched_files: int
    num_rewritten_files: int
    num_deleted_rows: int | None
    num_copied_rows: int
    scan_time_ms: int
    rewrite_time_ms: int
    execution_time_ms: int
    version: int | None
    num_deletion_vectors_added: int = 0
    num_deletion_vectors_removed: int = 0
    num_deletion_vectors_updated: int = 0
    skipped: bool = False

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the fields under the names that the history uses: ``numFilesTotal``, ``scanTimeMs`` …"""
        return {_camel_case(name): getattr(self, name) for name in self.__slots__}


def _camel_case(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def plan_delete(condition: BoundCondition | None, *, partition_columns: Iterable[str]) -> DeletePlan:
    """Decide the scope of a DELETE. Pure.

    Args:
        condition: The bound condition, or None for all rows.
        partition_columns: Logical names of the partition columns; names compare ignoring case.
    """
    if condition is None:
        return DeletePlan(scope=DeleteScope.WHOLE_TABLE, condition=None)
    partitions = {name.lower() for name in partition_columns}
    only_partitions = {name.lower() for name in condition.references} <= partitions
    scope = DeleteScope.PARTITIONS if only_partitions else DeleteScope.ROWS
    return DeletePlan(scope=scope, condition=condition)


def delete(
    log: DeltaLog,
    engine: Engine,
    condition: Any = None,
    *,
    settings: Settings | None = None,
    always: Sequence[str] = (),
    truncates: bool = False,
) -> DeleteResult:
    """Delete the rows for which ``condition`` is true.

    Args:
        log: The table.
        engine: Runs the queries.
        condition: SQL text or an expression of the engine; None deletes every row.
        settings: The session's, for its ``txnVersion`` and for auto-compaction afterwards; None for neither.
        always: What the history shows where there is no condition: a statement of SQL says ``true``.
        truncates: The history calls it TRUNCATE.

    Returns:
        Counts and times; ``version`` is None when no row matched, or when the table has the ``txnVersion`` already.

    Raises:
        TableNotFoundError: There is no table.
        UnsafeOperationError: The table is append-only.
        ParseError, BindError, InvalidArgumentError: The condition cannot be used; see ``Engine.bind_condition``.
        RowsDoNotAddUpError: Rows would have been lost or doubled. Nothing was changed.
        DeltaConcurrentModificationException: Another transaction won; nothing was changed.
        CommitStateUnknownError: The reply to the commit was lost for good.

    Protocol: "Add File and Remove File", "Append-only Tables".
    """
    started = time.monotonic()
    statement = Statement(log, engine)

    def attempt() -> DeleteResult:
        txn = start_transaction(log).notifying(engine.committed)
        statement.begins_on(existing_table(txn.snapshot))
        return _delete_once(txn, engine, condition, wanted, started, settings)

    wanted = _Wanted(always=always, truncates=truncates, statement=statement)
    return statement.run(attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a DELETE says beside its condition."""

    always: Sequence[str]
    truncates: bool
    statement: Statement


def _delete_once(
    txn: OptimisticTransaction,
    engine: Engine,
    condition: Any,
    wanted: _Wanted,
    started: float,
    settings: Settings | None,
) -> DeleteResult:
    snapshot = txn.snapshot
    refuse_append_only(snapshot, "no row can be deleted from it")
    if landed_before(txn, settings):
        return DeleteResult(
            condition=None,
            num_files_total=snapshot.num_files,
            num_touched_files=0,
            num_rewritten_files=0,
            num_deleted_rows=0,
            num_copied_rows=0,
            scan_time_ms=0,
            rewrite_time_ms=0,
            execution_time_ms=_elapsed_ms(started),
            version=None,
            skipped=True,
        )
    bound = None if condition is None else engine.bind_condition(snapshot, condition)
    plan = replace(
        plan_delete(bound, partition_columns=snapshot.partition_columns),
        always=wanted.always,
        truncates=wanted.truncates,
        told=wanted.statement.metrics,
    )
    if plan.scope is DeleteScope.ROWS and writes_vectors(snapshot):
        return _hide_rows(txn, engine, plan, started, settings)
    if plan.scope is DeleteScope.ROWS:
        return _delete_rows(txn, engine, plan, started, settings)
    return _delete_files(txn, engine, plan, started)


def _delete_files(txn: OptimisticTransaction, engine: Engine, plan: DeletePlan, started: float) -> DeleteResult:
    """Cases that the log alone decides: nothing is read, nothing rewritten."""
    snapshot = txn.snapshot
    if plan.condition is None:
        txn.read_whole_table()
        doomed = snapshot.files.core
    else:
        candidates = read_candidates(txn, plan.condition.conjuncts, time_zone=engine.time_zone())
        doomed = engine.match_partitions(snapshot, candidates, plan.condition)
        txn.mark_read(doomed)
    scanned = _elapsed_ms(started)
    removed = snapshot.files.add_actions(doomed)
    deleted_rows = rows_by_statistics(removed)
    version = None
    if removed:
        metrics: dict[str, int] = {
            "numRemovedFiles": len(removed),
            "numRemovedBytes": num_bytes(removed),
            "numAddedFiles": 0,
            "numAddedBytes": 0,
            "numAddedChangeFiles": 0,
            "numCopiedRows": 0,
            **vectors_of_rewritten(removed),
            "scanTimeMs": scanned,
            "rewriteTimeMs": 0,
            "executionTimeMs": _elapsed_ms(started),
        }
        if deleted_rows is not None:
            metrics["numDeletedRows"] = deleted_rows
        version = _commit(txn, engine, _operation(plan, metrics), removed, NOTHING_WRITTEN)
    return DeleteResult(
        condition=plan.condition.sql if plan.condition else None,
        num_files_total=snapshot.num_files,
        num_touched_files=len(removed),
        num_rewritten_files=0,
        num_deleted_rows=deleted_rows,
        num_copied_rows=0,
        scan_time_ms=scanned,
        rewrite_time_ms=0,
        execution_time_ms=_elapsed_ms(started),
        version=version,
    )


def _delete_rows(
    txn: OptimisticTransaction, engine: Engine, plan: DeletePlan, started: float, settings: Settings | None
) -> DeleteResult:
    """Find the matching rows, rewrite just their files."""
    assert plan.condition is not None
    snapshot = txn.snapshot
    touched = find_rows(txn, engine, plan.condition)
    scanned = _elapsed_ms(started)
    version, rewritten, rewrite_ms, deleted_rows = None, NOTHING_WRITTEN, 0, touched.num_rows or 0
    if touched.rows:
        try:
            rewritten = engine.write_without(snapshot, touched.frame, touched.rows)
            counted(txn, touched, written=rewritten, updates=False)
        except DeltaError:
            engine.discard(snapshot, rewritten.files)
            raise
        rewrite_ms = _elapsed_ms(started) - scanned
        metrics: dict[str, int | str] = {
            "numRemovedFiles": len(touched.adds),
            "numRemovedBytes": sum(add.size for add in touched.adds),
            "numAddedFiles": len(rewritten.adds),
            "numAddedBytes": sum(add.size for add in rewritten.adds),
            "numAddedChangeFiles": len(rewritten.changes),
            "numDeletedRows": deleted_rows,
            "numCopiedRows": rewritten.num_rows,
            **vectors_of_rewritten(touched.adds),
            "scanTimeMs": scanned,
            "rewriteTimeMs": rewrite_ms,
            "executionTimeMs": _elapsed_ms(started),
            **ways_of(engine),
        }
        version = _commit(txn, engine, _operation(plan, metrics), touched.adds, rewritten, settings)
    return DeleteResult(
        condition=plan.condition.sql,
        num_files_total=snapshot.num_files,
        num_touched_files=len(touched.adds),
        num_rewritten_files=len(rewritten.adds),
        num_deleted_rows=deleted_rows,
        num_copied_rows=rewritten.num_rows,
        scan_time_ms=scanned,
        rewrite_time_ms=rewrite_ms,
        execution_time_ms=_elapsed_ms(started),
        version=version,
    )


def _hide_rows(
    txn: OptimisticTransaction, engine: Engine, plan: DeletePlan, started: float, settings: Settings | None
) -> DeleteResult:
    """Find the matching rows, and put deletion vectors on their files."""
    assert plan.condition is not None
    snapshot, log = txn.snapshot, txn.log
    txn.rows_stand_alone()
    touched = find_rows(txn, engine, plan.condition)
    scanned = _elapsed_ms(started)
    version, output, write_ms = None, VectorOutput(), 0
    if touched.adds:
        try:
            output = hide(txn, engine, touched.adds, touched.positions())
            counted(txn, touched, hidden=output, updates=False)
            write_ms = _elapsed_ms(started) - scanned
            metrics: dict[str, int | str] = {
                "numRemovedFiles": output.num_removed_files,
                "numRemovedBytes": output.removed_bytes,
                "numAddedFiles": 0,
                "numAddedBytes": 0,
                "numAddedChangeFiles": 0,
                "numDeletedRows": output.num_deleted_rows,
                "numCopiedRows": 0,
                **output.metrics,
                "scanTimeMs": scanned,
                "rewriteTimeMs": write_ms,
                "executionTimeMs": _elapsed_ms(started),
                **ways_of(engine),
            }
            committed = txn.commit(output.actions, _operation(plan, metrics))
        except DeltaError:
            if txn.surely_not_landed:
                discard(log.store, output.files_written)
            raise
        version = committed.version
        compact_after_change(log, engine, settings, committed, output.adds)
    return DeleteResult(
        condition=plan.condition.sql,
        num_files_total=snapshot.num_files,
        num_touched_files=len(output.removes),
        num_rewritten_files=0,
        num_deleted_rows=output.num_deleted_rows,
        num_copied_rows=0,
        scan_time_ms=scanned,
        rewrite_time_ms=write_ms,
        execution_time_ms=_elapsed_ms(started),
        version=version,
        num_deletion_vectors_added=output.metrics["numDeletionVectorsAdded"],
        num_deletion_vectors_removed=output.metrics["numDeletionVectorsRemoved"],
        num_deletion_vectors_updated=output.metrics["numDeletionVectorsUpdated"],
    )


def _commit(
    txn: OptimisticTransaction,
    engine: Engine,
    operation: Operation,
    removed: Sequence[AddFile],
    rewritten: RewriteOutput,
    settings: Settings | None = None,
) -> int:
    now_ms = time.time_ns() // 1_000_000
    actions: Sequence[Action] = joined(removes_of(removed, deletion_timestamp=now_ms), rewritten.files)
    try:
        committed = txn.commit(actions, operation)
    except DeltaError:
        if txn.surely_not_landed:
            engine.discard(txn.snapshot, rewritten.files)
        raise
    compact_after_change(txn.log, engine, settings, committed, rewritten.adds)
    return committed.version


def _operation(plan: DeletePlan, metrics: Mapping[str, int | str]) -> Operation:
    if plan.truncates:
        kept = {name: metrics[name] for name in ("numRemovedFiles", "executionTimeMs")}
        return Operation(name="TRUNCATE", parameters={}, metrics={**kept, **plan.told})
    predicate = encode_json(plan.predicates)
    return Operation(name="DELETE", parameters={"predicate": predicate}, metrics={**metrics, **plan.told})


def _elapsed_ms(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
