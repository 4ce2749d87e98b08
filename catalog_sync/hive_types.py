"""Types of the Delta schema in, Hive's spelling of them out; what Hive has no type for is refused by column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydelta.errors import SchemaError
from pydelta.protocol.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructType

__all__ = ["hive_type", "hive_type_or_none", "unsupported_columns"]

_NAMES: Final = {
    "string": "string",
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp",
}
_PARTITION_TYPES: Final = frozenset(_NAMES) - {"binary"}


def hive_type_or_none(data_type: DataType) -> str | None:
    """Hive's spelling, ``array<struct<a:int>>``; None where Hive has no such type."""
    if isinstance(data_type, PrimitiveType):
        return _NAMES.get(data_type.name)
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.precision},{data_type.scale})"
    if isinstance(data_type, ArrayType):
        element = hive_type_or_none(data_type.element_type)
        return None if element is None else f"array<{element}>"
    if isinstance(data_type, MapType):
        key, value = hive_type_or_none(data_type.key_type), hive_type_or_none(data_type.value_type)
        return None if key is None or value is None else f"map<{key},{value}>"
    parts = [(field.name, hive_type_or_none(field.data_type)) for field in data_type.fields]
    if any(part is None or set(name) & set(":<>,`") for name, part in parts):
        return None
    return f"struct<{','.join(f'{name}:{part}' for name, part in parts)}>"


def unsupported_columns(schema: StructType, partition_columns: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Columns that a Hive table cannot have, each with the reason."""
    partitions = {name.lower() for name in partition_columns}
    for field in schema.fields:
        kind = field.data_type
        if field.name.lower() in partitions:
            if not isinstance(kind, DecimalType) and getattr(kind, "name", "") not in _PARTITION_TYPES:
                yield field.name, f"Hive cannot partition by {kind}"
        elif hive_type_or_none(kind) is None:
            yield field.name, f"Hive has no type for {kind}"


def hive_type(name: str, data_type: DataType) -> str:
    """Hive's spelling of a column's type.

    Raises:
        SchemaError: Hive has no such type; names the column.
    """
    found = hive_type_or_none(data_type)
    if found is None:
        raise SchemaError(f"The column {name!r} is {data_type}, which Hive has no type for.")
    return found
