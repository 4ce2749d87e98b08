"""Drop twins and Iceberg entries, either by name or because their tables are gone.

A twin is dropped only if it is provably made by this package: its parameters name a table's location and id, its
manifests are that table's, and the location has that table or none. No data is deleted, and a sync makes a twin again.
The same holds for Iceberg entries, which the functions here treat as twins. One that another writer has moved stays.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog_sync.errors import NotOursError
from catalog_sync.iceberg.entry import IcebergDriftError, asks_for_iceberg, found_iceberg, iceberg_at
from catalog_sync.names import TableName, iceberg_name, twin_name
from catalog_sync.native import native_location, native_tables
from catalog_sync.targets import configured_name, is_enabled, spark_scheme
from catalog_sync.thrift.client import Metastore, found_table, is_symlink
from catalog_sync.twin import ID_KEY, LOCATION_KEY
from pydelta.errors import DeltaError, InvalidArgumentError, TableNotFoundError
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests import MANIFEST_DIR
from pydelta.storage import normalize_uri

__all__ = [
    "Claim",
    "DroppedTwin",
    "Orphan",
    "drop_twin",
    "entries_to_drop",
    "find_orphans",
    "iceberg_beside",
    "owner_at",
    "prune_orphans",
    "twin_at",
    "twin_of_name",
    "twin_of_place",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTwin:
    """A twin that was dropped, or with ``dry_run`` would be.

    Args:
        twin: Name of the entry.
        location: Location of the Delta table.
        comes_back: Whether the table asks for it after each commit, or in the next sync.
        iceberg: Whether it is an Iceberg entry.
    """

    twin: TableName
    location: str
    comes_back: bool = False
    iceberg: bool = False


class Claim(enum.Enum):
    """The owner of a twin, judged by the table that is now at its location."""

    OURS = "ours"
    EARLIER = "earlier"
    """The location has another table now."""
    UNKNOWN = "unknown"
    """The log at the location cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A twin whose table is gone.

    Args:
        twin: Name of the entry.
        location: Former location of its table.
        table_id: Id of that table.
        registered: Whether the table is still registered by its name but has no files.
        claim: Owner of the twin, which decides whether it may be dropped.
        why: Reason, as a phrase.
    """

    twin: TableName
    location: str
    table_id: str
    registered: bool
    claim: Claim
    why: str

    def may_go(self, *, adopt: bool = False) -> bool:
        """Return whether it may be dropped. ``adopt`` includes the twin of an earlier table at the same location."""
        return self.claim is Claim.OURS or (adopt and self.claim is Claim.EARLIER)


def twin_at(entry: Any) -> tuple[str, str] | None:
    """Return location and id of the table whose twin an entry is, or None if it is not a twin."""
    if not is_symlink(entry):
        return None
    found = found_table(entry)
    location = found.parameters.get(LOCATION_KEY)
    if location is None or found.location != f"{location}/{MANIFEST_DIR}":
        return None  # The entry has a copy of a twin's parameters, or belongs to another program.
    return location, found.parameters.get(ID_KEY, "")


def owner_at(entry: Any) -> tuple[str, str] | None:
    """Return location and id of the table whose twin or Iceberg entry an entry is, or None if it is neither."""
    return twin_at(entry) or iceberg_at(entry)


def twin_of_name(
    metastore: Metastore, text: str, *, rule: str, twin: str | None = None
) -> tuple[TableName, str | None]:
    """Find the twin for a name, which may be that of the table's own entry, even a dropped one, or of the twin.

    Returns:
        The twin's name, and where its table has to lie, or None for anywhere.

    Raises:
        NotOursError: The name is that of a different entry.
        TableNotFoundError: The metastore has neither the name nor its twin.
    """
    named = TableName.parse(text)
    entry = metastore.table(named.database, named.name)
    if entry is None:
        chosen = TableName.parse(twin) if twin else twin_name(named, rule)
        if metastore.table(chosen.database, chosen.name) is None:
            raise TableNotFoundError(
                f"The metastore has no table {named}, and no twin {chosen}.",
                hint="Check the name; nothing was dropped.",
            )
        return chosen, None
    location = native_location(entry)
    if location is not None:
        return TableName.parse(twin) if twin else twin_name(named, rule), normalize_uri(spark_scheme(location))
    if owner_at(entry) is None:
        raise NotOursError(
            f"{named} is neither a Delta table nor a twin or an Iceberg entry made by catalog_sync.",
            hint="Name the table, its twin or its Iceberg entry.",
        )
    return named, None


def twin_of_place(
    location: str, *, name: str | None, twin: str | None, rule: str, options: Mapping[str, str] | None = None
) -> tuple[TableName, str]:
    """Return the twin of the table at a location, and the location. The table may already be deleted.

    Raises:
        InvalidArgumentError: The twin's name is neither given nor set by the table's property.
    """
    log = DeltaLog.for_table(location, options=options)
    if twin:
        return TableName.parse(twin), log.uri
    snapshot = log.update() if name is None else None
    configured = configured_name(snapshot) if snapshot is not None and snapshot.metadata is not None else None
    native = TableName.parse(name) if name else configured
    if native is None:
        raise InvalidArgumentError(
            f"The name of {location} in the metastore is not known.", hint="Give --entry database.name, or --twin."
        )
    return twin_name(native, rule), log.uri


def entries_to_drop(
    metastore: Metastore,
    text: str,
    *,
    name: str | None,
    twin: str | None,
    rules: tuple[str, str],
    options: Mapping[str, str] | None = None,
) -> list[tuple[TableName, str | None]]:
    """Return the entries that a name or a location stands for, and where their table has to lie (None for anywhere).

    A table stands for its twin and its Iceberg entry; the name of one of these stands for itself.

    Args:
        metastore: Metastore of the entries.
        text: Name or location.
        name: Name of the table's own entry, for a location.
        twin: Name of the twin, if not the one by the rule.
        rules: Naming rules of twins and of Iceberg entries.
        options: Storage options.

    Raises:
        Those of ``twin_of_name`` and ``twin_of_place``.
    """
    others = iceberg_beside(metastore, name or text, rules[1], options)
    place: str | None
    if "/" in text:
        found, place = twin_of_place(text, name=name, twin=twin, rule=rules[0], options=options)
    else:
        try:
            found, place = twin_of_name(metastore, text, rule=rules[0], twin=twin)
        except TableNotFoundError:
            if not others:
                raise
            return [(other, None) for other in others]
    is_there = not others or metastore.table(found.database, found.name) is not None
    return [(item, place) for item in ([found] if is_there else []) + others]


def iceberg_beside(
    metastore: Metastore, text: str, rule: str, options: Mapping[str, str] | None = None
) -> list[TableName]:
    """Return the Iceberg entry of a table, if the metastore has one of ours under its name.

    Args:
        metastore: Metastore of the entry.
        text: Name of the table, or its location if its property says its name.
        rule: Naming rule of ``iceberg_name``.
        options: Storage options.
    """
    if "/" in text:
        snapshot = DeltaLog.for_table(text, options=options).update()
        native = configured_name(snapshot) if snapshot.metadata is not None else None
    else:
        native = TableName.parse(text)
    if native is None:
        return []
    try:
        name = iceberg_name(native, rule)
    except InvalidArgumentError:  # The rule gives the same database: the name is that of an Iceberg entry.
        return []
    entry = metastore.table(name.database, name.name)
    return [name] if entry is not None and iceberg_at(entry) is not None else []


def drop_twin(
    metastore: Metastore,
    twin: TableName,
    *,
    location: str | None = None,
    adopt: bool = False,
    dry_run: bool = False,
    options: Mapping[str, str] | None = None,
) -> DroppedTwin:
    """Drop a twin but neither its table nor the table's own entry.

    Args:
        metastore: Metastore of the twin.
        twin: Name of the twin.
        location: Where its table has to lie, or None for anywhere.
        adopt: Treat the twin of an earlier table at the same location as ours.
        dry_run: Only check.
        options: Storage options.

    Raises:
        TableNotFoundError: There is no such entry.
        NotOursError: The entry is not a twin of this table.
        IcebergDriftError: Another writer has committed to the Iceberg entry.
        DeltaError: The log at its location cannot be read, so its owner is not known.
    """
    entry = metastore.table(twin.database, twin.name)
    if entry is None:
        raise TableNotFoundError(
            f"The metastore has no table {twin}.", hint="Check the name; there is nothing to drop."
        )
    owner = owner_at(entry)
    if owner is None:
        raise NotOursError(
            f"The metastore has a table {twin} that catalog_sync did not make (at {found_table(entry).location}).",
            hint="Drop it yourself, if it is no longer needed.",
        )
    place, table_id = owner
    iceberg = iceberg_at(entry) is not None
    what = "the Iceberg entry" if iceberg else "the twin"
    if location is not None and place != location:
        raise NotOursError(
            f"{twin} is {what} of the table at {place}, not of {location}.",
            hint=f"To drop it, name the twin itself: catalog_sync drop {twin}",
        )
    snapshot = DeltaLog.for_table(place, options=options).update()
    claim, why = _claim(snapshot, table_id)
    if claim is Claim.EARLIER and not adopt:
        raise NotOursError(f"{twin} is {what} of an earlier table: {why}.", hint="Drop it with --adopt.")
    if iceberg and found_iceberg(entry).has_drifted and not adopt:
        raise IcebergDriftError(
            f"Another writer has committed to {twin}, so it was not dropped.",
            hint="Copy what it wrote into the Delta table if you need it; then drop the entry with --adopt.",
            table=place,
        )
    if not dry_run:
        metastore.drop(twin.database, twin.name)
    asks = asks_for_iceberg(snapshot) is True if iceberg else is_enabled(snapshot)
    return DroppedTwin(twin=twin, location=place, comes_back=claim is Claim.OURS and asks, iceberg=iceberg)


def _claim(snapshot: Snapshot, table_id: str) -> tuple[Claim, str]:
    """Decide whose a twin with a table's id is, and give the reason as a phrase."""
    if snapshot.version < 0 or snapshot.metadata is None:
        return Claim.OURS, f"there is no longer a table at {snapshot.table_uri}"
    if snapshot.metadata.id != table_id:
        return Claim.EARLIER, f"there is another table at {snapshot.table_uri} now (id {snapshot.metadata.id})"
    return Claim.OURS, f"the table at {snapshot.table_uri} is there"


def find_orphans(
    metastore: Metastore,
    databases: Sequence[str],
    *,
    rule: str,
    gone: Collection[TableName] = (),
    options: Mapping[str, str] | None = None,
) -> list[Orphan]:
    """Return the twins of some databases whose tables were dropped, renamed or moved.

    Args:
        metastore: Metastore of the twins.
        databases: Databases of the tables.
        rule: Naming rule of ``twin_name``. Twins with other names count as left behind.
        gone: Twins whose tables are registered but have no files.
        options: Storage options.
    """
    found = []
    for place in sorted({name for name in (_twin_database(item, rule) for item in databases) if name}):
        if not metastore.database_exists(place):
            continue
        twins = {}
        for entry in metastore.tables(place):  # Read before the tables, so that a new twin's table is found.
            owner = owner_at(entry)
            if owner is not None:
                twins[TableName(database=place, name=entry.tableName)] = owner
        tables: dict[str, dict[TableName, str]] = {}
        for database in _databases_of(metastore, place, rule) if twins else ():
            for name, location in native_tables(metastore, database):
                tables.setdefault(name.name, {})[name] = normalize_uri(spark_scheme(location))
        for twin, (location, table_id) in sorted(twins.items(), key=lambda item: item[0].name):
            there = tables.get(twin.name, {})
            if location not in there.values() or twin in gone:
                found.append(_orphan(twin, location, table_id, there, options))
    return found


def _orphan(
    twin: TableName, location: str, table_id: str, there: Mapping[TableName, str], options: Mapping[str, str] | None
) -> Orphan:
    registered = location in there.values()
    if registered:
        name = "its table is registered"
    elif there:
        name = " and ".join(f"{table} is the table at {where} now" for table, where in there.items())
    else:
        name = "its table is no longer registered"
    try:
        claim, why = _claim(DeltaLog.for_table(location, options=options).update(), table_id)
    except DeltaError as error:
        claim, why = Claim.UNKNOWN, f"what lies at {location} cannot be read ({error.message})"
    return Orphan(
        twin=twin, location=location, table_id=table_id, registered=registered, claim=claim, why=f"{name}; {why}"
    )


def prune_orphans(
    metastore: Metastore, orphans: Sequence[Orphan], *, rule: str, adopt: bool = False
) -> list[TableName]:
    """Drop the orphans that are ours. Each is checked again, and stays if its table has been registered since.

    Args:
        metastore: Metastore of the twins.
        orphans: Orphans that were found.
        rule: Naming rule of ``twin_name``.
        adopt: Treat twins of earlier tables at the same locations as ours.

    Returns:
        Names of the dropped twins.
    """
    dropped = []
    for orphan in orphans:
        twin = orphan.twin
        if not orphan.may_go(adopt=adopt):
            continue
        entry = metastore.table(twin.database, twin.name)
        if entry is None or owner_at(entry) != (orphan.location, orphan.table_id):
            continue
        if iceberg_at(entry) is not None and found_iceberg(entry).has_drifted and not adopt:
            continue
        entries = (metastore.table(database, twin.name) for database in _databases_of(metastore, twin.database, rule))
        locations = {native_location(item) for item in entries if item is not None} - {None}
        registered = orphan.location in {normalize_uri(spark_scheme(str(item))) for item in locations}
        if registered == orphan.registered:
            metastore.drop(twin.database, twin.name)
            dropped.append(twin)
    return dropped


def _databases_of(metastore: Metastore, place: str, rule: str) -> Iterator[str]:
    """Yield the databases whose twins are in a database. The rule may give several databases the same one."""
    return (database for database in metastore.databases() if _twin_database(database, rule) == place)


def _twin_database(database: str, rule: str) -> str | None:
    try:
        return twin_name(TableName(database=database, name="x"), rule).database
    except InvalidArgumentError:  # The rule gives the same database.
        return None
