"""Make DataFrames of the output of commands and tables: newest rows, history, detail, counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pydelta.commands.describe import DETAIL_COLUMNS, HISTORY_COLUMNS, describe_detail, describe_history
from pydelta.commands.optimize.result import OPTIMIZE_METRICS, OptimizeResult
from pydelta.commands.restore import RestoreResult
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.local_rows import local_frame
from pydelta.engines.spark.scan.newest import follow_newest
from pydelta.engines.spark.scan.row_metadata import scan_table
from pydelta.engines.spark.scan.scan import Extra, scan_dataframe
from pydelta.errors import UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.protocol.row_tracking import ROW_ID_COLUMN, ROW_VERSION_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "counts_frame",
    "detail_frame",
    "history_frame",
    "optimize_frame",
    "restore_frame",
    "scan_latest",
    "scan_tracked",
]

_TEXTS = MapType(StringType(), StringType())


def _named_texts(*names: str) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


_HISTORY_TYPES: Mapping[str, DataType] = {
    "version": LongType(),
    "timestamp": TimestampType(),
    "operationParameters": _TEXTS,
    "job": _named_texts("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType"),
    "notebook": _named_texts("notebookId"),
    "readVersion": LongType(),
    "isBlindAppend": BooleanType(),
    "operationMetrics": _TEXTS,
}
_DETAIL_TYPES: Mapping[str, DataType] = {
    "createdAt": TimestampType(),
    "lastModified": TimestampType(),
    "partitionColumns": ArrayType(StringType()),
    "clusteringColumns": ArrayType(StringType()),
    "numFiles": LongType(),
    "sizeInBytes": LongType(),
    "properties": _TEXTS,
    "minReaderVersion": IntegerType(),
    "minWriterVersion": IntegerType(),
    "tableFeatures": ArrayType(StringType()),
}


def scan_latest(spark: SparkSession, log: DeltaLog) -> DataFrame:
    """Return the newest version as a DataFrame."""
    follow_newest(Jvm.of(spark))
    return scan_table(spark, log.update(), pinned=False)


def scan_tracked(spark: SparkSession, log: DeltaLog) -> DataFrame:
    """Return the newest version with the id and last changed version of each row."""
    snapshot = log.update()
    if not snapshot.row_tracking.enable_row_tracking:
        raise UnsupportedFeatureError(
            "The table does not track its rows: delta.enableRowTracking is not true.",
            features=("rowTracking",),
            hint="Call DeltaTable.enableRowTracking() first.",
        )
    frame = scan_dataframe(spark, snapshot, pinned=False, extra=Extra.TRACKING)
    return frame.withColumnsRenamed({ROW_ID_COLUMN: "_row_id", ROW_VERSION_COLUMN: "_row_commit_version"})


def history_frame(spark: SparkSession, log: DeltaLog, limit: int | None) -> DataFrame:
    """Return ``describe_history`` as a DataFrame. A limit below 1 gives no rows, as in any query."""
    rows = describe_history(log.history(limit))
    return _frame(spark, rows, HISTORY_COLUMNS, _HISTORY_TYPES)


def detail_frame(spark: SparkSession, log: DeltaLog) -> DataFrame:
    """Return ``describe_detail`` as a DataFrame of one row."""
    return _frame(spark, [describe_detail(log.update())], DETAIL_COLUMNS, _DETAIL_TYPES)


def restore_frame(spark: SparkSession, result: RestoreResult) -> DataFrame:
    """Return the counts of a RESTORE as a DataFrame of one row."""
    names = (
        "table_size_after_restore",
        "num_of_files_after_restore",
        "num_removed_files",
        "num_restored_files",
        "removed_files_size",
        "restored_files_size",
    )
    row = {name: getattr(result, name) for name in names}
    return _frame(spark, [row], names, dict.fromkeys(names, LongType()))


def counts_frame(spark: SparkSession, counts: Mapping[str, int | str]) -> DataFrame:
    """Return one row of numbers and strings without a job. Columns are nullable, as in results of commands."""
    kinds = {int: LongType(), str: StringType()}
    schema = StructType([StructField(name, kinds[type(value)]) for name, value in counts.items()])
    return local_frame(spark, [tuple(counts.values())], schema)


def optimize_frame(spark: SparkSession, log: DeltaLog, result: OptimizeResult) -> DataFrame:
    """Return the counts of an OPTIMIZE like the reference engine: ``path`` and the struct ``metrics``."""
    schema = StructType([StructField("path", StringType()), StructField("metrics", _struct(OPTIMIZE_METRICS))])
    return local_frame(spark, [(log.uri, result.metrics())], schema)


def _struct(fields: Mapping[str, Any]) -> StructType:
    kinds = {"long": LongType(), "double": DoubleType(), "boolean": BooleanType(), "string": StringType()}
    return StructType(
        [
            StructField(name, _struct(kind))
            if isinstance(kind, Mapping)
            else StructField(name, kinds[kind.rstrip("?")], kind.endswith("?"))
            for name, kind in fields.items()
        ]
    )


def _frame(
    spark: SparkSession, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], types: Mapping[str, DataType]
) -> DataFrame:
    schema = StructType([StructField(name, types.get(name, StringType())) for name in columns])
    read = [(field.name, _READ.get(type(field.dataType), _as_it_is)) for field in schema]
    return local_frame(spark, [[how(row[name]) for name, how in read] for row in rows], schema)


def _as_it_is(value: Any) -> Any:
    return value


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _whole(value: Any) -> int | None:
    """Convert to an integer that fits a long, also from text that another writer stored; else return None."""
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return None
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def _micros(epoch_ms: int | None) -> int | None:
    """Convert milliseconds to a timestamp's microseconds. Returns None on overflow."""
    return None if epoch_ms is None else _whole(epoch_ms * 1000)


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())


_READ: Mapping[type[DataType], Callable[[Any], Any]] = {
    StringType: _text,
    LongType: _whole,
    IntegerType: _whole,
    BooleanType: _flag,
    TimestampType: _micros,
}
"""Converters by column type. ``commitInfo`` has no fixed form, and other writers may have written it."""
