"""Read an Iceberg entry with PyIceberg and DuckDB: what other engines see of a table."""

from __future__ import annotations

import datetime as dt
import functools
import io
import math
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import duckdb_extensions
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.table import StaticTable

from pydelta.log import DeltaLog
from pydelta.log.vector_files import place_of, read_deleted_rows
from pydelta.manifests.iceberg import IcebergEntry
from pydelta.protocol.partitions import parse_partition_value
from pydelta.protocol.schema import physical_name, to_arrow
from pydelta.protocol.types import DataType, StructType
from pydelta.storage import Store

Rows = list[tuple[Any, ...]]


@functools.cache
def duck() -> duckdb.DuckDBPyConnection:
    """A connection with the extension, in UTC."""
    found = duckdb.connect()
    for name in ("avro", "iceberg"):
        duckdb_extensions.import_extension(name, con=found)
        found.sql(f"LOAD {name}")
    found.sql("SET TimeZone = 'UTC'")
    return found


def canonical(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> Rows:
    """Rows as sorted tuples, in the order of the names; NaN equal to itself."""
    wanted = list(names)
    found = [tuple(_plain(row[name]) for name in wanted) for row in rows]
    return sorted(found, key=lambda row: [(value is None, type(value).__name__, repr(value)) for value in row])


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple((name, _plain(item)) for name, item in value.items())
    return value


def of_arrow(table: pa.Table) -> Rows:
    """Rows of an Arrow table, whatever the order of its columns."""
    return canonical(table.to_pylist(), sorted(table.column_names))


def table_of(log: DeltaLog) -> pa.Table:
    """The newest version's rows, by its log and Arrow alone, so with widened columns too."""
    snapshot = log.update()
    schema = to_arrow(snapshot.schema)
    parts = [schema.empty_table()]
    types = {field.name: field.data_type for field in snapshot.schema.fields}
    for add in snapshot.files.adds(snapshot.files.core):
        store, path = place_of(add.path, store=log.store, root=log.uri)
        data = pq.read_table(pa.BufferReader(store.read(path)), coerce_int96_timestamp_unit="us")
        if add.deletion_vector is not None:
            (hidden,) = read_deleted_rows([add.deletion_vector], store=log.store, root=log.uri, options=None)
            data = data.take(sorted(set(range(data.num_rows)) - set(hidden.tolist())))
        columns = []
        for field, arrow in zip(snapshot.schema.fields, schema, strict=True):
            physical = physical_name(field)
            if field.name in snapshot.partition_columns:
                text = add.partition_values[physical]
                found = None if text is None else parse_partition_value(text, types[field.name])
                if pa.types.is_timestamp(arrow.type) and found is not None:
                    found = found.replace(tzinfo=dt.UTC)
                columns.append(pa.array([found] * data.num_rows, arrow.type))
            elif physical in data.column_names:
                columns.append(_as_type(data[physical].combine_chunks(), arrow.type, field.data_type))
            else:
                columns.append(pa.nulls(data.num_rows, arrow.type))
        parts.append(pa.table(columns, schema=schema))
    return pa.concat_tables(parts)


def _as_type(found: pa.Array, wanted: pa.DataType, data_type: DataType) -> pa.Array:
    """A column of a file, with its parts by the names of the table."""
    if isinstance(data_type, StructType):
        there = {part.name for part in found.type}
        parts = [
            _as_type(found.field(name), wanted.field(at).type, part.data_type)
            if (name := physical_name(part)) in there
            else pa.nulls(len(found), wanted.field(at).type)
            for at, part in enumerate(data_type.fields)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=found.is_null())
    return found.cast(wanted)


def pyiceberg_rows(location: str, where: Any = None) -> Rows:
    """Rows that PyIceberg reads from a metadata file or from the entry's folder."""
    table = StaticTable.from_metadata(location)
    scan = table.scan() if where is None else table.scan(row_filter=where)
    return of_arrow(scan.to_arrow())


def duckdb_rows(location: str, where: str | None = None) -> Rows:
    """Rows that DuckDB reads from a metadata file or from the entry's folder."""
    place = location.replace("'", "''")
    condition = f" WHERE {where}" if where else ""
    return of_arrow(duck().sql(f"SELECT * FROM iceberg_scan('{place}'){condition}").to_arrow_table())


def all_rows(entry: IcebergEntry) -> Rows:
    """Rows of an entry, after all readers agreed on them, each by the metadata file and by the folder."""
    found = pyiceberg_rows(entry.metadata_location)
    assert pyiceberg_rows(entry.location) == found, "PyIceberg reads the folder as the metadata file"
    assert duckdb_rows(entry.metadata_location) == found, "DuckDB reads what PyIceberg reads"
    assert duckdb_rows(entry.location) == found, "DuckDB reads the folder as the metadata file"
    return found


class StoreIO(FileIO):
    """PyIceberg's way into a store of ours, for stores that it does not know."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def new_input(self, location: str) -> InputFile:
        """A file of the store."""
        root = urllib.parse.unquote(self._store.root).replace("s3a://", "s3://")
        path = location.removeprefix(root + "/")
        return _StoreFile(location, self._store.read(path))

    def new_output(self, location: str) -> OutputFile:
        """Nothing is written."""
        raise NotImplementedError

    def delete(self, location: Any) -> None:
        """Nothing is deleted."""
        raise NotImplementedError


class _StoreFile(InputFile):
    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        """It does."""
        return True

    def open(self, seekable: bool = True) -> InputStream:
        """Its bytes."""
        del seekable
        return io.BytesIO(self._data)


__all__ = ["StoreIO", "all_rows", "canonical", "duck", "duckdb_rows", "of_arrow", "pyiceberg_rows", "table_of"]
