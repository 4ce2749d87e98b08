"""Spell the types of the Delta schema as Hive does; None for what Hive has no type for."""

from __future__ import annotations

from typing import Final

from pydelta.protocol.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType

__all__ = ["HIVE_NAMES", "hive_type_or_none"]

HIVE_NAMES: Final = {
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


def hive_type_or_none(data_type: DataType) -> str | None:
    """Spell a type as Hive does, ``array<struct<a:int>>``; None where Hive has no such type."""
    if isinstance(data_type, PrimitiveType):
        return HIVE_NAMES.get(data_type.name)
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
