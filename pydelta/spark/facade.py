"""Give ``DeltaTable`` what it needs from Spark: logs by location or name, frames of results, Spark's error classes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
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
from pydelta.commands.optimize_result import OPTIMIZE_METRICS, OptimizeResult
from pydelta.commands.restore import RestoreResult
from pydelta.errors import (
    DeltaEnvironmentError,
    DeltaError,
    InvalidArgumentError,
    SchemaError,
    TableNotFoundError,
    UnsupportedFeatureError,
    error_context,
)
from pydelta.log import DeltaLog
from pydelta.protocol import schema as delta_schema
from pydelta.protocol.row_tracking import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from pydelta.protocol.sized_texts import sized_schema
from pydelta.settings import Settings
from pydelta.spark.catalog import (
    DeltaEntry,
    ViewEntry,
    location_of,
    look_up,
    parse_identifier,
    split_path_identifier,
)
from pydelta.spark.catalog_entries import create_entry, note_difference
from pydelta.spark.errors import to_spark
from pydelta.spark.jvm import Jvm
from pydelta.spark.scan import scan_dataframe
from pydelta.spark.view_target import shown_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "active_session",
    "clone_target",
    "convertible_path",
    "detail_frame",
    "forget_version",
    "history_frame",
    "log_for_name",
    "log_for_path",
    "make_field",
    "optimize_frame",
    "register_table",
    "resolve_target",
    "restore_frame",
    "scan_latest",
    "scan_tracked",
    "schema_of",
    "settings_of",
    "timestamp_ms",
    "user_errors",
]

_TXN_VERSION = ("spark.databricks.delta.write.txnVersion", "spark.pydelta.write.txnVersion")
_LOG_STORE = "spark.pydelta.logStore."
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


@contextmanager
def user_errors(log: DeltaLog | None = None) -> Iterator[None]:
    """Name the table in an error, and give it the PySpark base class that Spark users catch."""
    try:
        if log is None:
            yield
        else:
            with error_context(table=log.uri):
                yield
    except DeltaError as error:
        converted = to_spark(error)
        if converted is error:
            raise
        raise converted from error


def active_session(spark: SparkSession | None) -> SparkSession:
    """The session given, or the active one."""
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise DeltaEnvironmentError("There is no active Spark session.", hint="Make one with pydelta.session().")
    return session


def settings_of(spark: SparkSession) -> Settings:
    """The engine's settings as the session has them."""
    return Settings.resolve(Jvm.of(spark).session_conf())


def forget_version(spark: SparkSession, settings: Settings) -> None:
    """Unset the session's ``txnVersion`` after a command that committed for it, where the session says so."""
    if settings.txn_version_auto_reset and settings.txn_version is not None:
        for key in _TXN_VERSION:
            spark.conf.unset(key)


def log_for_path(spark: SparkSession, path: str, hadoop_conf: Mapping[str, str] | None = None) -> DeltaLog:
    """The log of the table at a path, with the session's storage options and settings."""
    jvm = Jvm.of(spark)
    stores = {key: value for key, value in jvm.session_conf().items() if key.startswith(_LOG_STORE)}
    options = {**jvm.hadoop_options(), **stores, **(hadoop_conf or {})}
    return DeltaLog.for_table(path, options=options, settings=settings_of(spark))


def log_for_name(spark: SparkSession, name: str) -> DeltaLog:
    """The log of a table that the catalog knows, of a view that shows one whole, or of ``delta.`/path` ``."""
    entry = look_up(spark, parse_identifier(spark, name))
    behind = shown_table(spark, entry) if isinstance(entry, ViewEntry) else None
    log = log_for_path(spark, behind or location_of(spark, name))
    if isinstance(entry, DeltaEntry) and not log.table_exists():
        raise TableNotFoundError(
            f"{name} stands for {log.uri}, where there is no Delta table.",
            hint="Its files were deleted: drop the entry with DROP TABLE, or let it name a table that is there."
            if not entry.by_path
            else "Check the path.",
            table=log.uri,
        )
    if isinstance(entry, DeltaEntry):
        note_difference(entry, log.update())
    return log


def resolve_target(spark: SparkSession, name: str | None, location: str | None) -> tuple[str | None, str | None]:
    """A builder's name and location -> (catalog name or None, location or None)."""
    if name is None:
        return None, location
    path = split_path_identifier(name)
    if path is not None:
        if location is not None and location != path:
            raise InvalidArgumentError(
                f"The table is named by its path {path!r}, and location says {location!r}.", hint="Give one of the two."
            )
        return None, path
    return name, location or Jvm.of(spark).default_location(name)


def clone_target(spark: SparkSession, target: str) -> tuple[str | None, str]:
    """Where a clone goes: an absolute path or a URI is a location, anything else a name -> (name or None, location).

    A name that the catalog knows stands for where its table is.
    """
    if target.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", target):
        return None, Jvm.of(spark).qualify(target)
    name, location = resolve_target(spark, target, None)
    if name is not None and spark.catalog.tableExists(name):
        return name, location_of(spark, name)
    assert location is not None
    return name, location


def convertible_path(spark: SparkSession, identifier: str) -> str:
    """The path in ``parquet.`/path` `` (or ``delta.`/path` ``).

    Raises:
        InvalidArgumentError: It names a table of the catalog, or nothing that can be converted.
    """
    match = re.fullmatch(r"\s*`?(parquet|delta)`?\s*\.\s*`((?:[^`]|``)+)`\s*", identifier, re.IGNORECASE)
    if match is None:
        raise InvalidArgumentError(
            f"{identifier!r} names no folder of Parquet files.",
            hint="Write parquet.`/path/to/folder`. A table of the catalog is converted by its path; drop its entry "
            "and make one that points at the Delta table.",
        )
    return Jvm.of(spark).qualify(match.group(2).replace("``", "`"))


def register_table(spark: SparkSession, name: str, log: DeltaLog) -> None:
    """Make a catalog entry that points at the table, if there is none yet."""
    create_entry(spark, parse_identifier(spark, name), log.update())


def scan_latest(spark: SparkSession, log: DeltaLog) -> DataFrame:
    """The newest version as a DataFrame."""
    return scan_dataframe(spark, log.update(), pinned=False)


def scan_tracked(spark: SparkSession, log: DeltaLog) -> DataFrame:
    """The newest version with the id and the last version of each row."""
    snapshot = log.update()
    if not snapshot.properties.enable_row_tracking:
        raise UnsupportedFeatureError(
            "The table does not track its rows: delta.enableRowTracking is not true.",
            features=("rowTracking",),
            hint="Call DeltaTable.enableRowTracking() first.",
        )
    frame = scan_dataframe(spark, snapshot, pinned=False, with_row_tracking=True)
    return frame.withColumnsRenamed({ROW_ID_COLUMN: "_row_id", ROW_VERSION_COLUMN: "_row_commit_version"})


def schema_of(fields: Sequence[StructField]) -> delta_schema.StructType:
    """Spark fields -> the log's schema."""
    return sized_schema(delta_schema.parse_schema(StructType(list(fields)).json()))


def make_field(
    name: str,
    data_type: str | DataType,
    nullable: bool,
    generated_as: str | None,
    comment: str | None,
    identity: Mapping[str, int | bool] | None = None,
) -> StructField:
    """One column of a builder; how its values come about goes into the field's metadata.

    Protocol: "Generated Columns", "Identity Columns".
    """
    if isinstance(data_type, str):
        try:
            data_type = DataType.fromDDL(data_type)
        except Exception as error:
            raise SchemaError(
                f"The type {data_type!r} of column {name!r} is no SQL type.", hint="For example int or decimal(10,2)."
            ) from error
    metadata: dict[str, Any] = dict(identity or {})
    if generated_as is not None:
        metadata["delta.generationExpression"] = generated_as
    if comment is not None:
        metadata["comment"] = comment
    return StructField(name, data_type, nullable, metadata)


def timestamp_ms(spark: SparkSession, value: str | datetime) -> int:
    """A time -> epoch milliseconds. Text is read by Spark, in the session's zone; a naive datetime is local time."""
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    row = (
        spark.range(1).select(F.unix_millis(F.expr("try_cast(:t as timestamp)".replace(":t", _quoted(value))))).first()
    )
    if row is None or row[0] is None:
        raise InvalidArgumentError(
            f"{value!r} is not a timestamp.", hint="Write it as '2024-05-01 12:00:00' or '2024-05-01'."
        )
    return int(row[0])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def history_frame(spark: SparkSession, log: DeltaLog, limit: int | None) -> DataFrame:
    """``describe_history`` as a DataFrame."""
    if limit is not None and limit <= 0:
        raise InvalidArgumentError(f"A history of {limit} commits was asked for.", hint="Give a number above zero.")
    rows = describe_history(log.history(limit))
    return _frame(spark, rows, HISTORY_COLUMNS, _HISTORY_TYPES)


def detail_frame(spark: SparkSession, log: DeltaLog) -> DataFrame:
    """``describe_detail`` as a DataFrame of one row."""
    return _frame(spark, [describe_detail(log.update())], DETAIL_COLUMNS, _DETAIL_TYPES)


def restore_frame(spark: SparkSession, result: RestoreResult) -> DataFrame:
    """The counts of a RESTORE as a DataFrame of one row."""
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


def optimize_frame(spark: SparkSession, log: DeltaLog, result: OptimizeResult) -> DataFrame:
    """The counts of an OPTIMIZE as the reference engine gives them: ``path`` and the struct ``metrics``."""
    schema = StructType([StructField("path", StringType()), StructField("metrics", _struct(OPTIMIZE_METRICS))])
    return spark.createDataFrame([(log.uri, _row(result.metrics(), OPTIMIZE_METRICS))], schema)


def _struct(fields: Mapping[str, Any]) -> StructType:
    kinds = {"long": LongType(), "double": DoubleType(), "boolean": BooleanType(), "string": StringType()}
    return StructType(
        [
            StructField(name, _struct(kind) if isinstance(kind, Mapping) else kinds[kind])
            for name, kind in fields.items()
        ]
    )


def _row(values: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> tuple[Any, ...] | None:
    if values is None:
        return None
    return tuple(
        _row(values[name], kind) if isinstance(kind, Mapping) else values[name] for name, kind in fields.items()
    )


def _frame(
    spark: SparkSession, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], types: Mapping[str, DataType]
) -> DataFrame:
    schema = StructType([StructField(name, types.get(name, StringType())) for name in columns])
    return spark.createDataFrame([tuple(_value(row[name]) for name in columns) for row in rows], schema)


def _value(value: Any) -> Any:
    if isinstance(value, datetime):  # PySpark takes naive times as local ones
        return value.astimezone(UTC).astimezone().replace(tzinfo=None)
    if isinstance(value, (dict, list)) or value is None or isinstance(value, (str, int, bool)):
        return value
    return json.dumps(value)
