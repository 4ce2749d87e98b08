"""Define a table: commit it to its log and write its entry in the catalog.

::

                      no entry, no table     no entry, a table at the location     an entry
    CREATE            both are made          the entry, if the columns agree       refused
    … IF NOT EXISTS   both are made          the entry, if the columns agree       left unchanged
    REPLACE           refused                refused                               new definition, entry follows
    CREATE OR REPLACE both are made          new definition, entry made            new definition, entry follows
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.commands.alter.clustering import clustering_paths
from pydelta.commands.create import Create, CreateMode, TableDefinition, refuse_foreign_files
from pydelta.engines.spark.catalog.entries import create_entry, name_of, session_identifier
from pydelta.engines.spark.catalog.lookup import DeltaEntry, ViewEntry, look_up
from pydelta.engines.spark.catalog.objects import check_new_name, default_place
from pydelta.engines.spark.change.rules import check_definition
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path
from pydelta.engines.spark.running import run_in_session
from pydelta.errors import (
    DeltaEnvironmentError,
    InvalidArgumentError,
    SchemaError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsafeOperationError,
    error_context,
)
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.names import path_text
from pydelta.protocol.paths import LOG_DIR, parse_log_name
from pydelta.protocol.schema_edits import parse_path
from pydelta.settings import canonical_properties
from pydelta.storage.uris import normalize_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["OPTION_PREFIX", "as_a_statement", "define_table", "enter"]

OPTION_PREFIX: Final = "option."
"""Prefix of the properties that store, in addition to their own names, the options of CREATE TABLE."""
_OF_PROTOCOL: Final = re.compile(r"delta\.(minReaderVersion|minWriterVersion|ignoreProtocolDefaults|feature\..*)$")
"""Properties that request a protocol and are not stored."""


def define_table(
    spark: SparkSession,
    parts: Sequence[str] | None,
    definition: TableDefinition,
    *,
    mode: CreateMode,
    location: str | None = None,
) -> DeltaLog:
    """Create or replace a table.

    Args:
        spark: The session.
        parts: Its name; None for a table with only a location. ``("delta", path)`` is a location too.
        definition: The new definition. Without columns it takes those of the table at the location.
        mode: What to do in each case.
        location: Location of its files; None for the catalog's default location, where DROP TABLE deletes them.

    Returns:
        Its log.

    Raises:
        TableAlreadyExistsError: The name is taken, or so is the catalog's default location.
        TableNotFoundError: There is nothing to replace, or no columns and no table at the location.
        SchemaMismatchError, InvalidArgumentError: The table at the location differs from the definition.
        BindError, ParseError: A generation expression, default or constraint does not resolve.
        DeltaEnvironmentError: The table was created, but the catalog refused its entry.
    """
    entry = look_up(spark, tuple(parts)) if parts is not None else None
    if isinstance(entry, DeltaEntry) and entry.by_path:
        if location is not None and normalize_uri(location) != normalize_uri(entry.location):
            raise InvalidArgumentError(
                f"The table is named by its path {entry.location!r}, but location says {location!r}.",
                hint="Give one of the two.",
                condition=Condition.of(
                    "DELTA_AMBIGUOUS_PATHS_IN_CREATE_TABLE", identifier=entry.location, location=location
                ),
            )
        parts, location, entry = None, entry.location, None
    replaces = mode in (CreateMode.REPLACE, CreateMode.CREATE_OR_REPLACE)
    if parts is not None:
        if _is_taken(spark, parts, entry, replaces=replaces):
            if mode is not CreateMode.CREATE_IF_NOT_EXISTS:
                raise _taken(parts)
            assert isinstance(entry, DeltaEntry)
            return log_for_path(spark, entry.location)
        if entry is None:
            _check_new(spark, parts, mode)
    elif location is None:
        raise InvalidArgumentError(
            "A new table needs a location or a name.",
            hint="Call .location(path) or .tableName(name).",
            condition=Condition.of("DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION"),
        )
    place, managed = _place(spark, parts, entry if isinstance(entry, DeltaEntry) else None, location)
    log = log_for_path(spark, place)
    made = None
    with error_context(table=log.uri), as_a_statement():
        before = log.update()
        definition = replace(definition, properties=canonical_properties(definition.properties))
        if before.version >= 0 and parts is not None and not replaces:
            if managed:
                raise _place_taken(parts, log)
            _refuse_another(before, definition)
        elif before.version < 0 and not definition.schema.fields and location is not None and (replaces or _holds(log)):
            raise _no_columns(parts or (), log)
        else:
            check_definition(spark, definition.schema, definition.properties)
            result = run_in_session(spark, Create(definition=definition, mode=mode, managed=managed), log)
            if result.committed is not None:
                made = result.committed.snapshot if before.version < 0 else None
    if parts is not None:
        enter(spark, parts, log.update(), managed=managed, replace=replaces, made=made)
    return log


def _check_new(spark: SparkSession, parts: Sequence[str], mode: CreateMode) -> None:
    if mode is CreateMode.REPLACE:
        raise TableNotFoundError(
            f"There is no table {name_of(parts)} to replace.",
            hint="Write CREATE OR REPLACE (createOrReplace).",
            condition=Condition.of("TABLE_OR_VIEW_NOT_FOUND", relationName=name_of(parts)),
        )
    jvm = Jvm.of(spark)
    check_new_name(jvm, session_identifier(jvm, parts))


def _holds(log: DeltaLog) -> bool:
    """Return whether there are files without a log. A table without columns may only be created elsewhere."""
    try:
        refuse_foreign_files(log.store, log.uri)
    except TableAlreadyExistsError:
        return True
    return False


def _no_columns(parts: Sequence[str], log: DeltaLog) -> TableNotFoundError:
    return TableNotFoundError(
        f"There is no Delta table at {log.uri}, and no columns were given for a new one.",
        hint="Give the columns, or the location of a table.",
        condition=Condition.of("DELTA_CREATE_EXTERNAL_TABLE_WITHOUT_TXN_LOG", tableName=name_of(parts), path=log.uri),
    )


def _place_taken(parts: Sequence[str], log: DeltaLog) -> TableAlreadyExistsError:
    return TableAlreadyExistsError(
        f"The catalog's place for {name_of(parts)}, {log.uri}, already has a Delta table, and no entry names it.",
        hint="Give it a name with an explicit location, which DROP TABLE then leaves alone; or remove it.",
        condition=Condition.of(
            "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", tableId=name_of(parts), tableLocation=log.uri
        ),
    )


@contextmanager
def as_a_statement() -> Iterator[None]:
    """Replace the conditions of column errors by those that Spark's analyzer uses for a definition."""
    try:
        yield
    except SchemaError as error:
        if error.code == "DELTA_DUPLICATE_COLUMNS_FOUND.DATA":
            name = error.parameters["duplicateCols"]
            error.called(Condition.of("COLUMN_ALREADY_EXISTS", columnName=name))
        elif error.code == "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION":
            error.called(Condition.of("ALL_PARTITION_COLUMNS_NOT_ALLOWED"))
        raise


def _taken(parts: Sequence[str]) -> TableAlreadyExistsError:
    return TableAlreadyExistsError(
        f"{name_of(parts)} already exists.",
        hint="Say IF NOT EXISTS or OR REPLACE (createIfNotExists, createOrReplace), drop it first, or choose another "
        "name.",
        condition=Condition.of("TABLE_OR_VIEW_ALREADY_EXISTS", relationName=name_of(parts)),
    )


def enter(
    spark: SparkSession,
    parts: Sequence[str],
    snapshot: Snapshot,
    *,
    managed: bool | None,
    replace: bool = False,
    made: Snapshot | None = None,
) -> None:
    """Write the entry of a table that was just created, or update an older one.

    Args:
        spark: The session.
        parts: The name.
        snapshot: The table's current snapshot.
        managed: As in ``create_entry``.
        replace: As in ``create_entry``.
        made: The table's first version if the command just created it without rows. If the catalog refuses the entry
            and confirms that there is none, the log is deleted again.

    Raises:
        TableAlreadyExistsError: Another session took the name for a table at another location.
        DeltaEnvironmentError: The catalog refused. If the table exists, the hint says what to do.
    """
    try:
        create_entry(spark, parts, snapshot, managed=managed, replace=replace)
        now = look_up(spark, tuple(parts))
    except (Py4JError, PySparkException) as error:
        if made is not None and _is_surely_without_entry(spark, parts) and _unmake(spark, made, managed=bool(managed)):
            raise DeltaEnvironmentError(
                f"The catalog refused the entry {name_of(parts)}, so no table was created: {_cause(error)}",
                hint="Choose a name, columns and a location that the catalog accepts.",
            ) from error
        raise DeltaEnvironmentError(
            f"The table was created at {snapshot.table_uri}, but the catalog refused its entry {name_of(parts)}: "
            f"{_cause(error)}",
            hint=f"When the catalog works again: CREATE TABLE {name_of(parts)} USING delta LOCATION "
            f"'{snapshot.table_uri}'.",
            table=snapshot.table_uri,
        ) from error
    if isinstance(now, DeltaEntry) and normalize_uri(now.location) != normalize_uri(snapshot.table_uri):
        raise TableAlreadyExistsError(
            f"Another session has created {name_of(parts)} at {now.location}.",
            hint=f"The table created here is at {snapshot.table_uri}; give it another name.",
            table=snapshot.table_uri,
            condition=Condition.of("TABLE_OR_VIEW_ALREADY_EXISTS", relationName=name_of(parts)),
        )


def _is_surely_without_entry(spark: SparkSession, parts: Sequence[str]) -> bool:
    jvm = Jvm.of(spark)
    try:
        return not bool(jvm.catalog.tableExists(session_identifier(jvm, parts)))
    except (Py4JError, PySparkException):  # The catalog does not answer, so the entry may exist.
        return False


def _unmake(spark: SparkSession, made: Snapshot, *, managed: bool) -> bool:
    """Delete a table with only one version and no rows. If it is managed, also delete its empty folder."""
    log = log_for_path(spark, made.table_uri)
    if made.version != 0 or made.files.core.height or log.update().version != 0:
        return False
    own = [info.path for info in log.store.list_from("", prefix=LOG_DIR)]
    log.store.delete_many([path for path in own if parse_log_name(path.rpartition("/")[2]) is not None])
    if managed:
        jvm = Jvm.of(spark)
        place = jvm.path(jvm.location_uri(normalize_uri(made.table_uri)))
        files = place.getFileSystem(jvm.hadoop_conf())
        with suppress(Py4JError, PySparkException):  # The folder is not empty.
            files.delete(jvm.path(f"{place.toString()}/{LOG_DIR}"), False)
            files.delete(place, False)
    return True


def _is_taken(spark: SparkSession, parts: Sequence[str], entry: object, *, replaces: bool) -> bool:
    """Return whether a Delta table has the name and must not be replaced.

    Raises:
        TableAlreadyExistsError: Something else has the name.
    """
    if isinstance(entry, DeltaEntry):
        if entry.twin:
            raise TableAlreadyExistsError(
                f"{name_of(parts)} is the entry by which other engines read the Delta table at {entry.location}.",
                hint="Choose another name; the twin belongs to catalog_sync.",
                condition=Condition.of("TABLE_OR_VIEW_ALREADY_EXISTS", relationName=name_of(parts)),
            )
        return not replaces
    jvm = Jvm.of(spark)
    permanent = isinstance(entry, ViewEntry) and len(entry.qualifier) == 3
    if permanent or jvm.catalog.tableExists(session_identifier(jvm, parts)):
        raise TableAlreadyExistsError(
            f"{name_of(parts)} exists and is not a Delta table.",
            hint="Choose another name, or drop it first.",
            condition=Condition.of("DELTA_NOT_A_DELTA_TABLE", tableName=name_of(parts))
            if replaces
            else Condition.of("TABLE_OR_VIEW_ALREADY_EXISTS", relationName=name_of(parts)),
        )
    return False


def _place(
    spark: SparkSession, parts: Sequence[str] | None, entry: DeltaEntry | None, location: str | None
) -> tuple[str, bool]:
    """Return where the files go and whether the catalog owns them."""
    jvm = Jvm.of(spark)
    if entry is not None:
        if location is not None and normalize_uri(jvm.qualify(location)) != normalize_uri(entry.location):
            raise UnsafeOperationError(
                f"{name_of(parts or ())} is at {entry.location}, but the new definition says {location}.",
                hint="Leave the location out, or drop the table first: its files stay if it is external.",
                table=entry.location,
                condition=Condition.of(
                    "DELTA_TABLE_LOCATION_MISMATCH",
                    tableName=name_of(parts or ()),
                    existingTableLocation=entry.location,
                    tableLocation=location,
                ),
            )
        return entry.location, entry.managed
    if location is not None:
        return jvm.qualify(location), False
    assert parts is not None
    return default_place(jvm, session_identifier(jvm, parts)), True


def _refuse_another(there: Snapshot, definition: TableDefinition) -> None:
    """Refuse a definition that contradicts the existing table. It may state less."""
    assert there.metadata is not None
    schema, partition_columns = definition.schema, definition.partition_columns
    old = [(item.name.lower(), item.data_type, item.nullable) for item in there.schema.fields]
    new = [(item.name.lower(), item.data_type, item.nullable) for item in schema.fields]
    partitions = [name.lower() for name in partition_columns]
    same = partitions == [name.lower() for name in there.partition_columns]
    if schema.fields and (old != new or not same):
        condition = Condition.of(
            "DELTA_CREATE_TABLE_SCHEME_MISMATCH",
            path=there.table_uri,
            specifiedSchema=schema.tree(),
            existingSchema=there.schema.tree(),
        )
        if old == new:
            condition = Condition.of(
                "DELTA_CREATE_TABLE_WITH_DIFFERENT_PARTITIONING",
                path=there.table_uri,
                specifiedColumns=list(partition_columns),
                existingColumns=list(there.partition_columns),
            )
        raise SchemaMismatchError(
            f"The Delta table at {there.table_uri} has other columns than the ones given.\n"
            f"Its columns (partitioned by {list(there.partition_columns)}):\n{there.schema.tree()}\n"
            f"Those given (partitioned by {list(partition_columns)}):\n{schema.tree()}",
            hint="Leave the columns out to use the table unchanged, or give the columns that it has.",
            condition=condition,
        )
    clusters = [path_text(path) for path in clustering_paths(there)]
    named = [path_text(parse_path(name)) for name in definition.cluster_by]
    if schema.fields and [name.lower() for name in named] != [name.lower() for name in clusters]:
        raise InvalidArgumentError(
            f"The Delta table at {there.table_uri} is clustered by {', '.join(clusters) or 'nothing'}, "
            f"but the definition says {', '.join(named) or 'nothing'}.",
            hint="Leave the columns out, or name the same clustering columns.",
            condition=Condition.of(
                "DELTA_CREATE_TABLE_WITH_DIFFERENT_CLUSTERING",
                path=there.table_uri,
                specifiedColumns=named,
                existingColumns=clusters,
            ),
        )
    given = definition.properties
    options = {key for key in given if key.startswith(OPTION_PREFIX) or f"{OPTION_PREFIX}{key}" in given}
    wanted = {key: value for key, value in given.items() if key not in options and not _OF_PROTOCOL.match(key)}
    other = {key: value for key, value in wanted.items() if there.metadata.configuration.get(key) != value}
    if other:
        raise InvalidArgumentError(
            f"The Delta table at {there.table_uri} does not have {', '.join(f'{k}={v}' for k, v in other.items())}.",
            hint="Leave the properties out, and set them afterwards with ALTER TABLE … SET TBLPROPERTIES.",
            condition=Condition.of(
                "DELTA_CREATE_TABLE_WITH_DIFFERENT_PROPERTY", path=there.table_uri, specifiedProperties=sorted(other)
            ),
        )


def _cause(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    return text.strip().split("\n", 1)[0]
