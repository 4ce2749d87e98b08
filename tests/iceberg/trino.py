"""Read an Iceberg entry with Trino or Presto: rows as other readers give them, and the ids that a condition keeps."""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from jobs.verify.trino import Trino
from tests.iceberg.readers import Rows, of_arrow

__all__ = ["Engine", "to_milliseconds"]


class Engine:
    """Trino or Presto, which read the entries of a metastore.

    Args:
        name: Which of them.
        address: ``host:port``.
        catalog: Its catalog of Iceberg.
    """

    def __init__(self, name: Literal["Trino", "Presto"], address: str, catalog: str = "iceberg") -> None:
        self.name = name
        self._client = Trino(address, "tests", name)
        self._catalog = catalog

    @property
    def is_presto(self) -> bool:
        """Whether it knows times to the millisecond alone."""
        return self.name == "Presto"

    def run(self, statement: str) -> list[list[Any]]:
        """Run a statement; values as in JSON."""
        return self._client.rows(statement)

    def arrow(self, entry: object, schema: pa.Schema) -> pa.Table:
        """The columns of a schema, as an Arrow table with its types."""
        shown = ", ".join(_shown(field) for field in schema)
        found = [
            {field.name: _decoded(value, field.type) for field, value in zip(schema, row, strict=True)}
            for row in self.run(f"SELECT {shown} FROM {self._catalog}.{entry}")
        ]
        return pa.Table.from_pylist(found, schema=schema)

    def rows(self, entry: object, schema: pa.Schema) -> Rows:
        """All rows."""
        return of_arrow(self.arrow(entry, schema))

    def ids(self, entry: object, conditions: Sequence[str]) -> list[list[int]]:
        """The sorted ids of the rows for which each condition holds, in one statement; files are skipped for each."""
        parts = [
            f"SELECT {at} AS asked, id FROM {self._catalog}.{entry} WHERE {condition}"
            for at, condition in enumerate(conditions)
        ]
        found: list[list[int]] = [[] for _ in conditions]
        for asked, value in self.run(" UNION ALL ".join(parts)) if parts else ():
            found[asked].append(value)
        return [sorted(ids) for ids in found]

    def conditions(self, field: pa.Field, value: Any) -> Mapping[str, str]:
        """Conditions over a column, by operator: whether it is null and, with a value, comparisons with that."""
        quoted = _quoted(field.name)
        found = {"IS NULL": f"{quoted} IS NULL", "IS NOT NULL": f"{quoted} IS NOT NULL"}
        if value is not None:
            literal = self._literal(value, field.type)
            found |= {sign: f"{quoted} {sign} {literal}" for sign in ("=", "<>", "<=", ">")}
        return found

    def _literal(self, value: Any, kind: pa.DataType) -> str:
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, float):
            return _float_literal(value, "DOUBLE" if kind.bit_width == 64 else "REAL")
        if isinstance(value, bytes):
            return f"X'{value.hex()}'"
        if isinstance(value, dt.datetime):
            zone = " UTC" if value.tzinfo else ""
            return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S}.{self._fraction(value)}{zone}'"
        if isinstance(value, dt.date):
            return f"DATE '{value.isoformat()}'"
        if isinstance(value, Decimal):
            return f"DECIMAL '{value}'"
        if isinstance(value, int):
            return f"{'BIGINT' if kind.bit_width == 64 else 'INTEGER'} '{value}'"
        return "'" + value.replace("'", "''") + "'"

    def _fraction(self, value: dt.datetime) -> str:
        return f"{value.microsecond // 1000:03}" if self.is_presto else f"{value.microsecond:06}"


def to_milliseconds(table: pa.Table) -> pa.Table:
    """A table whose times are cut to the millisecond, towards 1970, as Presto shows them."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            found = table.column(at).cast(pa.timestamp("us")).cast(pa.int64())
            cut = pc.multiply(pc.divide(found, 1000), 1000).cast(pa.timestamp("us")).cast(field.type)
            table = table.set_column(at, field, cut)
    return table


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _shown(field: pa.Field) -> str:
    """A column as it is selected: times as text, which a client would get to the millisecond."""
    quoted = _quoted(field.name)
    return f"CAST({quoted} AS varchar)" if pa.types.is_timestamp(field.type) else quoted


def _decoded(value: Any, kind: pa.DataType) -> Any:
    """A value of JSON, as Arrow takes it; Presto gives nested ones as text of JSON."""
    if value is None:
        return None
    if pa.types.is_nested(kind) and isinstance(value, str):
        value = json.loads(value)
    if pa.types.is_struct(kind):
        parts = value.values() if isinstance(value, dict) else value
        return {part.name: _decoded(item, part.type) for part, item in zip(kind, parts, strict=True)}
    if pa.types.is_list(kind):
        return [_decoded(item, kind.value_type) for item in value]
    if pa.types.is_float32(kind):
        return struct.unpack("f", struct.pack("f", float(value)))[0]
    if pa.types.is_float64(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_timestamp(kind):
        found = dt.datetime.fromisoformat(value.removesuffix(" UTC"))
        return found.replace(tzinfo=dt.UTC) if kind.tz else found
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(value)
    return base64.b64decode(value) if pa.types.is_binary(kind) else value


def _float_literal(value: float, kind: str) -> str:
    if value in (float("inf"), float("-inf")):
        sign = "-" if value < 0 else ""
        return f"CAST({sign}infinity() AS {kind})"
    return f"{kind} '{value!r}'"
