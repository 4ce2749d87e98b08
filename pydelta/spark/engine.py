"""``Engine`` with Spark: conditions are bound by Spark's analyser, rows are read and written by Spark jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.commands.engine import BoundCondition, RewriteOutput
from pydelta.commands.optimize_plan import Layout
from pydelta.errors import BindError, InvalidArgumentError, ParseError
from pydelta.log import Snapshot
from pydelta.protocol.actions import AddCDCFile, AddFile
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.roaring import Positions
from pydelta.protocol.types import DataType
from pydelta.spark.assignments import BoundAssignments, bind_assignments, refuse_numbered
from pydelta.spark.caches import refresh_caches
from pydelta.spark.catalog_entries import follow_names
from pydelta.spark.filters import conjuncts_of
from pydelta.spark.jvm import Jvm
from pydelta.spark.optimize import compact_files, lay_out_files
from pydelta.spark.rules import check_default, rows_against
from pydelta.spark.scan import FILE_ROW_COLUMN, ROW_INDEX_COLUMN, scan_dataframe
from pydelta.spark.update import write_updated
from pydelta.spark.vectors import collect_positions
from pydelta.spark.writer import CHANGE_COLUMN, write_files
from pydelta.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkEngine"]

_ORDINAL = "__pydelta_ordinal"


class SparkEngine:
    """Runs the parts of a command that read or write rows, on one Spark session.

    Args:
        spark: A classic session.
        alias: A name that conditions may use as a qualifier of the table's columns.
    """

    def __init__(self, spark: SparkSession, *, alias: str | None = None) -> None:
        self._spark = spark
        self._alias = alias

    def bind_condition(self, snapshot: Snapshot, condition: Any) -> BoundCondition:
        """See ``Engine.bind_condition``."""
        if isinstance(condition, str):
            self._refuse_subquery(self._parse(condition), condition)
            column = F.expr(condition)
        elif isinstance(condition, Column):
            column = condition
        else:
            raise InvalidArgumentError(
                f"A condition is SQL text or a Column, not {type(condition).__name__}.",
                hint='For example: delete("day < \'2024-01-01\'") or delete(F.col("id") == 5).',
            )
        try:
            filtered = self._scan(snapshot, None).filter(column)
        except ParseException as error:
            raise ParseError(f"The condition does not parse: {error.getMessage()}") from error
        except AnalysisException as error:
            raise self._explain(error, snapshot, condition) from error
        analyzed = filtered._jdf.queryExecution().analyzed()
        expression = analyzed.condition()
        self._refuse_subquery(expression, condition)
        if not expression.deterministic():
            raise InvalidArgumentError(
                f"The condition is not deterministic: {expression.sql()}.",
                hint="It is evaluated more than once, so it must give the same answer each time. "
                "Compute rand() or uuid() into a column first.",
            )
        references = {name.lower() for name in Jvm.of(self._spark).reference_names(expression)}
        return BoundCondition(
            sql=expression.sql(),
            conjuncts=conjuncts_of(self._spark, filtered),
            references=frozenset(field.name for field in snapshot.schema.fields if field.name.lower() in references),
            native=column,
        )

    def time_zone(self) -> str:
        """See ``Engine.time_zone``."""
        return Jvm.of(self._spark).time_zone()

    def match_partitions(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> pl.DataFrame:
        """See ``Engine.match_partitions``. The distinct partition rows are filtered by Spark, locally."""
        if files.height == 0:
            return files
        keys = [name for name in files.columns if name.startswith("pv:")]
        if not keys:  # a constant condition over an unpartitioned table
            rows = self._spark.range(1)
            return files if rows.filter(condition.native).count() else files.head(0)
        distinct = files.unique(subset=keys, maintain_order=True)
        typed = snapshot.files.partition_frame(distinct, time_zone=self.time_zone())
        typed = typed.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(_ORDINAL))
        frame = self._spark.createDataFrame(typed.to_arrow(compat_level=pl.CompatLevel.oldest()))
        frame = frame.alias(self._alias) if self._alias else frame
        kept = {row[0] for row in frame.filter(condition.native).select(_ORDINAL).collect()}
        matching = distinct.with_row_index(_ORDINAL).filter(pl.col(_ORDINAL).is_in(list(kept))).select(keys)
        return files.join(matching, on=keys, how="semi", nulls_equal=True, maintain_order="left")

    def count_matches(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> pl.DataFrame:
        """See ``Engine.count_matches``. The job reads the condition's columns and nothing else."""
        counted = (
            self._scan(snapshot, files, with_file_identity=True)
            .filter(condition.native)
            .groupBy(FILE_ROW_COLUMN)
            .agg(F.count(F.lit(1)).alias("matched"))
            .toArrow()
        )
        matched = pl.DataFrame(
            {"__row": counted.column(0).to_pylist(), "matched": counted.column(1).to_pylist()},
            schema={"__row": pl.UInt32, "matched": pl.Int64},
        )
        numbered = files.with_row_index("__row")
        return numbered.join(matched, on="__row", how="inner", maintain_order="left").drop("__row")

    def match_rows(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> dict[int, Positions]:
        """See ``Engine.match_rows``. One job, which reads the condition's columns and nothing else."""
        if not files.height:
            return {}
        rows = self._scan(snapshot, files, with_file_identity=True, with_row_index=True).filter(condition.native)
        return collect_positions(rows, file_column=FILE_ROW_COLUMN, row_column=ROW_INDEX_COLUMN)

    def rewrite_without(
        self, snapshot: Snapshot, files: Sequence[AddFile], frame: pl.DataFrame, condition: BoundCondition
    ) -> RewriteOutput:
        """See ``Engine.rewrite_without``."""
        rows = self._scan(snapshot, frame, with_row_tracking=snapshot.properties.enable_row_tracking)
        goes = condition.native.eqNullSafe(F.lit(True))
        change_column = None
        if snapshot.properties.enable_change_data_feed:
            change_column = CHANGE_COLUMN
            rows = rows.withColumn(CHANGE_COLUMN, F.when(goes, F.lit("delete")))
        else:
            rows = rows.filter(~goes)
        return write_files(
            self._spark,
            rows,
            change_column=change_column,
            table_uri=snapshot.table_uri,
            schema=snapshot.schema,
            partition_columns=snapshot.partition_columns,
            properties=snapshot.properties,
        )

    def bind_update(self, snapshot: Snapshot, assignments: Mapping[str, Any]) -> BoundAssignments:
        """See ``UpdatingEngine.bind_update``."""
        qualifiers = [self._alias] if self._alias else []
        frame = self._scan(snapshot, None)
        bound = bind_assignments(self._spark, snapshot.schema, assignments, frame, qualifiers=qualifiers)
        refuse_numbered(snapshot.schema, bound.columns, inserts=False)
        return bound

    def write_updated(
        self,
        snapshot: Snapshot,
        frame: pl.DataFrame,
        condition: BoundCondition | None,
        assignments: BoundAssignments,
        *,
        copy_others: bool,
    ) -> RewriteOutput:
        """See ``UpdatingEngine.write_updated``."""
        rows = self._scan(snapshot, frame, with_row_tracking=snapshot.properties.enable_row_tracking)
        return write_updated(self._spark, snapshot, rows, condition, assignments, copy_others=copy_others)

    def compact(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, max_bytes: int
    ) -> RewriteOutput:
        """See ``RearrangingEngine.compact``."""
        return compact_files(self._spark, snapshot, files, plan, max_bytes=max_bytes)

    def lay_out(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, layout: Layout, target_bytes: int
    ) -> RewriteOutput:
        """See ``RearrangingEngine.lay_out``."""
        return lay_out_files(self._spark, snapshot, plan, layout=layout, target_bytes=target_bytes)

    def check_condition(self, snapshot: Snapshot, expression: str) -> None:
        """See ``SchemaEngine.check_condition``."""
        self.bind_condition(snapshot, expression)

    def check_default(self, expression: str, data_type: DataType) -> None:
        """See ``SchemaEngine.check_default``."""
        check_default(self._spark, expression, data_type)

    def rows_against(self, snapshot: Snapshot, expression: str) -> tuple[int, str | None]:
        """See ``SchemaEngine.rows_against``. One job, which stops at no row: it counts them."""
        return rows_against(self._scan(snapshot, None), expression)

    def discard(self, snapshot: Snapshot, adds: Sequence[AddFile | AddCDCFile]) -> None:
        """See ``Engine.discard``."""
        if adds:
            options = Jvm.of(self._spark).hadoop_options()
            open_store(snapshot.table_uri, options).delete_many([decode_log_path(add.path) for add in adds])

    def committed(self, snapshot: Snapshot) -> None:
        """See ``Engine.committed``."""
        if snapshot.metadata is not None:
            refresh_caches(self._spark, snapshot.table_uri)
            follow_names(self._spark, snapshot)

    def _scan(
        self,
        snapshot: Snapshot,
        files: pl.DataFrame | None,
        *,
        with_file_identity: bool = False,
        with_row_index: bool = False,
        with_row_tracking: bool = False,
    ) -> DataFrame:
        frame = scan_dataframe(
            self._spark,
            snapshot,
            pinned=True,
            files=files,
            with_file_identity=with_file_identity,
            with_row_index=with_row_index,
            with_row_tracking=with_row_tracking,
        )
        return frame.alias(self._alias) if self._alias else frame

    def _parse(self, text: str) -> Any:
        try:
            return self._spark._jsparkSession.sessionState().sqlParser().parseExpression(text)
        except ParseException as error:
            raise ParseError(
                f"The condition {text!r} does not parse: {_first_line(str(error))}",
                hint="Write it as in a WHERE clause, without the word WHERE.",
            ) from error

    def _refuse_subquery(self, expression: Any, condition: Any) -> None:
        if Jvm.of(self._spark).has_subquery(expression):
            raise InvalidArgumentError(
                f"The condition {_shown(condition)} holds a subquery, which cannot be used here.",
                hint="Write MERGE INTO the table USING the subquery … WHEN MATCHED THEN DELETE (or UPDATE), or collect "
                "the keys first and use col.isin(keys).",
            )

    def _explain(self, error: AnalysisException, snapshot: Snapshot, condition: Any) -> BindError:
        names = ", ".join(field.name for field in snapshot.schema.fields)
        return BindError(
            f"The condition {_shown(condition)} does not fit the table: {_first_line(str(error))}",
            hint=f"The table's columns are: {names}.",
            table=snapshot.table_uri,
        )


def _shown(condition: Any) -> str:
    """A condition as a message shows it."""
    return repr(condition if isinstance(condition, str) else str(condition).removeprefix("Column<'").removesuffix("'>"))


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
