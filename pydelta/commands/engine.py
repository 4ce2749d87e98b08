"""Define what commands ask of the engine that runs queries; ``pydelta.engines.spark.engine`` implements it with Spark.

Commands plan with values alone; whatever needs rows to be read or written goes through ``Engine``, so that
everything in this package imports and tests with pyspark absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import polars as pl

from pydelta.commands.optimize.plan import Layout
from pydelta.log import DeltaLog, Snapshot
from pydelta.predicate import Expr
from pydelta.protocol.actions import AddCDCFile, AddFile
from pydelta.protocol.row_sets import RowSet

__all__ = [
    "NOTHING_WRITTEN",
    "Assignments",
    "BoundCondition",
    "Engine",
    "RearrangingEngine",
    "RewriteOutput",
    "TellingEngine",
    "rewritten_by",
    "ways_of",
]


Assignments: TypeAlias = Sequence[tuple[str, Any]]
"""Targets (``column``, ``struct.field``) with SQL text or an expression of the engine, as the user gave them: a target
that comes twice is there twice, so that it can be refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCondition:
    """A user's condition, resolved against the table once: with the clock, the zone and the functions of that moment.

    Args:
        sql: Normalised text, for results and messages. Nothing parses it.
        conjuncts: The condition's conjuncts as far as they can be understood without Spark; what cannot is
            ``Unknown`` and matches any file.
        references: Logical names of the top-level columns it reads.
        native: The engine's own form of the condition.
        shown: Text that goes into ``operationParameters.predicate``; empty for ``sql``.
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
        """Text that the history shows."""
        return self.shown or self.sql


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteOutput:
    """Files that a rewrite produced, and how many rows they hold.

    Args:
        adds: Data files.
        num_rows: Rows in the data files.
        changes: Files of the change data feed; the caller adds them to the commit.
        num_changes: Rows in these.
        marks: By identity column, the value given out last; the caller's commit moves the table's marks there.
        observed: What the job counted on the way, by the name of the place and of the count.
    """

    adds: tuple[AddFile, ...]
    num_rows: int
    changes: tuple[AddCDCFile, ...] = ()
    num_changes: int = 0
    marks: Mapping[str, int] = field(default_factory=dict)
    observed: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict, repr=False)

    @property
    def files(self) -> tuple[AddFile | AddCDCFile, ...]:
        """Everything written, as the actions of a commit and as what a failed command discards."""
        return (*self.adds, *self.changes)


NOTHING_WRITTEN: Final = RewriteOutput(adds=(), num_rows=0)
"""Of a command that has written nothing, or not yet."""


class Engine(Protocol):
    """Runs the parts of a command that read or write rows."""

    def time_zone(self) -> str:
        """Return the session's zone, which timestamps in partition values without a zone are in."""

    def bind_condition(self, snapshot: Snapshot, condition: Any) -> BoundCondition:
        """Resolve a condition (SQL text or the engine's own expression) against the table.

        Raises:
            ParseError: The text is not an expression.
            BindError: It names a column that the table does not have; the message lists those there are.
            InvalidArgumentError: It is not deterministic, holds a subquery or an aggregate, or is not boolean.
        """

    def match_partitions(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> pl.DataFrame:
        """Find the rows of ``files`` whose partition values make a condition true. Opens no data file."""

    def match_rows(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> Mapping[int, RowSet]:
        """Find the live rows of ``files`` for which the condition is true: once per command, for all its steps.

        Returns:
            Rows of the file by its place in ``files``; files without one are absent.
        """

    def write_without(self, snapshot: Snapshot, files: pl.DataFrame, rows: Mapping[int, RowSet]) -> RewriteOutput:
        """Write the live rows of ``files`` except those given into new files (``dataChange`` true), as they are.

        Where the table records a change data feed, the rows given go to ``changes`` as ``delete``.

        Args:
            snapshot: The table.
            files: Rows of its file table.
            rows: By place in ``files``; every place is there.
        """

    def count_rows(self, log: DeltaLog, files: Sequence[AddFile]) -> Sequence[int]:
        """Count the rows in data files, hidden ones too, by the files themselves and not by what the log says of them.

        Raises:
            StorageError: A file cannot be read.
        """

    def discard(self, snapshot: Snapshot, adds: Sequence[AddFile | AddCDCFile]) -> None:
        """Delete files that a failed command wrote. Call it only when their commit surely did not land."""

    def committed(self, snapshot: Snapshot) -> None:
        """Refresh what the engine caches over the table; called after each commit."""


@runtime_checkable
class TellingEngine(Protocol):
    """An engine that has several ways to do a step."""

    def ways(self) -> Mapping[str, str]:
        """Tell how the steps of the command bound last were done, and why, under names for the history.

        ``scannedBy`` and ``rewrittenBy``: ``arrow`` for this process, or ``spark: `` and the reason.
        """


def ways_of(engine: object) -> Mapping[str, str]:
    """Return what an engine or a merge tells of its ways, for ``operationMetrics``; nothing where it has one alone."""
    return engine.ways() if isinstance(engine, TellingEngine) else {}


def rewritten_by(engine: Engine) -> Mapping[str, str]:
    """Return of ``ways_of`` how files were written, for commands that look for no row."""
    return {name: way for name, way in ways_of(engine).items() if name == "rewrittenBy"}


@runtime_checkable
class RearrangingEngine(Engine, Protocol):
    """An engine that also rewrites files without changing a row."""

    def compact(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, max_bytes: int
    ) -> RewriteOutput:
        """Write the live rows of each bin into one new file, in their order; ids and versions of rows go along.

        Args:
            snapshot: The table.
            files: What is rewritten.
            plan: The same files as rows of the file table, in the same order, with ``bin`` (UInt32); the files of a
                bin are of one partition.
            max_bytes: Most bytes that a bin was meant to hold.

        Raises:
            StorageError: A file is missing or damaged, or the store refused. No new file is left.
        """

    def lay_out(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, layout: Layout, target_bytes: int
    ) -> RewriteOutput:
        """Write the live rows of the files into new ones of about ``target_bytes``, in the order of ``layout``.

        Args:
            snapshot: The table.
            files: What is rewritten.
            plan: The same files as rows of the file table, in the same order, with ``bin`` (UInt32), one a partition.
            layout: Columns and curve.
            target_bytes: Bytes of old files that go into one new file.
        """
