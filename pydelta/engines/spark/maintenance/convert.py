"""Read Parquet footers for CONVERT: the schema through Spark's merge, statistics through PyArrow, both in parallel.

Footers of other writers are trusted only where their bounds surely hold for every row. No bounds are taken of
floating-point columns, which may contain NaN beyond them, or of INT96 times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import StructType as SparkStructType

from pydelta.commands.convert import Convert, FileStatistics, data_files
from pydelta.engines.arrow.tasks.stats import IndexedLeaf, StatisticsCollector
from pydelta.engines.spark.catalog.entries import adopt_entry
from pydelta.engines.spark.catalog.lookup import DeltaEntry, look_up
from pydelta.engines.spark.errors import condition_of, raised_in
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path
from pydelta.engines.spark.maintenance.parquet_sources import parquet_source
from pydelta.engines.spark.running import run_in_session
from pydelta.engines.spark.types import from_spark
from pydelta.errors import (
    DeltaError,
    InvalidArgumentError,
    SchemaMismatchError,
    StorageError,
    UnsupportedFeatureError,
    error_context,
    first_line,
)
from pydelta.errors.conditions import Condition
from pydelta.log.footers import read_footer
from pydelta.protocol.schema import EXISTENCE_DEFAULT, StructType
from pydelta.protocol.stats import leaves_with_stats
from pydelta.settings import TableProperties
from pydelta.storage import Store, open_store
from pydelta.storage.interface import ObjectInfo
from pydelta.storage.uris import hadoop_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.log import DeltaLog

__all__ = ["SparkFooters", "convert", "footer_statistics", "partition_fields"]

_FEW: Final = 64
_FILES_PER_TASK: Final = 200
_NO_BOUNDS: Final = ("float", "double")
_CANNOT_MERGE: Final = re.compile(r"CANNOT_MERGE_SCHEMAS\] (.*?) SQLSTATE", re.DOTALL)


def convert(
    spark: SparkSession,
    parts: tuple[str, ...],
    *,
    partition_schema: StructType | None = None,
    collect_statistics: bool = True,
) -> DeltaLog:
    """Convert a Parquet table in place to a Delta table, including its entry in the catalog.

    Args:
        spark: The session.
        parts: ``("parquet", path)``, or the name of a table in the catalog. A Delta table is left unchanged.
        partition_schema: Names and types of the partition columns; None for those of the catalog's entry.
        collect_statistics: Whether to take statistics from the files' footers.

    Returns:
        The table's log.

    Raises:
        InvalidArgumentError: The name is not that of a Parquet table. Other errors as for ``Convert``.
    """
    entry = look_up(spark, parts)
    if isinstance(entry, DeltaEntry):
        log = log_for_path(spark, Jvm.of(spark).qualify(entry.location))
        if not entry.by_path or log.table_exists():
            return log
    source = parquet_source(spark, parts if not isinstance(entry, DeltaEntry) else ("parquet", entry.location))
    if source is None:
        raise InvalidArgumentError(
            f"{'.'.join(parts)} is not a Parquet table.",
            hint="Write parquet.`/path/to/folder`, or the name of a Parquet table in the session's catalog.",
            condition=Condition.of("DELTA_CONVERT_NON_PARQUET_TABLE", sourceName=parts[0], tableId=".".join(parts)),
        )
    log = log_for_path(spark, source.location)
    with error_context(table=log.uri):
        command = Convert(
            footers=SparkFooters(spark, source.columns),
            partition_schema=partition_schema if partition_schema is not None else source.partitions,
            time_zone=Jvm.of(spark).time_zone(),
            collect_statistics=collect_statistics,
        )
        run_in_session(spark, command, log)
        if source.table is not None:
            adopt_entry(spark, parts, source.table, log.update())
    return log


class SparkFooters:
    """Reads footers, many of them by Spark jobs.

    Args:
        spark: The session.
        declared: Columns of the table's catalog entry. Those that no file contains are null in every row.
    """

    def __init__(self, spark: SparkSession, declared: StructType | None = None) -> None:
        self._spark = spark
        self._declared = declared

    def schema(self, log: DeltaLog) -> StructType:
        """See ``commands.convert.Footers.schema``.

        Raises:
            UnsupportedFeatureError: A column that no file contains has a value that only the catalog knows.
        """
        held = self._merged(log)
        declared = () if self._declared is None else self._declared.fields
        added = [field for field in declared if held.field(field.name) is None]
        for field in added:
            value = str(field.metadata.get(EXISTENCE_DEFAULT, "NULL"))
            if value.upper() != "NULL":
                raise UnsupportedFeatureError(
                    f"The column {field.name!r} is in no file: only the catalog has its value {value}.",
                    features=("allowColumnDefaults",),
                    hint="Write the rows once (INSERT OVERWRITE … SELECT * FROM the table), and convert again.",
                )
        return StructType((*held.fields, *(field.replace(metadata={}, nullable=True) for field in added)))

    def _merged(self, log: DeltaLog) -> StructType:
        reader = self._spark.read.option("mergeSchema", "true").option("recursiveFileLookup", "true")
        try:
            return from_spark(reader.parquet(hadoop_uri(log.uri)).schema)
        except (PySparkException, Py4JError) as error:
            merge = _CANNOT_MERGE.search(str(error))
            if merge is None and not isinstance(error, AnalysisException):
                raise self._explained(log, error) from error
            raise SchemaMismatchError(
                f"The files have no schema in common: {merge.group(1) if merge else first_line(error)}",
                hint="Rewrite the files that differ, or move them away, and convert again.",
                condition=Condition.of("DELTA_FAILED_MERGE_SCHEMA_FILE"),
            ) from error

    def statistics(
        self, log: DeltaLog, files: Sequence[ObjectInfo], schema: StructType, properties: TableProperties
    ) -> Iterable[FileStatistics]:
        """See ``commands.convert.Footers.statistics``. Storage settings are part of the pickled function."""
        leaves = [leaf for leaf in leaves_with_stats(schema, properties) if str(leaf[1]) not in _NO_BOUNDS]
        if len(files) <= _FEW:
            with ThreadPoolExecutor(max_workers=8) as pool:
                return list(pool.map(lambda item: footer_statistics(log.store, item.path, item.size, leaves), files))
        uri, options = log.uri, dict(log.options)

        def run(batch: Iterable[tuple[str, int]]) -> Iterator[FileStatistics]:
            store = open_store(uri, options)
            for path, size in batch:
                yield footer_statistics(store, path, size, leaves)

        context = self._spark.sparkContext
        slices = max(min(context.defaultParallelism, len(files)), len(files) // _FILES_PER_TASK)
        try:
            return context.parallelize([(item.path, item.size) for item in files], slices).mapPartitions(run).collect()
        except (PySparkException, Py4JError) as error:
            raise self._explained(log, error) from error

    def _explained(self, log: DeltaLog, error: BaseException) -> DeltaError:
        """Return the engine's error inside a failed job, or find the faulty file by reading all footers."""
        ours = raised_in(str(error))
        if ours is not None:
            return ours
        with ThreadPoolExecutor(max_workers=8) as pool:
            for found in pool.map(
                lambda item: _damage(log.store, item.path, item.size), data_files(log.store.list_all())
            ):
                if found is not None:
                    return found
        return StorageError(f"The files could not be read: {first_line(error)}", hint="See the cause below.")


def partition_fields(schema: str | SparkStructType | None) -> StructType | None:
    """Convert a user's partition schema (DDL text or a Spark type) to ours.

    Raises:
        InvalidArgumentError: The text is not DDL.
    """
    if schema is None:
        return None
    if isinstance(schema, str):
        try:
            parsed = SparkStructType.fromDDL(schema)
        except (PySparkException, Py4JError) as error:
            raise InvalidArgumentError(
                f"The partition schema {schema!r} is not a list of columns: {first_line(error)}",
                hint='Write it as "year int, month int".',
                condition=condition_of(error),
            ) from error
        schema = parsed if isinstance(parsed, SparkStructType) else SparkStructType().add("value", parsed)
    return from_spark(schema)


def _footer_of(store: Store, path: str, size: int) -> pq.FileMetaData:
    footer = read_footer(store, path, size)
    if footer is None:
        raise StorageError(
            f"The file {path!r} is not a Parquet file: its footer cannot be read.",
            hint="Move it away, or give it a name that begins with an underscore, and convert again.",
            condition=Condition.of("DELTA_FAILED_READ_FILE_FOOTER", currentFile=path),
        )
    return footer


def footer_statistics(store: Store, path: str, size: int, leaves: Sequence[IndexedLeaf]) -> FileStatistics:
    """Compute the statistics of a file from its footer.

    Args:
        store: The store that holds it.
        path: Path relative to the store's root.
        size: Size in bytes.
        leaves: Columns that get bounds and null counts. Those that the file lacks are ignored.
    """
    footer = _footer_of(store, path, size)
    schema = footer.schema.to_arrow_schema()
    held = _bounded_columns(footer)
    indexed = [leaf for leaf in leaves if ".".join(leaf[0]) in held]
    return FileStatistics(path=path, stats=StatisticsCollector(schema, indexed, int96=False).finish(footer))


def _bounded_columns(footer: pq.FileMetaData) -> Mapping[str, Any]:
    """Return the Parquet columns with usable bounds by dotted path, except those in lists and maps."""
    columns = [footer.schema.column(number) for number in range(len(footer.schema))]
    return {
        column.path: column
        for column in columns
        if column.physical_type != "INT96" and column.max_repetition_level == 0
    }


def _damage(store: Store, path: str, size: int) -> DeltaError | None:
    try:
        _footer_of(store, path, size)
    except StorageError as error:
        return error
    return None
