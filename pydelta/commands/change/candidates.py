"""Find the files and rows that match a bound condition, within a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import polars as pl

from pydelta.commands.change.hidden_rows import VectorOutput, live_rows, mark_deleted
from pydelta.commands.change.reconcile import RowCounts, check_rows
from pydelta.commands.engine import NOTHING_WRITTEN, BoundCondition, RewriteOutput
from pydelta.commands.run import Attempt
from pydelta.log import Snapshot
from pydelta.log.runs import loose_adds, runs_of
from pydelta.predicate import FALSE, Expr, columns, is_partition_only
from pydelta.protocol.actions import AddFile
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.protocol.roaring import Positions
from pydelta.protocol.row_sets import RowSet
from pydelta.txn import OptimisticTransaction

__all__ = [
    "Touched",
    "counted",
    "find_rows",
    "hide",
    "read_candidates",
    "rows_by_statistics",
    "touched_files",
    "vectors_of_rewritten",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """Files in which rows matched. The condition was evaluated to find them, and is not evaluated again.

    Args:
        frame: The files, as rows of the file table.
        adds: The same files as actions.
        rows: The rows that matched, by the file's position; None for all rows of all files.
    """

    frame: pl.DataFrame
    adds: list[AddFile] = field(repr=False)
    rows: Mapping[int, RowSet] | None

    @property
    def num_rows(self) -> int | None:
        """How many rows matched; None for all rows, which are not counted."""
        return None if self.rows is None else sum(len(rows) for rows in self.rows.values())

    def positions(self) -> Mapping[int, Positions]:
        """Return the rows that matched as positions of eight bytes, for deletion vectors."""
        return {place: rows.positions() for place, rows in (self.rows or {}).items()}


def read_candidates(txn: OptimisticTransaction, conditions: Sequence[Expr], *, time_zone: str) -> pl.DataFrame:
    """Find the files that may hold a row for which all conditions are true, and record them as read.

    If no row can satisfy them, nothing counts as read, so no concurrent write conflicts.
    """
    if FALSE in conditions:
        return txn.snapshot.files.core.head(0)
    partitions = tuple(txn.snapshot.partition_columns)
    of_partition = [part for part in conditions if columns(part) and is_partition_only(part, partitions)]
    of_data = [part for part in conditions if part not in of_partition]
    return txn.read_files(partition_filters=of_partition, data_filters=of_data, time_zone=time_zone)


def find_rows(attempt: Attempt, condition: BoundCondition) -> Touched:
    """Find the rows for which a condition is true, once for all later steps."""
    snapshot, engine = attempt.snapshot, attempt.engine
    candidates = read_candidates(attempt.txn, condition.conjuncts, time_zone=engine.time_zone())
    matched = engine.match_rows(snapshot, candidates, condition) if candidates.height else {}
    return touched_files(snapshot, candidates, matched)


def touched_files(snapshot: Snapshot, candidates: pl.DataFrame, matched: Mapping[int, RowSet]) -> Touched:
    """Select the searched files in which a row matched.

    Args:
        snapshot: The table.
        candidates: The files that were searched.
        matched: The rows that matched, by the file's position among them.
    """
    places = sorted(matched)
    frame = candidates[places]
    rows = {number: matched[place] for number, place in enumerate(places)}
    return Touched(frame=frame, adds=snapshot.files.adds(frame), rows=rows)


def hide(attempt: Attempt, adds: Sequence[AddFile], positions: Mapping[int, Positions]) -> VectorOutput:
    """Hide rows of files of the attempt's snapshot, and stage the vectors; see ``mark_deleted``."""
    log, engine = attempt.log, attempt.engine
    output = mark_deleted(attempt.snapshot, log, adds, positions, count=lambda files: engine.count_rows(log, files))
    attempt.stage_vectors(output.files_written)
    return output


def counted(
    txn: OptimisticTransaction,
    touched: Touched,
    *,
    written: RewriteOutput = NOTHING_WRITTEN,
    hidden: VectorOutput | None = None,
    updates: bool,
) -> RowCounts:
    """Count the rows of a DELETE or an UPDATE, and check that the numbers add up.

    Args:
        txn: The transaction before its commit.
        touched: The rows that matched.
        written: The files written.
        hidden: The rows hidden; None if the touched files were rewritten.
        updates: Whether the matched rows stay with new values.

    Raises:
        RowsDoNotAddUpError: They do not add up, so nothing may be committed.
    """
    matched = written.num_rows if touched.num_rows is None else touched.num_rows
    feed = txn.snapshot.properties.enable_change_data_feed and (updates or hidden is None)
    counts = RowCounts(
        live=live_rows(touched.adds, txn.log),
        deleted=0 if updates else matched,
        updated=matched if updates else 0,
        written=written.num_rows,
        hidden=None if hidden is None else hidden.num_deleted_rows,
        changes=written.num_changes if feed else None,
    )
    return check_rows(counts, lambda: live_rows(touched.adds, txn.log, by_footer=True), table=txn.snapshot.table_uri)


def rows_by_statistics(adds: Sequence[AddFile]) -> int | None:
    """Count the live rows in files by their statistics and deletion vectors; None when a file has no row count."""
    total = 0
    for run in runs_of(adds):
        counts = run.frame["stats"].str.json_path_match("$.numRecords").cast(pl.Int64, strict=False)
        if counts.null_count():
            return None
        total += int(counts.sum())
    for add in loose_adds(adds):
        try:
            count = msgspec.json.decode(add.stats)["numRecords"] if add.stats else None
        except (*MALFORMED_JSON, KeyError, TypeError):
            return None
        if not isinstance(count, int):
            return None
        total += count - (add.deletion_vector.cardinality if add.deletion_vector else 0)
    return total


def vectors_of_rewritten(adds: Sequence[AddFile]) -> dict[str, int]:
    """Count the vectors of removed files, under their names in the history."""
    return {
        "numDeletionVectorsAdded": 0,
        "numDeletionVectorsRemoved": sum(add.deletion_vector is not None for add in loose_adds(adds)),
        "numDeletionVectorsUpdated": 0,
    }
