"""Store the schemas with which a stream has read its table, as files that either engine can continue from.

::

    <schemaTrackingLocation>/_schema_log_<table id>[_<streamingSourceTrackingId>]/0, 1, 2 …

Each file is the line ``v1`` and one line of JSON. Each number is written only once, by the first writer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pydelta.commands.stream.errors import SchemaLocationConflictError, SchemaLogDamagedError, SchemaLogOfTableError
from pydelta.errors import DeltaError, StorageError
from pydelta.errors.conditions import Condition
from pydelta.protocol.actions import Metadata, Protocol, action_to_dict, decode_action, encode_json
from pydelta.protocol.types import StructType, parse_schema
from pydelta.storage import PutOutcome, Store

__all__ = ["SchemaLog", "TrackedSchema", "folder_name"]

_VERSION: Final = "v1"


def folder_name(table_id: str, tracking_id: str | None) -> str:
    """Name the folder of a source's schema log below its ``schemaTrackingLocation``."""
    return f"_schema_log_{table_id}" + (f"_{tracking_id}" if tracking_id else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedSchema:
    """A table definition that a stream reads with from a version on.

    Args:
        table_id: The table's id.
        version: The version of the table that it was taken from.
        schema_json: All columns.
        partition_json: The partition columns, as a struct.
        source_path: The source's folder in the checkpoint.
        configuration: Table properties; None if an old engine did not record them.
        protocol_json: The protocol action as JSON; None likewise.
        previous: Number of the entry that it follows; None for the one before it.
    """

    table_id: str
    version: int
    schema_json: str
    partition_json: str
    source_path: str
    configuration: Mapping[str, str] | None = None
    protocol_json: str | None = None
    previous: int | None = None

    @classmethod
    def of(cls, version: int, metadata: Metadata, protocol: Protocol, *, source_path: str) -> TrackedSchema:
        """Build the entry for a table's definition."""
        schema = parse_schema(metadata.schema_string)
        fields = [schema.field(name) for name in metadata.partition_columns]
        return cls(
            table_id=metadata.id,
            version=version,
            schema_json=metadata.schema_string,
            partition_json=StructType(tuple(field for field in fields if field is not None)).to_json(),
            source_path=source_path,
            configuration=dict(metadata.configuration),
            protocol_json=encode_json(action_to_dict(protocol)),
        )

    @classmethod
    def parse(cls, data: bytes, *, location: str) -> TrackedSchema:
        """Parse a file of the log.

        Raises:
            SchemaLogDamagedError: It is malformed, or has a later format.
        """
        version, _, text = data.decode(errors="replace").partition("\n")
        try:
            if version.strip() != _VERSION:
                raise ValueError(f"its first line is {version[:20]!r}, not {_VERSION!r}")
            found: dict[str, Any] = json.loads(text.partition("\n")[0])
            tracked = cls(
                table_id=str(found["tableId"]),
                version=int(found["deltaCommitVersion"]),
                schema_json=str(found["dataSchemaJson"]),
                partition_json=str(found["partitionSchemaJson"]),
                source_path=str(found["sourceMetadataPath"]),
                configuration=found.get("tableConfigurations"),
                protocol_json=found.get("protocolJson"),
                previous=found.get("previousMetadataSeqNum"),
            )
            tracked.metadata(Metadata(id=tracked.table_id))
            tracked.protocol(None)
        except (ValueError, KeyError, TypeError, AttributeError, msgspec.MsgspecError, DeltaError) as error:
            raise SchemaLogDamagedError(
                f"The file {location} of a stream's schema log cannot be read: {error}.",
                hint="Start the query with another schemaTrackingLocation and checkpointLocation.",
                location=location,
            ) from error
        return tracked

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        fields: dict[str, Any] = {
            "tableId": self.table_id,
            "deltaCommitVersion": self.version,
            "dataSchemaJson": self.schema_json,
            "partitionSchemaJson": self.partition_json,
            "sourceMetadataPath": self.source_path,
            "tableConfigurations": self.configuration,
            "protocolJson": self.protocol_json,
            "previousMetadataSeqNum": self.previous,
        }
        kept = {name: value for name, value in fields.items() if value is not None}
        return f"{_VERSION}\n{encode_json(kept)}".encode()

    def metadata(self, base: Metadata) -> Metadata:
        """Return a table's metadata with this entry's definition."""
        return base.replace(
            schema_string=self.schema_json,
            partition_columns=parse_schema(self.partition_json).names,
            configuration=dict(base.configuration if self.configuration is None else self.configuration),
        )

    def protocol(self, base: Protocol | None) -> Protocol | None:
        """Return this entry's protocol, or the given one if none was recorded."""
        if self.protocol_json is None:
            return base
        found = decode_action(json.loads(self.protocol_json))
        if not isinstance(found, Protocol):
            raise ValueError("its protocolJson is not a protocol")
        return found


class SchemaLog:
    """The schema log of one source.

    Args:
        store: Rooted at the log's folder.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def newest(self) -> tuple[int, TrackedSchema] | None:
        """Read the newest entry and its number; None if there is none.

        Raises:
            SchemaLogDamagedError: It cannot be read.
        """
        numbers = [int(item.path) for item in self.store.list_all() if item.path.isdigit()]
        if not numbers:
            return None
        found = self.at(max(numbers))
        assert found is not None, "it was listed"
        return max(numbers), found

    def at(self, number: int) -> TrackedSchema | None:
        """Read an entry; None if the number does not exist."""
        if number < 0:
            return None
        path = str(number)
        if self.store.head(path) is None:
            return None
        return TrackedSchema.parse(self.store.read(path), location=f"{self.store.root}/{path}")

    def add(self, number: int, entry: TrackedSchema, *, table: str) -> None:
        """Write an entry under the next number.

        Raises:
            SchemaLocationConflictError: Another query wrote this number.
            StorageError: It is unknown whether it was written.
        """
        path = str(number)
        outcome = self.store.put_if_absent(path, entry.to_bytes())
        if outcome is PutOutcome.UNKNOWN:
            written = self.at(number)
            if written is None:
                raise StorageError(
                    f"It is not known whether {self.store.root}/{path} was written.", hint="Start the query again."
                )
            outcome = PutOutcome.CREATED if written == entry else PutOutcome.ALREADY_EXISTS
        if outcome is PutOutcome.ALREADY_EXISTS:
            raise SchemaLocationConflictError.at(self.store.root, table)

    def check_table(self, entry: TrackedSchema, table_id: str) -> None:
        """Check that an entry belongs to a table.

        Raises:
            SchemaLogOfTableError: It belongs to another one.
        """
        if entry.table_id != table_id:
            raise SchemaLogOfTableError(
                f"The schema log at {self.store.root} belongs to a table with the id {entry.table_id}, but this one "
                f"has {table_id}.",
                hint="Start the query with another schemaTrackingLocation and checkpointLocation.",
                condition=Condition.of(
                    "DELTA_STREAMING_SCHEMA_LOG_INCOMPATIBLE_DELTA_TABLE_ID",
                    persistedId=entry.table_id,
                    tableId=table_id,
                ),
            )
