"""Merge Arrow rows into a table by columns that are equal, without a session. ``LocalTable.merge`` runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import polars as pl

from pydelta.commands.change.merge import ClauseAction, ClauseOn, MergeClause, MergeMatches
from pydelta.commands.change.reconcile import Passed
from pydelta.commands.engine import RewriteOutput
from pydelta.engines.arrow.changes import FilePlace
from pydelta.engines.arrow.expressions import SOURCE, Exact, NotHere, both, compare
from pydelta.engines.arrow.merge.merge_rule import ArrowClause, MergeRule, SeveralSources, ranges
from pydelta.engines.arrow.merge.merge_source import HeldSource, MergeSource
from pydelta.engines.arrow.merge.merging import ArrowMerge
from pydelta.engines.arrow.merge.source_rows import SourceRows
from pydelta.engines.arrow.merge.spilled_merge import SpilledSource
from pydelta.engines.arrow.tasks.old_files import NeedsSpark
from pydelta.engines.arrow.tasks.write_files import WriteTask
from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.predicate import Column, Expr
from pydelta.protocol.identity import refuse_numbered
from pydelta.protocol.types import DataType, StructType

__all__ = ["LocalMerging", "clauses_of"]


def clauses_of(
    matched: str | None, not_matched: str | None, not_matched_by_source: str | None
) -> tuple[MergeClause, ...]:
    """Return the clauses of a merge from the names of their actions.

    Raises:
        InvalidArgumentError: A name is not allowed, or there is nothing to do.
    """
    words = (
        (ClauseOn.MATCHED, matched, ("update", "delete")),
        (ClauseOn.NOT_MATCHED, not_matched, ("insert",)),
        (ClauseOn.NOT_MATCHED_BY_SOURCE, not_matched_by_source, ("delete",)),
    )
    found = []
    for on, word, allowed in words:
        if word is not None and word not in allowed:
            raise InvalidArgumentError(
                f"{on.value} cannot be {word!r}.", hint=f"It is {' or '.join(map(repr, allowed))}, or None for nothing."
            )
        if word is not None:
            found.append(MergeClause(on=on, action=ClauseAction(word)))
    return tuple(found)


class LocalMerging:
    """A merge of Arrow rows. See ``Merging``.

    Args:
        snapshot: The table.
        source: The rows, and the names of the columns that are equal in rows that match.
        clauses: Clauses from ``clauses_of``.
        task: Options for writing files of the table.
        place: Store of the files.
        refused: Function that makes the error for work that only Spark can do.

    Raises:
        UnsupportedFeatureError: The table, or a type, needs Spark. The message has the reason.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        source: tuple[SourceRows, Sequence[str]],
        clauses: Sequence[MergeClause],
        *,
        task: WriteTask,
        place: FilePlace,
        refused: Callable[[Exception], DeltaError],
    ) -> None:
        started = time.monotonic()
        rows, on = source
        self._source, self._refused = rows, refused
        self.schema: StructType = snapshot.schema
        self.condition_sql = " AND ".join(f"(target.{name} = source.{name})" for name in on)
        self.clause_texts: Sequence[str | None] = [None] * len(clauses)
        names = rows.schema.names
        columns = {name: Column((SOURCE, str(place)), self._type(name)) for place, name in enumerate(names)}
        keys = {name: columns[name] for name in on}
        try:
            rule = self._rule(keys, columns, clauses)
            table = rows.table() if rows.fit_memory else None
            parts = rows.blocks() if table is None else [table]
            self._filters = ranges(rule, parts, {name.lower() for name in snapshot.partition_columns})
            if table is None:
                self._rows: MergeSource = SpilledSource(rows, rule)
                task = replace(task, row_group_bytes=task.row_group_bytes // 2)  # Threads buffer a row group each.
            else:
                self._rows = HeldSource(table, rule)
            self._merge = ArrowMerge(snapshot, rule, self._rows, task=task, place=place)
        except (NotHere, NeedsSpark) as reason:
            raise refused(reason) from None
        self.source_ms = int((time.monotonic() - started) * 1000)

    def _type(self, name: str) -> DataType:
        field = self.schema.field(name)
        assert field is not None, "the source has the table's names"
        return field.data_type

    def _rule(
        self, keys: Mapping[str, Column], columns: Mapping[str, Column], clauses: Sequence[MergeClause]
    ) -> MergeRule:
        condition: Exact | None = None
        for name, theirs in keys.items():
            equal = compare("=", Column((name,), theirs.type), theirs)
            condition = equal if condition is None else both(condition, equal)
        assert condition is not None, "there is a key"
        own = []
        for clause in clauses:
            values: Mapping[str, Exact] = {}
            if clause.action is ClauseAction.INSERT:
                values = columns
            elif clause.action is ClauseAction.UPDATE:  # An equal key keeps its value.
                values = {name: value for name, value in columns.items() if name not in keys}
                if not values:
                    raise InvalidArgumentError(
                        "The rows have no columns but the keys, so there is nothing to update.",
                        hint="Give the columns that change, or leave matched out.",
                    )
            refuse_numbered(self.schema, values.keys(), inserts=clause.action is ClauseAction.INSERT)
            own.append(ArrowClause(on=clause.on, action=clause.action, values=values))
        return MergeRule.of(condition, own)

    def ways(self) -> Mapping[str, str]:
        """See ``Engine.ways``."""
        return {"scannedBy": "arrow", "rewrittenBy": "arrow"}

    def count_source(self) -> int:
        """See ``Merging.count_source``."""
        return self._rows.num_rows

    def source_reads_table(self) -> bool:
        """See ``Merging.source_reads_table``. The rows do not come from a plan."""
        return False

    def target_filters(self) -> Sequence[Expr]:
        """See ``Merging.target_filters``."""
        return self._filters

    def narrowed(self, files: pl.DataFrame) -> pl.DataFrame:
        """See ``Merging.narrowed``."""
        return self._merge.narrowed(files)

    def find(self, files: pl.DataFrame) -> MergeMatches:
        """See ``Merging.find``.

        Raises:
            UnsupportedFeatureError: A file, or a result, needs Spark.
            InvalidArgumentError: Two rows of the source match one row of the table.
        """
        try:
            return self._merge.find(files)
        except SeveralSources:
            raise InvalidArgumentError(
                "Several of the rows given match the same row of the table: which of them should win is not known.",
                hint="Keep one row per key.",
                condition=Condition.of("DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"),
            ) from None
        except (NotHere, NeedsSpark) as reason:
            raise self._refused(reason) from None

    def write(self, files: pl.DataFrame, places: Sequence[int], *, copy_others: bool) -> tuple[RewriteOutput, Passed]:
        """See ``Merging.write``."""
        try:
            return self._merge.write(files, places, copy_others=copy_others)
        except (NotHere, NeedsSpark) as reason:
            raise self._refused(reason) from None

    def close(self) -> None:
        """See ``Merging.close``."""
        self._rows.close()
