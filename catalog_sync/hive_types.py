"""Spell the types of the Delta schema as Hive does, and refuse by column what Hive has no type for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydelta.errors import SchemaError
from pydelta.manifests.hive_types import HIVE_NAMES, hive_type_or_none
from pydelta.protocol.types import DataType, DecimalType, StructType

__all__ = ["hive_type", "hive_type_or_none", "unsupported_columns"]

_PARTITION_TYPES: Final = frozenset(HIVE_NAMES) - {"binary"}


def unsupported_columns(schema: StructType, partition_columns: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Return columns that a Hive table cannot have, each with the reason."""
    partitions = {name.lower() for name in partition_columns}
    for field in schema.fields:
        kind = field.data_type
        if field.name.lower() in partitions:
            if not isinstance(kind, DecimalType) and getattr(kind, "name", "") not in _PARTITION_TYPES:
                yield field.name, f"Hive cannot partition by {kind}"
        elif hive_type_or_none(kind) is None:
            yield field.name, f"Hive has no type for {kind}"


def hive_type(name: str, data_type: DataType) -> str:
    """Return Hive's spelling of a column's type.

    Raises:
        SchemaError: Hive has no such type; names the column.
    """
    found = hive_type_or_none(data_type)
    if found is None:
        raise SchemaError(f"The column {name!r} is {data_type}, for which Hive has no type.")
    return found
