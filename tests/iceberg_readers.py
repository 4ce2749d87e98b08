"""Publish a minimal Iceberg entry of a table with pyiceberg's own writers, and read it with pyiceberg and DuckDB."""

from __future__ import annotations

import functools
import uuid
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extensions
import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from pydelta.log import DeltaLog
from pydelta.manifests.iceberg.bounds import ENTRY_PROPERTIES, file_metrics
from pydelta.manifests.iceberg.partitions import partition_records, partition_spec
from pydelta.manifests.iceberg.schema import EntrySchema, entry_schema
from pydelta.protocol.paths import resolve_data_path
from pydelta.protocol.row_tracking import materialized_columns

MAPPING = "schema.name-mapping.default"


class Entry:
    """The entry of a table, published again after each change, all files new each time."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.schema: EntrySchema | None = None
        self.metadata: TableMetadata | None = None
        self._specs: list[Any] = []

    def publish(self, *, omit: bool = False, bounds: bool = True) -> Entry:
        snapshot = DeltaLog.for_table(str(self.table)).update()
        old = self.schema
        self.schema = entry_schema(
            snapshot.schema,
            mode=snapshot.column_mapping_mode,
            previous=old.schema if old else None,
            name_mapping=old.name_mapping if old else None,
            last_column_id=old.last_column_id if old else 0,
            only_in_files=materialized_columns(snapshot.properties),
            omit=omit,
        )
        spec = partition_spec(self.schema, snapshot.partition_columns, self._specs)
        if spec not in self._specs:
            self._specs.append(spec)
        core = snapshot.files.core
        records = partition_records(core.select(*snapshot.files.spec.keys, "path"), spec, self.schema)
        stats = snapshot.files.with_stats(core)["stats"]
        metrics = file_metrics(stats, self.schema, without=[part.source_id for part in spec.fields])
        io, folder = PyArrowFileIO(), self.table / "_pydelta" / "iceberg" / "metadata"
        folder.mkdir(parents=True, exist_ok=True)
        identifier = snapshot.version + 1
        path = f"{folder}/m-{uuid.uuid4()}.avro"
        with write_manifest(2, spec, self.schema.schema, io.new_output(path), identifier, "deflate") as writer:
            for index, (relative, size) in enumerate(core.select("path", "size").iter_rows()):
                more = {}
                if bounds:
                    more = {
                        "value_counts": metrics.value_counts[index],
                        "null_value_counts": metrics.null_counts[index],
                        "lower_bounds": metrics.lower[index],
                        "upper_bounds": metrics.upper[index],
                    }
                file = DataFile.from_args(
                    _table_format_version=2,
                    content=DataFileContent.DATA,
                    file_path=resolve_data_path(snapshot.table_uri, relative),
                    file_format=FileFormat.PARQUET,
                    partition=records[index],
                    record_count=metrics.record_counts[index] or 0,
                    file_size_in_bytes=size,
                    **more,
                )
                writer.add_entry(
                    ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=identifier, data_file=file)
                )
        manifests = f"{folder}/snap-{uuid.uuid4()}.avro"
        with write_manifest_list(2, io.new_output(manifests), identifier, None, 1, "deflate") as listed:
            listed.add_manifests([writer.to_manifest_file()])
        self.metadata = TableMetadataV2(
            location=str(self.table / "_pydelta" / "iceberg"),
            last_column_id=self.schema.last_column_id,
            schemas=[self.schema.schema],
            current_schema_id=0,
            partition_specs=self._specs,
            default_spec_id=spec.spec_id,
            last_partition_id=max([999, *(part.field_id for one in self._specs for part in one.fields)]),
            sort_orders=[UNSORTED_SORT_ORDER],
            default_sort_order_id=0,
            last_sequence_number=1,
            properties={MAPPING: self.schema.name_mapping, **ENTRY_PROPERTIES},
            current_snapshot_id=identifier,
            snapshots=[
                Snapshot(
                    snapshot_id=identifier,
                    sequence_number=1,
                    timestamp_ms=snapshot.timestamp_ms if hasattr(snapshot, "timestamp_ms") else 1,
                    manifest_list=manifests,
                    summary=Summary(Operation.APPEND),
                    schema_id=0,
                )
            ],
        )
        self.location = f"{folder}/v{uuid.uuid4()}.metadata.json"
        Path(self.location).write_text(self.metadata.model_dump_json())
        return self

    def pyiceberg(self, **scan: Any) -> pa.Table:
        return StaticTable.from_metadata(self.location).scan(**scan).to_arrow()

    def duckdb(self, where: str | None = None, columns: str = "*") -> pa.Table:
        filtered = "" if where is None else f" WHERE {where}"
        return (
            duckdb_with_iceberg()
            .sql(f"SELECT {columns} FROM iceberg_scan('{self.location}'){filtered}")
            .to_arrow_table()
        )


@functools.cache
def duckdb_with_iceberg() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        duckdb_extensions.import_extension(name, con=connection)
        connection.load_extension(name)
    connection.sql("SET TimeZone = 'UTC'")
    return connection
