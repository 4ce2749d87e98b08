"""Write the entry under which Spark and Trino's Delta connector find the table itself, not its manifests.

The entry has the provider ``delta``, the location as SerDe parameter ``path``, and the real columns for tools that read
only the metastore. Readers of Delta take the columns from the log, never from here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from catalog_sync.columns import change_columns
from catalog_sync.errors import NotOursError
from catalog_sync.names import TableName
from catalog_sync.thrift.client import Metastore
from pydelta.log import Snapshot
from pydelta.manifests.native_entry import PROVIDER_KEY, SCHEMA_KEY, NativeEntry
from pydelta.storage.kinds import spark_scheme

__all__ = [
    "PROVIDER_KEY",
    "databases_of",
    "native_entry",
    "native_is_behind",
    "native_location",
    "native_tables",
    "sync_native",
    "update_native",
]


def native_location(entry: Any) -> str | None:
    """Return the location of an entry's Delta table, or None if the entry is not a Delta table."""
    if str((entry.parameters or {}).get(PROVIDER_KEY, "")).lower() != "delta":
        return None
    path = (entry.sd.serdeInfo.parameters or {}).get("path") if entry.sd.serdeInfo else None
    found = path or entry.sd.location
    return str(found) if found else None


def databases_of(metastore: Metastore, names: Sequence[str]) -> list[str]:
    """Return the databases named by a list: each item is a name, several with commas, or ``*`` for all."""
    wanted = [part.strip() for name in names for part in name.split(",") if part.strip()]
    return sorted(metastore.databases()) if "*" in wanted else list(dict.fromkeys(wanted))


def native_tables(metastore: Metastore, database: str) -> Iterator[tuple[TableName, str]]:
    """Yield the Delta tables of a database with their locations, including tables registered by Spark or Trino."""
    for entry in metastore.tables(database):
        location = native_location(entry)
        if location is not None:
            yield TableName(database=database, name=entry.tableName), location


def sync_native(metastore: Metastore, name: TableName, snapshot: Snapshot, *, create: bool = True) -> bool:
    """Create the entry, or bring its columns to those of the snapshot.

    Args:
        metastore: Metastore of the entry.
        name: Name of the entry.
        snapshot: Snapshot of the table.
        create: Whether to create a missing entry. If not, it was dropped and stays so.

    Returns:
        Whether the entry was changed.

    Raises:
        NotOursError: The metastore has a different entry of that name.
        MetastoreError: The metastore refused.
    """
    return update_native(metastore, name, snapshot, metastore.table(name.database, name.name), create=create)


def update_native(metastore: Metastore, name: TableName, snapshot: Snapshot, before: Any, *, create: bool) -> bool:
    """Do what ``sync_native`` does, for a caller that has just read the entry (None if it is missing)."""
    wanted = native_entry(name, snapshot, before=before)
    if before is None and not create:
        return False
    if before is None:
        if not metastore.database_exists(name.database):
            metastore.create_database(name.database, f"{snapshot.table_uri.rpartition('/')[0]}/{name.database}")
        metastore.create(wanted)
        return True
    location = native_location(before)
    if location is None or _same_place(location) != _same_place(_plain(snapshot.table_uri)):
        what = f"a Delta table at {location}" if location else "not a Delta table"
        raise NotOursError(
            f"The metastore already has {name}, which is {what}.",
            hint="Choose another name for the table, or drop that entry if it is no longer needed.",
        )
    if (before.parameters or {}).get(SCHEMA_KEY) == wanted.parameters[SCHEMA_KEY]:
        return False
    change_columns(metastore, before, wanted)
    return True


def native_is_behind(entry: Any, snapshot: Snapshot) -> bool | None:
    """Return whether a table's own entry has other columns or properties than the snapshot.

    Args:
        entry: The entry; None if it is missing.
        snapshot: Snapshot of the table.

    Returns:
        None if it is not known: the entry is missing, or was not written by this engine.
    """
    written = (entry.parameters or {}).get(SCHEMA_KEY) if entry is not None else None
    if written is None or snapshot.metadata is None:
        return None
    return bool(
        written != NativeEntry.of(snapshot.table_uri, snapshot.metadata, snapshot.schema).parameters[SCHEMA_KEY]
    )


def _plain(uri: str) -> str:
    """Return a location as Spark and Trino read the parameter: our ``file:`` URIs are encoded, theirs are plain."""
    return f"file://{unquote(uri.removeprefix('file://'))}" if uri.startswith("file://") else uri


def _same_place(uri: str) -> str:
    scheme, separator, rest = uri.rstrip("/").partition(":")
    return f"{spark_scheme(scheme)}:{rest.lstrip('/')}" if separator else rest


def native_entry(name: TableName, snapshot: Snapshot, *, before: Any = None) -> Any:
    """Build the Thrift entry. Parameters of ``before`` that this package does not own are kept."""
    from pymetastore.hive_metastore import ttypes

    assert snapshot.metadata is not None
    entry = NativeEntry.of(snapshot.table_uri, snapshot.metadata, snapshot.schema)
    storage = ttypes.StorageDescriptor(
        cols=[ttypes.FieldSchema(name=item.name, type=item.type, comment=item.comment) for item in entry.columns],
        location=before.sd.location if before is not None else snapshot.table_uri,
        inputFormat="org.apache.hadoop.mapred.SequenceFileInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
        compressed=False,
        numBuckets=-1,
        serdeInfo=ttypes.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
            parameters={"path": _plain(snapshot.table_uri), "serialization.format": "1"},
        ),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
    old = dict(before.parameters or {}) if before is not None else {"EXTERNAL": "TRUE"}
    comment = {"comment": entry.comment} if entry.comment else {}
    return ttypes.Table(
        tableName=name.name,
        dbName=name.database,
        owner=before.owner if before is not None else "pydelta",
        createTime=before.createTime if before is not None else int(time.time()),
        lastAccessTime=0,
        retention=0,
        tableType=before.tableType if before is not None else "EXTERNAL_TABLE",
        parameters=entry.kept(old) | dict(entry.parameters) | comment,
        partitionKeys=[],
        sd=storage,
    )
