"""Read the rows of one micro-batch of a stream with the engine's native scan."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.change_feed import scan_changed_files
from pydelta.engines.spark.scan.refresh import RELATIONS, transform
from pydelta.engines.spark.scan.scan import scan_dataframe
from pydelta.protocol.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.commands.stream.event_time import TimeSlice
    from pydelta.commands.stream.source import StreamBatch
    from pydelta.log import DeltaLog, Snapshot

__all__ = ["batch_frame", "stream_schema"]


def stream_schema(spark: SparkSession, log: DeltaLog, read: Snapshot, *, change_feed: bool) -> Any:
    """Return the JVM's schema of a stream's rows, as its scans return them."""
    if change_feed:
        return scan_changed_files(spark, log, read, (), subset="stream")._jdf.schema()
    return scan_dataframe(spark, read, pinned=True, files=read.files.none())._jdf.schema()


def batch_frame(
    spark: SparkSession, log: DeltaLog, read: Snapshot, batch: StreamBatch, *, change_feed: bool, label: str
) -> Any:
    """Return the JVM's Dataset of a batch, with a plan that Spark accepts as streaming.

    Args:
        spark: The session that created the stream.
        log: The table.
        read: The snapshot whose columns the rows have.
        batch: The files to read.
        change_feed: Add the columns of a change feed.
        label: Distinguishes the batch from others.
    """
    parts: list[DataFrame] = []
    if batch.initial is not None and batch.snapshot is not None and (batch.initial.height or not batch.changed):
        parts.append(_of_time(scan_dataframe(spark, batch.snapshot, pinned=True, files=batch.initial), batch.rows))
    if batch.snapshot_changed:
        found = scan_changed_files(
            spark, log, read, batch.snapshot_changed, subset=f"{label}+initial", change_columns=change_feed
        )
        parts.append(_of_time(found, batch.rows))
    if batch.changed or not parts:
        changed = scan_changed_files(spark, log, read, batch.changed, subset=label, change_columns=change_feed)
        parts.append(changed)
    rows = reduce(DataFrame.union, parts)
    jvm = Jvm.of(spark)
    return jvm.dataset.ofRows(jvm.session, _streaming(jvm, rows._jdf.queryExecution().analyzed()))


def _of_time(rows: DataFrame, wanted: TimeSlice | None) -> DataFrame:
    """Return the rows of a slice of event time; the first slice also has the rows without a time."""
    if wanted is None:
        return rows
    column = rows[quoted(wanted.column)]
    if wanted.end is not None:
        before = column < F.timestamp_micros(F.lit(wanted.end))
        rows = rows.filter(before | column.isNull() if wanted.first is None else before)
    if wanted.first is not None:
        rows = rows.filter(column >= F.timestamp_micros(F.lit(wanted.first)))
    return rows


def _streaming(jvm: Jvm, plan: Any) -> Any:
    """Mark the plan's scans as streaming, which Spark requires of a batch."""

    def mark(node: Any, _: str) -> Any | None:
        if bool(node.isStreaming()):
            return None
        rest = jvm.rest_of(node, "copy", 4)
        return node.copy(node.relation(), node.output(), node.catalogTable(), True, *rest)

    return transform(jvm, plan, mark, RELATIONS)
