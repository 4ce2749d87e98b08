"""Make the executor's ``WriteTask`` and column order from a table's definition, and ``add`` from its records.

It needs no session, so the Python data source uses it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import pyarrow as pa

from pydelta.commands.engine import RewriteOutput
from pydelta.commands.write.options import WriteOptions
from pydelta.commands.write.plan import WritePlan
from pydelta.engines.arrow.tasks.arrow import optional
from pydelta.engines.arrow.tasks.stats import IndexedLeaf
from pydelta.engines.arrow.tasks.write_files import CODEC_SUFFIXES, FileRecord, PartitionColumn, WriteTask
from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.protocol.actions import AddCDCFile, AddFile, Metadata
from pydelta.protocol.features import partition_columns_in_files
from pydelta.protocol.paths import encode_log_path
from pydelta.protocol.row_tracking import materialized_columns
from pydelta.protocol.schema import (
    PrimitiveType,
    StructType,
    logical_to_physical,
    parse_schema,
    physical_partition_columns,
    to_arrow,
    without_void,
)
from pydelta.protocol.stats import indexed_leaves, leaves_with_stats
from pydelta.settings import Settings, TableProperties, parse_bytes
from pydelta.settings.table import iceberg_compat_version

__all__ = [
    "MICROSECONDS",
    "Session",
    "TableShape",
    "add_of",
    "add_of_file",
    "change_of",
    "change_of_file",
    "make_task",
    "output_of",
    "written_columns",
]

MICROSECONDS: Final = "TIMESTAMP_MICROS"
"""The default type of written timestamps. See ADR 0033."""

_PREFIX_LENGTH: Final = 2
_VOID: Final = PrimitiveType("void")


def written_columns(schema: StructType, partition_columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """List logical names in a task's order: data columns without void ones, then partition columns."""
    lower = {column.lower() for column in partition_columns}
    data = [field.name for field in schema.fields if field.name.lower() not in lower and field.data_type != _VOID]
    return data, list(partition_columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """The required form of a table's files.

    Args:
        uri: Root of the table.
        schema: Logical schema.
        partition_columns: Logical names.
        properties: Properties for column mapping, statistics, file size and codec.
        partitions_in_files: Whether files also hold the partition columns.
        iceberg: Whether files must suit Iceberg: timestamps as 64-bit microseconds, whatever the session's setting.
    """

    uri: str
    schema: StructType
    partition_columns: Sequence[str]
    properties: TableProperties
    partitions_in_files: bool = False
    iceberg: bool = False

    @classmethod
    def of(cls, snapshot: Snapshot) -> TableShape:
        """Derive the shape from a version of the table."""
        return cls(
            uri=snapshot.table_uri,
            schema=snapshot.schema,
            partition_columns=snapshot.partition_columns,
            properties=snapshot.properties,
            partitions_in_files=partition_columns_in_files(snapshot.protocol, _configuration(snapshot)),
            iceberg=iceberg_compat_version(_configuration(snapshot)) > 0,
        )

    def defined_by(self, metadata: Metadata) -> TableShape:
        """Return the shape of the same table's files with a new definition."""
        return replace(
            self,
            schema=parse_schema(metadata.schema_string),
            partition_columns=metadata.partition_columns,
            properties=TableProperties.parse(metadata.configuration),
        )

    @classmethod
    def planned(cls, uri: str, plan: WritePlan) -> TableShape:
        """Derive the shape from the plan of a write to the table at ``uri``."""
        return cls(
            uri=uri,
            schema=plan.schema,
            partition_columns=plan.partition_columns,
            properties=plan.properties,
            partitions_in_files=plan.partitions_in_files,
            iceberg=iceberg_compat_version(plan.configuration) > 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Session settings that affect how executors write files.

    Args:
        settings: Settings of the session.
        store_options: Settings of the table's store. They may hold secrets.
        timestamp_type: ``spark.sql.parquet.outputTimestampType``, if it was set.
        time_zone: Zone of a partition value that is a time without a zone.
        codec: Codec to use if neither options nor properties name one.
        footer: Key-value metadata of each file.
    """

    settings: Settings
    store_options: Mapping[str, str]
    timestamp_type: str = MICROSECONDS
    time_zone: str = "UTC"
    codec: str | None = None
    footer: Mapping[str, str] = field(default_factory=dict)


def make_task(
    shape: TableShape,
    options: WriteOptions,
    session: Session,
    *,
    change_data: bool = False,
    row_tracking: bool = False,
) -> WriteTask:
    """Decide how files of a table are written.

    Args:
        shape: The required form of the files.
        options: Options of the write, which override the table's properties.
        session: Session whose executors write them.
        change_data: Whether the rows have a kind of change.
        row_tracking: Whether they have row ids and versions after the data columns.

    Raises:
        InvalidArgumentError: There is no such codec or size.
        SchemaError: No file can hold a void column at its place.
    """
    schema, properties, mode = shape.schema, shape.properties, shape.properties.column_mapping_mode
    lower = {column.lower() for column in shape.partition_columns}
    stored = without_void(StructType(tuple(f for f in schema.fields if f.name.lower() not in lower)))
    physical = logical_to_physical(stored, mode)
    keys = physical_partition_columns(schema, shape.partition_columns, mode)
    partitions = [found for name in shape.partition_columns if (found := schema.field(name)) is not None]
    timestamp_type = MICROSECONDS if shape.iceberg else session.timestamp_type
    milliseconds = timestamp_type == "TIMESTAMP_MILLIS"
    file_schema = optional(to_arrow(physical), milliseconds=milliseconds)
    held = logical_to_physical(StructType(tuple(partitions if shape.partitions_in_files else ())), mode)
    constants = optional(to_arrow(held), milliseconds=milliseconds)
    hidden = materialized_columns(properties) if row_tracking else ()
    for column in hidden:
        file_schema = file_schema.append(pa.field(column, pa.int64()))
    return WriteTask(
        table_uri=shape.uri,
        store_options=dict(session.store_options),
        file_schema=file_schema,
        partition_columns=tuple(
            PartitionColumn(name=key, data_type=item.data_type) for key, item in zip(keys, partitions, strict=True)
        ),
        constants=constants,
        time_zone=session.time_zone,
        indexed=_indexed(stored, physical, properties),
        codec=_codec(properties, options, session.codec),
        # Arrow writes INT96 for all timestamps of a file or for none, and one without a zone is never INT96.
        int96=timestamp_type == "INT96" and not _has_ntz(file_schema) and not _has_ntz(constants),
        target_file_size_bytes=_target_size(properties, options, session.settings),
        max_records_per_file=options.max_records_per_file,
        max_open_files=session.settings.max_open_files,
        footer=dict(session.footer),
        change_data=change_data,
        hidden_columns=len(hidden),
        prefix_length=_PREFIX_LENGTH if properties.randomize_file_prefixes or mode != "none" else 0,
    )


def add_of(record: Mapping[str, Any]) -> AddFile:
    """Turn one row of ``write_task.RECORD_SCHEMA`` into its action."""
    return AddFile(
        path=encode_log_path(record["path"]),
        partition_values=msgspec.json.decode(record["partition_values"]),
        size=record["size"],
        modification_time=record["modification_time_ms"],
        data_change=True,
        stats=record["stats"],
    )


def add_of_file(record: FileRecord) -> AddFile:
    """Turn a file written by a task of this process into its action."""
    return AddFile(
        path=encode_log_path(record.path),
        partition_values=dict(record.partition_values),
        size=record.size,
        modification_time=record.modification_time_ms,
        data_change=True,
        stats=record.stats,
    )


def change_of_file(record: FileRecord) -> AddCDCFile:
    """Turn a file of the change data feed written by a task of this process into its action."""
    return AddCDCFile(
        path=encode_log_path(record.path),
        partition_values=dict(record.partition_values),
        size=record.size,
        data_change=False,
    )


def change_of(record: Mapping[str, Any]) -> AddCDCFile:
    """Turn one row of ``write_task.RECORD_SCHEMA`` that belongs to the change data feed into its action."""
    return AddCDCFile(
        path=encode_log_path(record["path"]),
        partition_values=msgspec.json.decode(record["partition_values"]),
        size=record["size"],
        data_change=False,
    )


def _configuration(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.metadata.configuration if snapshot.metadata is not None else {}


def _indexed(logical: StructType, physical: StructType, properties: TableProperties) -> tuple[IndexedLeaf, ...]:
    """Return the leaves with statistics, chosen by logical name, as physical paths."""
    chosen = {path for path, _ in leaves_with_stats(logical, properties)}
    both = zip(indexed_leaves(logical, num_indexed=-1), indexed_leaves(physical, num_indexed=-1), strict=True)
    return tuple(leaf for (path, _), leaf in both if path in chosen)


def _has_ntz(data: pa.Schema | pa.DataType) -> bool:
    if isinstance(data, pa.Schema):
        return any(_has_ntz(field.type) for field in data)
    if pa.types.is_map(data):
        return _has_ntz(data.key_type) or _has_ntz(data.item_type)
    if pa.types.is_nested(data):
        return any(_has_ntz(data.field(index).type) for index in range(data.num_fields))
    return bool(pa.types.is_timestamp(data) and data.tz is None)


def _codec(properties: TableProperties, options: WriteOptions, session_codec: str | None) -> str:
    codec = options.compression or properties.compression_codec
    if options.compression is None and codec == TableProperties().compression_codec and session_codec:
        codec = session_codec
    if codec.lower() not in CODEC_SUFFIXES:
        raise InvalidArgumentError(
            f"There is no compression codec {codec!r}.",
            hint=f"Use one of {', '.join(CODEC_SUFFIXES)}.",
            condition=Condition.of(
                "CODEC_NOT_AVAILABLE.WITH_AVAILABLE_CODECS_SUGGESTION", codecName=codec, availableCodecs=CODEC_SUFFIXES
            ),
        )
    return codec.lower()


def _target_size(properties: TableProperties, options: WriteOptions, settings: Settings) -> int:
    if options.target_file_size is not None:
        return parse_bytes(options.target_file_size, name="targetFileSize")
    return properties.target_file_size_bytes or settings.target_file_size_bytes


def output_of(records: Sequence[FileRecord]) -> RewriteOutput:
    """Turn files that tasks of this process wrote, including those of the change feed, into a command's output."""
    of_table = [record for record in records if not record.change]
    of_feed = [record for record in records if record.change]
    return RewriteOutput(
        adds=tuple(map(add_of_file, of_table)),
        num_rows=sum(record.num_rows for record in of_table),
        changes=tuple(map(change_of_file, of_feed)),
        num_changes=sum(record.num_rows for record in of_feed),
    )
