"""Rewrite the rows of files into new ones, with one Spark job for all bins.

::

    compact: bins --distributed to tasks-> Arrow to Arrow on executors (``compact_task``), no shuffle, no JVM rows
                  `--handed back---------> Spark's scan, rows of a bin brought together, the usual writer
    lay out: scan --curve key--> ranges of it, one task per file --> sorted --> the usual writer
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.commands.engine import RewriteOutput
from pydelta.commands.optimize.plan import BIN, Layout
from pydelta.commands.write.options import WriteMode, WriteOptions
from pydelta.engines.arrow.columns import needs_sparks_reader
from pydelta.engines.arrow.layout import TableShape, add_of_file
from pydelta.engines.arrow.rearrange import ANY_SIZE, bins_of, deal
from pydelta.engines.arrow.tasks.compact import Bin, BinDone, HandedBack, run_bins
from pydelta.engines.arrow.tasks.write_files import WriteTask
from pydelta.engines.spark.logs import SessionSettings
from pydelta.engines.spark.maintenance.curves import sortable, with_curve_key
from pydelta.engines.spark.scan.scan import FILE_ROW_COLUMN, Extra, scan_dataframe
from pydelta.engines.spark.write.columns import name
from pydelta.engines.spark.write.staged import StagedPaths, clean_up, removing_staged
from pydelta.engines.spark.write.writer import make_write_task, write_files
from pydelta.log import Snapshot
from pydelta.protocol.actions import AddFile, Metadata
from pydelta.protocol.names import quoted
from pydelta.protocol.row_tracking import materialized_columns
from pydelta.protocol.types import DataType, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["compact_files", "lay_out_files", "rearranging_task", "rewrite_files_as"]

_logger = logging.getLogger(__name__)

_BIN_COLUMN: Final = "__pydelta_bin"
_KEY_COLUMN: Final = "__pydelta_key"
_RANGE_COLUMN: Final = "__pydelta_range"
_TASKS_PER_CORE: Final = 4
_SAMPLE_ROWS: Final = 100_000
_BYTES_PER_ROW: Final = 50
_SEED: Final = 17


def compact_files(
    spark: SparkSession, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, max_bytes: int
) -> RewriteOutput:
    """See ``Engine.compact``."""
    task = rearranging_task(spark, snapshot)
    bins, for_spark = bins_of(files, plan, task, by_sparks_reader=needs_sparks_reader(snapshot))
    staged: Any = spark.sparkContext.accumulator([], StagedPaths())
    outcomes = _run(spark, bins, task, staged) if bins else []
    done = [outcome for outcome in outcomes if isinstance(outcome, BinDone)]
    records = [record for outcome in done for record in outcome.records]
    adds = [add_of_file(record) for record in records]
    rows = sum(record.num_rows for record in records)
    handed_back = [outcome for outcome in outcomes if isinstance(outcome, HandedBack)]
    if handed_back:
        _logger.info("%d bins are compacted through Spark's scan: %s …", len(handed_back), handed_back[0].reason)
    rest = sorted({*for_spark, *(outcome.number for outcome in handed_back)})
    if rest:
        try:
            other = _through_scan(spark, snapshot, plan.filter(pl.col(BIN).is_in(rest)), max_bytes=max_bytes)
        except BaseException:
            clean_up(task, [record.path for record in records])
            raise
        adds += other.adds
        rows += other.num_rows
    return RewriteOutput(adds=tuple(adds), num_rows=rows)


def rearranging_task(spark: SparkSession, snapshot: Snapshot) -> WriteTask:
    """Build the write task for rows that do not change: files are never split, and row ids are kept."""
    return make_write_task(
        spark,
        TableShape.of(snapshot),
        WriteOptions(mode=WriteMode.APPEND, target_file_size=str(ANY_SIZE)),
        SessionSettings.of(spark),
        change_data=False,
        row_tracking=bool(materialized_columns(snapshot.properties)),
    )


def _run(spark: SparkSession, bins: Sequence[Bin], task: WriteTask, staged: Any) -> list[BinDone | HandedBack]:
    context = spark.sparkContext
    groups = deal(bins, context.defaultParallelism * _TASKS_PER_CORE)

    def compact(number: int, part: Iterable[list[Bin]]) -> Iterator[BinDone | HandedBack]:
        for group in part:
            yield from run_bins(group, task, partition_id=number, staged=lambda paths: staged.add(list(paths)))

    with removing_staged(spark, task, staged):
        return context.parallelize(groups, len(groups)).mapPartitionsWithIndex(compact).collect()


def _through_scan(spark: SparkSession, snapshot: Snapshot, plan: pl.DataFrame, *, max_bytes: int) -> RewriteOutput:
    """Compact files that need Spark's reader, with all rows of a bin in one task."""
    rows = scan_dataframe(spark, snapshot, pinned=True, files=plan.drop(BIN), extra=_extra(snapshot))
    rows = rows.withColumn(_BIN_COLUMN, _of_file(rows, plan[BIN].to_list(), "int"))
    rows = rows.repartition(plan[BIN].n_unique(), _BIN_COLUMN).drop(_BIN_COLUMN, FILE_ROW_COLUMN)
    return _write(spark, snapshot, rows, target_bytes=max_bytes)


def _extra(snapshot: Snapshot) -> Extra:
    return Extra.FILE | (Extra.TRACKING if materialized_columns(snapshot.properties) else Extra.NONE)


def lay_out_files(
    spark: SparkSession, snapshot: Snapshot, plan: pl.DataFrame, *, layout: Layout, target_bytes: int
) -> RewriteOutput:
    """See ``Engine.lay_out``."""
    files = plan.drop(BIN)
    rows = scan_dataframe(spark, snapshot, pinned=True, files=files, extra=_extra(snapshot))
    values = [_column(rows, snapshot.schema, path) for path in layout.columns]
    proxies = [f"v{number}" for number in range(len(values))]
    sample = rows.select(*[value.alias(proxy) for value, proxy in zip(values, proxies, strict=True)]).sample(
        fraction=_sample_fraction(snapshot, plan), seed=_SEED
    )
    rows = with_curve_key(spark, rows, _KEY_COLUMN, values, sample=sample, curve=layout.curve)
    partitions = [name(column) for column in snapshot.partition_columns]
    order = [*partitions, name(_KEY_COLUMN)]
    sizes = plan.select(pl.col("size").sum().over(BIN))["size"]
    whole = sizes <= target_bytes
    tasks = sum(math.ceil(size / target_bytes) or 1 for size in plan.group_by(BIN).agg(pl.col("size").sum())["size"])
    if tasks == 1:
        rows = rows.coalesce(1)
    elif whole.any():  # Rows with equal range columns are never split across files.
        split = F.when(~_of_file(rows, whole.to_list(), "boolean"), name(_KEY_COLUMN))
        rows = rows.withColumn(_RANGE_COLUMN, split)
        rows = rows.repartitionByRange(tasks, *partitions, name(_RANGE_COLUMN)).drop(_RANGE_COLUMN)
    else:
        rows = rows.repartitionByRange(tasks, *order)
    rows = rows.sortWithinPartitions(*order).drop(_KEY_COLUMN, FILE_ROW_COLUMN)
    return _write(spark, snapshot, rows, target_bytes=ANY_SIZE)


def rewrite_files_as(spark: SparkSession, snapshot: Snapshot, metadata: Metadata) -> RewriteOutput:
    """See ``RewritingEngine.rewrite_as``. A scan's task writes its rows to files without a shuffle."""
    tracked = Extra.TRACKING if materialized_columns(snapshot.properties) else Extra.NONE
    rows = scan_dataframe(spark, snapshot, pinned=True, extra=tracked)
    shape = TableShape.of(snapshot).defined_by(metadata)
    return write_files(spark, rows, shape, options=WriteOptions(mode=WriteMode.APPEND))


def _of_file(rows: DataFrame, values: Sequence[Any], kind: str) -> Column:
    """Return a column with a value per row's file, looked up by the file's position in the scan."""
    array = F.from_json(F.lit(json.dumps(values)), f"array<{kind}>")
    return array[rows[FILE_ROW_COLUMN].cast("int")]


def _column(rows: DataFrame, schema: StructType, path: Sequence[str]) -> Any:
    value = rows[quoted(*path)]
    data_type: DataType = schema
    for part in path:
        field = data_type.field(part) if isinstance(data_type, StructType) else None
        assert field is not None, "the path was resolved against the same schema"
        data_type = field.data_type
    return sortable(value, data_type)


def _sample_fraction(snapshot: Snapshot, plan: pl.DataFrame) -> float:
    """Return the fraction of rows for a sample of about ``_SAMPLE_ROWS``; 1 for a small table."""
    counts = snapshot.files.stats_columns(plan.drop(BIN), [])["numRecords"]
    known = int(counts.sum() or 0)
    unknown = int(plan.filter(counts.is_null())["size"].sum() or 0) // _BYTES_PER_ROW
    return min(1.0, _SAMPLE_ROWS / max(known + unknown, 1))


def _write(spark: SparkSession, snapshot: Snapshot, rows: DataFrame, *, target_bytes: int) -> RewriteOutput:
    return write_files(
        spark,
        rows,
        TableShape.of(snapshot),
        options=WriteOptions(mode=WriteMode.APPEND, target_file_size=str(target_bytes)),
    )
