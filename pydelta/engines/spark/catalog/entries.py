"""Create, update, rename, move and drop entries of Delta tables in the session's catalog.

::

    create_entry   the log's state --> provider delta, location, real columns (partition columns last), properties
    follow         after a commit that changed the definition --> the entry is updated
    entry_differs  the entry --> how it differs from the log, which is authoritative

In a Hive Metastore the session's own client writes the entry, so that it has real columns. Spark's catalog would write
``col array<string>``. Like catalog_sync, it takes the content from ``pydelta.manifests.native_entry``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.engines.spark.catalog.definitions import hive_table, session_table
from pydelta.engines.spark.catalog.file_rights import check_may_delete
from pydelta.engines.spark.catalog.lookup import DeltaEntry, ViewEntry, look_up, names_at, twin_refusal
from pydelta.engines.spark.catalog.objects import (
    catalog_object,
    check_new_name,
    copy_of,
    default_place,
    hive_client,
    table_identifier,
    text_map,
)
from pydelta.engines.spark.catalog.twins import drop_twins, rename_twins
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import SessionSettings, log_for_path
from pydelta.engines.spark.scan.caches import forget_cached, refresh_caches
from pydelta.errors import (
    DeltaError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsafeOperationError,
    UnsupportedFeatureError,
    first_line,
)
from pydelta.errors.conditions import Condition
from pydelta.manifests.native_entry import ID_KEY, SCHEMA_KEY, TABLE_PROPERTY, NativeEntry, columns_to_keep_first
from pydelta.protocol.types import parse_schema
from pydelta.storage.kinds import kind_of, spark_scheme
from pydelta.storage.uris import normalize_uri, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.log import Snapshot

__all__ = [
    "adopt_entry",
    "create_entry",
    "drop_table",
    "entry_differs",
    "follow",
    "follow_names",
    "name_of",
    "note_difference",
    "rename_table",
    "session_identifier",
    "set_location",
]

_log = logging.getLogger(__name__)
_PROVIDER: Final = "delta"
_NO_STATISTICS: Final = {"DO_NOT_UPDATE_STATS": "true"}
"""Otherwise the metastore lists every file of the table when its entry is written."""
_noted: set[tuple[str, ...]] = set()
_NOTED: Final = 10_000
_TRIES: Final = 5
_followed: dict[tuple[str, ...], str] = {}
"""Digest of each name's entry at this process's last commit, so that commits without new columns look up nothing."""


# --- writing -----------------------------------------------------------------------------------------------


def create_entry(
    spark: SparkSession,
    parts: Sequence[str],
    snapshot: Snapshot,
    *,
    managed: bool | None = None,
    if_not_exists: bool = True,
    replace: bool = False,
) -> bool:
    """Create the entry of a table. Comment, properties and columns come from its log.

    Args:
        spark: The session.
        parts: The name: ``(table,)``, ``(database, table)`` or with ``spark_catalog`` in front.
        snapshot: The table's current snapshot.
        managed: Whether the catalog owns the files, so that DROP TABLE deletes them. None means that it does if they
            are at its default location. True also applies to an entry of this table that the commit's own hook created,
            since a hook cannot know.
        if_not_exists: Whether to leave an existing entry unchanged.
        replace: Whether to update an existing entry of a Delta table instead, whatever its location.

    Returns:
        Whether an entry was created or changed.

    Raises:
        TableAlreadyExistsError: The name is taken.
        TableNotFoundError: The database does not exist.
    """
    jvm = Jvm.of(spark)
    identifier = session_identifier(jvm, parts)
    catalog = jvm.catalog
    if catalog.tableExists(identifier):
        found = look_up(spark, tuple(parts))
        if isinstance(found, DeltaEntry) and not found.twin:
            to_own = bool(managed) and not found.managed and _is_of(found, snapshot)
            if replace or to_own:
                return _write(jvm, identifier, snapshot, found, managed=to_own)
        if if_not_exists:
            return False
        raise TableAlreadyExistsError(
            f"{name_of(parts)} already exists.",
            hint="Drop it first, or choose another name.",
            table=snapshot.table_uri,
            condition=Condition.of("TABLE_OR_VIEW_ALREADY_EXISTS", relationName=name_of(parts)),
        )
    check_new_name(jvm, identifier)
    if managed is None:
        managed = _same_place(default_place(jvm, identifier), snapshot.table_uri)
    module = catalog_object(jvm, "CatalogTable")
    wanted = _wanted(snapshot)
    client = hive_client(jvm)
    kinds = catalog_object(jvm, "CatalogTableType")
    kind = kinds.MANAGED() if managed else kinds.EXTERNAL()
    empty = catalog_object(jvm, "CatalogStorageFormat").empty()
    definition = module.apply(
        identifier, kind, empty, jvm.struct('{"type":"struct","fields":[]}'), jvm.option.apply(_PROVIDER),
        jvm.seq([]), *jvm.rest_of(module, "apply", 6),
    )  # fmt: skip
    if client is None:
        catalog.createTable(session_table(jvm, definition, wanted), if_not_exists, False)
    else:
        made_by = {"spark.sql.create.version": str(spark.version)}
        try:
            client.createTable(hive_table(jvm, definition, wanted, made_by | _NO_STATISTICS), if_not_exists)
        except Py4JError as error:
            _log.warning("the metastore does not accept the columns of %s: %s", name_of(parts), first_line(str(error)))
            catalog.createTable(session_table(jvm, definition, wanted), if_not_exists, False)
    return True


def adopt_entry(spark: SparkSession, parts: Sequence[str], table: Any, snapshot: Snapshot) -> None:
    """Convert the entry of a table of another provider whose files are now a Delta table.

    Args:
        spark: The session.
        parts: Its name.
        table: The entry in Spark's catalog.
        snapshot: The Delta table at its location.
    """
    jvm = Jvm.of(spark)
    delta = copy_of(table, provider=jvm.option.apply(_PROVIDER))
    entry = DeltaEntry(location=snapshot.table_uri, qualifier=tuple(parts), table=delta)
    _write(jvm, session_identifier(jvm, parts), snapshot, entry)


def follow(spark: SparkSession, parts: Sequence[str], snapshot: Snapshot) -> bool:
    """Update the entry from the log: columns, partition columns, comment, properties.

    Does nothing for a path, a twin (which belongs to catalog_sync), or a name for another location. A failure is only
    logged, because the commit has landed and readers take the definition from the log.

    Args:
        spark: The session.
        parts: The table's name.
        snapshot: The table after the commit.

    Returns:
        Whether the entry was changed.
    """
    if snapshot.metadata is None:
        return False
    try:
        jvm = Jvm.of(spark)
        entry = look_up(spark, tuple(parts))
        if not isinstance(entry, DeltaEntry) or entry.by_path or entry.twin or entry.table is None:
            return False
        if not _same_place(entry.location, snapshot.table_uri) or _digest(entry) == _wanted_digest(snapshot):
            return False
        for _ in range(_TRIES):
            _write(jvm, session_identifier(jvm, entry.qualifier), snapshot, entry)
            # Another session may have written a later commit first, and the last writer must write the newest.
            newest = log_for_path(spark, entry.location).update()
            if newest.metadata is None or _wanted_digest(newest) == _wanted_digest(snapshot):
                break
            snapshot = newest
        return True
    except (DeltaError, Py4JError, PySparkException) as error:
        _log.warning("the catalog's entry of %s does not follow the log: %s", name_of(parts), first_line(str(error)))
        return False


def follow_names(spark: SparkSession, snapshot: Snapshot) -> None:
    """Call ``follow`` for every name under which this process has seen the table, after each commit of a session."""
    if snapshot.metadata is None:
        return
    names = names_at(snapshot.table_uri)
    if not names:
        return
    digest = _wanted_digest(snapshot)
    for name in names:
        if _followed.get(name) != digest:
            follow(spark, name, snapshot)
            _followed[name] = digest


def _is_of(entry: DeltaEntry, snapshot: Snapshot) -> bool:
    """Return whether an entry belongs to this table, by location and id."""
    assert snapshot.metadata is not None
    made = entry.table.properties().get(ID_KEY)
    same = made.isDefined() and str(made.get()) == snapshot.metadata.id
    return same and _same_place(entry.location, snapshot.table_uri)


def _write(jvm: Jvm, identifier: Any, snapshot: Snapshot, entry: DeltaEntry, *, managed: bool = False) -> bool:
    """Update an entry. With ``managed`` the catalog owns the files from then on."""
    wanted = _wanted(snapshot)
    kind = {"tableType": catalog_object(jvm, "CatalogTableType").MANAGED()} if managed else {}
    client = hive_client(jvm)
    catalog = jvm.catalog
    if client is None:
        catalog.alterTable(session_table(jvm, copy_of(entry.table, **kind), wanted))
    else:
        database, name = str(identifier.database().get()), str(identifier.table())
        raw = copy_of(client.getTable(database, name), **kind)
        parameters = text_map(jvm, raw.properties())
        kept = wanted.kept(parameters) | _NO_STATISTICS
        changed = hive_table(jvm, raw, wanted, kept)
        try:
            client.alterTable(database, name, changed)
        except (Py4JError, PySparkException):
            first = columns_to_keep_first(_types(raw), _types(changed))
            if not first or changed.partitionColumnNames().size():  # Spark cannot write an entry without columns.
                raise
            fields = json.loads(str(raw.schema().json()))["fields"][:first]
            fewer = jvm.struct(json.dumps({"type": "struct", "fields": fields}))
            client.alterTable(database, name, copy_of(raw, schema=fewer))
            client.alterTable(database, name, changed)
    catalog.invalidateCachedTable(identifier)
    return True


def _types(table: Any) -> list[str]:
    return [json.dumps(item["type"]) for item in json.loads(str(table.schema().json()))["fields"]]


# --- dropping, renaming, moving ----------------------------------------------------------------------------


def drop_table(spark: SparkSession, parts: Sequence[str], *, if_exists: bool = False, purge: bool = False) -> bool:
    """Drop a table: its entry, and its files if the catalog owns them. Other files stay.

    Its twin for Trino and Presto is dropped first, so that it is never left behind, and again at the end, because a
    sync may have recreated it in between.

    Args:
        spark: The session.
        parts: The table's name.
        if_exists: Whether to do nothing if there is no such table.
        purge: Whether a Hive Metastore bypasses its trash.

    Returns:
        Whether there was something to drop.

    Raises:
        TableNotFoundError: The table does not exist.
        UnsafeOperationError: The name is a path or a twin.
        InvalidArgumentError: The name is a view or not a Delta table.
        StoragePermissionError: This key may not delete the files of a managed table. Nothing was dropped.
    """
    jvm = Jvm.of(spark)
    entry = _entry(spark, parts, "dropped", if_exists=if_exists)
    if entry is None:
        return False
    identifier = session_identifier(jvm, entry.qualifier)
    if entry.managed:
        check_may_delete(entry.location, SessionSettings.of(spark).options, name=name_of(entry.qualifier[1:]))
    forget_cached(spark, normalize_uri(entry.location))
    catalog = jvm.catalog
    drop_twins(spark, entry.qualifier, entry.location)
    catalog.invalidateCachedTable(identifier)
    catalog.dropTable(identifier, if_exists, purge)
    if entry.managed:
        place = jvm.path(jvm.location_uri(normalize_uri(entry.location)))
        files = place.getFileSystem(jvm.hadoop_conf())
        if files.exists(place):  # A metastore that may not delete there reports that only in its log.
            files.delete(place, True)
    drop_twins(spark, entry.qualifier, entry.location)
    return True


def rename_table(spark: SparkSession, old: Sequence[str], new: Sequence[str]) -> None:
    """Rename a table within its database. The files of a managed table move too, as in Spark.

    Its twin for Trino and Presto gets the new name, and so does the property that names it for the sync after commits.

    Raises:
        TableNotFoundError: The table does not exist.
        TableAlreadyExistsError: The new name is taken.
        InvalidArgumentError: The name is a view, or the new name is in another database.
        UnsafeOperationError: The name is a path or a twin, or the table is managed and on an object store, where moving
            it would copy every file while writers and readers can see it half done.
    """
    jvm = Jvm.of(spark)
    entry = _entry(spark, old, "renamed")
    assert entry is not None
    source = session_identifier(jvm, entry.qualifier)
    given = [part for part in new[:-1] if part.lower() != "spark_catalog"]
    database = given[-1] if given else entry.qualifier[-2]
    if len(new) > 3 or database.lower() != entry.qualifier[-2].lower():
        raise InvalidArgumentError(
            f"{name_of(entry.qualifier[1:])} cannot be renamed to {name_of(new)}: it would leave its database.",
            hint="Rename it within its database, or make a new entry there with CREATE TABLE … LOCATION.",
        )
    target = session_identifier(jvm, (database, new[-1]))
    catalog = jvm.catalog
    if catalog.tableExists(target):
        raise TableAlreadyExistsError(
            f"{name_of(new)} already exists.",
            hint="Choose another name.",
            condition=Condition.of("TABLE_OR_VIEW_ALREADY_EXISTS", relationName=name_of(new)),
        )
    check_new_name(jvm, target)
    uri = normalize_uri(entry.location)
    moves = entry.managed and _same_place(default_place(jvm, source), uri)
    if moves and not kind_of(scheme_of(uri)).folders:
        raise UnsafeOperationError(
            f"{name_of(entry.qualifier[1:])} is managed by the catalog, and renaming it would move its files at {uri}, "
            "which an object store cannot do in one step.",
            hint="Make it external instead: clone it (DEEP CLONE) to a location, name the clone with CREATE TABLE "
            "new_name USING delta LOCATION, then drop this table.",
            table=uri,
        )
    forget_cached(spark, uri)
    catalog.invalidateCachedTable(source)
    if entry.managed and not moves:  # Spark would move it to the default location, but it is somewhere else.
        _rename_in_place(jvm, source, target, entry)
    else:
        catalog.renameTable(source, target)
    rename_twins(spark, entry.qualifier, new, entry.location, moved=moves)
    renamed = look_up(spark, (database, new[-1]))
    if isinstance(renamed, DeltaEntry):
        follow(spark, renamed.qualifier, log_for_path(spark, renamed.location).update())
        _rename_in_log(spark, entry, renamed)


def _rename_in_log(spark: SparkSession, before: DeltaEntry, after: DeltaEntry) -> None:
    """Update the table's property if it names the old entry. Otherwise commits would create that entry again."""
    from pydelta.commands.alter.command import Alter
    from pydelta.commands.alter.requests import SetProperties
    from pydelta.commands.run import Context, run

    log = log_for_path(spark, after.location)
    metadata = log.update().metadata
    old, new = name_of(before.qualifier[1:]), name_of(after.qualifier[1:])
    current = metadata.configuration.get(TABLE_PROPERTY, "") if metadata is not None else ""
    if current.replace("`", "").strip().lower() != old.lower():
        return
    renamed = run(Alter(SetProperties(properties={TABLE_PROPERTY: new})), Context(log)).snapshot
    refresh_caches(spark, renamed.table_uri)
    follow_names(spark, renamed)
    again = look_up(spark, before.qualifier)
    if isinstance(again, DeltaEntry) and not again.managed and _same_place(again.location, after.location):
        drop_table(spark, before.qualifier)  # A commit that still used the old property created this entry.


def _rename_in_place(jvm: Jvm, source: Any, target: Any, entry: DeltaEntry) -> None:
    """Rename an entry whose files stay, by making it external during the rename."""
    catalog = jvm.catalog
    kinds = catalog_object(jvm, "CatalogTableType")
    client = hive_client(jvm)
    if client is None:
        catalog.alterTable(copy_of(entry.table, tableType=kinds.EXTERNAL()))
        catalog.renameTable(source, target)
        catalog.alterTable(copy_of(catalog.getTableMetadata(target), tableType=kinds.MANAGED()))
    else:
        database, name = str(source.database().get()), str(source.table())
        raw = client.getTable(database, name)
        client.alterTable(database, name, copy_of(raw, identifier=target))


def set_location(spark: SparkSession, parts: Sequence[str], location: str) -> None:
    """Point a name to a table at another location (ALTER TABLE … SET LOCATION). No file moves.

    A managed table becomes external, because the catalog never created the files at the new location.

    Args:
        spark: The session.
        parts: The table's name.
        location: Location of a Delta table with the same columns.

    Raises:
        TableNotFoundError: The table does not exist, or there is no Delta table at the location.
        SchemaMismatchError: The columns or partition columns differ. Shows both schemas.
        UnsafeOperationError: The name is a path or a twin.
    """
    jvm = Jvm.of(spark)
    entry = _entry(spark, parts, "set to another location")
    assert entry is not None
    before = log_for_path(spark, entry.location).update()
    log = log_for_path(spark, jvm.qualify(location))
    snapshot = log.update()
    if snapshot.metadata is None:
        raise TableNotFoundError(
            f"{location} is not a Delta table, so {name_of(entry.qualifier[1:])} cannot point to it.",
            hint="Give the location of a Delta table with the same columns.",
            table=log.uri,
            condition=Condition.of("DELTA_MISSING_DELTA_TABLE", tableName=location),
        )
    if before.metadata is not None:
        _refuse_other_columns(before, snapshot)
    forget_cached(spark, normalize_uri(entry.location))
    identifier = session_identifier(jvm, entry.qualifier)
    kinds = catalog_object(jvm, "CatalogTableType")
    table = entry.table
    client = hive_client(jvm)
    catalog = jvm.catalog
    if client is None:
        changed = copy_of(table, tableType=kinds.EXTERNAL())
        catalog.alterTable(session_table(jvm, changed, _wanted(snapshot)))
    else:
        database, name = str(identifier.database().get()), str(identifier.table())
        raw = copy_of(client.getTable(database, name), tableType=kinds.EXTERNAL())
        parameters = text_map(jvm, raw.properties())
        wanted = _wanted(snapshot)
        client.alterTable(database, name, hive_table(jvm, raw, wanted, wanted.kept(parameters) | _NO_STATISTICS))
    catalog.invalidateCachedTable(identifier)
    if not _same_place(entry.location, log.uri):
        drop_twins(spark, entry.qualifier, entry.location)  # The next sync creates a twin of the new table.


def _refuse_other_columns(before: Snapshot, after: Snapshot) -> None:
    old = [(field.name, field.data_type) for field in before.schema.fields]
    new = [(field.name, field.data_type) for field in after.schema.fields]
    if old == new and before.partition_columns == after.partition_columns:
        return
    raise SchemaMismatchError(
        f"The table at {after.table_uri} has other columns than the one at {before.table_uri}.\n"
        f"Columns now (partitioned by {list(before.partition_columns)}):\n{before.schema.tree()}\n"
        f"Columns there (partitioned by {list(after.partition_columns)}):\n{after.schema.tree()}",
        hint="Drop the entry (an external table keeps its files) and create it again with the new LOCATION.",
        condition=Condition.of(
            "DELTA_SET_LOCATION_SCHEMA_MISMATCH", original=before.schema.tree(), destination=after.schema.tree()
        ),
    )


# --- comparing ---------------------------------------------------------------------------------------------


def entry_differs(entry: DeltaEntry, snapshot: Snapshot) -> list[str]:
    """List the differences between an entry's columns and the log's, one line each; empty if they agree.

    An entry without columns, as other engines write it, never differs.
    """
    if entry.table is None or entry.twin or snapshot.metadata is None or _digest(entry) == _wanted_digest(snapshot):
        return []
    listed = parse_schema(str(entry.table.schema().json()))
    if not listed.fields or [(field.name, str(field.data_type)) for field in listed.fields] == [
        ("col", "array<string>")
    ]:
        return []
    wanted = _wanted(snapshot)
    theirs = {field.name.lower(): field for field in listed.fields}
    ours = {field.name.lower(): field for field in wanted.fields.fields}
    found = [
        f"{field.name} is {theirs[name].data_type} in the catalog and {field.data_type} in the log"
        for name, field in ours.items()
        if name in theirs and str(theirs[name].data_type) != str(field.data_type)
    ]
    found += [f"{field.name} is missing in the catalog" for name, field in ours.items() if name not in theirs]
    found += [f"{field.name} is only in the catalog" for name, field in theirs.items() if name not in ours]
    return found


def note_difference(entry: DeltaEntry, snapshot: Snapshot) -> None:
    """Warn once that an entry's columns differ from the log, which is authoritative."""
    if entry.by_path or snapshot.metadata is None:
        return
    key = (*entry.qualifier, snapshot.table_uri, str(snapshot.version))
    if key in _noted:
        return
    if len(_noted) > _NOTED:
        _noted.clear()
    _noted.add(key)
    differences = entry_differs(entry, snapshot)
    report = (*entry.qualifier, *differences)
    if differences and report not in _noted:
        _noted.add(report)
        _log.warning(
            "the catalog's entry of %s differs from the table's log, which counts: %s. Any write by this "
            "name, or catalog_sync, brings it up to date",
            name_of(entry.qualifier[1:]),
            "; ".join(differences[:10]),
        )


# --- small things ------------------------------------------------------------------------------------------


def _entry(spark: SparkSession, parts: Sequence[str], what: str, *, if_exists: bool = False) -> DeltaEntry | None:
    found = look_up(spark, tuple(parts))
    text = name_of(parts)
    if isinstance(found, ViewEntry):
        raise InvalidArgumentError(
            f"{text} is a view; only a table can be {what}.",
            hint="Use DROP VIEW, ALTER VIEW.",
            condition=Condition.of("EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE", viewName=text),
        )
    if found is None:
        jvm = Jvm.of(spark)
        if jvm.catalog.tableExists(session_identifier(jvm, parts)):
            raise InvalidArgumentError(f"{text} is not a Delta table.", hint="Use the SQL statement for it.")
        if if_exists:
            return None
        raise TableNotFoundError(
            f"There is no table {text} to be {what}.",
            hint="Check the database (spark.catalog.currentDatabase()) and the name.",
            condition=Condition.of("TABLE_OR_VIEW_NOT_FOUND", relationName=text),
        )
    if found.by_path:
        raise UnsafeOperationError(
            f"{text} is a path, which has no entry in the catalog: it cannot be {what}.",
            hint="Delete the rows with DELETE FROM, or remove the folder with the storage's own tools.",
            table=found.location,
        )
    if found.twin:
        raise twin_refusal(name_of(found.qualifier[1:]), found)
    return found


def session_identifier(jvm: Jvm, parts: Sequence[str]) -> Any:
    """Return a ``TableIdentifier`` with its database.

    Raises:
        UnsupportedFeatureError: The name is in another catalog.
    """
    if len(parts) > 3 or (len(parts) == 3 and parts[0].lower() != "spark_catalog"):
        raise UnsupportedFeatureError(
            f"{name_of(parts)} is a name in the catalog {parts[0]}; only spark_catalog has entries of Delta tables.",
            features=(),
            hint="Name it database.table.",
        )
    catalog = jvm.catalog
    database = parts[-2] if len(parts) > 1 else str(catalog.getCurrentDatabase())
    return table_identifier(jvm, database, parts[-1])


def _wanted(snapshot: Snapshot) -> NativeEntry:
    assert snapshot.metadata is not None, "a table that does not exist has no entry"
    return NativeEntry.of(snapshot.table_uri, snapshot.metadata, snapshot.schema)


def _wanted_digest(snapshot: Snapshot) -> str:
    return _wanted(snapshot).parameters[SCHEMA_KEY]


def _digest(entry: DeltaEntry) -> str | None:
    found = entry.table.properties().get(SCHEMA_KEY)
    return str(found.get()) if found.isDefined() else None


def _same_place(first: str, second: str) -> bool:
    def plain(uri: str) -> str:
        scheme, _, rest = normalize_uri(uri).partition(":")
        return f"{spark_scheme(scheme)}:{rest}"

    return plain(first) == plain(second)


def name_of(parts: Sequence[str]) -> str:
    """Format a name for messages."""
    return ".".join(parts)
