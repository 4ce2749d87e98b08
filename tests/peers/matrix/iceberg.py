"""Read the tables through an Iceberg entry, made by pydelta for tables of any writer: PyIceberg, and DuckDB's extension."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pydelta.errors import SchemaError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import publish_iceberg

__all__ = ["READERS", "NoEntryError"]


class NoEntryError(Exception):
    """Iceberg lacks a type of the table, so that it has no entry."""


def _published(place: str) -> str:
    try:
        return publish_iceberg(DeltaLog.for_table(place)).entry.metadata_location
    except (SchemaError, UnsupportedFeatureError) as error:
        raise NoEntryError(str(error)) from error


def _pyiceberg(place: str) -> pa.Table:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(_published(place)).scan().to_arrow()


def _duckdb(place: str) -> pa.Table:
    import duckdb
    from duckdb_extensions import import_extension

    location = _published(place).replace("'", "''")
    with duckdb.connect() as connection:
        for name in ("avro", "iceberg"):
            import_extension(name, con=connection)
        connection.sql("SET TimeZone = 'UTC'")
        return connection.sql(f"SELECT * FROM iceberg_scan('{location}')").to_arrow_table()


READERS: dict[str, Callable[[str], pa.Table]] = {"pyiceberg": _pyiceberg, "duckdb-iceberg": _duckdb}
