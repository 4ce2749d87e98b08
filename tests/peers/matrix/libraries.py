"""Write and read the tables by engines that are libraries: delta-rs both, DuckDB's extension ``delta`` reads.

PyIceberg and DuckDB's extension ``iceberg`` read them through an Iceberg entry.
"""

from __future__ import annotations

import datetime as dt
import decimal
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, TableFeatures, write_deltalake

from matrix.answers import outcome, said, values
from matrix.cases import CASES, Case
from matrix.iceberg import READERS as BY_ENTRY
from matrix.iceberg import NoEntryError

__all__ = [
    "READERS",
    "arrow_rows",
    "nested_row",
    "partitions",
    "plain_columns",
    "primitive_row",
    "read",
    "write_by_delta_rs",
]

_NOT_TRIED = {"deletionVectors", "columnMapping (name)", "columnMapping (id)", "typeWidening"}
"""Features whose tables differ from others by what is done to them, which delta-rs has no call for."""
_TYPES = {
    "INT": pa.int32(),
    "STRING": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}


def primitive_row() -> pa.Table:
    """The row of the case that has every primitive type."""
    kinds = [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]
    kinds += [pa.decimal128(38, 10), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", "UTC")]
    row = [True, -128, -(2**15), -(2**31), -(2**63), 1.5, 1e300]
    row += [decimal.Decimal("-1234567890123456789012345678.0123456789"), "ü", b"\x00\xff", dt.date(1900, 1, 1)]
    row += [dt.datetime(2262, 5, 1, 0, 0, 0, 1, dt.UTC)]
    return pa.table({name: pa.array([row[at]], kinds[at]) for at, name in enumerate("abcdefghijkl")})


def nested_row() -> pa.Table:
    """The row of the case that has nested types."""
    one = pa.struct({"x": pa.int32()})
    kinds = {"id": pa.int32(), "s": pa.struct({"x": pa.int32(), "y": pa.string()}), "a": pa.list_(one)}
    kinds |= {"m": pa.map_(pa.string(), pa.list_(pa.int32()))}
    row = {"id": 1, "s": {"x": 1, "y": "y"}, "a": [{"x": 2}, None], "m": [("k", [3, None])]}
    return pa.Table.from_pylist([row], pa.schema(list(kinds.items())))


def _evolved(place: str) -> None:
    write_deltalake(place, pa.table({"id": pa.array([1], pa.int32())}))
    more = pa.table({"id": pa.array([2], pa.int32()), "name": ["b"]})
    write_deltalake(place, more, mode="append", schema_mode="merge")


def _not_null(place: str) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())])
    write_deltalake(place, pa.table({"id": [1, 2, 3], "name": ["a", "b", None]}, schema=schema))


_MADE: dict[str, Callable[[str], None]] = {
    "every primitive type": lambda place: write_deltalake(place, primitive_row()),
    "nested types": lambda place: write_deltalake(place, nested_row()),
    "schema evolution": _evolved,
    "invariants": _not_null,
}


def plain_columns(case: Case) -> dict[str, pa.DataType] | None:
    """Names and types of a case's columns, where each is a name and a plain type."""
    found = {}
    for text in case.columns.split(","):
        name, _, kind = text.strip().partition(" ")
        if kind not in _TYPES:
            return None
        found[name] = _TYPES[kind]
    return found


def arrow_rows(columns: dict[str, pa.DataType], rows: list[dict[str, Any]]) -> pa.Table:
    """Make an Arrow table of rows in the words of a case."""

    def value(item: Any, kind: pa.DataType) -> Any:
        if item is None or not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return item
        return dt.date.fromisoformat(item) if pa.types.is_date(kind) else dt.datetime.fromisoformat(item)

    return pa.table(
        {name: pa.array([value(row[name], kind) for row in rows], kind) for name, kind in columns.items()},
        schema=pa.schema(list(columns.items())),
    )


def partitions(case: Case) -> list[str]:
    """The columns by which a case's table is partitioned."""
    _, _, rest = case.clauses.partition("PARTITIONED BY (")
    return [name.strip() for name in rest.rstrip(")").split(",")] if rest else []


def write_by_delta_rs(folder: Path) -> dict[str, str]:
    """Make the tables that delta-rs has calls for; what says why one could not be made, otherwise nothing."""
    told = {}
    for number, case in enumerate(CASES):
        place = folder / str(number)
        try:
            told[case.name] = "" if _written(case, str(place)) else "no call for it was tried"
        except Exception as error:
            told[case.name] = said(error, str(place)) or type(error).__name__
        if told[case.name]:
            shutil.rmtree(place, ignore_errors=True)
    return told


def _written(case: Case, place: str) -> bool:
    if case.name in _MADE:
        _MADE[case.name](place)
        return True
    columns = plain_columns(case)
    if columns is None or case.clauses.startswith("CLUSTER") or case.name in _NOT_TRIED:
        return False
    changes = any(text.startswith("UPDATE") for text in case.changes)
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": None}] if changes else case.rows
    if set(rows[0]) != set(columns):
        return False
    DeltaTable.create(
        place,
        schema=pa.schema(list(columns.items())),
        partition_by=partitions(case) or None,
        configuration={name: value for name, value in case.properties.items() if not name.startswith("delta.feature.")},
    )
    table = DeltaTable(place)
    for name in case.properties:
        if name.startswith("delta.feature."):
            wanted = name.removeprefix("delta.feature.").lower()
            features = [getattr(TableFeatures, item) for item in dir(TableFeatures) if item.lower() == wanted]
            if not features:
                return False
            table.alter.add_feature(features[0], allow_protocol_versions_increase=True)
    if case.name == "checkConstraints":
        table.alter.add_constraint({"positive": "id > 0"})
    for half in (rows[:2], rows[2:]):
        if half:
            write_deltalake(place, arrow_rows(columns, half), mode="append")
    if changes:
        table = DeltaTable(place)
        table.update({"name": "'c'"}, predicate="id = 1")
        table.delete("id = 2")
    if "delta.checkpointInterval" in case.properties:
        DeltaTable(place).create_checkpoint()
    return True


def _delta_rs(place: str) -> pa.Table:
    table = DeltaTable(place)
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t"))


def _duckdb(place: str) -> pa.Table:
    import duckdb
    from duckdb_extensions import import_extension

    connection = duckdb.connect()
    import_extension("delta", con=connection)
    connection.sql("SET TimeZone = 'UTC'")
    return connection.sql(f"SELECT * FROM delta_scan('{place}')").to_arrow_table()


READERS: dict[str, Callable[[str], pa.Table]] = {"delta-rs": _delta_rs, "duckdb": _duckdb} | BY_ENTRY


def read(reader: str, folder: Path) -> dict[str, dict[str, str]]:
    """Read each table of each writer by one of ``READERS``."""
    told: dict[str, dict[str, str]] = {}
    for writer in sorted(item for item in folder.iterdir() if item.is_dir()):
        for number, case in enumerate(CASES):
            place = writer / str(number)
            if not place.is_dir():
                continue
            without = None if case.read == "*" else case.read.rpartition(" ")[2]
            try:
                answer = outcome(values(READERS[reader](str(place))), case.rows, without=without)
            except NoEntryError as error:
                answer = f"no entry: {said(error, str(place))}"
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                answer = f"refused: {said(error, str(place))}"
            told.setdefault(writer.name, {})[case.name] = answer
    return told
