"""Read the columns of an Iceberg table's metadata as Hive types. Pure; no library of Iceberg is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from catalog_sync.twin import HiveColumn

__all__ = ["hive_columns"]

_HIVE: Final = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "time": "string",
    "timestamp": "timestamp",
    "timestamptz": "timestamp",
    "string": "string",
    "uuid": "string",
    "binary": "binary",
}
"""Iceberg's type -> Hive's. Hive 2.3 has no timestamp with a zone, so both kinds have one type."""


def hive_columns(metadata: Mapping[str, Any]) -> tuple[HiveColumn, ...]:
    """Return the columns of the current schema of an Iceberg table.

    Args:
        metadata: Decoded ``metadata.json``.

    Example:
        >>> fields = [{"id": 1, "name": "Id", "required": False, "type": "long"}]
        >>> hive_columns({"current-schema-id": 0, "schemas": [{"schema-id": 0, "fields": fields}]})
        (HiveColumn(name='id', type='bigint', comment=None),)
    """
    current = metadata["current-schema-id"]
    schema = next(item for item in metadata["schemas"] if item["schema-id"] == current)
    return tuple(
        HiveColumn(name=field["name"].lower(), type=_hive_type(field["type"]), comment=field.get("doc") or None)
        for field in schema["fields"]
    )


def _hive_type(kind: Any) -> str:
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            return kind.replace(" ", "")
        return "binary" if kind.startswith("fixed[") else _HIVE.get(kind, "string")
    if kind["type"] == "list":
        return f"array<{_hive_type(kind['element'])}>"
    if kind["type"] == "map":
        return f"map<{_hive_type(kind['key'])},{_hive_type(kind['value'])}>"
    if any(set(field["name"]) & set(":<>,`") for field in kind["fields"]):
        return "string"  # Hive cannot name such fields; readers of Iceberg take the columns from the metadata.
    return f"struct<{','.join(field['name'] + ':' + _hive_type(field['type']) for field in kind['fields'])}>"
