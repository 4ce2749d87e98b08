"""Convert a folder of Parquet files into a Delta table, without rewriting data (CONVERT).

::

    listing (without hidden names) -> typed partition values from the folders' names
                                   -> footers, in parallel: schema (merged over all files), statistics
                                   -> version 0: protocol, metadata, one add per file

Protocol: "Add File and Remove File", "Partition Value Serialization", "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from pydelta.commands.run import Attempt, Command
from pydelta.commands.write.plan import TableDefinition, new_metadata, stored_schema
from pydelta.errors import (
    InvalidArgumentError,
    LogCorruptedError,
    SchemaError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile, Metadata
from pydelta.protocol.column_mapping import MODE
from pydelta.protocol.iceberg_compat import check_files_made_for
from pydelta.protocol.partitions import (
    HIVE_NULL,
    hive_unescape,
    parse_partition_value,
    serialize_partition_value,
)
from pydelta.protocol.paths import encode_log_path
from pydelta.protocol.schema import StructField, StructType
from pydelta.settings import Settings, TableProperties
from pydelta.settings.table import iceberg_compat_version
from pydelta.storage.interface import ObjectInfo
from pydelta.txn import Operation

__all__ = [
    "Convert",
    "ConvertResult",
    "FileStatistics",
    "Footers",
    "ParquetFolder",
    "data_files",
    "described",
    "merged_schema",
    "partition_values",
]

_STREAM_LOG: Final = "_spark_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertResult:
    """The result of a CONVERT. ``version`` is None if the folder already was a Delta table, which is unchanged."""

    version: int | None
    num_converted_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatistics:
    """The statistics from a file's footer, as JSON text."""

    path: str
    stats: str | None


class Footers(Protocol):
    """Reads the footers of Parquet files, many at a time."""

    def schema(self, log: DeltaLog) -> StructType:
        """Return the merged schema of all files: columns by name, in order of their first appearance.

        Raises:
            SchemaMismatchError: Files have incompatible types for one column; the error names it.
            StorageError: A file is not a Parquet file; the error names it.
        """

    def statistics(
        self, log: DeltaLog, files: Sequence[ObjectInfo], schema: StructType, properties: TableProperties
    ) -> Iterable[FileStatistics]:
        """Return statistics of each file; ``schema`` has only the data columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convert(Command[ConvertResult]):
    """Convert the Parquet files in a folder to a Delta table in place.

    Args:
        footers: Reads the files' footers.
        partition_schema: Names and types of the partition columns, which the folders' names must have.
        collect_statistics: Read statistics from the footers, so that queries can skip files.
        time_zone: Zone of timestamps in folders' names.

    Returns:
        The new version; None if there already is a Delta table.

    Raises:
        TableNotFoundError: There is no file to convert.
        InvalidArgumentError: The folders' names and ``partition_schema`` differ.
        SchemaError: A value in a folder's name does not have its column's type, or a table cannot hold a column.
        UnsupportedFeatureError: The folder is a stream's output, whose own log decides which files count.
        StorageError: A file is not a Parquet file, or the store failed. The folder is unchanged.
    """

    footers: Footers
    partition_schema: StructType | None = None
    collect_statistics: bool = True
    time_zone: str = "UTC"

    makes_table = True

    def execute(self, attempt: Attempt) -> ConvertResult:
        """See ``Command.execute``."""
        txn = attempt.txn
        if txn.table_exists:
            return ConvertResult(version=None)
        found = described(
            attempt.log,
            self.footers,
            partition_schema=self.partition_schema,
            settings=attempt.settings,
            collect_statistics=self.collect_statistics,
            time_zone=self.time_zone,
        )
        txn.update_metadata(found.metadata)
        committed = txn.commit(found.adds, _operation(found.metadata, len(found.adds), self.collect_statistics))
        return ConvertResult(version=committed.version, num_converted_files=len(found.adds))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFolder:
    """A folder of Parquet files, as a table's log would have it.

    Args:
        metadata: The definition.
        adds: Its files, by paths relative to the folder.
    """

    metadata: Metadata
    adds: tuple[AddFile, ...]


def described(
    log: DeltaLog,
    footers: Footers,
    *,
    partition_schema: StructType | None = None,
    settings: Settings | None = None,
    collect_statistics: bool = True,
    time_zone: str = "UTC",
) -> ParquetFolder:
    """Describe a folder of Parquet files as a table without writing anything. See ``Convert``."""
    files = data_files(log.store.list_all())
    if not files:
        raise TableNotFoundError(
            f"There is no Parquet file at {log.uri}.",
            hint="Check the location; hidden names do not count.",
            condition=Condition.of("DELTA_EMPTY_DIRECTORY", directory=log.uri),
        )
    partitions = partition_schema or StructType(())
    values = partition_values([item.path for item in files], partitions, time_zone=time_zone)
    schema = stored_schema(merged_schema(footers.schema(log), partitions))
    definition = TableDefinition(schema=schema, partition_columns=partitions.names)
    metadata = new_metadata(definition, settings=_unmapped(settings or Settings()))
    check_files_made_for(iceberg_compat_version(metadata.configuration), len(files), table=log.uri)
    statistics: dict[str, str | None] = {}
    if collect_statistics:
        data = StructType(tuple(field for field in schema.fields if partitions.field(field.name) is None))
        properties = TableProperties.parse(metadata.configuration)
        statistics = {item.path: item.stats for item in footers.statistics(log, files, data, properties)}
    adds = (
        AddFile(
            path=encode_log_path(item.path),
            partition_values=dict(of_file),
            size=item.size,
            modification_time=item.modification_time_ms,
            data_change=True,
            stats=statistics.get(item.path),
        )
        for item, of_file in zip(files, values, strict=True)
    )
    return ParquetFolder(metadata=metadata, adds=tuple(adds))


def _operation(metadata: Metadata, count: int, collect_statistics: bool) -> Operation:
    parameters = {
        "numFiles": count,
        "partitionedBy": list(metadata.partition_columns),
        "collectStats": collect_statistics,
        "sourceFormat": "parquet",
    }
    return Operation(name="CONVERT", parameters=parameters, metrics={"numConvertedFiles": count})


def data_files(objects: Iterable[ObjectInfo]) -> list[ObjectInfo]:
    """Return the files that hold rows, sorted by path.

    Names that begin with ``_`` or ``.`` are hidden, with all below them; a folder ``_name=value`` is a partition.

    Raises:
        UnsupportedFeatureError: The folder is the output of a stream.
    """
    found = []
    for item in objects:
        *folders, name = item.path.split("/")
        if _STREAM_LOG in folders:
            raise UnsupportedFeatureError(
                f"The folder is the output of a stream, whose {_STREAM_LOG} decides which files count.",
                features=(_STREAM_LOG,),
                hint="Read it with spark.read.parquet and write the rows to a Delta table.",
            )
        hidden = name.startswith(("_", ".")) or any(
            folder.startswith(".") or (folder.startswith("_") and "=" not in folder) for folder in folders
        )
        if not hidden:
            found.append(item)
    return sorted(found, key=lambda item: item.path)


def partition_values(
    paths: Sequence[str], partitions: StructType, *, time_zone: str = "UTC"
) -> list[Mapping[str, str | None]]:
    """Return the values in the folders' names in the log's format, in the order of the paths.

    Each folder is parsed once, however many files it holds.

    Raises:
        InvalidArgumentError: A folder's columns differ from ``partitions``; the error lists those found.
        SchemaError: A value does not have its column's type.
    """
    by_folder: dict[str, Mapping[str, str | None]] = {}
    found = []
    for path in paths:
        folder = path.rpartition("/")[0]
        if folder not in by_folder:
            by_folder[folder] = _values_of(folder, partitions, time_zone)
        found.append(by_folder[folder])
    return found


def _values_of(folder: str, partitions: StructType, time_zone: str) -> Mapping[str, str | None]:
    parts = [part.partition("=") for part in folder.split("/") if "=" in part]
    names = [hive_unescape(name) for name, _, _ in parts]
    if [name.lower() for name in names] != [field.name.lower() for field in partitions.fields]:
        expected = ", ".join(f"{field.name} {field.data_type}" for field in partitions.fields) or "none"
        hint = "Give partition_schema with these columns, in this order, for example " + repr(
            ", ".join(f"{name} string" for name in names)
        )
        raise InvalidArgumentError(
            f"The folder {folder!r} has the partition columns {', '.join(names) or 'none'}, but expected were "
            f"{expected}.",
            hint=f"{hint}."
            if names
            else "Leave the partition schema out, or move away the files that are in no partition.",
            condition=Condition.of(
                "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME",
                expectedColsSize=len(partitions),
                expectedCols=partitions.names,
                parsedColsSize=len(names),
                parsedCols=names,
                path=folder,
            )
            if len(names) != len(partitions)
            else Condition.of(
                "DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME",
                expectedCol=partitions.names,
                parsedCol=names,
                path=folder,
            ),
        )
    return {
        field.name: _normal(hive_unescape(text), field, folder, time_zone)
        for field, (_, _, text) in zip(partitions.fields, parts, strict=True)
    }


def _normal(text: str, field: StructField, folder: str, time_zone: str) -> str | None:
    if text == HIVE_NULL:
        return None
    try:
        value = parse_partition_value(text, field.data_type, time_zone=time_zone)
        return serialize_partition_value(value, field.data_type)
    except (ValueError, OverflowError, SchemaError, LogCorruptedError) as error:
        raise SchemaError(
            f"The folder {folder!r} has {text!r} for the partition column {field.name!r}, which is not a valid "
            f"{field.data_type}.",
            hint="Give the column another type in the partition schema, such as string.",
            condition=Condition.of(
                "DELTA_PARTITION_COLUMN_CAST_FAILED", value=text, dataType=field.data_type, columnName=field.name
            ),
        ) from error


def merged_schema(data: StructType, partitions: StructType) -> StructType:
    """Return the table's columns: those of the files, then the partition columns that no file holds. Pure."""
    fields = [partitions.field(field.name) or field for field in data.fields]
    fields += [field for field in partitions.fields if data.field(field.name) is None]
    return StructType(tuple(fields))


def _unmapped(settings: Settings) -> Settings:
    """Return settings without default column mapping, because existing files use the columns' names."""
    kept = {key: value for key, value in settings.default_properties.items() if key != MODE}
    return replace(settings, default_properties=kept)
