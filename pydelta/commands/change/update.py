"""Update the rows of a condition in at most one commit (UPDATE).

::

    candidates (partition values, statistics) -> matching rows of files (reads the condition's columns, once)
        none -> no commit, or an empty one for the session's txnVersion
        some -> rewrite the files, matching rows with their new values -> remove + add in one commit
             -> or, if the table enables deletion vectors: hide the matching rows, write them again, copy nothing

It updates the rows for which the condition is true; those for which it is false or null stay unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydelta.commands.change.candidates import Touched, counted, find_rows, hide, vectors_of_rewritten
from pydelta.commands.change.hidden_rows import VectorOutput, writes_vectors
from pydelta.commands.change.reconcile import RowCounts
from pydelta.commands.engine import Assignments, BoundCondition, RewriteOutput
from pydelta.commands.optimize.command import compact_after_write
from pydelta.commands.run import Attempt, Command, Refusal
from pydelta.protocol.actions import Action, encode_json
from pydelta.settings import Settings
from pydelta.txn import Committed, Operation

__all__ = ["Update", "UpdateResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """The result of an UPDATE. Times are in milliseconds.

    ``version`` is None when nothing was committed: no row matched, or (``skipped``) the table already had the session's
    ``txnVersion``. A version without rows only records the ``txnVersion``.
    """

    condition: str | None
    num_touched_files: int = 0
    num_updated_rows: int = 0
    num_copied_rows: int = 0
    execution_time_ms: int
    version: int | None
    skipped: bool = False
    committed: Committed | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(Command[UpdateResult]):
    """UPDATE: assign new values to columns of the rows for which a condition is true.

    Args:
        assignments: Column, or ``struct.field``, with SQL text or an expression of the engine.
        condition: SQL text or an expression; None for every row.

    Raises:
        ParseError, BindError, InvalidArgumentError: Condition or assignments cannot be used.
        SchemaMismatchError: A value has a type that its column cannot hold.
        ConstraintViolatedError: The table's constraints do not allow a new row, or a value is too large for its column.
            Nothing was changed.
        RowsDoNotAddUpError: Rows would have been lost or duplicated. Nothing was changed.

    Protocol: "Add File and Remove File", "Add CDC File".
    """

    assignments: Assignments
    condition: Any = None

    is_statement = True

    def append_only(self) -> Refusal:
        """See ``Command.append_only``."""
        return Refusal("no row of it can be updated")

    def transaction(self, settings: Settings) -> tuple[str | None, int | None]:
        """See ``Command.transaction``: the session's."""
        return settings.transaction

    def skipped(self, attempt: Attempt) -> UpdateResult:
        """See ``Command.skipped``."""
        return UpdateResult(condition=None, execution_time_ms=attempt.elapsed_ms, version=None, skipped=True)

    def execute(self, attempt: Attempt) -> UpdateResult:
        """See ``Command.execute``."""
        txn, snapshot = attempt.txn, attempt.snapshot
        bound = attempt.engine.bind_update(snapshot, self.condition, self.assignments)
        vectors = bound.condition is not None and writes_vectors(snapshot)
        if vectors:
            txn.rows_stand_alone()
        touched = _find(attempt, bound.condition)
        scanned = attempt.elapsed_ms
        if not touched.adds:
            return _unchanged(attempt, bound.condition)
        written = attempt.stage(
            attempt.engine.write_updated(snapshot, touched.frame, touched.rows, bound, copy_others=not vectors)
        )
        hidden = hide(attempt, touched.adds, touched.positions()) if vectors else None
        counts = counted(txn, touched, written=written, hidden=hidden, updates=True)
        metrics = {
            **_counts_of(touched, written, hidden, counts),
            "scanTimeMs": scanned,
            "rewriteTimeMs": attempt.elapsed_ms - scanned,
            "executionTimeMs": attempt.elapsed_ms,
            **attempt.notes,
        }
        actions = [*_going(attempt, touched, hidden), *written.files]
        committed = txn.commit(actions, _operation(bound.condition, metrics))
        if attempt.context.compacts(committed, written.adds):
            compact_after_write(attempt.context, committed, written.adds)
        return UpdateResult(
            condition=bound.condition.sql if bound.condition else None,
            num_touched_files=len(touched.adds),
            num_updated_rows=counts.updated,
            num_copied_rows=counts.copied,
            execution_time_ms=attempt.elapsed_ms,
            version=committed.version,
            committed=committed,
        )


def _counts_of(
    touched: Touched, written: RewriteOutput, hidden: VectorOutput | None, counts: RowCounts
) -> dict[str, int]:
    """Return counts of files and rows under their names in the history; ``hidden`` is None if files were rewritten."""
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


def _going(attempt: Attempt, touched: Touched, hidden: VectorOutput | None) -> Sequence[Action]:
    """Return the actions that remove the old rows: vectors that hide them, or the removal of their files."""
    if hidden is not None:
        return hidden.actions
    now_ms = attempt.now_ms()
    return [add.remove(deletion_timestamp=now_ms) for add in touched.adds]


def _unchanged(attempt: Attempt, condition: BoundCondition | None) -> UpdateResult:
    """End without a row; if the session names a version, an empty commit records it."""
    committed: Committed | None = None
    if attempt.txn.counts_as_version:
        committed = attempt.txn.commit([], _operation(condition, {"numUpdatedRows": 0, "numCopiedRows": 0}))
    return UpdateResult(
        condition=condition.sql if condition else None,
        execution_time_ms=attempt.elapsed_ms,
        version=None if committed is None else committed.version,
        committed=committed,
    )


def _operation(condition: BoundCondition | None, metrics: Mapping[str, int | str]) -> Operation:
    predicate = encode_json([condition.for_history] if condition else [])
    return Operation(name="UPDATE", parameters={"predicate": predicate}, metrics=metrics)


def _find(attempt: Attempt, condition: BoundCondition | None) -> Touched:
    if condition is not None:
        return find_rows(attempt, condition)
    attempt.txn.read_whole_table()
    files = attempt.snapshot.files
    return Touched(frame=files.core, adds=files.adds(files.core), rows=None)
