"""Turn the names and locations that a user gives into tables with the names of their entries.

=========================  ==============================================================================
``s3a://…``, ``/a/path``   a location; its name is given, or is in the table property ``pydelta.sync.table``
``database.table``         an entry in the metastore, which has the location
a whole database           every Delta table that is registered in it
=========================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from catalog_sync.names import TableName, twin_name
from catalog_sync.native import databases_of, native_location, native_tables
from catalog_sync.thrift.client import Metastore
from pydelta.errors import InvalidArgumentError, TableNotFoundError
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests.native_entry import TABLE_PROPERTY
from pydelta.storage import kinds

__all__ = [
    "ENABLED_PROPERTY",
    "TABLE_PROPERTY",
    "SyncTarget",
    "TableChoice",
    "configured_name",
    "find_targets",
    "is_enabled",
    "is_left_out",
    "spark_scheme",
]

ENABLED_PROPERTY: Final = "pydelta.sync.enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTarget:
    """A table to sync.

    Args:
        log: Log of the table.
        native: Name of its native entry, or None if it has none.
        twin: Name of its twin.
        registered: Whether it was found by its own entry, which must still exist when the table is synced.
    """

    log: DeltaLog
    native: TableName | None
    twin: TableName
    registered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChoice:
    """The tables that a caller asked for.

    Args:
        tables: Locations or names.
        databases: Databases of which every Delta table is meant; see ``databases_of``.
        name: Entry name of a table given by its location.
        twin: Name of the twin, if not the one by the naming rule.
    """

    tables: Sequence[str] = ()
    databases: Sequence[str] = ()
    name: str | None = None
    twin: str | None = None


def configured_name(snapshot: Snapshot) -> TableName | None:
    """Return the entry name in the table's property, or None if it is not set."""
    assert snapshot.metadata is not None
    text = snapshot.metadata.configuration.get(TABLE_PROPERTY)
    return TableName.parse(text) if text else None


def is_enabled(snapshot: Snapshot) -> bool:
    """Return whether the table exists and asks to be synced after each commit."""
    configuration = snapshot.metadata.configuration if snapshot.metadata is not None else {}
    return configuration.get(ENABLED_PROPERTY, "").strip().lower() == "true"


def is_left_out(snapshot: Snapshot) -> bool:
    """Return whether the table's property ``pydelta.sync.enabled`` is ``false``, so that it has no twin."""
    configuration = snapshot.metadata.configuration if snapshot.metadata is not None else {}
    return configuration.get(ENABLED_PROPERTY, "").strip().lower() == "false"


def find_targets(
    metastore: Metastore,
    choice: TableChoice,
    *,
    rule: str = "{database}_symlink",
    options: Mapping[str, str] | None = None,
) -> list[SyncTarget]:
    """Find the tables that were asked for.

    Args:
        metastore: Metastore to look names up in.
        choice: Names, locations and databases that were given.
        rule: Naming rule of ``twin_name``.
        options: Storage options.

    Raises:
        InvalidArgumentError: A location has no name, or one name was given for several tables.
        TableNotFoundError: A name is not that of a Delta table in the metastore.
    """
    if (choice.name or choice.twin) and (len(choice.tables) != 1 or choice.databases):
        raise InvalidArgumentError(
            "A name was given for more than one table.", hint="Sync tables one by one, or by rule."
        )
    found: list[SyncTarget] = []
    for text in choice.tables:
        if "/" in text:
            log = DeltaLog.for_table(text, options=options)
            snapshot = log.update()
            if snapshot.version < 0:
                raise TableNotFoundError(f"{text} is not a Delta table.", hint="Check the location.", table=log.uri)
            native = TableName.parse(choice.name) if choice.name else configured_name(snapshot)
            if native is None and choice.twin is None:
                raise InvalidArgumentError(
                    f"The name of {text} in the metastore is not known.",
                    hint=f"Give --entry database.name, or set the table property {TABLE_PROPERTY}.",
                )
        else:
            native = TableName.parse(text)
            entry = metastore.table(native.database, native.name)
            location = native_location(entry) if entry is not None else None
            if location is None:
                raise TableNotFoundError(
                    f"The metastore has no Delta table {native}.",
                    hint="Give its location and --entry, which registers it.",
                )
            log = DeltaLog.for_table(spark_scheme(location), options=options)
        twin = TableName.parse(choice.twin) if choice.twin else twin_name(_required(native), rule)
        found.append(SyncTarget(log=log, native=native, twin=twin, registered="/" not in text))
    for database in databases_of(metastore, choice.databases):
        for native, location in native_tables(metastore, database):
            log = DeltaLog.for_table(spark_scheme(location), options=options)
            found.append(SyncTarget(log=log, native=native, twin=twin_name(native, rule), registered=True))
    return found


def _required(name: TableName | None) -> TableName:
    assert name is not None
    return name


def spark_scheme(location: str) -> str:
    """Turn ``s3://``, as Trino registers it, into ``s3a://``, so that a table has one location."""
    scheme, separator, rest = location.partition("://")
    return f"{kinds.spark_scheme(scheme)}://{rest}" if separator else location
