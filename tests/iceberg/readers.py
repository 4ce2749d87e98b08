"""Read an Iceberg entry with PyIceberg and DuckDB: what other engines see of a table."""

from __future__ import annotations

import functools
import io
import math
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import duckdb_extensions
import pyarrow as pa
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.table import StaticTable

from pydelta.manifests.iceberg import IcebergEntry
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


__all__ = ["StoreIO", "all_rows", "canonical", "duck", "duckdb_rows", "of_arrow", "pyiceberg_rows"]
