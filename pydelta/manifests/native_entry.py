"""Describe a table's native entry in the metastore. Pure; catalog_sync and Spark write the same entry.

Spark and Trino recognize the table by the provider ``delta`` and the location in the SerDe parameter ``path``. The
columns are for tools that read only the metastore: readers of Delta take them from the log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydelta.protocol.actions import Metadata
from pydelta.protocol.schema import EXISTENCE_DEFAULT
from pydelta.protocol.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    plain_type,
)

__all__ = [
    "HIVE_NAMES",
    "ID_KEY",
    "LOCATION_KEY",
    "METADATA_KEY",
    "PROPERTIES_KEY",
    "PROVIDER_KEY",
    "RECORDED_KEY",
    "SCHEMA_KEY",
    "TABLE_PROPERTY",
    "EntryColumn",
    "NativeEntry",
    "columns_to_keep_first",
    "hive_type_or_none",
    "twin_database",
]

PROVIDER_KEY: Final = "spark.sql.sources.provider"
LOCATION_KEY: Final = "pydelta.table.location"
ID_KEY: Final = "pydelta.table.id"
SCHEMA_KEY: Final = "pydelta.sync.schemaHash"
METADATA_KEY: Final = "metadata_location"
"""Parameter of an Iceberg entry: the URI of the table's current Iceberg metadata."""
RECORDED_KEY: Final = "pydelta.sync.icebergMetadata"
"""The ``metadata_location`` that catalog_sync wrote last. If they differ, another writer has committed."""
TABLE_PROPERTY: Final = "pydelta.sync.table"
"""Property of a table: its name in the metastore, ``database.table``."""
PROPERTIES_KEY: Final = "pydelta.entry.properties"
"""JSON list of the entry's parameters that are properties of the table."""

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
_SCHEMA_PREFIX: Final = "spark.sql.sources.schema"
_PART: Final = 4000
"""Maximum length of one parameter in the metastore's databases."""
_NOT_SHOWN: Final = ("delta.", "CURRENT_DEFAULT", EXISTENCE_DEFAULT, "identity")
"""Prefixes of a column's metadata that only readers of the log use."""
_TAKEN: Final = ("spark.sql.", "pydelta.", "hive.", "trino_", "presto_", "external", "comment", "path", "provider",
                 "transient_lastddltime", "numfiles", "totalsize", "numrows", "rawdatasize", "owner")  # fmt: skip
"""Prefixes, in lower case, of parameters that belong to the metastore or to Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryColumn:
    """A column as Hive has it: the name in lower case, the type in Hive's spelling (``string`` if Hive has none)."""

    name: str
    type: str
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeEntry:
    """Content of the entry.

    Args:
        location: Root URI of the table.
        fields: Columns as Spark has them, with the partition columns last and in their order.
        partition_columns: Names of the partition columns, as the schema spells them.
        columns: The same columns as Hive has them.
        comment: The table's description.
        properties: Properties of the table that the entry repeats.
        parameters: All parameters of the entry except the comment.
    """

    location: str
    fields: StructType
    partition_columns: tuple[str, ...]
    columns: tuple[EntryColumn, ...]
    comment: str | None
    properties: Mapping[str, str]
    parameters: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, location: str, metadata: Metadata, schema: StructType) -> NativeEntry:
        """Describe the entry for a table's newest version."""
        names = {name.lower(): position for position, name in enumerate(metadata.partition_columns)}
        ordered = sorted(schema.fields, key=lambda item: names.get(item.name.lower(), -1))
        fields = StructType(tuple(_shown(item) for item in ordered))
        spelled = {item.name.lower(): item.name for item in ordered}
        partitions = tuple(spelled.get(name.lower(), name) for name in metadata.partition_columns)
        properties = {
            key: value
            for key, value in sorted(metadata.configuration.items())
            if not key.lower().startswith(_TAKEN) and len(value) <= _PART
        }
        found: dict[str, str] = dict(properties)
        if properties:
            found[PROPERTIES_KEY] = json.dumps(list(properties))
        found |= _schema_parameters(fields, partitions)
        described = [found, metadata.description, location]
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]
        found |= {PROVIDER_KEY: "delta", LOCATION_KEY: location, ID_KEY: metadata.id, SCHEMA_KEY: digest}
        return cls(
            location=location,
            fields=fields,
            partition_columns=partitions,
            columns=tuple(
                EntryColumn(
                    name=item.name.lower(),
                    type=hive_type_or_none(item.data_type) or "string",
                    comment=str(item.metadata["comment"]) if item.metadata.get("comment") else None,
                )
                for item in fields.fields
            ),
            comment=metadata.description or None,
            properties=properties,
            parameters=found,
        )

    def kept(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """Return the parameters of an existing entry that are not ours, and that stay when this one replaces it."""
        try:
            ours = set(json.loads(parameters.get(PROPERTIES_KEY, "[]")))
        except (ValueError, TypeError):
            ours = set()
        dropped = (_SCHEMA_PREFIX, "pydelta.")
        return {
            key: value
            for key, value in parameters.items()
            if key not in ours and not key.startswith(dropped) and key not in ("comment", PROVIDER_KEY)
        }


def _schema_parameters(fields: StructType, partitions: tuple[str, ...]) -> dict[str, str]:
    """Return the schema in Spark's form, so that its catalog shows the real types."""
    text = fields.to_json()
    parts = [text[start : start + _PART] for start in range(0, len(text), _PART)]
    found = {f"{_SCHEMA_PREFIX}.part.{number}": part for number, part in enumerate(parts)}
    found[f"{_SCHEMA_PREFIX}.numParts"] = str(len(parts))
    if partitions:
        found[f"{_SCHEMA_PREFIX}.numPartCols"] = str(len(partitions))
        found |= {f"{_SCHEMA_PREFIX}.partCol.{number}": name for number, name in enumerate(partitions)}
    return found


def _shown(item: StructField) -> StructField:
    return item.replace(data_type=_shown_type(item.data_type), metadata=_shown_metadata(item.metadata))


def _shown_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if not key.startswith(_NOT_SHOWN)}


def _shown_type(data_type: DataType) -> DataType:
    data_type = plain_type(data_type)
    if isinstance(data_type, StructType):
        return StructType(tuple(_shown(item) for item in data_type.fields))
    if isinstance(data_type, ArrayType):
        return ArrayType(_shown_type(data_type.element_type), data_type.contains_null)
    if isinstance(data_type, MapType):
        key, value = _shown_type(data_type.key_type), _shown_type(data_type.value_type)
        return MapType(key, value, data_type.value_contains_null)
    return data_type


def columns_to_keep_first(before: Sequence[str], after: Sequence[str]) -> int | None:
    """Return how many columns to keep in a step before the columns change, or None if one step is enough.

    A metastore compares the types of old and new columns by position, and refuses a change to an incompatible type. So
    columns that move (as when a new one is put before the partition columns) have to be dropped first.

    Args:
        before: Types of the entry's columns.
        after: Types of the new columns.

    Example:
        >>> columns_to_keep_first(["int", "string"], ["int", "date", "string"])
        1
        >>> columns_to_keep_first(["int"], ["int", "date"]) is None
        True
    """
    for position, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return position
    return None


def twin_database(rule: str, database: str) -> str:
    """Name the database of the twins of a database's tables, by the rule of ``spark.pydelta.sync.name``.

    Example:
        >>> twin_database("{database}_symlink", "lake")
        'lake_symlink'
    """
    return rule.replace("{database}", database).strip().lower()


def hive_type_or_none(data_type: DataType) -> str | None:
    """Spell a type as Hive does, ``array<struct<a:int>>``, or return None if Hive has no such type."""
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
