"""Implement ``Engine`` with Spark. Its analyzer binds conditions, and its jobs read and write rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import polars as pl
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.commands.change.hidden_rows import footer_rows
from pydelta.commands.engine import Assignments, BoundCondition, BoundUpdate, RewriteOutput
from pydelta.commands.optimize.command import PlannedOptimize
from pydelta.commands.optimize.plan import Layout
from pydelta.engines.arrow.expressions import Exact
from pydelta.engines.arrow.layout import TableShape
from pydelta.engines.spark.catalog.entries import follow_names
from pydelta.engines.spark.change.assignments import BoundAssignments, SetClause, bind_assignments
from pydelta.engines.spark.change.binding import BoundExpression, Moment, SparkColumns, bind_condition, folded
from pydelta.engines.spark.change.choice import ArrowFirst
from pydelta.engines.spark.change.plain_conditions import PlainCondition, read_plain
from pydelta.engines.spark.change.plain_values import read_plain_values
from pydelta.engines.spark.change.rules import check_default, rows_against
from pydelta.engines.spark.change.shown import is_shown_as_it_is, shown, text_of
from pydelta.engines.spark.change.update import write_updated
from pydelta.engines.spark.errors import condition_of
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import SessionSettings
from pydelta.engines.spark.maintenance.optimize import compact_files, lay_out_files, rewrite_files_as
from pydelta.engines.spark.own_settings import exact_filters
from pydelta.engines.spark.scan.caches import refresh_caches
from pydelta.engines.spark.scan.deleted_rows import collect_rows
from pydelta.engines.spark.scan.filters import Tree
from pydelta.engines.spark.scan.scan import (
    FILE_ROW_COLUMN,
    MATCHED_COLUMN,
    ROW_INDEX_COLUMN,
    Extra,
    matching_partitions,
    scan_dataframe,
    scan_matched,
)
from pydelta.engines.spark.write.assignment import telling_overflow
from pydelta.engines.spark.write.columns import name
from pydelta.engines.spark.write.table_expressions import refuse_foreign
from pydelta.engines.spark.write.writer import CHANGE_COLUMN, write_files
from pydelta.errors import BindError, DeltaError, InvalidArgumentError, ParseError, first_line
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.predicate import columns
from pydelta.protocol.actions import AddCDCFile, AddFile, Metadata
from pydelta.protocol.identity import refuse_numbered
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.types import DataType, StructType
from pydelta.storage import open_store
from pydelta.storage.discarding import discard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkEngine"]

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SparkBinding:
    """The context in which the expressions of a command were resolved.

    Args:
        moment: Clock, time zone and user.
        rows: The DataFrame that they were resolved against.
        columns: Its columns that they read.
    """

    moment: Moment
    rows: DataFrame
    columns: SparkColumns


@dataclass(frozen=True)
class SparkCondition:
    """``BoundCondition.native`` of this engine.

    Args:
        tree: The condition with constants computed, as far as it can be evaluated without Spark.
        resolve: Resolves the condition in Spark, on first use.
    """

    tree: Tree | PlainCondition
    resolve: Callable[[], tuple[BoundExpression, SparkBinding]]

    @cached_property
    def _resolved(self) -> tuple[BoundExpression, SparkBinding]:
        return self.resolve()

    @property
    def bound(self) -> BoundExpression:
        """The condition as Spark resolved it."""
        return self._resolved[0]

    @property
    def binding(self) -> SparkBinding:
        """The context in which it was resolved."""
        return self._resolved[1]


@dataclass(frozen=True)
class SparkUpdate:
    """``BoundUpdate.native`` of this engine.

    Args:
        plain: The new values by column, if they could be read without Spark.
        bind: Makes the context in which Spark resolves expressions, on first use.
        resolve: Resolves the assignments in Spark, on first use.
    """

    plain: Mapping[str, Exact] | None
    bind: Callable[[], SparkBinding]
    resolve: Callable[[SparkBinding], BoundAssignments]

    @cached_property
    def binding(self) -> SparkBinding:
        """The context of the condition and of the assignments."""
        return self.bind()

    @cached_property
    def values(self) -> BoundAssignments:
        """The assignments as Spark resolves them."""
        return self.resolve(self.binding)

    @property
    def columns(self) -> Collection[str]:
        """Names of the top-level columns that are set. Values that are not plain are resolved for it."""
        return self.values.columns if self.plain is None else self.plain.keys()

    def exact(self, schema: StructType) -> Mapping[str, Exact]:
        """Return the new values by column.

        Raises:
            NotHere: Only Spark can compute one of them.
        """
        return self.values.exact(schema) if self.plain is None else self.plain


class SparkEngine:
    """Runs the parts of a command that read or write rows, in one Spark session.

    Args:
        spark: A classic session.
        alias: A qualifier for the table's columns that conditions may use.
    """

    rewrites_files: ClassVar[bool] = True

    def __init__(self, spark: SparkSession, *, alias: str | None = None) -> None:
        self._spark = spark
        self._alias = alias
        self._arrow = ArrowFirst(spark)
        self._moment: Moment | None = None
        self._same_moment = False

    def bind_again(self) -> None:
        """See ``FollowsSession.bind_again``."""
        self._same_moment = True

    def _next_moment(self) -> Moment:
        """Return the moment of a new command, or the previous moment if the same command runs again."""
        if self._moment is None or not self._same_moment:
            self._moment = Moment(self._spark)
        self._same_moment = False
        return self._moment

    def ways(self) -> Mapping[str, str]:
        """See ``RewritesFiles.ways``."""
        return self._arrow.ways

    def foresee(self, snapshot: Snapshot, condition: Any) -> str:
        """Predict for EXPLAIN how the rows of a condition would be found, without a job.

        Raises:
            ParseError, BindError, InvalidArgumentError: As for ``bind_condition``.
        """
        bound = self.bind_condition(snapshot, condition)
        partitions = {name.lower() for name in snapshot.partition_columns}
        if {name.lower() for name in bound.references} <= partitions:
            return "log (no data file is read)"
        files = snapshot.files.select(data_filters=bound.conjuncts, time_zone=self.time_zone())
        way = self._arrow.foresee(snapshot, files, bound.native.tree)
        return f"{way} ({files.height} files, {int(files['size'].sum() or 0)} bytes)"

    def foresee_rearranged(self, planned: PlannedOptimize) -> str:
        """Predict for EXPLAIN how an OPTIMIZE would rewrite its files, without reading one."""
        return self._arrow.foresee_rearranged(planned.snapshot, planned.files, planned.layout)

    def bind_condition(self, snapshot: Snapshot, condition: Any) -> BoundCondition:
        """See ``FindsRows.bind_condition``."""
        self._arrow = ArrowFirst(self._spark)
        return self._read(snapshot, condition, lambda: self._binding(snapshot))

    def _binding(self, snapshot: Snapshot) -> SparkBinding:
        rows = self._columns(snapshot)
        return SparkBinding(self._next_moment(), rows, SparkColumns(rows))

    def _read(self, snapshot: Snapshot, condition: Any, binding: Callable[[], SparkBinding]) -> BoundCondition:
        """Resolve a condition; a plain one is resolved in Spark only if that has to find the rows."""
        plain = None
        if isinstance(condition, str) and not self._alias:
            plain = read_plain(condition, snapshot.schema, Jvm.of(self._spark).calls.settings().conf)
        if plain is None:
            return self._bind(snapshot, condition, binding())

        def resolve() -> tuple[BoundExpression, SparkBinding]:
            native: SparkCondition = self._bind(snapshot, condition, binding()).native
            return native.bound, native.binding

        return BoundCondition(
            sql=plain.sql,
            conjuncts=plain.conjuncts(),
            references=frozenset(path[0] for path in columns(plain.expression)),
            native=SparkCondition(plain, resolve),
            shown=plain.shown,
            as_given=plain.as_given,
        )

    def _bind(self, snapshot: Snapshot, condition: Any, binding: SparkBinding) -> BoundCondition:
        if isinstance(condition, str):
            self._refuse_subquery(self._parse(condition), condition)
            column = F.expr(condition)
        elif isinstance(condition, Column):
            self._refuse_subquery(Jvm.of(self._spark).expression(condition), condition)
            column = condition
        else:
            raise InvalidArgumentError(
                f"A condition is SQL text or a Column, not {type(condition).__name__}.",
                hint='For example: delete("day < \'2024-01-01\'") or delete(F.col("id") == 5).',
            )
        try:
            bound = bind_condition(binding.moment, binding.rows, column)
        except ParseException as error:
            raise ParseError(
                f"The condition does not parse: {error.getMessage()}",
                condition=condition_of(error),
            ) from error
        except AnalysisException as error:
            raise self._explain(error, snapshot, condition) from error
        self._refuse_subquery(bound.expression, condition)
        if not bound.expression.deterministic():
            raise InvalidArgumentError(
                f"The condition is not deterministic: {bound.sql}.",
                hint="It chooses files before it chooses rows, so it must give the same answer each time. Compute "
                "rand() or uuid() into a column first.",
                condition=Condition.of("INVALID_NON_DETERMINISTIC_EXPRESSIONS", sqlExprs=bound.sql),
            )
        binding.columns.used_in(bound)
        computed = folded(self._spark, bound)
        tree = Tree.of(computed)
        references = {name.lower() for name in Jvm.of(self._spark).reference_names(bound.expression)}
        return BoundCondition(
            sql=bound.sql,
            conjuncts=tree.conjuncts(),
            references=frozenset(field.name for field in snapshot.schema.fields if field.name.lower() in references),
            native=SparkCondition(tree, lambda: (bound, binding)),
            shown=text_of(computed) if is_shown_as_it_is(tree) else shown(self._spark, [bound.expression])[0],
            as_given=str(Jvm.of(self._spark).expression(column).toString()),
        )

    def time_zone(self) -> str:
        """See ``FindsRows.time_zone``."""
        return Jvm.of(self._spark).time_zone()

    def match_partitions(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> pl.DataFrame:
        """See ``FindsRows.match_partitions``. If Arrow cannot decide, Spark reads and filters the values."""
        native: SparkCondition = condition.native
        done = self._arrow.in_partitions(snapshot, files, native.tree)
        if done is not None:
            return done
        bound = native.bound
        if not snapshot.partition_columns:  # The condition is constant.
            row = Jvm.of(self._spark).one_row([bound.column.alias("holds")]).first()
            return files if row is not None and row["holds"] else files.head(0)
        return matching_partitions(self._spark, snapshot, files, bound.expression) if files.height else files

    def match_rows(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> Mapping[int, RowSet]:
        """See ``FindsRows.match_rows``. Runs in this process, or as one job that reads only the condition's columns."""
        if not files.height:
            return {}
        native: SparkCondition = condition.native
        done = self._arrow.find(snapshot, files, native.tree)
        if done is not None:
            return done
        rows = native.binding.columns.over(self._scan(snapshot, files, extra=Extra.PLACE))
        rows = rows.filter(native.bound.column)
        with exact_filters(self._spark):
            return collect_rows(rows, file_column=FILE_ROW_COLUMN, row_column=ROW_INDEX_COLUMN)

    def write_without(self, snapshot: Snapshot, files: pl.DataFrame, rows: Mapping[int, RowSet]) -> RewriteOutput:
        """See ``RewritesFiles.write_without``."""
        done = self._arrow.write_without(snapshot, files, rows)
        if done is not None:
            return done
        tracking = snapshot.properties.enable_row_tracking
        live = scan_matched(self._spark, snapshot, files, rows, with_row_tracking=tracking)
        change_column = None
        if snapshot.properties.enable_change_data_feed:
            change_column = CHANGE_COLUMN
            live = live.withColumn(CHANGE_COLUMN, F.when(F.col(MATCHED_COLUMN), F.lit("delete")))
        else:
            live = live.filter(~F.col(MATCHED_COLUMN))
        return write_files(self._spark, live, TableShape.of(snapshot), change_column=change_column)

    def bind_update(self, snapshot: Snapshot, condition: Any, assignments: Assignments) -> BoundUpdate:
        """See ``RewritesFiles.bind_update``."""
        self._arrow = ArrowFirst(self._spark)
        plain = None
        if not self._alias:
            plain = read_plain_values(assignments, snapshot.schema, Jvm.of(self._spark).calls.settings().conf)

        def resolve(binding: SparkBinding) -> BoundAssignments:
            clause = SetClause(qualifiers=[self._alias] if self._alias else [])
            values = bind_assignments(snapshot.schema, assignments, binding.rows, clause, moment=binding.moment)
            binding.columns.used_in(*values.expressions)
            return values

        update = SparkUpdate(plain, lambda: self._binding(snapshot), resolve)
        refuse_numbered(snapshot.schema, update.columns, inserts=False)
        where = None if condition is None else self._read(snapshot, condition, lambda: update.binding)
        return BoundUpdate(condition=where, native=update)

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
        update: SparkUpdate = bound.native
        done = self._arrow.write_updated(snapshot, files, rows, update.exact, copy_others=copy_others)
        if done is not None:
            return done
        values, binding = update.values, update.binding
        tracking = snapshot.properties.enable_row_tracking
        if rows is None:
            live = self._scan(snapshot, files, Extra.TRACKING if tracking else Extra.NONE).withColumn(
                MATCHED_COLUMN, F.lit(True)
            )
        else:
            live = scan_matched(self._spark, snapshot, files, rows, with_row_tracking=tracking)
        live = binding.columns.over(live)
        if not copy_others:
            live = live.filter(F.col(MATCHED_COLUMN))
        with telling_overflow():
            return write_updated(self._spark, snapshot, live, values, binding.moment)

    def compact(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, max_bytes: int
    ) -> RewriteOutput:
        """See ``RewritesFiles.compact``."""
        done = self._arrow.compact(snapshot, files, plan)
        if done is not None:
            return done
        return compact_files(self._spark, snapshot, files, plan, max_bytes=max_bytes)

    def lay_out(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, layout: Layout, target_bytes: int
    ) -> RewriteOutput:
        """See ``RewritesFiles.lay_out``."""
        done = self._arrow.lay_out(snapshot, files, plan, layout=layout, target_bytes=target_bytes)
        if done is not None:
            return done
        return lay_out_files(self._spark, snapshot, plan, layout=layout, target_bytes=target_bytes)

    def rewrite_as(self, snapshot: Snapshot, metadata: Metadata) -> RewriteOutput:
        """See ``RewritesFiles.rewrite_as``."""
        return rewrite_files_as(self._spark, snapshot, metadata)

    def check_condition(self, snapshot: Snapshot, expression: str) -> None:
        """See ``ChecksRules.check_condition``."""
        self.bind_condition(snapshot, expression)
        refuse_foreign(expression, "CHECK constraint")

    def check_default(self, expression: str, data_type: DataType) -> None:
        """See ``ChecksRules.check_default``."""
        check_default(self._spark, expression, data_type)

    def rows_against(self, snapshot: Snapshot, expression: str) -> tuple[int, str | None]:
        """See ``ChecksRules.rows_against``. Runs one job, which counts all such rows."""
        return rows_against(self._scan(snapshot, None), expression)

    def furthest_value(self, snapshot: Snapshot, column: str, *, lowest: bool) -> int | None:
        """See ``ChecksRules.furthest_value``."""
        values = self._scan(snapshot, None).select(name(column).alias("value"))
        row = values.agg((F.min if lowest else F.max)("value")).first()
        return None if row is None else row[0]

    def count_rows(self, log: DeltaLog, files: Sequence[AddFile]) -> Sequence[int]:
        """See ``FindsRows.count_rows``. Footers are read in this process."""
        return footer_rows(files, log)

    def discard(self, snapshot: Snapshot, adds: Sequence[AddFile | AddCDCFile]) -> None:
        """See ``RewritesFiles.discard``."""
        if adds:
            options = SessionSettings.of(self._spark).options
            discard(open_store(snapshot.table_uri, options), [decode_log_path(add.path).text for add in adds])

    def committed(self, snapshot: Snapshot) -> None:
        """See ``FollowsSession.committed``."""
        if snapshot.metadata is None:
            return
        try:
            refresh_caches(self._spark, snapshot.table_uri)
            follow_names(self._spark, snapshot)
        except DeltaError:
            raise
        except Exception as error:  # noqa: BLE001  the commit stands, whatever failed in Spark
            _log.warning(
                "Version %d was committed, but Spark could not be notified: %s",
                snapshot.version, first_line(error) or type(error).__name__, extra={"table": snapshot.table_uri},
            )  # fmt: skip

    def _columns(self, snapshot: Snapshot) -> DataFrame:
        """Return the table's rows to resolve expressions against. For millions of files, none is listed."""
        return self._scan(snapshot, snapshot.files.none() if snapshot.files.in_parts else None)

    def _scan(
        self,
        snapshot: Snapshot,
        files: pl.DataFrame | None,
        extra: Extra = Extra.NONE,
    ) -> DataFrame:
        frame = scan_dataframe(self._spark, snapshot, pinned=True, files=files, extra=extra)
        return frame.alias(self._alias) if self._alias else frame

    def _parse(self, text: str) -> Any:
        try:
            return self._spark._jsparkSession.sessionState().sqlParser().parseExpression(text)
        except ParseException as error:
            raise ParseError(
                f"The condition {text!r} does not parse: {first_line(str(error))}",
                hint="Write it as in a WHERE clause, without the word WHERE.",
                condition=condition_of(error),
            ) from error

    def _refuse_subquery(self, expression: Any, condition: Any) -> None:
        if Jvm.of(self._spark).has_subquery(expression):
            raise InvalidArgumentError(
                f"The condition {_shown(condition)} holds a subquery, which cannot be used here.",
                hint="Write MERGE INTO the table USING the subquery … WHEN MATCHED THEN DELETE (or UPDATE), or collect "
                "the keys first and use col.isin(keys).",
                condition=Condition.of("DELTA_UNSUPPORTED_SUBQUERY", cond=_shown(condition)),
            )

    def _explain(self, error: AnalysisException, snapshot: Snapshot, condition: Any) -> BindError:
        names = ", ".join(field.name for field in snapshot.schema.fields)
        return BindError(
            f"The condition {_shown(condition)} does not fit the table: {first_line(str(error))}",
            hint=f"The table's columns are: {names}.",
            table=snapshot.table_uri,
            condition=Condition.of("UNSUPPORTED_EXPR_FOR_OPERATOR")
            if error.getCondition() == "INVALID_WHERE_CONDITION"
            else condition_of(error),
        )


def _shown(condition: Any) -> str:
    """Format a condition for a message."""
    return repr(condition if isinstance(condition, str) else str(condition).removeprefix("Column<'").removesuffix("'>"))
