"""Replace the rows that an overwrite's data matches: by deletion vectors, or by rewriting their files.

::

    replaceUsing, replaceOn --> rows of the table that some row of the data matches, found once
        the table writes deletion vectors   they are hidden
        it does not                         their files are removed, and the other rows are copied to new files
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import polars as pl

from pydelta.commands.change.candidates import counted, hide, read_candidates, touched_files
from pydelta.commands.change.hidden_rows import VectorOutput, writes_vectors
from pydelta.commands.engine import NOTHING_WRITTEN, RewriteOutput
from pydelta.commands.run import Attempt
from pydelta.commands.write.options import WriteOptions
from pydelta.errors import BindError, SchemaMismatchError
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.predicate import Expr
from pydelta.protocol.actions import AddFile
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.types import StructType

__all__ = ["Matching", "MatchingSource", "Replaced", "key_columns", "replace_matches"]


class Matching(Protocol):
    """The data of a write, bound to the table whose rows it replaces. It is computed once and then fixed."""

    def count_rows(self) -> int:
        """Count the rows of the data."""

    def filters(self) -> Sequence[Expr]:
        """Return conditions that hold for every row of the table that some row of the data matches."""

    def rows_in(self, snapshot: Snapshot, files: pl.DataFrame) -> Mapping[int, RowSet]:
        """Find live rows that some row of the data matches, by position in ``files``; files without any are absent."""


@runtime_checkable
class MatchingSource(Protocol):
    """A source of rows that can find the rows of a table that they match."""

    def matching(self, snapshot: Snapshot, options: WriteOptions) -> Matching:
        """Bind ``replaceUsing`` or ``replaceOn``, which fixes the rows, so that ``write`` writes the same ones.

        Raises:
            ParseError, BindError, InvalidArgumentError: The condition cannot be used.
            SchemaMismatchError: A column of ``replaceUsing`` would be written to another column of the table.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """The removal of the replaced rows.

    Args:
        files: Files that are removed as a whole.
        kept: New files with copies of their other rows.
        hidden: Vectors that hide rows in files that stay.
        num_rows: How many rows are removed; None if not counted.
        source_rows: How many rows of the data they were matched with; None if there was no matching.
    """

    files: Sequence[AddFile] = field(default_factory=list)
    kept: RewriteOutput = NOTHING_WRITTEN
    hidden: VectorOutput = field(default_factory=VectorOutput)
    num_rows: int | None = None
    source_rows: int | None = None


def key_columns(
    given: Sequence[str], table: StructType, data: StructType, spelt: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the columns of ``replaceUsing`` in the table's spelling, without duplicates.

    Args:
        given: As the user names them.
        table: The table's columns.
        data: The data's columns, under the table's names.
        spelt: The data's own names, in the same order, if columns are matched by position.

    Raises:
        BindError: The table or the data lacks a column.
        SchemaMismatchError: The data has a column at another position.
    """
    found = []
    own = [column.lower() for column in spelt or ()]
    for column in given:
        plain = column[1:-1].replace("``", "`") if len(column) > 1 and column[0] == column[-1] == "`" else column
        for what, schema in (("table", table), ("data", data)):
            if schema.field(plain) is None:
                raise BindError(
                    f"The {what} has no column {plain!r}, which replaceUsing names.",
                    hint=f"Its columns are: {', '.join(schema.names)}.",
                    condition=Condition.of(
                        "UNRESOLVED_INSERT_REPLACE_USING_COLUMN",
                        colName=plain,
                        relationType=what,
                        suggestion=schema.names,
                    ),
                )
        known = table.field(plain)
        assert known is not None
        place = [column.lower() for column in data.names].index(plain.lower())
        if plain.lower() in own and own[place] != plain.lower():
            raise SchemaMismatchError(
                f"replaceUsing names {plain!r}, but the data's column of that name is written to another column of the "
                f"table: {data.names[own.index(plain.lower())]!r}.",
                hint="INSERT and insertInto match columns by position: put the data's columns in the table's order, or "
                "write BY NAME.",
                condition=Condition.of(
                    "INSERT_REPLACE_USING_DISALLOW_MISALIGNED_COLUMNS", misalignedReplaceUsingCols=plain
                ),
            )
        found.append(known.name)
    return tuple(dict.fromkeys(found))


def replace_matches(attempt: Attempt, matching: Matching) -> Replaced:
    """Find the replaced rows, and hide or rewrite them. This stages files and commits nothing.

    Args:
        attempt: The write's attempt; its transaction records what is read.
        matching: The data, bound to the attempt's snapshot.

    Raises:
        RowsDoNotAddUpError: The counts of found, hidden and written rows do not add up.
    """
    txn, snapshot, engine = attempt.txn, attempt.snapshot, attempt.engine
    source_rows = matching.count_rows()
    if not source_rows:
        return Replaced(num_rows=0, source_rows=0)
    vectors = writes_vectors(snapshot)
    if vectors:
        txn.rows_stand_alone()  # Whether a row matches does not depend on other rows.
    candidates = read_candidates(txn, matching.filters(), time_zone=engine.time_zone())
    matched = matching.rows_in(snapshot, candidates) if candidates.height else {}
    touched = touched_files(snapshot, candidates, matched)
    if not touched.rows:
        return Replaced(num_rows=0, source_rows=source_rows)
    if vectors:
        hidden = hide(attempt, touched.adds, touched.positions())
        counted(txn, touched, hidden=hidden, updates=False)
        return Replaced(hidden=hidden, num_rows=touched.num_rows, source_rows=source_rows)
    kept = attempt.stage(engine.write_without(snapshot, touched.frame, touched.rows))
    counted(txn, touched, written=kept, updates=False)
    return Replaced(files=touched.adds, kept=kept, num_rows=touched.num_rows, source_rows=source_rows)
