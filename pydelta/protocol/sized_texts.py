"""Replace declared ``char(n)`` and ``varchar(n)`` by strings and keep the declaration as metadata. Pure.

Files and the log only have ``string``. Writers enforce the declaration, as Spark does.
"""

from __future__ import annotations

import re
from typing import Final

from pydelta.protocol.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType

__all__ = ["LENGTH", "SIZED", "fitted_text", "has_limits", "sized_field", "sized_schema"]

LENGTH: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Field metadata: the declared type."""
SIZED: Final = re.compile(r"(char|varchar)\(\s*(\d+)\s*\)")
_SQL_NAMES: Final = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def sized_schema(schema: StructType) -> StructType:
    """Replace ``char`` and ``varchar`` by strings in a schema, at every depth."""
    return StructType(tuple(sized_field(field) for field in schema.fields))


def sized_field(field: StructField) -> StructField:
    """Replace ``char`` and ``varchar`` by strings in a field. The declaration moves to the column's metadata."""
    if not has_limits(field.data_type):
        return field
    return field.replace(
        data_type=_plain(field.data_type), metadata={**field.metadata, LENGTH: _declared(field.data_type)}
    )


def has_limits(data_type: DataType) -> bool:
    """Return whether the type contains ``char`` or ``varchar``."""
    if isinstance(data_type, StructType):
        return any(has_limits(field.data_type) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return has_limits(data_type.element_type)
    if isinstance(data_type, MapType):
        return has_limits(data_type.key_type) or has_limits(data_type.value_type)
    return isinstance(data_type, PrimitiveType) and SIZED.fullmatch(data_type.name) is not None


def fitted_text(text: str, field: StructField) -> str:
    """Return a text as a column stores it: padded for ``char(n)``, without the spaces that are too many.

    A text that is too long comes back unchanged, for the write to refuse it.

    Example:
        >>> fitted_text("ab", StructField("c", PrimitiveType("string"), metadata={LENGTH: "char(4)"}))
        'ab  '
    """
    declared = SIZED.fullmatch(str(field.metadata.get(LENGTH, "")))
    if declared is None:
        return text
    kind, limit = declared.group(1), int(declared.group(2))
    if len(text) > limit:
        return text[:limit] if not text[limit:].strip(" ") else text
    return text.ljust(limit) if kind == "char" else text


def _plain(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        return StructType(tuple(field.replace(data_type=_plain(field.data_type)) for field in data_type.fields))
    if isinstance(data_type, ArrayType):
        return ArrayType(_plain(data_type.element_type), data_type.contains_null)
    if isinstance(data_type, MapType):
        return MapType(_plain(data_type.key_type), _plain(data_type.value_type), data_type.value_contains_null)
    return PrimitiveType("string") if has_limits(data_type) else data_type


def _declared(data_type: DataType) -> str:
    """Return the type in Spark's SQL."""
    if isinstance(data_type, StructType):
        parts = (f"`{field.name.replace('`', '``')}`:{_declared(field.data_type)}" for field in data_type.fields)
        return f"struct<{','.join(parts)}>"
    if isinstance(data_type, ArrayType):
        return f"array<{_declared(data_type.element_type)}>"
    if isinstance(data_type, MapType):
        return f"map<{_declared(data_type.key_type)},{_declared(data_type.value_type)}>"
    if isinstance(data_type, DecimalType):
        return str(data_type)
    return _SQL_NAMES.get(data_type.name, data_type.name)
