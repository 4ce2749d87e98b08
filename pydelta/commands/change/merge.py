"""Merge a source into a table by a condition and clauses, in at most one commit (MERGE).

::

    files that may hold a match (the source's smallest and largest keys, partition values, statistics)
      -> pairs of target and source rows, by keys and clause conditions alone
           a target row with two sources that would change it -> refused
      -> files with a row that a clause changes -> rewritten, or hidden by deletion vectors
      -> source rows without a pair -> inserted
    nothing to change and nothing to insert -> no commit, or one without rows: the schema evolves, or the session's
                                                txnVersion is done

For each row the first clause whose condition is true decides; without one it stays as it is, and its file untouched.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import polars as pl

from pydelta.commands.change.again import Statement
from pydelta.commands.change.candidates import existing_table, hide, read_candidates
from pydelta.commands.change.hidden_rows import VectorOutput, live_rows, vectors_of_rewritten, writes_vectors
from pydelta.commands.change.reconcile import Passed, RowCounts, check_rows
from pydelta.commands.engine import NOTHING_WRITTEN, Assignments, Engine, RewriteOutput, ways_of
from pydelta.commands.optimize.command import compact_after_change
from pydelta.commands.session_version import landed_before
from pydelta.commands.write.command import lost_identity_race, with_given_values
from pydelta.errors import DeltaError, InvalidArgumentError, MetadataChangedException, UnsafeOperationError
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.predicate import Expr
from pydelta.protocol.actions import Action, AddFile, encode_json
from pydelta.protocol.column_mapping import mapped_metadata
from pydelta.protocol.roaring import Positions
from pydelta.protocol.types import StructType
from pydelta.settings import Settings
from pydelta.storage.discarding import discard
from pydelta.txn import Begin, Committed, Operation, OptimisticTransaction, start_transaction

__all__ = [
    "ClauseAction",
    "ClauseOn",
    "MergeClause",
    "MergeMatches",
    "MergeResult",
    "Merging",
    "check_clauses",
    "merge",
    "only_deletes",
]


class ClauseOn(enum.Enum):
    """Which rows a clause is for."""

    MATCHED = "WHEN MATCHED"
    NOT_MATCHED = "WHEN NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"


class ClauseAction(enum.Enum):
    """What a clause does with them."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClause:
    """One clause.

    Args:
        on: Which rows it is for.
        action: What it does.
        condition: SQL text or an expression of the engine; None for all of them.
        assignments: Columns and values; None for all of the source's (``UPDATE *``, ``INSERT *``), and for DELETE.
    """

    on: ClauseOn
    action: ClauseAction
    condition: Any = None
    assignments: Assignments | None = None

    @property
    def is_star(self) -> bool:
        """Whether it takes its columns from the source."""
        return self.assignments is None and self.action is not ClauseAction.DELETE


def only_deletes(clauses: Iterable[Any]) -> bool:
    """Return whether the one clause for pairs deletes them all: then it does not matter how many pairs a row is in."""
    matched = [clause for clause in clauses if clause.on is ClauseOn.MATCHED]
    return len(matched) == 1 and matched[0].action is ClauseAction.DELETE and matched[0].condition is None


_NOT_LAST: Final = {
    ClauseOn.MATCHED: Condition.of("DELTA_NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION"),
    ClauseOn.NOT_MATCHED: Condition.of("DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT_CONDITION"),
    ClauseOn.NOT_MATCHED_BY_SOURCE: Condition.of("DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION"),
}


def check_clauses(clauses: Sequence[MergeClause]) -> None:
    """Refuse clauses that make no sense together. Pure.

    Raises:
        InvalidArgumentError: There is none, or one without a condition hides those after it.
    """
    if not clauses:
        raise InvalidArgumentError(
            "The merge has no clauses, so it would do nothing.",
            hint="Add whenMatchedUpdateAll() or another clause.",
            condition=Condition.of("DELTA_MERGE_MISSING_WHEN"),
        )
    for kind in ClauseOn:
        own = [clause for clause in clauses if clause.on is kind]
        if any(clause.condition is None for clause in own[:-1]):
            raise InvalidArgumentError(
                f"A {kind.value} clause without a condition comes before others of its kind, which would never run.",
                hint="Give it a condition, or put it last.",
                condition=_NOT_LAST[kind],
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeMatches:
    """What the clauses do to rows that are there.

    Args:
        positions: Rows that change, by the file's place among those that were searched.
        updated: How many are updated, and
        deleted: how many deleted.
        alone_updated: How many of the updated ones match no row of the source, and
        alone_deleted: how many of the deleted ones.
        paired: Rows of the source that go with some row, where a clause inserts.
    """

    positions: Mapping[int, Positions] = field(default_factory=dict)
    updated: int = 0
    deleted: int = 0
    alone_updated: int = 0
    alone_deleted: int = 0
    paired: int = 0


class Merging(Protocol):
    """A merge that an engine has bound to a snapshot; used once, from top to bottom, and closed."""

    condition_sql: str
    clause_texts: Sequence[str | None]
    schema: StructType
    source_ms: int

    def count_source(self) -> int:
        """Count the rows of the source."""

    def target_filters(self) -> Sequence[Expr]:
        """Return conditions that every target row with a match satisfies."""

    def find(self, files: pl.DataFrame) -> MergeMatches:
        """Pair the rows of files with the source.

        Raises:
            InvalidArgumentError: Two rows of the source would change one row of the target; its key is named.
        """

    def write(self, files: pl.DataFrame, places: Sequence[int], *, copy_others: bool) -> tuple[RewriteOutput, Passed]:
        """Write updated and inserted rows, and with ``copy_others`` the rows of the files that do not change.

        What was written, and what the rows were counted as on their way there.

        Args:
            files: The files with a row that changes.
            places: Where they were among those given to ``find``.
            copy_others: See above.
        """

    def source_reads_table(self) -> bool:
        """Tell whether the source reads the table that is merged into."""

    def close(self) -> None:
        """Let go of what was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """What a MERGE did. Times in milliseconds.

    ``version`` is None when nothing was committed: nothing changed, or (``skipped``) the table had the session's
    ``txnVersion`` already. A version without rows says that the ``txnVersion`` is done.
    """

    num_source_rows: int
    num_inserted_rows: int
    num_updated_rows: int
    num_deleted_rows: int
    num_copied_rows: int
    num_touched_files: int
    num_candidate_files: int
    execution_time_ms: int
    version: int | None
    skipped: bool = False
    committed: Committed | None = field(default=None, repr=False)


def merge(
    log: DeltaLog,
    engine: Engine,
    begin: Callable[[Snapshot], Merging],
    clauses: Sequence[MergeClause],
    settings: Settings,
    *,
    begin_transaction: Begin = start_transaction,
) -> MergeResult:
    """Run a merge.

    Args:
        log: The table.
        engine: Discards files, refreshes caches.
        begin: Binds source, condition and clauses to the snapshot; once per attempt, with one clock and one source.
        clauses: For the history and for what may be left out.
        settings: The session's.
        begin_transaction: Starts a transaction. Another one begins when a writer that won has given out the identity
            values that this one meant to.

    Raises:
        TableNotFoundError: There is no table.
        UnsafeOperationError: The table is append-only, and a clause changes or deletes rows.
        ParseError, BindError, InvalidArgumentError, SchemaMismatchError: Condition or clauses cannot be used.
        ConstraintViolatedError: A row that the table does not allow. Nothing was changed.
        RowsDoNotAddUpError: Rows would have been lost or doubled. Nothing was changed.
        DeltaConcurrentModificationException: Another transaction won; nothing was changed.
        CommitStateUnknownError: The reply to the commit was lost for good.

    Protocol: "Add File and Remove File", "Add CDC File".
    """
    started = time.monotonic()
    check_clauses(clauses)
    statement, bound = Statement(log, engine), list[Merging]()

    def kept(snapshot: Snapshot) -> Merging:
        bound[:] = [begin(snapshot)]
        return bound[0]

    def attempt() -> MergeResult:
        for number in range(1, settings.commit_max_attempts + 1):
            txn = begin_transaction(log).notifying(engine.committed)
            statement.begins_on(existing_table(txn.snapshot))
            try:
                return _merge_once(_Merge(txn, engine, clauses, settings, started, statement), kept)
            except MetadataChangedException:
                if number == settings.commit_max_attempts or not lost_identity_race(log, txn.snapshot.metadata):
                    raise  # else: once more, with fresh identity values
        raise AssertionError("unreachable")

    return statement.run(attempt, is_fixed=lambda: not any(merging.source_reads_table() for merging in bound))


def _merge_once(run: _Merge, begin: Callable[[Snapshot], Merging]) -> MergeResult:
    txn, clauses = run.txn, run.clauses
    snapshot = existing_table(txn.snapshot)
    changes_rows = any(clause.on is not ClauseOn.NOT_MATCHED for clause in clauses)
    if snapshot.properties.append_only and changes_rows:
        raise UnsafeOperationError(
            "This table is append-only (delta.appendOnly=true), so a merge can only insert into it.",
            hint="Leave out the clauses that update or delete, or set delta.appendOnly to false first.",
            table=snapshot.table_uri,
            condition=Condition.of(
                "DELTA_CANNOT_MODIFY_APPEND_ONLY", table_name=snapshot.table_uri, config="delta.appendOnly"
            ),
        )
    if landed_before(txn, run.settings):
        return MergeResult(
            num_source_rows=0,
            num_inserted_rows=0,
            num_updated_rows=0,
            num_deleted_rows=0,
            num_copied_rows=0,
            num_touched_files=0,
            num_candidate_files=0,
            execution_time_ms=_elapsed_ms(run.started),
            version=None,
            skipped=True,
        )
    merging = begin(snapshot)
    try:
        return run.run(merging)
    finally:
        merging.close()


@dataclass(slots=True)
class _Merge:
    """One merge under way."""

    txn: OptimisticTransaction
    engine: Engine
    clauses: Sequence[MergeClause]
    settings: Settings
    started: float
    statement: Statement
    merging: Merging = field(init=False)

    def run(self, merging: Merging) -> MergeResult:
        self.merging = merging
        txn, snapshot = self.txn, self.txn.snapshot
        source_rows = merging.count_source()
        vectors = writes_vectors(snapshot)
        inserts = any(clause.on is ClauseOn.NOT_MATCHED for clause in self.clauses)
        if vectors and not inserts:
            txn.rows_stand_alone()
        candidates = self._candidates()
        matches = merging.find(candidates)
        scanned = _elapsed_ms(self.started)
        places = sorted(matches.positions)
        touched = candidates[places]
        adds = snapshot.files.adds(touched)
        written, passed, hidden = NOTHING_WRITTEN, Passed(), VectorOutput()
        try:
            if places or inserts:
                written, passed = merging.write(touched, places, copy_others=not vectors)
            if vectors and places:
                found = {number: matches.positions[place] for number, place in enumerate(places)}
                hidden = hide(txn, self.engine, adds, found)
            counts = self._counted(adds, matches, written, passed, hidden if vectors else None)
            going = list(hidden.actions) if vectors else _removed(adds)
            committed = None
            if going or written.files or merging.schema != snapshot.schema or txn.counts_as_version:
                metrics = self._metrics(written, hidden, adds, matches, vectors=vectors)
                metrics |= {
                    "numSourceRows": source_rows,
                    "numTargetRowsInserted": counts.inserted,
                    "numTargetRowsCopied": counts.copied,
                    "numOutputRows": written.num_rows,
                    "materializeSourceTimeMs": merging.source_ms,
                    "scanTimeMs": scanned,
                    "rewriteTimeMs": _elapsed_ms(self.started) - scanned,
                    "executionTimeMs": _elapsed_ms(self.started),
                    **ways_of(self.merging),
                    **self.statement.metrics,
                }
                committed = self._commit([*going, *written.files], metrics, written)
        except DeltaError:
            if txn.surely_not_landed:
                self.engine.discard(snapshot, written.files)
                discard(txn.log.store, hidden.files_written)
            raise
        return MergeResult(
            num_source_rows=source_rows,
            num_inserted_rows=counts.inserted,
            num_updated_rows=matches.updated,
            num_deleted_rows=matches.deleted,
            num_copied_rows=counts.copied,
            num_touched_files=len(adds),
            num_candidate_files=candidates.height,
            execution_time_ms=_elapsed_ms(self.started),
            version=committed.version if committed else None,
            committed=committed,
        )

    def _candidates(self) -> pl.DataFrame:
        """Files that may hold a row that some clause is about; the transaction records the reading."""
        snapshot = self.txn.snapshot
        if any(clause.on is ClauseOn.NOT_MATCHED_BY_SOURCE for clause in self.clauses):
            self.txn.read_whole_table()
            return snapshot.files.core
        return read_candidates(self.txn, list(self.merging.target_filters()), time_zone=self.engine.time_zone())

    def _counted(
        self,
        adds: Sequence[AddFile],
        matches: MergeMatches,
        written: RewriteOutput,
        passed: Passed,
        hidden: VectorOutput | None,
    ) -> RowCounts:
        """The numbers of rows, which add up; ``hidden`` is None where the touched files were rewritten."""
        log, snapshot = self.txn.log, self.txn.snapshot
        counts = RowCounts(
            live=live_rows(adds, log),
            deleted=matches.deleted,
            updated=matches.updated,
            inserted=passed.inserted,
            written=written.num_rows,
            hidden=None if hidden is None else hidden.num_deleted_rows,
            changes=written.num_changes if snapshot.properties.enable_change_data_feed else None,
            source=self.merging.count_source(),
            paired=matches.paired,
            passed=passed,
        )
        return check_rows(counts, lambda: live_rows(adds, log, by_footer=True), table=snapshot.table_uri)

    def _metrics(
        self,
        written: RewriteOutput,
        hidden: VectorOutput,
        adds: Sequence[AddFile],
        matches: MergeMatches,
        *,
        vectors: bool,
    ) -> dict[str, int | str]:
        counts = hidden.metrics if vectors else vectors_of_rewritten(adds)
        return {
            "numTargetRowsUpdated": matches.updated,
            "numTargetRowsDeleted": matches.deleted,
            "numTargetRowsMatchedUpdated": matches.updated - matches.alone_updated,
            "numTargetRowsMatchedDeleted": matches.deleted - matches.alone_deleted,
            "numTargetRowsNotMatchedBySourceUpdated": matches.alone_updated,
            "numTargetRowsNotMatchedBySourceDeleted": matches.alone_deleted,
            "numTargetFilesAdded": len(written.adds),
            "numTargetFilesRemoved": hidden.num_removed_files if vectors else len(adds),
            "numTargetBytesAdded": sum(add.size for add in written.adds),
            "numTargetBytesRemoved": hidden.removed_bytes if vectors else sum(add.size for add in adds),
            "numTargetChangeFilesAdded": len(written.changes),
            "numTargetDeletionVectorsAdded": counts["numDeletionVectorsAdded"],
            "numTargetDeletionVectorsRemoved": counts["numDeletionVectorsRemoved"],
            "numTargetDeletionVectorsUpdated": counts["numDeletionVectorsUpdated"],
        }

    def _commit(self, actions: Sequence[Action], metrics: Mapping[str, int | str], written: RewriteOutput) -> Committed:
        metadata = self.txn.snapshot.metadata
        assert metadata is not None
        if self.merging.schema != self.txn.snapshot.schema:
            evolved = metadata.replace(schema_string=self.merging.schema.to_json())
            mapped = self.txn.snapshot.column_mapping_mode != "none"
            metadata = mapped_metadata(evolved, metadata) if mapped else evolved
        marked = with_given_values(metadata, written.marks)
        assert marked is not None
        self.txn.update_metadata(marked)

        def predicates(on: ClauseOn) -> str:
            found = []
            for clause, text in zip(self.clauses, self.merging.clause_texts, strict=True):
                if clause.on is on:
                    found.append(({"predicate": text} if text else {}) | {"actionType": clause.action.value})
            return encode_json(found)

        operation = Operation(
            name="MERGE",
            parameters={
                "predicate": encode_json([self.merging.condition_sql]),
                "matchedPredicates": predicates(ClauseOn.MATCHED),
                "notMatchedPredicates": predicates(ClauseOn.NOT_MATCHED),
                "notMatchedBySourcePredicates": predicates(ClauseOn.NOT_MATCHED_BY_SOURCE),
            },
            metrics=metrics,
        )
        committed = self.txn.commit(actions, operation)
        compact_after_change(self.txn.log, self.engine, self.settings, committed, written.adds)
        return committed


def _removed(adds: Sequence[AddFile]) -> list[Action]:
    now_ms = time.time_ns() // 1_000_000
    return [add.remove(deletion_timestamp=now_ms) for add in adds]


def _elapsed_ms(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
