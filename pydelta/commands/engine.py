"""Define what commands require of the engine that reads and writes rows.

::

    Engine = FindsRows      conditions, partitions, matching rows
           + RewritesFiles  new files without rows, with new values, in another order
           + ChecksRules    expressions and rows that a change of the schema depends on
           + FollowsSession retries of a statement, and a session's caches over a table

Commands plan with values alone and leave all work on rows to the engine, so everything in this package imports and is
tested without pyspark. ``pydelta.engines.arrow`` implements it in this process, ``pydelta.engines.spark`` with Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NoReturn, Protocol, TypeAlias

import polars as pl

from pydelta.commands.optimize.plan import Layout
from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog, Snapshot
from pydelta.predicate import Expr
from pydelta.protocol.actions import AddCDCFile, AddFile, Metadata
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.types import DataType

__all__ = [
    "NOTHING_WRITTEN",
    "NO_ENGINE",
    "Assignments",
    "BoundCondition",
    "BoundUpdate",
    "Engine",
    "RefusingEngine",
    "RewriteOutput",
]


Assignments: TypeAlias = Sequence[tuple[str, Any]]
"""Targets (``column``, ``struct.field``) with SQL text or an expression of the engine, as the user gave them.
A repeated target stays repeated, so that it can be refused.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCondition:
    """A user's condition, resolved against the table once, with the clock, the zone and the functions of that moment.

    Args:
        sql: Normalized text, for results and messages. Nothing parses it.
        conjuncts: The condition's conjuncts as far as they can be understood without Spark; any other is ``Unknown``
            and matches every file.
        references: Logical names of the top-level columns it reads.
        native: The engine's own form of the condition.
        shown: Text for ``operationParameters.predicate``; empty for ``sql``.
        as_given: Text of the condition before it was resolved, for commands whose history shows that; empty for
            ``sql``.
    """

    sql: str
    conjuncts: tuple[Expr, ...]
    references: frozenset[str]
    native: Any
    shown: str = ""
    as_given: str = ""

    @property
    def for_history(self) -> str:
        """The text that the history shows."""
        return self.shown or self.sql


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteOutput:
    """The files that a rewrite produced, with counts of their rows.

    Args:
        adds: Data files.
        num_rows: Rows in the data files.
        changes: Change files; the caller adds them to the commit.
        num_changes: Rows in these.
        marks: The last value generated, by identity column; the caller's commit moves the table's marks there.
        observed: Counts from the job, by the name of the place and of the count.
    """

    adds: tuple[AddFile, ...]
    num_rows: int
    changes: tuple[AddCDCFile, ...] = ()
    num_changes: int = 0
    marks: Mapping[str, int] = field(default_factory=dict)
    observed: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict, repr=False)

    @property
    def files(self) -> tuple[AddFile | AddCDCFile, ...]:
        """All files written, as the actions of a commit and as the files that a failed command discards."""
        return (*self.adds, *self.changes)


NOTHING_WRITTEN: Final = RewriteOutput(adds=(), num_rows=0)
"""The output of a command that has written nothing, or not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundUpdate:
    """Condition and assignments of one UPDATE, resolved together with one clock and one zone.

    Args:
        condition: Which rows change; None for all.
        native: The engine's own form of the assignments.
    """

    condition: BoundCondition | None
    native: Any


class FindsRows(Protocol):
    """Finds the rows of conditions."""

    def time_zone(self) -> str:
        """Return the session's zone, used for timestamps in partition values without a zone."""

    def bind_condition(self, snapshot: Snapshot, condition: Any) -> BoundCondition:
        """Resolve a condition (SQL text or the engine's own expression) against the table.

        Raises:
            ParseError: The text is not an expression.
            BindError: It names a column that the table does not have; the message lists the table's columns.
            InvalidArgumentError: It is not deterministic, contains a subquery or an aggregate, or is not boolean.
        """

    def match_partitions(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> pl.DataFrame:
        """Return the rows of ``files`` whose partition values make a condition true, without opening data files."""

    def match_rows(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> Mapping[int, RowSet]:
        """Find the live rows of ``files`` for which the condition is true, once per command for all its steps.

        Returns:
            Rows of the file by its position in ``files``; files without matching rows are absent.
        """

    def count_rows(self, log: DeltaLog, files: Sequence[AddFile]) -> Sequence[int]:
        """Count the rows in data files, hidden ones too, by reading the files and not the log's statistics.

        Raises:
            StorageError: A file cannot be read.
        """


class RewritesFiles(Protocol):
    """Writes new files of a table from existing ones."""

    rewrites_files: ClassVar[bool]
    """Whether the engine does so, or refuses each of these steps."""

    def write_without(self, snapshot: Snapshot, files: pl.DataFrame, rows: Mapping[int, RowSet]) -> RewriteOutput:
        """Copy the live rows of ``files``, except those given, unchanged into new files (``dataChange`` true).

        If the table has a change feed, the rows given go to ``changes`` as ``delete``.

        Args:
            snapshot: The table.
            files: Rows of its file table.
            rows: Rows to leave out, by position in ``files``; every position is present.
        """

    def bind_update(self, snapshot: Snapshot, condition: Any, assignments: Assignments) -> BoundUpdate:
        """Resolve a condition (or None) and assignments against the table.

        Raises:
            ParseError: A text is not an expression.
            BindError: The condition, a target or a value names a column that does not exist.
            SchemaMismatchError: A value has a type that its column cannot hold.
            InvalidArgumentError: The condition is invalid, nothing is set, or a column is set twice.
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
        """Write rows with their new values, and with ``copy_others`` the other rows of their files unchanged.

        If the table has a change feed, both images of each changed row go to ``changes``.

        Args:
            snapshot: The table.
            files: Rows of its file table.
            rows: The rows that change, by position in ``files``, where every position is present; None for all.
            bound: The new values.
            copy_others: Whether the other rows are written as well.
        """

    def compact(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, max_bytes: int
    ) -> RewriteOutput:
        """Write the live rows of each bin into one new file, in order, with their row ids and row versions.

        Args:
            snapshot: The table.
            files: The files to rewrite.
            plan: The same files as rows of the file table, in the same order, with ``bin`` (UInt32); all files of a bin
                are in one partition.
            max_bytes: The planned maximum of bytes per bin.

        Raises:
            StorageError: A file is missing or damaged, or the store refused. No new file is left.
        """

    def lay_out(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, layout: Layout, target_bytes: int
    ) -> RewriteOutput:
        """Write the live rows of the files into new ones of about ``target_bytes``, in the order of ``layout``.

        Args:
            snapshot: The table.
            files: The files to rewrite.
            plan: The same files as rows of the file table, in the same order, with ``bin`` (UInt32), one per partition.
            layout: Columns and curve.
            target_bytes: Bytes of old files per new file.
        """

    def rewrite_as(self, snapshot: Snapshot, metadata: Metadata) -> RewriteOutput:
        """Write all live rows into new files in the layout of the new definition; row ids are kept."""

    def discard(self, snapshot: Snapshot, adds: Sequence[AddFile | AddCDCFile]) -> None:
        """Delete files that a failed command wrote. Call it only when their commit certainly did not land."""

    def ways(self) -> Mapping[str, str]:
        """Return how the last bound command's steps were done, and why, by name for the history.

        ``scannedBy`` and ``rewrittenBy``: ``arrow`` for this process, or ``spark: `` and the reason; empty for an
        engine that has only one way.
        """


class ChecksRules(Protocol):
    """Understands SQL expressions of a table's definition, and reads rows to check them."""

    def check_condition(self, snapshot: Snapshot, expression: str) -> None:
        """Check that a condition can be evaluated over the table's rows.

        Raises:
            ParseError: The text is not an expression.
            BindError: It names a column that the table does not have.
            InvalidArgumentError: It is not boolean or not deterministic, or contains a subquery or an aggregate.
        """

    def check_default(self, expression: str, data_type: DataType) -> None:
        """Check that an expression can be the default of a column.

        Raises:
            ParseError, BindError, InvalidArgumentError: It does not parse, names a column, or has another type.
        """

    def rows_against(self, snapshot: Snapshot, expression: str) -> tuple[int, str | None]:
        """Count the rows for which the condition is not true, and return one of them as text."""

    def furthest_value(self, snapshot: Snapshot, column: str, *, lowest: bool) -> int | None:
        """Return the highest or lowest value of a bigint column; None if no row has one."""


class FollowsSession(Protocol):
    """Keeps a session in step with its statements and their commits."""

    def bind_again(self) -> None:
        """Reuse the clock and the zone of the last resolution for the next one, because a statement runs again."""

    def committed(self, snapshot: Snapshot) -> None:
        """Refresh the engine's caches over the table; the transaction calls it after its commit."""


class Engine(FindsRows, RewritesFiles, ChecksRules, FollowsSession, Protocol):
    """Runs the parts of a command that read or write rows."""


class RefusingEngine:
    """An engine that refuses each step that needs rows, and has no session to follow.

    Engines that support some of the steps extend it.
    """

    rewrites_files: ClassVar[bool] = False

    def refuse(self, step: str) -> NoReturn:
        """Raise the error of a step that this engine does not support.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(
            f"This needs to {step}, which needs a Spark session.",
            hint="Run it in a Spark session, as SQL or through DeltaTable.",
        )

    def time_zone(self) -> str:
        """See ``FindsRows.time_zone``: UTC."""
        return "UTC"

    def bind_condition(self, snapshot: Snapshot, condition: Any) -> BoundCondition:
        """See ``FindsRows.bind_condition``."""
        self.refuse("resolve a condition")

    def match_partitions(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> pl.DataFrame:
        """See ``FindsRows.match_partitions``."""
        self.refuse("compare partition values")

    def match_rows(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> Mapping[int, RowSet]:
        """See ``FindsRows.match_rows``."""
        self.refuse("read rows")

    def count_rows(self, log: DeltaLog, files: Sequence[AddFile]) -> Sequence[int]:
        """See ``FindsRows.count_rows``."""
        self.refuse("read files")

    def write_without(self, snapshot: Snapshot, files: pl.DataFrame, rows: Mapping[int, RowSet]) -> RewriteOutput:
        """See ``RewritesFiles.write_without``."""
        self.refuse("rewrite files")

    def bind_update(self, snapshot: Snapshot, condition: Any, assignments: Assignments) -> BoundUpdate:
        """See ``RewritesFiles.bind_update``."""
        self.refuse("resolve expressions")

    def write_updated(
        self,
        snapshot: Snapshot,
        files: pl.DataFrame,
        rows: Mapping[int, RowSet] | None,
        bound: BoundUpdate,
        *,
        copy_others: bool,
    ) -> RewriteOutput:
        """See ``RewritesFiles.write_updated``."""
        self.refuse("write rows")

    def compact(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, max_bytes: int
    ) -> RewriteOutput:
        """See ``RewritesFiles.compact``."""
        self.refuse("rewrite files")

    def lay_out(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, layout: Layout, target_bytes: int
    ) -> RewriteOutput:
        """See ``RewritesFiles.lay_out``."""
        self.refuse("put rows in order")

    def rewrite_as(self, snapshot: Snapshot, metadata: Metadata) -> RewriteOutput:
        """See ``RewritesFiles.rewrite_as``."""
        self.refuse("rewrite all rows")

    def discard(self, snapshot: Snapshot, adds: Sequence[AddFile | AddCDCFile]) -> None:
        """See ``RewritesFiles.discard``: an engine that wrote nothing has nothing to delete."""

    def ways(self) -> Mapping[str, str]:
        """See ``RewritesFiles.ways``."""
        return {}

    def check_condition(self, snapshot: Snapshot, expression: str) -> None:
        """See ``ChecksRules.check_condition``."""
        self.refuse("resolve an expression or read rows")

    def check_default(self, expression: str, data_type: DataType) -> None:
        """See ``ChecksRules.check_default``."""
        self.refuse("resolve an expression or read rows")

    def rows_against(self, snapshot: Snapshot, expression: str) -> tuple[int, str | None]:
        """See ``ChecksRules.rows_against``."""
        self.refuse("resolve an expression or read rows")

    def furthest_value(self, snapshot: Snapshot, column: str, *, lowest: bool) -> int | None:
        """See ``ChecksRules.furthest_value``."""
        self.refuse("resolve an expression or read rows")

    def bind_again(self) -> None:
        """See ``FollowsSession.bind_again``."""

    def committed(self, snapshot: Snapshot) -> None:
        """See ``FollowsSession.committed``: there is no session with caches."""


NO_ENGINE: Final = RefusingEngine()
"""The engine of commands that only need the log."""
