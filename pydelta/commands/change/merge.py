"""Merge a source into a table by a condition and clauses, in at most one commit (MERGE).

::

    files that may hold a match (the source's smallest and largest keys, partition values, statistics; a record index)
      -> pairs of target and source rows, found from keys and clause conditions only
           a target row that two source rows would change -> refused
      -> files with a row that a clause changes -> rewritten, or hidden by deletion vectors
      -> source rows without a pair -> inserted
    no changed and no new rows -> no commit, or one without rows: for schema evolution or the session's txnVersion

For each row the first clause whose condition is true applies; without one the row and its file stay unchanged.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import polars as pl

from pydelta.commands.change.candidates import hide, read_candidates, vectors_of_rewritten
from pydelta.commands.change.hidden_rows import VectorOutput, live_rows, writes_vectors
from pydelta.commands.change.reconcile import Passed, RowCounts, check_rows
from pydelta.commands.engine import NOTHING_WRITTEN, Assignments, RewriteOutput
from pydelta.commands.optimize.command import compact_after_write
from pydelta.commands.run import Attempt, Command, Refusal
from pydelta.commands.write.command import lost_identity_race, with_given_values
from pydelta.errors import DeltaConcurrentModificationException, InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.predicate import Expr
from pydelta.protocol.actions import Action, AddFile, encode_json
from pydelta.protocol.column_mapping import mapped_metadata
from pydelta.protocol.roaring import Positions
from pydelta.protocol.types import StructType
from pydelta.settings import Settings
from pydelta.txn import Committed, Operation

__all__ = [
    "ClauseAction",
    "ClauseOn",
    "Merge",
    "MergeClause",
    "MergeMatches",
    "MergeResult",
    "Merging",
    "check_clauses",
    "only_deletes",
]


class ClauseOn(enum.Enum):
    """The rows that a clause applies to."""

    MATCHED = "WHEN MATCHED"
    NOT_MATCHED = "WHEN NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"


class ClauseAction(enum.Enum):
    """The action that a clause takes on its rows."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClause:
    """One clause.

    Args:
        on: Which rows it applies to.
        action: What it does.
        condition: SQL text or an expression of the engine; None for all of them.
        assignments: Columns and values; None for all columns of the source (``UPDATE *``, ``INSERT *``) and for DELETE.
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
    """Return whether the only clause for pairs deletes all of them, so that rows may be in several pairs."""
    matched = [clause for clause in clauses if clause.on is ClauseOn.MATCHED]
    return len(matched) == 1 and matched[0].action is ClauseAction.DELETE and matched[0].condition is None


_NOT_LAST: Final = {
    ClauseOn.MATCHED: Condition.of("DELTA_NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION"),
    ClauseOn.NOT_MATCHED: Condition.of("DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT_CONDITION"),
    ClauseOn.NOT_MATCHED_BY_SOURCE: Condition.of("DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION"),
}


def check_clauses(clauses: Sequence[MergeClause]) -> None:
    """Refuse invalid combinations of clauses. Pure.

    Raises:
        InvalidArgumentError: There are none, or one without a condition hides those after it.
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
    """The effect of the clauses on existing rows.

    Args:
        positions: Rows that change, by the file's position among the searched files.
        updated: How many are updated.
        deleted: How many are deleted.
        alone_updated: How many of the updated ones match no row of the source.
        alone_deleted: How many of the deleted ones match no row of the source.
        paired: Source rows that match some row, if a clause inserts.
    """

    positions: Mapping[int, Positions] = field(default_factory=dict)
    updated: int = 0
    deleted: int = 0
    alone_updated: int = 0
    alone_deleted: int = 0
    paired: int = 0


class Merging(Protocol):
    """A merge that an engine has bound to a snapshot. Its methods are called once each, in order, ``close`` last."""

    condition_sql: str
    clause_texts: Sequence[str | None]
    schema: StructType
    source_ms: int

    def count_source(self) -> int:
        """Count the rows of the source."""

    def target_filters(self) -> Sequence[Expr]:
        """Return conditions that every matched target row satisfies."""

    def narrowed(self, files: pl.DataFrame) -> pl.DataFrame:
        """Leave out files that a record index proves to hold no matching row. Without one, return them unchanged."""

    def find(self, files: pl.DataFrame) -> MergeMatches:
        """Pair the rows of files with the source.

        Raises:
            InvalidArgumentError: Two source rows would change one target row; the error names its key.
        """

    def write(self, files: pl.DataFrame, places: Sequence[int], *, copy_others: bool) -> tuple[RewriteOutput, Passed]:
        """Write updated and inserted rows, and with ``copy_others`` the unchanged rows of the files.

        Returns the files written, and the counts of the rows by outcome.

        Args:
            files: The files with a row that changes.
            places: Their positions among those given to ``find``.
            copy_others: See above.
        """

    def source_reads_table(self) -> bool:
        """Return whether the source reads the target table."""

    def ways(self) -> Mapping[str, str]:
        """Return how rows were read and written; see ``RewritesFiles.ways``."""

    def close(self) -> None:
        """Release resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The result of a MERGE. Times are in milliseconds.

    ``version`` is None when nothing was committed: nothing changed, or (``skipped``) the table already had the
    session's ``txnVersion``. A version without rows only records the ``txnVersion``.
    """

    num_source_rows: int = 0
    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    num_deleted_rows: int = 0
    num_copied_rows: int = 0
    num_touched_files: int = 0
    num_candidate_files: int = 0
    execution_time_ms: int
    version: int | None
    skipped: bool = False
    committed: Committed | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Merge(Command[MergeResult]):
    """MERGE: merge a source into the table by a condition and clauses.

    Args:
        begin: Binds source, condition and clauses to a snapshot, once per attempt, with one clock and one source.
        clauses: For the history, and to decide which steps can be left out.

    Raises:
        UnsafeOperationError: The table is append-only, and a clause changes or deletes rows.
        ParseError, BindError, InvalidArgumentError, SchemaMismatchError: Condition or clauses cannot be used.
        ConstraintViolatedError: The table does not allow a row. Nothing was changed.
        RowsDoNotAddUpError: Rows would have been lost or duplicated. Nothing was changed.

    Protocol: "Add File and Remove File", "Add CDC File".
    """

    begin: Callable[[Snapshot], Merging]
    clauses: Sequence[MergeClause]

    is_statement = True

    def __post_init__(self) -> None:
        """Check the clauses."""
        check_clauses(self.clauses)

    def append_only(self) -> Refusal | None:
        """See ``Command.append_only``: an append-only table accepts inserts."""
        if all(clause.on is ClauseOn.NOT_MATCHED for clause in self.clauses):
            return None
        return Refusal(
            "a merge can only insert into it",
            "Leave out the clauses that update or delete, or set delta.appendOnly to false first.",
        )

    def transaction(self, settings: Settings) -> tuple[str | None, int | None]:
        """See ``Command.transaction``: the session's."""
        return settings.transaction

    def skipped(self, attempt: Attempt) -> MergeResult:
        """See ``Command.skipped``."""
        return MergeResult(execution_time_ms=attempt.elapsed_ms, version=None, skipped=True)

    def tries_again(self, lost: DeltaConcurrentModificationException, attempt: Attempt, tries: int) -> bool:
        """See ``Command.tries_again``: retry with new identity values if the winner used these."""
        return lost_identity_race(lost, attempt, tries)

    def execute(self, attempt: Attempt) -> MergeResult:
        """See ``Command.execute``."""
        merging = self.begin(attempt.snapshot)
        attempt.is_repeatable = lambda: not merging.source_reads_table()
        try:
            return _Merge(attempt, self.clauses, merging).run()
        finally:
            merging.close()


@dataclass(slots=True)
class _Merge:
    """One attempt of a merge."""

    attempt: Attempt
    clauses: Sequence[MergeClause]
    merging: Merging

    def run(self) -> MergeResult:
        attempt, merging = self.attempt, self.merging
        txn, snapshot = attempt.txn, attempt.snapshot
        source_rows = merging.count_source()
        vectors = writes_vectors(snapshot)
        inserts = any(clause.on is ClauseOn.NOT_MATCHED for clause in self.clauses)
        if vectors and not inserts:
            txn.rows_stand_alone()
        candidates = self._candidates()
        matches = merging.find(candidates)
        scanned = attempt.elapsed_ms
        places = sorted(matches.positions)
        touched = candidates[places]
        adds = snapshot.files.adds(touched)
        written, passed, hidden = NOTHING_WRITTEN, Passed(), VectorOutput()
        if places or inserts:
            written, passed = merging.write(touched, places, copy_others=not vectors)
            attempt.stage(written)
        if vectors and places:
            hidden = hide(attempt, adds, {number: matches.positions[place] for number, place in enumerate(places)})
        counts = self._counted(adds, matches, written, passed, hidden if vectors else None)
        going = hidden.actions if vectors else self._removed(adds)
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
                "rewriteTimeMs": attempt.elapsed_ms - scanned,
                "executionTimeMs": attempt.elapsed_ms,
                **merging.ways(),
                **attempt.statement.metrics,
            }
            committed = self._commit([*going, *written.files], metrics, written)
        return MergeResult(
            num_source_rows=source_rows,
            num_inserted_rows=counts.inserted,
            num_updated_rows=matches.updated,
            num_deleted_rows=matches.deleted,
            num_copied_rows=counts.copied,
            num_touched_files=len(adds),
            num_candidate_files=candidates.height,
            execution_time_ms=attempt.elapsed_ms,
            version=committed.version if committed else None,
            committed=committed,
        )

    def _candidates(self) -> pl.DataFrame:
        """Return files that may hold a row for some clause, and record them as read."""
        txn = self.attempt.txn
        if any(clause.on is ClauseOn.NOT_MATCHED_BY_SOURCE for clause in self.clauses):
            txn.read_whole_table()
            return txn.snapshot.files.core
        zone = self.attempt.engine.time_zone()
        found = read_candidates(txn, list(self.merging.target_filters()), time_zone=zone)
        # The predicates and all of these files stay recorded as read, so that an index hides no conflict.
        return self.merging.narrowed(found)

    def _counted(
        self,
        adds: Sequence[AddFile],
        matches: MergeMatches,
        written: RewriteOutput,
        passed: Passed,
        hidden: VectorOutput | None,
    ) -> RowCounts:
        """Count the rows and check the sums; ``hidden`` is None if the touched files were rewritten."""
        log, snapshot = self.attempt.log, self.attempt.snapshot
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
        txn, snapshot = self.attempt.txn, self.attempt.snapshot
        metadata = snapshot.metadata
        assert metadata is not None
        if self.merging.schema != snapshot.schema:
            evolved = metadata.replace(schema_string=self.merging.schema.to_json())
            mapped = snapshot.column_mapping_mode != "none"
            metadata = mapped_metadata(evolved, metadata) if mapped else evolved
        marked = with_given_values(metadata, written.marks)
        assert marked is not None
        txn.update_metadata(marked)

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
        committed = txn.commit(actions, operation)
        if self.attempt.context.compacts(committed, written.adds):
            compact_after_write(self.attempt.context, committed, written.adds)
        return committed

    def _removed(self, adds: Sequence[AddFile]) -> list[Action]:
        now_ms = self.attempt.now_ms()
        return [add.remove(deletion_timestamp=now_ms) for add in adds]
