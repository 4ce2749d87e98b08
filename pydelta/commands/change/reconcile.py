"""Check that a command's counts add up, and raise before anything is committed if they do not.

::

    rows in the touched files   = deleted + updated + copied
    rows in the new files       = updated + copied + inserted
    rows that new vectors hide  = deleted + updated              (then nothing is copied)
    rows of the change feed     = deleted + 2 · updated + inserted
    rows of a merge's source    = paired rows + unpaired rows, counting duplicates

The numbers come from different places: matches from the job that searched, written rows from the job that wrote, and
old rows from the log. A difference means that rows were lost or duplicated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pydelta.errors import RowsDoNotAddUpError, StorageError

__all__ = ["Passed", "RowCounts", "check_rows", "reconcile"]

_log = logging.getLogger(__name__)
_HINT: Final = (
    "The table is as it was. Run the command again; if it fails again, report it with this message, and leave the "
    "table to another engine until it is solved."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Rows counted by outcome, by the job that wrote them.

    Args:
        copied: Rows written unchanged.
        updated: Rows written with new values.
        inserted: New rows written.
        source: Source rows examined for inserts; None if no clause inserts.
        paired: Of these, the rows found in a pair.
    """

    copied: int = 0
    updated: int = 0
    inserted: int = 0
    source: int | None = None
    paired: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """Numbers of rows.

    Args:
        live: Rows in the touched files before the change, without hidden ones.
        deleted: Of these, the rows to delete.
        updated: Of these, the rows to update.
        inserted: New rows.
        written: Rows in the new data files.
        hidden: Rows that new deletion vectors hide; None if the touched files were rewritten.
        changes: Rows in the new change files; None if there are none.
        source: Rows of a MERGE's source.
        paired: Of these, the rows paired with a row of the table.
        passed: Counts of the job that wrote; None if it did not count.
    """

    live: int
    written: int
    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    hidden: int | None = None
    changes: int | None = None
    source: int = 0
    paired: int = 0
    passed: Passed | None = None

    @property
    def copied(self) -> int:
        """Rows written unchanged into new files."""
        return 0 if self.hidden is not None else self.live - self.deleted - self.updated


def reconcile(counts: RowCounts, *, table: str | None = None) -> None:
    """Check that the counts add up. Pure.

    Args:
        counts: The command's counts.
        table: For the message.

    Raises:
        RowsDoNotAddUpError: They do not; the message names each wrong sum.
    """
    wrong = []
    if counts.copied < 0:
        wrong.append(f"{counts.deleted + counts.updated} rows matched in files that hold {counts.live}")
    expected = counts.updated + counts.copied + counts.inserted
    if counts.written != expected:
        wrong.append(
            f"{counts.written} rows were written where {counts.updated} updated, {counts.copied} copied and "
            f"{counts.inserted} inserted ones make {expected}"
        )
    found = counts.deleted + counts.updated
    if counts.hidden is not None and counts.hidden != found:
        wrong.append(f"deletion vectors hide {counts.hidden} rows where {found} matched")
    recorded = counts.deleted + 2 * counts.updated + counts.inserted
    if counts.changes is not None and counts.changes != recorded:
        wrong.append(f"the change data feed has {counts.changes} rows but should have {recorded}")
    passed = counts.passed
    if passed is not None:
        sums = [("updated", passed.updated, counts.updated), ("copied", passed.copied, counts.copied)]
        if passed.source is not None:
            sums.append(("looked at in the source", passed.source, counts.source))
            sums.append(("left out of the source for their pairs", passed.paired, counts.paired))
        wrong += [f"{seen} rows were {what} but should be {right}" for what, seen, right in sums if seen != right]
    if wrong:
        raise RowsDoNotAddUpError(
            f"The rows do not add up: {'; '.join(wrong)}. Nothing was committed, and the files written for it are "
            "removed.",
            hint=_HINT,
            table=table,
        )


def check_rows(counts: RowCounts, recount: Callable[[], int], *, table: str | None = None) -> RowCounts:
    """Return the counts if they add up, if necessary with the live rows counted again from the files' footers.

    Args:
        counts: The command's counts; ``live`` comes from the log, whose ``numRecords`` another writer may have set.
        recount: Counts live rows of the touched files by their footers. Called only if the counts do not add up.
        table: For the message.

    Raises:
        RowsDoNotAddUpError: They do not add up either way.
    """
    try:
        reconcile(counts, table=table)
    except RowsDoNotAddUpError as wrong:
        try:
            recounted = replace(counts, live=recount())
        except StorageError as error:
            raise wrong from error
        if recounted == counts:
            raise
        reconcile(recounted, table=table)
        _log.warning(
            "the log says that the touched files of %s hold %d live rows, and their footers say %d",
            table, counts.live, recounted.live,
        )  # fmt: skip
        return recounted
    return counts
