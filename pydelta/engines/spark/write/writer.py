"""Write a DataFrame to Parquet files under their final names, in one Spark job without staging.

Rows pass through ``mapInArrow`` to ``write_task`` on the executors, which returns one record per file. Storage settings
are part of the pickled function, so that no plan, setting or event log contains them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pydelta.commands.engine import RewriteOutput
from pydelta.commands.write.command import WriteMode, WriteOptions, WriteTarget
from pydelta.engines.arrow.layout import (
    MICROSECONDS,
    Session,
    TableShape,
    add_of,
    change_of,
    make_task,
    output_of,
    written_columns,
)
from pydelta.engines.arrow.tasks.write_files import WriteTask, record_batch, run_task
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import SessionSettings
from pydelta.engines.spark.lost_rows import reading_kept
from pydelta.engines.spark.scan.newest import fixed
from pydelta.engines.spark.scan.refresh import indexes_in
from pydelta.engines.spark.types import from_spark
from pydelta.engines.spark.write.arrow_batches import is_oversized, map_in_arrow, unchecked_batches
from pydelta.engines.spark.write.columns import conform, name
from pydelta.engines.spark.write.identity import with_identities
from pydelta.engines.spark.write.in_driver import write_in_driver
from pydelta.engines.spark.write.matches import SparkMatching
from pydelta.engines.spark.write.observed import ObservedCounts, counting, counts_of, observed_in
from pydelta.engines.spark.write.staged import StagedPaths, clean_up, removing_staged
from pydelta.errors import RowsDoNotAddUpError
from pydelta.protocol.identity import identities
from pydelta.protocol.row_tracking import ROW_ID_COLUMN, ROW_VERSION_COLUMN, materialized_columns
from pydelta.protocol.schema import StructType
from pydelta.settings import Settings, TableProperties

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from pydelta.log import Snapshot

__all__ = [
    "CHANGE_COLUMN",
    "DataFrameSource",
    "make_write_task",
    "write_files",
]

CHANGE_COLUMN: Final = "__pydelta_change"
"""A name for ``change_column`` that no table has."""

_TIMESTAMP_TYPE: Final = "spark.sql.parquet.outputTimestampType"
_RECORD_DDL: Final = (
    "path string, partition_values string, size long, modification_time_ms long, num_rows long, stats string, "
    "change boolean"
)


class DataFrameSource:
    """A DataFrame as a source of rows for ``write_table``.

    Args:
        spark: The session.
        df: The rows. Columns are matched with the table's by name.
        shape: Converts ``df`` to the rows to write, if they differ, for example by position.
    """

    def __init__(
        self, spark: SparkSession, df: DataFrame, shape: Callable[[DataFrame], DataFrame] | None = None
    ) -> None:
        self._spark = spark
        self._raw = df
        self._shape = shape
        self._df = df if shape is None else shape(df)
        self._kept = False

    @property
    def schema(self) -> StructType:
        """See ``RowSource.schema``."""
        return from_spark(self._df.schema)

    def reads(self, table_uri: str) -> bool:
        """See ``ReadingSource.reads``."""
        jvm = Jvm.of(self._spark)
        if not jvm.calls.scans(self._df._jdf):
            return False
        plan = self._df._jdf.queryExecution().analyzed()
        parts = [plan, *jvm.to_list(plan.subqueriesAll())]
        return any(index.files.identity.location == table_uri for part in parts for index in indexes_in(jvm, part))

    def matching(self, snapshot: Snapshot, options: WriteOptions) -> SparkMatching:
        """See ``MatchingSource.matching``."""
        self._raw = fixed(self._spark, self._raw, snapshot)
        self._df = self._raw if self._shape is None else self._shape(self._raw)
        found = SparkMatching(self._spark, snapshot, self._raw, self._df, options)
        if options.replace_using is not None:  # Rows are matched in the form in which they are written.
            self._shape = None
        self._raw, self._kept = found.source, True
        self._df = self._raw if self._shape is None else self._shape(self._raw)
        return found

    def write(self, target: WriteTarget) -> RewriteOutput:
        """See ``RowSource.write``."""
        self._df = fixed(self._spark, self._df, target.snapshot)
        with reading_kept(target.table_uri, "the overwrite") if self._kept else nullcontext():
            return self._write(target)

    def _write(self, target: WriteTarget) -> RewriteOutput:
        plan = target.plan
        given = {column.lower() for column in self._df.columns}
        lacking = [item for item in identities(plan.schema) if item.column.lower() not in given]
        rows, values = with_identities(self._spark, self._df, lacking)
        rows = conform(
            rows,
            schema=plan.schema,
            configuration=plan.configuration,
            partition_columns=plan.partition_columns,
            predicate=target.predicate,
        )
        if target.condition is not None:
            rows = target.condition.native.binding.moment.frame(rows)
        rows = _spread(self._spark, rows, target)
        change_column = None
        if target.record_inserts:
            change_column = CHANGE_COLUMN
            rows = rows.withColumn(CHANGE_COLUMN, F.explode(F.array(F.lit(None).cast("string"), F.lit("insert"))))
        written = write_files(
            self._spark,
            rows,
            TableShape.planned(target.table_uri, plan),
            change_column=change_column,
            options=target.options,
            settings=target.settings,
        )
        return replace(written, marks=values.marks(written))


def _spread(spark: SparkSession, rows: DataFrame, target: WriteTarget) -> DataFrame:
    """Bring the rows of a partition together for an optimized write, so that it gets few files.

    Spark's adaptive execution merges small parts of the shuffle and splits large ones, by bytes.
    """
    wanted = target.options.optimize_write
    if wanted is None:
        wanted = target.plan.properties.optimize_write
    if not wanted:
        return rows
    keys = [name(column) for column in target.plan.partition_columns]
    return Jvm.of(spark).rebalance(rows, keys, target.settings.optimize_write_bin_bytes)


def write_files(
    spark: SparkSession,
    df: DataFrame,
    shape: TableShape,
    *,
    options: WriteOptions | None = None,
    settings: Settings | None = None,
    change_column: str | None = None,
) -> RewriteOutput:
    """Write rows that already have the table's columns. See ``columns.conform`` for other rows.

    If the table tracks rows, ``ROW_ID_COLUMN`` and ``ROW_VERSION_COLUMN`` are stored in the files. Null means the
    file's own id and version.

    Args:
        spark: The session.
        df: Rows with (at least) the columns of the table, by name.
        shape: Properties of the table that determine its files.
        options: Options of this write, which override the table's.
        settings: The session's settings; resolved from it by default.
        change_column: A column of ``df`` with the kind of change (``insert``, ``delete``, ``update_preimage``,
            ``update_postimage``). Rows with a kind go only to the change data feed, others to the table.

    Returns:
        One ``add`` per file (``dataChange`` true), the number of rows in them, and the files of the feed.

    Raises:
        ConstraintViolatedError: A row failed a check.
        StorageError: The store failed. The error gives the number of staged files, which are removed again.
        SchemaError: Files cannot hold a column.
    """
    hidden = _tracking_columns(df, shape.properties)
    session = SessionSettings.of(spark)
    settings = settings or session.settings
    task = make_write_task(
        spark,
        shape,
        options or WriteOptions(mode=WriteMode.APPEND),
        replace(session, settings=settings),
        change_data=change_column is not None,
        row_tracking=bool(hidden),
    )
    data, partitions = written_columns(shape.schema, shape.partition_columns)
    wanted = [*data, *hidden, *partitions, *([change_column] if change_column is not None else ())]
    if df.columns != wanted:
        df = df.select(*map(name, wanted))
    records = write_in_driver(df, task, most_bytes=settings.local_max_bytes)
    if records is not None:
        return output_of(records)
    rows = df.toDF(*[f"c{index}" for index in range(len(wanted))])  # Names may differ in case alone.
    if partitions:  # This brings rows of a partition together, and costs nothing if they are already sorted.
        first = len(data) + len(hidden)
        rows = rows.sortWithinPartitions(*rows.columns[first : first + len(partitions)])
    return _by_job(rows, task, shape, F.col(rows.columns[-1]) if change_column is not None else None)


def _by_job(rows: DataFrame, task: WriteTask, shape: TableShape, change: Column | None) -> RewriteOutput:
    """Write rows by a job. ``change`` is the kind of change, if there is one."""
    spark = rows.sparkSession
    staged: Any = spark.sparkContext.accumulator([], StagedPaths())

    def write_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        records = run_task(batches, task, partition_id=context.partitionId() if context else 0)
        if records:
            staged.add([record.path for record in records])
            yield record_batch(records)

    counted, count_name = counting(rows, change)
    with removing_staged(spark, task, staged):
        with unchecked_batches(spark, shape.schema) as unchecked:
            try:
                job = map_in_arrow(counted, write_partition, _RECORD_DDL)
                records = job.toArrow().to_pylist()
            except Py4JError as error:
                if not unchecked or not is_oversized(str(error)):
                    raise
                unchecked, records = False, None
        if records is None:  # With rows of hundreds of kilobytes each, run it again with batches limited by size.
            clean_up(task, staged.value)
            staged.value = []
            job = map_in_arrow(counted, write_partition, _RECORD_DDL)
            records = job.toArrow().to_pylist()
        of_table = [record for record in records if not record["change"]]
        of_feed = [record for record in records if record["change"]]
        _reconcile(counts_of(job, count_name), _num_rows(of_table), _num_rows(of_feed))
    return RewriteOutput(
        adds=tuple(add_of(record) for record in of_table),
        num_rows=_num_rows(of_table),
        changes=tuple(change_of(record) for record in of_feed),
        num_changes=_num_rows(of_feed),
        observed=observed_in(job),
    )


def _num_rows(records: Sequence[Mapping[str, Any]]) -> int:
    return sum(record["num_rows"] for record in records)


def _reconcile(counted: ObservedCounts, of_table: int, of_feed: int) -> None:
    """Compare the rows that Spark passed to the tasks with those in their files.

    Raises:
        RowsDoNotAddUpError: Rows were lost or duplicated on the way.
    """
    for what, given, written in (
        ("rows", counted.rows - counted.marked, of_table),
        ("rows of the change data feed", counted.marked, of_feed),
    ):
        if given != written:
            raise RowsDoNotAddUpError(
                f"Spark counted that {given} {what} went into the write, but {written} are in its files.",
                hint="This is a defect of the engine or of a disk; report it with the plan of the rows (df.explain).",
            )


def _tracking_columns(df: DataFrame, properties: TableProperties) -> tuple[str, ...]:
    """Return the columns with row ids and versions, if the rows bring them and the table stores them."""
    given = ROW_ID_COLUMN in df.columns and ROW_VERSION_COLUMN in df.columns
    return (ROW_ID_COLUMN, ROW_VERSION_COLUMN) if given and materialized_columns(properties) else ()


def make_write_task(
    spark: SparkSession,
    shape: TableShape,
    options: WriteOptions,
    session: SessionSettings,
    *,
    change_data: bool,
    row_tracking: bool,
) -> WriteTask:
    """Build the task with which the session's executors write files of a table. See ``make_task``."""
    writing = Session(
        settings=session.settings,
        store_options={**session.options, **options.storage},
        time_zone=session.time_zone,
        timestamp_type=options.timestamp_type or session.conf.get(_TIMESTAMP_TYPE) or MICROSECONDS,
        codec=session.parquet_codec,
        footer={"org.apache.spark.version": spark.version},
    )
    return make_task(shape, options, writing, change_data=change_data, row_tracking=row_tracking)
