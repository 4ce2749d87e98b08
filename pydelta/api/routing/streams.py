"""Route ``spark.readStream`` and ``df.writeStream``: Delta tables to this engine, all else to Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from pydelta.api.routing.catalog_api import read_table
from pydelta.api.sql.foreign_writes import refuse_foreign_write
from pydelta.api.sql.targets import log_for_name
from pydelta.api.streams.failures import explained
from pydelta.api.streams.opening import open_stream
from pydelta.api.streams.sink import DeltaSink, private_field, start_query
from pydelta.api.streams.source import SOURCE_NAMES, DeltaSource, check_below, sources_of
from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.commands.stream.sink import OutputMode
from pydelta.commands.stream.tracking import check_separate
from pydelta.engines.spark.catalog.define import define_table
from pydelta.engines.spark.catalog.lookup import DeltaEntry, ViewEntry, look_up, parse_identifier
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path, store_options, user_errors
from pydelta.engines.spark.scan.changelog import context_of_options, feed_options
from pydelta.engines.spark.session.patches import is_enabled, patch
from pydelta.engines.spark.types import from_spark
from pydelta.errors import InvalidArgumentError, TableAlreadyExistsError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.protocol.evolution import with_nullable_parts
from pydelta.protocol.schema import StructType

__all__ = ["install"]

_PROVIDER: Final = "delta"
_NOT_PROPERTIES: Final = ("path", "checkpointlocation", "queryname")


def install() -> None:
    """Install the routes. ``patches.restore_all`` removes them."""
    patch(DataStreamReader, "load", _load)
    patch(DataStreamReader, "table", _table)
    if hasattr(DataStreamReader, "changes"):  # It exists since Spark 4.2.
        patch(DataStreamReader, "changes", _changes)
    patch(DataStreamWriter, "start", _start)
    patch(DataStreamWriter, "toTable", _to_table)
    for owner, name in (
        (StreamingQuery, "awaitTermination"),
        (StreamingQuery, "processAllAvailable"),
        (StreamingQueryManager, "awaitAnyTermination"),
    ):
        patch(owner, name, _waiting)
    patch(StreamingQuery, "exception", _exception)


# --- reading -----------------------------------------------------------------------------------------------


def _load(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def load(
        self: DataStreamReader,
        path: str | None = None,
        format: str | None = None,  # noqa: A002  PySpark's name
        schema: Any = None,
        **options: Any,
    ) -> DataFrame:
        spark = self._spark
        if not is_enabled(spark):
            return original(self, path, format, schema, **options)
        source = format if format is not None else str(private_field(self._jreader, "source"))
        if source.lower() != _PROVIDER:
            return original(self, path, format, schema, **options)
        with user_errors():
            if schema is not None or private_field(self._jreader, "userSpecifiedSchema").isDefined():
                raise InvalidArgumentError(
                    "A schema was given for streaming a Delta table, which already has one.",
                    hint="Leave out .schema(…) and select or cast columns afterwards.",
                )
            self.options(**options)
            given = _options_of(spark, self._jreader)
            target = path if path is not None else given.get("path")
            if not isinstance(target, str) or not target.strip():
                raise InvalidArgumentError(
                    f"One path to a Delta table was expected, not {target!r}.",
                    hint='Write spark.readStream.format("delta").load(path), or .table(name).',
                )
            log = log_for_path(spark, Jvm.of(spark).qualify(target), store_options(given))
            return open_stream(spark, log, given, shown=target, name=_name_of(self))

    return load


def _table(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def table(self: DataStreamReader, tableName: str) -> DataFrame:
        spark = self._spark
        if not is_enabled(spark):
            return original(self, tableName)
        with user_errors():
            if read_table(spark, tableName) is None:
                return original(self, tableName)
            given = _options_of(spark, self._jreader)
            return open_stream(spark, log_for_name(spark, tableName), given, shown=tableName, name=_name_of(self))

    return table


def _changes(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """Answer ``changes(name)`` with the table's change feed."""

    def changes(self: DataStreamReader, tableName: str) -> DataFrame:
        spark = self._spark
        if not is_enabled(spark):
            return original(self, tableName)
        with user_errors():
            if read_table(spark, tableName) is None:
                return original(self, tableName)
            jvm, given = Jvm.of(spark), _options_of(spark, self._jreader)
            given = feed_options(jvm, context_of_options(jvm, given), given)
            return open_stream(spark, log_for_name(spark, tableName), given, shown=tableName, name=_name_of(self))

    return changes


def _name_of(reader: DataStreamReader) -> str | None:
    """Return the name given by ``readStream.name``, which exists since Spark 4.2."""
    if not hasattr(DataStreamReader, "name"):
        return None
    given = private_field(reader._jreader, "userProvidedSourceName")
    return str(given.get()) if given.isDefined() else None


# --- writing -----------------------------------------------------------------------------------------------


def _start(original: Callable[..., StreamingQuery]) -> Callable[..., StreamingQuery]:
    def start(
        self: DataStreamWriter,
        path: str | None = None,
        format: str | None = None,  # noqa: A002  PySpark's name
        outputMode: str | None = None,
        partitionBy: Any = None,
        queryName: str | None = None,
        **options: Any,
    ) -> StreamingQuery:
        spark = self._spark
        if not is_enabled(spark):
            return original(self, path, format, outputMode, partitionBy, queryName, **options)
        with user_errors():
            _set(self, format, outputMode, partitionBy, queryName, options)
            _check_sources(self)
            given = _options_of(spark, self._jwrite)
            target = path if path is not None else given.get("path")
            if _source(self) != _PROVIDER:
                if isinstance(target, str) and target:
                    refuse_foreign_write(spark, target, _source(self))
                return original(self, path)
            if not isinstance(target, str) or not target.strip():
                raise InvalidArgumentError(
                    "No path was given for the Delta table that the stream writes.",
                    hint='Write df.writeStream.format("delta").start(path), or toTable(name).',
                )
            return _started(self, target, given, partition_by=_names(self, "partitioningColumns"))

    return start


def _to_table(original: Callable[..., StreamingQuery]) -> Callable[..., StreamingQuery]:
    def to_table(
        self: DataStreamWriter,
        tableName: str,
        format: str | None = None,  # noqa: A002  PySpark's name
        outputMode: str | None = None,
        partitionBy: Any = None,
        queryName: str | None = None,
        **options: Any,
    ) -> StreamingQuery:
        spark = self._spark
        if not is_enabled(spark):
            return original(self, tableName, format, outputMode, partitionBy, queryName, **options)
        with user_errors():
            _set(self, format, outputMode, partitionBy, queryName, options)
            parts = parse_identifier(spark, tableName)
            entry = look_up(spark, parts)
            exists = entry is not None or spark.catalog.tableExists(tableName)
            if not isinstance(entry, DeltaEntry) and (exists or _source(self) != _PROVIDER):
                if isinstance(entry, ViewEntry) or (exists and _source(self) == _PROVIDER):
                    raise TableAlreadyExistsError(
                        f"{tableName} exists and is not a Delta table.", hint="Choose another name, or drop it first."
                    )
                _check_sources(self)
                return original(self, tableName)
            _check_sources(self)
            given = _options_of(spark, self._jwrite)
            partition_by = _names(self, "partitioningColumns")
            if isinstance(entry, DeltaEntry) and (entry.by_path or log_for_path(spark, entry.location).table_exists()):
                return _started(self, entry.location, given, partition_by=partition_by)
            OutputMode.parse(_output_mode(self))  # An invalid mode must not leave a new table.
            schema = with_nullable_parts(from_spark(self._df.schema))  # Spark does the same for streamed tables.
            assert isinstance(schema, StructType)
            log = define_table(
                spark,
                parts,
                TableDefinition(schema=schema, partition_columns=partition_by or ()),
                mode=CreateMode.CREATE,
                location=given.get("path"),
            )
            return _started(self, log.uri, given, partition_by=partition_by)

    return to_table


def _started(
    writer: DataStreamWriter, location: str, given: dict[str, str], *, partition_by: list[str] | None
) -> StreamingQuery:
    spark = writer._spark
    clustering = _names(writer, "clusteringColumns")
    options = {name: value for name, value in given.items() if name.lower() not in _NOT_PROPERTIES}
    if clustering is not None:
        options["clusterBy"] = json.dumps(clustering)
    sink = DeltaSink(
        spark, location, mode=OutputMode.parse(_output_mode(writer)), options=options, partition_by=partition_by
    )
    try:
        return StreamingQuery(start_query(writer, sink))
    except Py4JJavaError as error:
        cause = error.java_exception.getCause()  # Reflection wraps Spark's exception.
        raise (error if cause is None else convert_exception(cause)) from None


def _set(
    writer: DataStreamWriter, source: str | None, mode: str | None, partitions: Any, name: str | None, options: Any
) -> None:
    writer.options(**options)
    if mode is not None:
        writer.outputMode(mode)
    if partitions is not None:
        writer.partitionBy(partitions)
    if source is not None:
        writer.format(source)
    if name is not None:
        writer.queryName(name)


def _source(writer: DataStreamWriter) -> str:
    return str(private_field(writer._jwrite, "source")).lower()


def _output_mode(writer: DataStreamWriter) -> str:
    return str(private_field(writer._jwrite, "outputMode").toString())


def _names(writer: DataStreamWriter, field: str) -> list[str] | None:
    columns = private_field(writer._jwrite, field)
    return [str(column) for column in Jvm.of(writer._spark).to_list(columns.get())] if columns.isDefined() else None


def _options_of(spark: SparkSession, target: Any) -> dict[str, str]:
    jvm = Jvm.of(spark)
    return jvm.to_dict(jvm.python_utils_map(private_field(target, "extraOptions").originalMap()))


def _refuse_real_time(writer: DataStreamWriter, *, reads_delta: bool) -> None:
    trigger = str(private_field(writer._jwrite, "trigger").getClass().getSimpleName()).rstrip("$")
    if trigger not in ("RealTimeTrigger", "ContinuousTrigger"):
        return
    mode = "real-time mode" if trigger == "RealTimeTrigger" else "continuous processing"
    if _source(writer) == _PROVIDER or reads_delta:
        raise UnsupportedFeatureError(
            f"A Delta table cannot be streamed in Spark's {mode}: its rows come by commits.",
            features=(mode,),
            hint='Use .trigger(processingTime="1 second") for short waits, or availableNow=True to read what is there.',
        )


def _delta_sources(writer: DataStreamWriter) -> list[DeltaSource]:
    plan = writer._df._jdf.queryExecution().analyzed()
    return sources_of(Jvm.of(writer._spark).to_list(plan.collectLeaves()))


def _check_names(writer: DataStreamWriter) -> None:
    """Refuse duplicate names of sources, and unnamed sources where names are enforced, as Spark does."""
    spark = writer._spark
    if str(spark.conf.get(SOURCE_NAMES, "false")).lower() != "true":
        return
    leaves = Jvm.of(spark).to_list(writer._df._jdf.queryExecution().analyzed().collectLeaves())
    given = [leaf.sourceIdentifyingName() for leaf in leaves if str(leaf.nodeName()).startswith("Streaming")]
    names = [str(name.name()) if "UserProvided" in str(name.getClass().getName()) else None for name in given]
    doubled = sorted({str(name) for name in names if name is not None and names.count(name) > 1})
    if doubled:
        raise InvalidArgumentError(
            f"Several sources of the query have the same name: {', '.join(doubled)}.",
            hint="Give each source its own name: readStream.name(…).",
            condition=Condition.of("STREAMING_QUERY_EVOLUTION_ERROR.DUPLICATE_SOURCE_NAMES", names=doubled),
        )
    if None in names:
        raise InvalidArgumentError(
            f"A source of the query has no name, but {SOURCE_NAMES} is set.",
            hint="Give each source a name, readStream.name(…), or unset it.",
            condition=Condition.of(
                "STREAMING_QUERY_EVOLUTION_ERROR.UNNAMED_STREAMING_SOURCES_WITH_ENFORCEMENT", sourceInfo="delta"
            ),
        )


def _check_sources(writer: DataStreamWriter) -> None:
    """Refuse modes that Delta sources do not support, and schema logs in the wrong place."""
    sources = _delta_sources(writer)
    _refuse_real_time(writer, reads_delta=bool(sources))
    if sources:
        _check_names(writer)
    logs = [source.schema_log for source in sources if source.schema_log is not None]
    check_separate(logs, "one table")
    checkpoint = _options_of(writer._spark, writer._jwrite).get("checkpointLocation")
    for source in sources if checkpoint else ():
        if source.schema_location is not None:
            check_below(source.schema_location, checkpoint or "", writer._spark)


# --- running queries ---------------------------------------------------------------------------------------


def _waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the JVM's stack trace by the engine's own error when that ended the query."""

    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except StreamingQueryException as error:
            own = explained(error)
            if own is error:
                raise
            raise own from None

    return wait


def _exception(original: Callable[..., Any]) -> Callable[..., Any]:
    def exception(self: StreamingQuery) -> Exception | None:
        error = original(self)
        return explained(error) if isinstance(error, StreamingQueryException) else error

    return exception
