"""Turn what a user names into tables with the names of their entries.

=========================  ==============================================================================
``s3a://…``, ``/a/path``   a location; its name is given, or the table's property ``pydelta.sync.table`` says it
``database.table``         an entry in the metastore, whose location is its own
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
        log: Its log.
        native: Name of its own entry; None where it has none.
        twin: Name of its twin.
        registered: It was found by its own entry, which therefore has to be there still.
    """

    log: DeltaLog
    native: TableName | None
    twin: TableName
    registered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChoice:
    """The tables that somebody asked for.

    Args:
        tables: Locations or names.
        databases: Every Delta table of these; see ``databases_of``.
        name: Name of the entry of a table given by its location.
        twin: Name of the twin, where the rule is not to be used.
    """

    tables: Sequence[str] = ()
    databases: Sequence[str] = ()
    name: str | None = None
    twin: str | None = None


def configured_name(snapshot: Snapshot) -> TableName | None:
    """Return the name that the table's property says."""
    assert snapshot.metadata is not None
    text = snapshot.metadata.configuration.get(TABLE_PROPERTY)
    return TableName.parse(text) if text else None


def is_enabled(snapshot: Snapshot) -> bool:
    """Tell whether the table asks to be synced after each commit; one that is not there does not."""
    configuration = snapshot.metadata.configuration if snapshot.metadata is not None else {}
    return configuration.get(ENABLED_PROPERTY, "").strip().lower() == "true"


def is_left_out(snapshot: Snapshot) -> bool:
    """Return whether the table's property says that it has no twin: ``pydelta.sync.enabled`` is ``false``."""
    configuration = snapshot.metadata.configuration if snapshot.metadata is not None else {}
    return configuration.get(ENABLED_PROPERTY, "").strip().lower() == "false"


def find_targets(
    metastore: Metastore,
    choice: TableChoice,
    *,
    rule: str = "{database}_symlink",
    options: Mapping[str, str] | None = None,
) -> list[SyncTarget]:
    """Find the tables that are meant.

    Args:
        metastore: Where names are looked up.
        choice: The tables that are meant.
        rule: See ``twin_name``.
        options: Storage options.

    Raises:
        InvalidArgumentError: A location without a name; a name for several tables.
        TableNotFoundError: A name that is no Delta table in the metastore.
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
    """Turn ``s3://``, as Trino registers it, into ``s3a://``: one table, one location."""
    scheme, separator, rest = location.partition("://")
    return f"{kinds.spark_scheme(scheme)}://{rest}" if separator else location
