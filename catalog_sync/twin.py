"""Describe the external table that the metastore should have for a snapshot. Pure.

The twin is an external table over the manifests, which give Trino and Presto its files. It is ours if its parameters
name the table's location and id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from catalog_sync.names import TableName
from pydelta.errors import SchemaError
from pydelta.log import Snapshot
from pydelta.manifests import MANIFEST_DIR, check_publishable, values_of_directory
from pydelta.manifests.native_entry import HIVE_NAMES, ID_KEY, LOCATION_KEY, SCHEMA_KEY, hive_type_or_none
from pydelta.protocol.names import quoted
from pydelta.protocol.partitions import HIVE_NULL
from pydelta.protocol.types import DataType, DecimalType, StructType

__all__ = [
    "GENERATOR",
    "GENERATOR_KEY",
    "ID_KEY",
    "LOCATION_KEY",
    "NOT_READABLE_KEY",
    "SCHEMA_KEY",
    "VERSION_KEY",
    "WITHDRAWN_KEY",
    "HiveColumn",
    "Twin",
    "create_statement",
    "twin_of",
]

VERSION_KEY: Final = "pydelta.sync.version"
GENERATOR_KEY: Final = "pydelta.sync.generator"
WITHDRAWN_KEY: Final = "pydelta.sync.withdrawn"
"""The reason why the table cannot be published, set as long as its readers get that as an error."""
NOT_READABLE_KEY: Final = "object_not_readable"
"""Trino and Presto refuse to read a table with this parameter, and show its text."""
GENERATOR: Final = "2"
"""Format of the entries, raised when it changes. Entries of an older format are rewritten in full."""
_PARTITION_TYPES: Final = frozenset(HIVE_NAMES) - {"binary"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveColumn:
    """A column of a Hive table. Its name is in lower case, as in Hive."""

    name: str
    type: str
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """The external table that the metastore should have.

    Args:
        location: Location of the manifests.
        columns: Columns without the partition columns.
        partition_columns: Partition columns in order.
        comment: The table's description.
        table_location: Root of the Delta table.
        table_id: Id in its metadata.
        version: Version of the snapshot.
    """

    location: str
    columns: tuple[HiveColumn, ...]
    partition_columns: tuple[HiveColumn, ...]
    comment: str | None
    table_location: str
    table_id: str
    version: int

    @property
    def schema_hash(self) -> str:
        """A digest of the columns, types and comments, and of the table's comment."""
        text = repr((self.columns, self.partition_columns, self.comment))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def identity(self) -> Mapping[str, str]:
        """Return the parameters that identify the twin's table."""
        return {LOCATION_KEY: self.table_location, ID_KEY: self.table_id}

    def partition_location(self, directory: str) -> str:
        """Return the location of a partition's manifest."""
        return f"{self.location}/{directory}"


def twin_of(snapshot: Snapshot) -> Twin:
    """Return the twin of a table.

    Raises:
        SchemaError: A Hive table cannot have some columns; the error names them all.
        UnsupportedFeatureError: Column mapping gave a column another name in the files.
    """
    check_publishable(snapshot)
    refused = list(_unsupported_columns(snapshot.schema, snapshot.partition_columns))
    if refused:
        listed = "; ".join(f"{name!r}: {why}" for name, why in refused)
        raise SchemaError(
            f"A table in the metastore cannot have these columns: {listed}.",
            hint="Read the table through Trino's Delta connector, or keep such columns in another table.",
            table=snapshot.table_uri,
            version=snapshot.version,
        )
    assert snapshot.metadata is not None
    by_name = {item.name.lower(): item for item in snapshot.schema.fields}
    partitions = [name.lower() for name in snapshot.partition_columns]

    def column(name: str) -> HiveColumn:
        item = by_name[name]
        comment = item.metadata.get("comment")
        return HiveColumn(
            name=name, type=_hive_type(item.name, item.data_type), comment=str(comment) if comment else None
        )

    return Twin(
        location=f"{snapshot.table_uri}/{MANIFEST_DIR}",
        columns=tuple(column(name) for name in by_name if name not in partitions),
        partition_columns=tuple(column(name) for name in partitions),
        comment=snapshot.metadata.description,
        table_location=snapshot.table_uri,
        table_id=snapshot.metadata.id,
        version=snapshot.version,
    )


def _unsupported_columns(schema: StructType, partition_columns: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield columns that a Hive table cannot have, each with the reason."""
    partitions = {name.lower() for name in partition_columns}
    for field in schema.fields:
        kind = field.data_type
        if field.name.lower() in partitions:
            if not isinstance(kind, DecimalType) and getattr(kind, "name", "") not in _PARTITION_TYPES:
                yield field.name, f"Hive cannot partition by {kind}"
        elif hive_type_or_none(kind) is None:
            yield field.name, f"Hive has no type for {kind}"


def _hive_type(name: str, data_type: DataType) -> str:
    found = hive_type_or_none(data_type)
    if found is None:
        raise SchemaError(f"The column {name!r} is {data_type}, for which Hive has no type.")
    return found


def create_statement(twin: Twin, name: TableName, partitions: Iterable[str] = ()) -> str:
    """Return HiveQL that creates the external table and adds its partitions.

    Args:
        twin: Table to create.
        name: Name of the table.
        partitions: Directories of the existing partitions.
    """
    lines = [f"CREATE EXTERNAL TABLE {quoted(name.database)}.{quoted(name.name)} (", _columns(twin.columns), ")"]
    if twin.comment:
        lines.append(f"COMMENT {_text(twin.comment)}")
    if twin.partition_columns:
        lines += ["PARTITIONED BY (", _columns(twin.partition_columns), ")"]
    lines += [
        "ROW FORMAT SERDE 'org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe'",
        "STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat'",
        "OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat'",
        f"LOCATION {_text(twin.location)};",
    ]
    target = f"{quoted(name.database)}.{quoted(name.name)}"
    for directory in partitions:
        lines.append(
            f"ALTER TABLE {target} ADD IF NOT EXISTS PARTITION ({_spec(directory)}) "
            f"LOCATION {_text(twin.partition_location(directory))};"
        )
    return "\n".join(lines)


def _spec(directory: str) -> str:
    values = values_of_directory(directory).items()
    return ", ".join(f"{quoted(key.lower())} = {_text(HIVE_NULL if value is None else value)}" for key, value in values)


def _columns(columns: Iterable[HiveColumn]) -> str:
    return ",\n".join(
        f"  {quoted(item.name)} {item.type}" + (f" COMMENT {_text(item.comment)}" if item.comment else "")
        for item in columns
    )


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
