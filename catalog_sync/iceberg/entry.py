"""Describe the entry that shows a Delta table as an Iceberg table. Pure.

The entry is the one that Iceberg's own catalog for Hive writes: its parameter ``metadata_location`` names the current
metadata, and everything else is for tools that read only the metastore. It is ours if its parameters name the Delta
table's location and id. Another writer's commit leaves those parameters, but moves ``metadata_location`` away from the
one that we recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from catalog_sync.diff import FoundTable
from catalog_sync.errors import NotOursError
from catalog_sync.thrift.client import external_table, found_table, kept_parameters
from catalog_sync.twin import ID_KEY, LOCATION_KEY, VERSION_KEY, HiveColumn
from pydelta.errors import CatalogSyncError
from pydelta.log import Snapshot
from pydelta.manifests.iceberg.metadata import FOLDER
from pydelta.manifests.native_entry import METADATA_KEY, RECORDED_KEY

__all__ = [
    "FOLDER",
    "ICEBERG_PROPERTY",
    "METADATA_KEY",
    "PREVIOUS_KEY",
    "RECORDED_KEY",
    "FoundIceberg",
    "IcebergDriftError",
    "WantedIceberg",
    "asks_for_iceberg",
    "check_iceberg_ours",
    "found_iceberg",
    "iceberg_at",
    "iceberg_entry",
    "is_iceberg",
    "metadata_number",
    "same_columns",
]

ICEBERG_PROPERTY: Final = "pydelta.sync.iceberg"
"""Property of a table: ``true`` asks for the entry, ``false`` stops syncing it."""
TYPE_KEY: Final = "table_type"
PREVIOUS_KEY: Final = "previous_metadata_location"
_INPUT: Final = "org.apache.hadoop.mapred.FileInputFormat"
_OUTPUT: Final = "org.apache.hadoop.mapred.FileOutputFormat"
_SERDE: Final = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
_NUMBERED: Final = re.compile(r"/metadata/v(\d{1,18})\.metadata\.json$")


class IcebergDriftError(CatalogSyncError):
    """Another writer has committed to the Iceberg entry, and its commit is never overwritten without being asked."""

    code = "SYNC_ICEBERG_DRIFT"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundIceberg:
    """An Iceberg entry as the metastore has it.

    Args:
        table: Location of the Delta table, or None if the entry is not ours.
        table_id: Id of that table.
        version: Version that we synced last, or None without a valid one.
        metadata: Current ``metadata_location``.
        recorded: The one that we wrote last.
    """

    table: str | None
    table_id: str | None
    version: int | None
    metadata: str | None
    recorded: str | None

    @property
    def has_drifted(self) -> bool:
        """Whether another writer has moved the entry since we wrote it."""
        return self.metadata != self.recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedIceberg:
    """The entry to write.

    Args:
        table: Location of the Delta table.
        table_id: Id in its metadata.
        version: Delta version of the Iceberg metadata.
        metadata: URI of the Iceberg metadata.
        columns: Columns of the Iceberg schema, as Hive types.
        comment: The table's description.
    """

    table: str
    table_id: str
    version: int
    metadata: str
    columns: tuple[HiveColumn, ...] = ()
    comment: str | None = None


def asks_for_iceberg(snapshot: Snapshot) -> bool | None:
    """Return whether the table's property asks for the entry, or None if it is not set."""
    configuration: Mapping[str, str] = snapshot.metadata.configuration if snapshot.metadata is not None else {}
    text = configuration.get(ICEBERG_PROPERTY, "").strip().lower()
    return text == "true" if text else None


def is_iceberg(entry: Any) -> bool:
    """Return whether readers of Iceberg take an entry for one of theirs."""
    return str((entry.parameters or {}).get(TYPE_KEY, "")).upper() == "ICEBERG"


def found_iceberg(entry: Any) -> FoundIceberg:
    """Convert a Thrift entry to a value."""
    parameters = entry.parameters or {}
    version = parameters.get(VERSION_KEY)
    return FoundIceberg(
        table=parameters.get(LOCATION_KEY),
        table_id=parameters.get(ID_KEY),
        version=int(version) if version and version.isascii() and version.isdecimal() else None,
        metadata=parameters.get(METADATA_KEY),
        recorded=parameters.get(RECORDED_KEY),
    )


def iceberg_at(entry: Any) -> tuple[str, str] | None:
    """Return location and id of the table whose Iceberg entry this is, or None if it is not one of ours."""
    if not is_iceberg(entry):
        return None
    found, place = found_iceberg(entry), found_table(entry).location
    if found.table is None or place != f"{found.table}/{FOLDER}":
        return None
    return found.table, found.table_id or ""


def check_iceberg_ours(wanted: tuple[str, str], entry: Any, name: str, *, adopt: bool) -> None:
    """Refuse an entry that is not this table's, or that another writer has moved.

    Args:
        wanted: Location and id of the Delta table.
        entry: Thrift entry.
        name: Name of the entry.
        adopt: Accept the entry of an earlier table at this location, and one that another writer has moved.

    Raises:
        NotOursError: The entry belongs to another program or table.
        IcebergDriftError: Another writer has committed to it.
    """
    location, table_id = wanted
    owner = iceberg_at(entry)
    if owner is None:
        raise NotOursError(
            f"The metastore has a table {name} that catalog_sync did not make (at {found_table(entry).location}).",
            hint="Drop that table if it is no longer needed, or set spark.pydelta.sync.icebergName to another rule.",
        )
    if owner[0] != location:
        raise NotOursError(
            f"{name} is the Iceberg entry of the table at {owner[0]}, and not of {location}.",
            hint=f"If the table has moved: catalog_sync drop {name} (its data stays), and sync again.",
        )
    if owner[1] != table_id and not adopt:
        raise NotOursError(
            f"{name} is the Iceberg entry of an earlier table at {location} (id {owner[1]}, now {table_id}).",
            hint="If the table was replaced on purpose, sync with --adopt.",
        )
    found = found_iceberg(entry)
    if found.has_drifted and not adopt:
        raise IcebergDriftError(
            f"Another writer has committed to {name}: its metadata is {found.metadata}, but catalog_sync wrote "
            f"{found.recorded}. Nothing was changed.",
            hint="Copy what it wrote into the Delta table if you need it. Then sync with --adopt, which goes back to "
            "the Delta table's rows.",
            table=location,
        )


def metadata_number(metadata: str | None, table: str) -> int | None:
    """Return the number in our metadata's name, or None if it does not lie in the table's folder.

    Example:
        >>> metadata_number("s3://b/t/_pydelta/iceberg/metadata/v7.metadata.json", "s3a://b/t")
        7
    """
    found = _NUMBERED.search(metadata or "")
    if metadata is None or found is None:
        return None
    folder = unquote(metadata[: found.start()].partition("://")[2])  # Our URIs are encoded, Iceberg's are plain.
    return int(found[1]) if folder == f"{unquote(table.partition('://')[2])}/{FOLDER}" else None


def iceberg_entry(wanted: WantedIceberg, database: str, name: str, *, before: Any = None) -> Any:
    """Build the Thrift entry. Parameters of ``before`` that this package does not own are kept."""
    from pymetastore.hive_metastore import ttypes

    old: Mapping[str, str] = (before.parameters or {}) if before is not None else {}
    said = {
        TYPE_KEY: "ICEBERG",
        METADATA_KEY: wanted.metadata,
        RECORDED_KEY: wanted.metadata,
        LOCATION_KEY: wanted.table,
        ID_KEY: wanted.table_id,
        VERSION_KEY: str(wanted.version),
    }
    if METADATA_KEY in old:
        said[PREVIOUS_KEY] = old[METADATA_KEY]
    if wanted.comment:
        said["comment"] = wanted.comment
    return external_table(
        database,
        name,
        parameters=kept_parameters(before, PREVIOUS_KEY) | said,
        storage=ttypes.StorageDescriptor(
            cols=_schemas(wanted.columns, ttypes),
            # Hive's scheme, unlike metadata_location: the metastore opens this folder itself.
            location=f"{wanted.table}/{FOLDER}",
            inputFormat=_INPUT,
            outputFormat=_OUTPUT,
            compressed=False,
            numBuckets=-1,
            serdeInfo=ttypes.SerDeInfo(serializationLib=_SERDE, parameters={}),
            bucketCols=[],
            sortCols=[],
            parameters={},
        ),
        before=before,
    )


def same_columns(entry: Any, columns: Iterable[HiveColumn]) -> bool:
    """Return whether an entry has these columns, comments aside."""
    found: FoundTable = found_table(entry)
    return [(item.name, item.type) for item in found.columns] == [(item.name, item.type) for item in columns]


def _schemas(columns: Iterable[HiveColumn], types: Any) -> list[Any]:
    return [types.FieldSchema(name=item.name, type=item.type, comment=item.comment) for item in columns]
