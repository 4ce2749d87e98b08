"""Implement ``Engine`` in this process, for commands that run without a JVM: conditions are SQL text over columns.

What only Spark computes is refused, with the reason; see ``pydelta.arrow.predicates`` for what a condition may hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from pydelta.arrow.changes import Place, delete_rows, find_rows, rewrite
from pydelta.arrow.columns import TableColumns
from pydelta.arrow.evaluate import true_rows
from pydelta.arrow.expressions import Exact, NotHere, fields_of
from pydelta.arrow.layout import Session, TableShape, make_task
from pydelta.arrow.predicates import exactly
from pydelta.arrow.tasks.old_files import NeedsSpark
from pydelta.commands.change.hidden_rows import footer_rows
from pydelta.commands.engine import BoundCondition, RewriteOutput
from pydelta.commands.write.options import WriteMode, WriteOptions
from pydelta.errors import InvalidArgumentError, UnsupportedFeatureError
from pydelta.log import DeltaLog, Snapshot
from pydelta.predicate import Expr, Unknown, columns, parse_predicate, split_conjuncts
from pydelta.protocol.actions import AddCDCFile, AddFile
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.row_tracking import materialized_columns
from pydelta.protocol.types import PrimitiveType
from pydelta.storage.discarding import discard

__all__ = ["ArrowEngine", "only_spark"]

_FLOAT: Final = PrimitiveType("float")
_HINT: Final = "Run it in a session: DeltaTable.forPath(spark, path), or pydelta sql."


class ArrowEngine:
    """Runs the parts of a command that read or write rows, in this process.

    Args:
        log: The table's; its store and options are used for the files, too.
    """

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._place = Place(store=log.store, options=log.options)

    def time_zone(self) -> str:
        """Return UTC: there is no session."""
        return "UTC"

    def ways(self) -> Mapping[str, str]:
        """See ``TellingEngine.ways``."""
        return {"scannedBy": "arrow", "rewrittenBy": "arrow"}

    def bind_condition(self, snapshot: Snapshot, condition: Any) -> BoundCondition:
        """See ``Engine.bind_condition``.

        Raises:
            UnsupportedFeatureError: It takes Spark to compute it; the message says what.
        """
        if not isinstance(condition, str):
            raise InvalidArgumentError(
                f"A condition is SQL text, not {type(condition).__name__}.",
                hint="For example: delete(\"day < '2024-01-01'\").",
            )
        expr = parse_predicate(condition, snapshot.schema)
        try:
            native = exactly(expr, snapshot.schema)
        except NotHere as reason:
            raise only_spark(reason, snapshot) from None
        names = {path[0].lower() for path in columns(expr)}
        return BoundCondition(
            sql=str(expr),
            conjuncts=_for_pruning(expr, native),
            references=frozenset(field.name for field in snapshot.schema.fields if field.name.lower() in names),
            native=native,
        )

    def match_partitions(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> pl.DataFrame:
        """See ``Engine.match_partitions``."""
        native: Exact = condition.native
        try:
            found = TableColumns(snapshot, fields_of(native))
            known: dict[frozenset[tuple[str, str | None]], bool] = {}
            kept = []
            for place, add in enumerate(snapshot.files.adds(files)):
                key = frozenset(add.partition_values.items())
                if key not in known:
                    known[key] = bool(true_rows(native, found.of(add.partition_values, None), 1)[0])
                kept += [place] if known[key] else []
        except NotHere as reason:
            raise only_spark(reason, snapshot) from None
        return files[kept]

    def match_rows(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> Mapping[int, RowSet]:
        """See ``Engine.match_rows``."""
        try:
            return find_rows(snapshot, files, condition.native, self._place)
        except (NotHere, NeedsSpark) as reason:
            raise only_spark(reason, snapshot) from None

    def write_without(self, snapshot: Snapshot, files: pl.DataFrame, rows: Mapping[int, RowSet]) -> RewriteOutput:
        """See ``Engine.write_without``."""
        task = make_task(
            TableShape.of(snapshot),
            WriteOptions(mode=WriteMode.APPEND),
            Session(settings=self._log.settings, store_options=self._log.options),
            change_data=snapshot.properties.enable_change_data_feed,
            row_tracking=bool(materialized_columns(snapshot.properties)),
        )
        try:
            return rewrite(snapshot, files, rows, delete_rows, task=task, place=self._place)
        except (NotHere, NeedsSpark) as reason:
            raise only_spark(reason, snapshot) from None

    def count_rows(self, log: DeltaLog, files: Sequence[AddFile]) -> Sequence[int]:
        """See ``Engine.count_rows``."""
        return footer_rows(files, log)

    def discard(self, snapshot: Snapshot, adds: Sequence[AddFile | AddCDCFile]) -> None:
        """See ``Engine.discard``."""
        del snapshot
        if adds:
            discard(self._log.store, [decode_log_path(add.path) for add in adds])

    def committed(self, snapshot: Snapshot) -> None:
        """Do nothing: there is no session whose caches could be behind."""


def _for_pruning(expr: Expr, native: Exact) -> tuple[Expr, ...]:
    """The conjuncts for pruning; of a condition over single floats nothing: statistics hold their shortest text."""
    if any(field.type == _FLOAT for field in fields_of(native)):
        return (Unknown(str(expr), columns(expr)),)
    return split_conjuncts(expr)


def only_spark(reason: Exception, snapshot: Snapshot) -> UnsupportedFeatureError:
    """Return the error of what only Spark does."""
    return UnsupportedFeatureError(
        f"Only Spark is sure to compute this right: {reason}.",
        features=("a command without Spark",),
        hint=_HINT,
        table=snapshot.table_uri,
    )
