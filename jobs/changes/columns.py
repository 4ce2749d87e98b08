"""Derive a table's columns and key from the schema that Kafka Connect puts into each record, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pydelta.errors import InvalidArgumentError

__all__ = ["Changed", "Columns", "changed_columns", "columns_of", "key_of"]

_HINT: Final = (
    "The connector needs key.converter.schemas.enable=true and value.converter.schemas.enable=true, as the stack's has."
)
_MOST_DIGITS: Final = 38
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_NAMED: Final[Mapping[str, DataType]] = {
    "io.debezium.time.IsoDate": DateType(),
    "io.debezium.time.IsoTimestamp": TimestampType(),
    "io.debezium.time.ZonedTimestamp": TimestampType(),
}
_PLAIN: Final[Mapping[str, DataType]] = {
    "boolean": BooleanType(),
    "int8": ShortType(),
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}

Columns = Mapping[str, DataType]
"""The type of each column, by its name, in the order of the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The difference between the columns that are known and those of records.

    Args:
        added: New columns.
        retyped: Known columns that have another type in some record.
    """

    added: Columns
    retyped: Columns


def columns_of(schema: str) -> Columns:
    """Return the columns of the table whose change a record describes.

    Args:
        schema: The schema within the record's value, as JSON; empty if there is none.

    Raises:
        InvalidArgumentError: It is not the schema of a change.
    """
    if not schema:
        raise InvalidArgumentError("A change has no schema.", hint=_HINT)
    return {field["field"]: _type_of(field) for field in _fields(_after(schema))}


def key_of(schema: str) -> list[str]:
    """Return the columns of a table's key.

    Args:
        schema: The schema within a record's key, as JSON; empty if there is none.

    Raises:
        InvalidArgumentError: The table has no key.
    """
    fields = _fields(_parsed(schema)) if schema else []
    if not fields:
        raise InvalidArgumentError(
            "The table has no primary key, so its changes do not say which row they are of.",
            hint="Add a primary key in the database, or leave the table out of CDC_TABLES.",
        )
    return [field["field"] for field in fields]


def changed_columns(known: Columns, schema: str) -> Changed:
    """Compare known columns with those of a record. Columns that the record lacks stay known.

    Args:
        known: The known columns.
        schema: The schema within the record's value, as JSON; empty if there is none.

    Raises:
        InvalidArgumentError: The record has no schema of a change.
    """
    found = columns_of(schema)
    return Changed(
        added={name: kind for name, kind in found.items() if name not in known},
        retyped={name: kind for name, kind in found.items() if known.get(name, kind) != kind},
    )


def struct_of(columns: Columns) -> StructType:
    """Return columns as a schema of Spark."""
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"A change is not an object of JSON: {text[:100]!r}.", hint=_HINT)
    return found


def _after(schema: str) -> dict[str, Any]:
    for field in _fields(_parsed(schema)):
        if field.get("field") == "after":
            return dict(field)
    raise InvalidArgumentError(f"A schema is not that of a change: {schema[:100]!r}.", hint=_HINT)


def _fields(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(schema.get("fields") or [])


def _type_of(field: Mapping[str, Any]) -> DataType:
    """Return the type of a field. What has none in a table is text: the JSON that the record has."""
    kind, name = str(field.get("type")), str(field.get("name") or "")
    if name == _DECIMAL:
        given = field.get("parameters") or {}
        digits, scale = int(given.get("connect.decimal.precision", _MOST_DIGITS)), int(given.get("scale", 0))
        return DecimalType(digits, scale) if 0 <= scale <= digits <= _MOST_DIGITS else StringType()
    if name in _NAMED:
        return _NAMED[name]
    if kind == "array":
        return ArrayType(_type_of(field["items"]))
    if kind == "map" and field["keys"].get("type") == "string":
        return MapType(StringType(), _type_of(field["values"]))
    return _PLAIN.get(kind, StringType())
