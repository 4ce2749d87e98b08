"""Replace the rows that the data of an overwrite matches: as files, with copies, or by deletion vectors.

::

    replaceUsing, replaceOn --> rows of the table that some row of the data matches, found once
        the table writes deletion vectors   they are hidden
        it does not                         their files go, with copies of the rows that stay
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
    """The data of a write, bound to the table whose rows it replaces, and fixed: it is computed once."""

    def count_rows(self) -> int:
        """Rows of the data."""

    def filters(self) -> Sequence[Expr]:
        """Conditions that every row of the table satisfies which some row of the data matches."""

    def rows_in(self, snapshot: Snapshot, files: pl.DataFrame) -> Mapping[int, RowSet]:
        """Live rows that some row of the data matches, by the file's place in ``files``; files without are absent."""


@runtime_checkable
class MatchingSource(Protocol):
    """A source of rows that can tell which rows of a table they match."""

    def matching(self, snapshot: Snapshot, options: WriteOptions) -> Matching:
        """Bind ``replaceUsing`` or ``replaceOn``; the rows are fixed by it, and ``write`` writes the same.

        Raises:
            ParseError, BindError, InvalidArgumentError: The condition cannot be used.
            SchemaMismatchError: A column of ``replaceUsing`` goes into another one of the table.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What becomes of the rows that go.

    Args:
        files: Files that go as they are.
        kept: New files with those of their rows that stay.
        hidden: Vectors that hide rows, in files that stay.
        num_rows: How many rows go; None where that was not counted.
        source_rows: How many rows of the data they were matched with; None where they were not.
    """

    files: Sequence[AddFile] = field(default_factory=list)
    kept: RewriteOutput = NOTHING_WRITTEN
    hidden: VectorOutput = field(default_factory=VectorOutput)
    num_rows: int | None = None
    source_rows: int | None = None


def key_columns(
    given: Sequence[str], table: StructType, data: StructType, spelt: Sequence[str] | None = None
) -> tuple[str, ...]:
    """The columns of ``replaceUsing`` in the table's spelling, each once.

    Args:
        given: As the user names them.
        table: The table's columns.
        data: Those of the data, under the table's names.
        spelt: What the data itself calls them, in the same order, where they are matched by position.

    Raises:
        BindError: One that the table or the data does not have.
        SchemaMismatchError: One that the data has at another position.
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
                f"replaceUsing names {plain!r}, and the data's column of that name goes into another one of the table: "
                f"{data.names[own.index(plain.lower())]!r}.",
                hint="INSERT and insertInto match columns by position: put the data's columns in the table's order, or "
                "say BY NAME.",
                condition=Condition.of(
                    "INSERT_REPLACE_USING_DISALLOW_MISALIGNED_COLUMNS", misalignedReplaceUsingCols=plain
                ),
            )
        found.append(known.name)
    return tuple(dict.fromkeys(found))


def replace_matches(attempt: Attempt, matching: Matching) -> Replaced:
    """Find the rows that go, and hide or rewrite them; nothing is committed yet, what is written is staged.

    Args:
        attempt: Of the write; the transaction records what is looked at as read.
        matching: The data, bound to the attempt's snapshot.

    Raises:
        RowsDoNotAddUpError: What was found, hidden and written does not add up.
    """
    txn, snapshot, engine = attempt.txn, attempt.snapshot, attempt.engine
    source_rows = matching.count_rows()
    if not source_rows:
        return Replaced(num_rows=0, source_rows=0)
    vectors = writes_vectors(snapshot)
    if vectors:
        txn.rows_stand_alone()  # A row goes if the data matches it, whatever becomes of others.
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
