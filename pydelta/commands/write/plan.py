"""Plan a write: its effect on the table's rows, and the table's new definition. Pure.

::

    no table  -> CREATE      schema of the data, properties from the options and the session's defaults
    a table   -> SKIP        ignore, or a txnVersion that already landed
              -> APPEND      schema checked, or merged
              -> OVERWRITE   every file is removed; with overwriteSchema, or a replace, the definition is replaced
              -> REPLACE_WHERE   rows of a condition are removed
              -> REPLACE_MATCHES rows that some row of the data matches are removed
              -> DYNAMIC     partitions that the data has rows for are removed
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydelta.commands.alter.clustering import clustering_paths, path_text
from pydelta.commands.alter.dependants import refuse_type_change
from pydelta.commands.change_feed import refuse_reserved_names
from pydelta.commands.write.matches import key_columns
from pydelta.commands.write.options import WriteMode, WriteOptions
from pydelta.errors import (
    InvalidArgumentError,
    SchemaError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.protocol.actions import Metadata
from pydelta.protocol.column_mapping import MODE, mapped_metadata, mode_of
from pydelta.protocol.evolution import with_nullable_parts
from pydelta.protocol.features import is_request, partition_columns_in_files
from pydelta.protocol.identity import check_identities, refuse_explicit
from pydelta.protocol.row_tracking import with_materialized_names
from pydelta.protocol.schema import (
    EXISTENCE_DEFAULT,
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    check_write_compatible,
    merge_schemas,
    parse_schema,
    to_arrow_type,
    validate_names,
)
from pydelta.protocol.schema_edits import TYPE_CHANGES, all_paths, field_at, map_fields
from pydelta.settings import Settings, TableProperties
from pydelta.settings.clock import epoch_ms

__all__ = [
    "TableDefinition",
    "WriteKind",
    "WritePlan",
    "check_columns",
    "definition_parameters",
    "evolved_metadata",
    "new_metadata",
    "plan_write",
    "refuse_collations",
    "stored_schema",
]

_PARTITIONABLE_NOT: Final = ("void", "variant")
_SESSION_METADATA: Final = ("CURRENT_DEFAULT", EXISTENCE_DEFAULT, "__")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """The definition of a new table.

    Args:
        schema: The columns, with generation expressions, defaults and NOT NULL in the fields.
        partition_columns: Names ignoring case, in order.
        cluster_by: Columns (dotted for nested fields) that OPTIMIZE orders rows by, instead of partitions.
        properties: Table properties, which override the session's defaults.
        description: The table's comment.
        name: Name for the definition.
    """

    schema: StructType
    partition_columns: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    name: str | None = None


class WriteKind(enum.Enum):
    """The effect of a write on the existing rows."""

    SKIP = "skip"
    APPEND = "append"
    OVERWRITE = "overwrite"
    REPLACE_WHERE = "replace where"
    REPLACE_MATCHES = "replace matches"
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """The plan of a write.

    Args:
        kind: The effect of a write on the existing rows.
        schema: The table's schema after the commit.
        partition_columns: Likewise, in the schema's spelling.
        metadata: The new definition, or None if unchanged.
        configuration: Table properties after the commit.
        operation: Name for the history.
        parameters: Parameters for the history.
        partitions_in_files: Whether data files also contain the partition columns.
    """

    kind: WriteKind
    schema: StructType
    partition_columns: tuple[str, ...]
    metadata: Metadata | None
    configuration: Mapping[str, str]
    operation: str
    parameters: Mapping[str, Any]
    partitions_in_files: bool = False

    @property
    def properties(self) -> TableProperties:
        """The properties, parsed."""
        return TableProperties.parse(self.configuration)


def plan_write(snapshot: Snapshot, data: StructType, options: WriteOptions, settings: Settings) -> WritePlan:
    """Decide what a write does. Pure, except for the id and time of a new table.

    Args:
        snapshot: The table; version -1 if there is none.
        data: Schema of the rows to write.
        options: The requested options.
        settings: The session's settings, for the properties of a new table.

    Raises:
        TableAlreadyExistsError: The table exists, and the mode refuses that.
        TableNotFoundError: The mode replaces a table, but there is none.
        SchemaMismatchError: The data does not fit; the error shows both schemas and names the differing columns.
        SchemaError: Columns that the format cannot hold.
        InvalidArgumentError: The partition columns differ from the table's.
        UnsafeOperationError: The data has values for a column whose values are always generated.
        UnsupportedFeatureError: A column type cannot be written; the error names the column.
    """
    exists = snapshot.version >= 0
    if exists and options.mode in (WriteMode.ERROR_IF_EXISTS, WriteMode.CREATE):
        raise TableAlreadyExistsError(
            f"There is a Delta table at {snapshot.table_uri}, at version {snapshot.version}.",
            hint="Write with mode append, overwrite or ignore, or choose another location.",
            condition=Condition.of("DELTA_PATH_EXISTS", path=snapshot.table_uri),
        )
    if not exists and options.mode is WriteMode.REPLACE:
        raise TableNotFoundError(
            f"There is no Delta table at {snapshot.table_uri} to replace.",
            hint="Use create, or createOrReplace.",
            condition=Condition.of("TABLE_OR_VIEW_NOT_FOUND", relationName=snapshot.table_uri),
        )
    if exists and options.mode is WriteMode.IGNORE:
        return _plan(WriteKind.SKIP, snapshot, None, options)
    if not data.fields:
        raise SchemaError(
            "The data has no columns.",
            hint="Select at least one column.",
            condition=Condition.of("DELTA_EMPTY_DATA"),
        )
    data = stored_schema(data)
    if not exists:
        if options.replace_using is not None:
            key_columns(options.replace_using, data, data)
        return _plan(WriteKind.APPEND, snapshot, _definition(None, data, options, settings), options)
    if options.mode.replaces_table or (options.mode is WriteMode.OVERWRITE and options.overwrite_schema):
        definition = _definition(snapshot, data, options, settings)
        return _plan(WriteKind.OVERWRITE, snapshot, definition, options)
    refuse_explicit(snapshot.schema, data)
    _check_partitioning(snapshot, options)
    kind = WriteKind.APPEND
    if options.mode is WriteMode.OVERWRITE:
        kind = WriteKind.OVERWRITE
        if options.replace_where is not None:
            kind = WriteKind.REPLACE_WHERE
        elif options.replaces_matches:
            kind = WriteKind.REPLACE_MATCHES
        elif options.dynamic and snapshot.partition_columns:
            kind = WriteKind.DYNAMIC
    return _plan(kind, snapshot, _evolved(snapshot, data, options), options)


def _plan(kind: WriteKind, snapshot: Snapshot, metadata: Metadata | None, options: WriteOptions) -> WritePlan:
    if metadata is not None and not options.data_change:
        what = "create the table" if snapshot.version < 0 else "change the table's schema or partitioning"
        raise InvalidArgumentError(
            f"The option dataChange is false, so the write must not {what}.",
            hint="Leave dataChange out: it is for writes that only rearrange the rows of a table.",
            condition=Condition.of("DELTA_DATA_CHANGE_FALSE", op=what),
        )
    final = metadata or snapshot.metadata
    assert final is not None
    operation, parameters = _describe(snapshot, final, options)
    return WritePlan(
        kind=kind,
        schema=parse_schema(final.schema_string),
        partition_columns=final.partition_columns,
        metadata=metadata,
        configuration=final.configuration,
        operation=operation,
        parameters=parameters,
        partitions_in_files=partition_columns_in_files(snapshot.protocol, final.configuration),
    )


def _describe(snapshot: Snapshot, final: Metadata, options: WriteOptions) -> tuple[str, dict[str, Any]]:
    """Return operation name and parameters as Delta users know them from the history."""
    mode = options.mode
    narrows: dict[str, Any] = {}
    if options.replace_where is not None:
        narrows["predicate"] = str(options.replace_where)
    if options.replace_using is not None:
        narrows["replaceUsingCols"] = f"({','.join(options.replace_using)})"
    if options.replace_on is not None:
        narrows["replaceOnCond"] = str(options.replace_on)
    if options.dynamic and snapshot.version >= 0:
        narrows["isDynamicPartitionOverwrite"] = True
    changes: dict[str, Any] = {"canMergeSchema": True} if options.merge_schema else {}
    if options.overwrite_schema:
        changes["canOverwriteSchema"] = True
    by_table = options.by_save_as_table
    replaces = mode.replaces_table or (by_table and mode is WriteMode.OVERWRITE and options.replaces_all)
    if replaces or mode is WriteMode.CREATE or (by_table and snapshot.version < 0):
        clustered = options.cluster_by
        if clustered is None:
            clustered = (
                ()
                if mode.replaces_table or options.overwrite_schema
                else tuple(map(path_text, clustering_paths(snapshot)))
            )
        parameters = definition_parameters(final, managed=options.managed, cluster_by=clustered)
        if replaces and not mode.replaces_table:
            parameters |= {**narrows, **changes, "isV1SaveAsTableOverwrite": True}
        verb = "CREATE"
        if replaces:
            verb = "REPLACE" if mode is WriteMode.REPLACE else "CREATE OR REPLACE"
        return f"{verb} TABLE AS SELECT", parameters
    given = options.partition_by if options.partition_by is not None else ()
    partitions = list(final.partition_columns if snapshot.version < 0 else given)
    return "WRITE", {"mode": mode.value, **narrows, "partitionBy": partitions, **changes}


def definition_parameters(metadata: Metadata, *, managed: bool, cluster_by: Sequence[str]) -> dict[str, Any]:
    """Describe a new definition for the history, without properties that only request a protocol.

    Args:
        metadata: The new definition.
        managed: Whether the files belong to the catalog.
        cluster_by: As the user named the columns.
    """
    properties = {key: value for key, value in metadata.configuration.items() if not is_request(key)}
    return {
        "isManaged": managed,
        "description": metadata.description,
        "partitionBy": list(metadata.partition_columns),
        "clusterBy": list(cluster_by),
        "properties": properties,
    }


def stored_schema(data: StructType) -> StructType:
    """Return the data's schema as a table stores it: nullable, without metadata of sessions and other tables.

    Raises:
        UnsupportedFeatureError: A Delta table cannot hold a type; the error names the column.
        SchemaError: The format does not allow a name.
    """
    schema = with_nullable_parts(map_fields(data, _stored_field))
    assert isinstance(schema, StructType)
    check_columns(schema)
    return schema


def _stored_field(field: StructField) -> StructField:
    kept = {key: value for key, value in field.metadata.items() if not key.startswith(("delta.", *_SESSION_METADATA))}
    for key in ("__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS"):
        if (given := field.metadata.get(key)) is not None:
            kept[key] = given
    return field.replace(metadata=kept)


def check_columns(schema: StructType) -> None:
    """Check that the format can hold columns of these types.

    Raises:
        UnsupportedFeatureError: It cannot hold a type; the error names the column.
    """
    for item in schema.fields:
        try:
            to_arrow_type(item.data_type)
        except UnsupportedFeatureError as error:
            raise UnsupportedFeatureError(
                f"Column {item.name!r} is {item.data_type}: {error.message}", features=error.features, hint=error.hint
            ).called(error.condition) from error


def refuse_collations(schema: StructType, *, but: StructType | None = None) -> None:
    """Check that no column has a collation, whose table feature is only a preview.

    Args:
        schema: The columns of a definition.
        but: Existing columns, which may have one.

    Raises:
        UnsupportedFeatureError: A column has one; the error names it.
    """
    existing = {item.name.lower() for item in but.fields if _is_collated(item)} if but is not None else set()
    for item in schema.fields:
        if _is_collated(item) and item.name.lower() not in existing:
            raise UnsupportedFeatureError(
                f"Column {item.name!r} has a collation, which no table feature of the released protocol keeps.",
                features=("collations",),
                hint="Leave COLLATE out of the column, and write it in the queries that compare its strings.",
                condition=Condition.of("DELTA_UNSUPPORTED_DATA_TYPES", dataTypeList=item.name),
            )


def _is_collated(column: StructField) -> bool:
    """Return whether a string in a column, at any depth, has a collation."""
    return '"__COLLATIONS":' in StructType((column,)).to_json().replace(" ", "")


def new_metadata(definition: TableDefinition, *, settings: Settings, replaced: Metadata | None = None) -> Metadata:
    """Build the definition of a new table, or of one that replaces ``replaced`` and keeps its id.

    Args:
        definition: The table's definition, except for clustering. Partition columns keep the schema's spelling.
        settings: For default properties.
        replaced: The previous definition.

    Raises:
        SchemaError: All columns are partition columns, Parquet does not allow a name, or a partition column is missing
            or has an unsuitable type.
        InvalidArgumentError: The column mapping mode is unknown.
    """
    schema = definition.schema
    configuration = with_materialized_names({**settings.default_properties, **definition.properties})
    validate_names(schema, column_mapping=mode_of(configuration) != "none")
    refuse_collations(schema)
    if TableProperties.parse(configuration).enable_change_data_feed:
        refuse_reserved_names(schema.fields)
    partitions = tuple(_partition_field(schema, column).name for column in definition.partition_columns)
    if len({column.lower() for column in partitions}) < len(partitions):
        raise SchemaError(
            f"A partition column is named twice: {', '.join(partitions)}.",
            hint="Name each once.",
            condition=Condition.of("DELTA_DUPLICATE_COLUMNS_FOUND.PARTITION_COLUMNS", duplicateCols=partitions),
        )
    if schema.fields and len(partitions) == len(schema.fields):
        raise SchemaError(
            "Every column is a partition column, and data files need at least one other.",
            hint="Add a column.",
            condition=Condition.of("DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION"),
        )
    made = Metadata(
        id=replaced.id if replaced else str(uuid.uuid4()),
        name=definition.name,
        description=definition.description,
        schema_string=schema.to_json(),
        partition_columns=partitions,
        configuration=configuration,
        created_time=epoch_ms(),
    )
    check_identities(schema, partitions)
    return mapped_metadata(made, replaced, fresh=True)


def _partition_field(schema: StructType, column: str) -> StructField:
    field = schema.field(column)
    if field is None:
        raise SchemaError(
            f"The partition column {column!r} is not among the columns.",
            hint=f"The columns are: {', '.join(schema.names)}.",
            condition=Condition.of("DELTA_PARTITION_COLUMN_NOT_FOUND", columnName=column, schemaMap=schema.names),
        )
    data_type = field.data_type
    if isinstance(data_type, (StructType, ArrayType, MapType)) or (
        isinstance(data_type, PrimitiveType) and data_type.name in _PARTITIONABLE_NOT
    ):
        raise SchemaError(
            f"Column {field.name!r} is {data_type}, and a table cannot be partitioned by that.",
            hint="Partition by a column of a simple type.",
            condition=Condition.of("INVALID_PARTITION_COLUMN_DATA_TYPE", type=data_type),
        )
    return field


def _definition(snapshot: Snapshot | None, data: StructType, options: WriteOptions, settings: Settings) -> Metadata:
    """Build the definition of a table that this write creates or replaces."""
    old = snapshot.metadata if snapshot else None
    if old is not None and not options.mode.replaces_table:  # overwriteSchema keeps the properties, name and comment.
        partitions = options.partition_by if options.partition_by is not None else _kept_partitions(old, data)
        properties = {**options.properties, MODE: mode_of(old.configuration)}
        same = TableDefinition(schema=data, partition_columns=partitions, properties=properties)
        made = new_metadata(same, settings=Settings(), replaced=old)
        kept = old.replace(schema_string=made.schema_string, partition_columns=made.partition_columns)
        return mapped_metadata(kept, old, fresh=True)
    definition = TableDefinition(
        schema=data,
        partition_columns=options.partition_by or (),
        properties=options.properties,
        description=options.description,
    )
    return new_metadata(definition, settings=settings, replaced=old)


def _kept_partitions(old: Metadata, data: StructType) -> tuple[str, ...]:
    """Keep the partitioning of a new schema, where the caller has no way to name one."""
    missing = [column for column in old.partition_columns if data.field(column) is None]
    if missing:
        raise InvalidArgumentError(
            f"The new schema lacks the partition column {', '.join(missing)}.",
            hint="Give rows with it, or overwrite the table in Spark, where partitionBy names the new partitioning.",
        )
    return old.partition_columns


def _evolved(snapshot: Snapshot, data: StructType, options: WriteOptions) -> Metadata | None:
    """Return the definition with the data's new columns, or None if it is unchanged."""
    assert snapshot.metadata is not None
    if not options.merge_schema:
        check_write_compatible(snapshot.schema, data)
        return None
    made = evolved_metadata(snapshot, data)
    check_write_compatible(parse_schema(made.schema_string), data)
    return None if made == snapshot.metadata else made


def evolved_metadata(snapshot: Snapshot, data: StructType, *, casts: bool = False) -> Metadata:
    """Return the table's definition with the data's new columns at the end, and wider types where enabled.

    Args:
        snapshot: The table.
        data: Schema of the rows, as ``stored_schema`` returns it.
        casts: The rows are cast to the table's types later, so types may differ.

    Raises:
        SchemaMismatchError: The types of a column are incompatible.
        SchemaError: A name is not allowed for a column.
        UnsafeOperationError: A column would be widened, but a constraint, a generated column or the partitioning
            depends on its type.

    Protocol: "Column Mapping", "Type Widening".
    """
    old, schema = snapshot.metadata, snapshot.schema
    assert old is not None
    merged = merge_schemas(schema, data, allow_widening=snapshot.properties.enable_type_widening, casts=casts)
    if merged == schema:
        return old
    mapped = snapshot.column_mapping_mode != "none"
    validate_names(merged, column_mapping=mapped)
    check_columns(merged)
    refuse_collations(merged, but=schema)
    if snapshot.properties.enable_change_data_feed:
        refuse_reserved_names(merged.fields)
    for path, item in all_paths(schema):
        after = field_at(merged, path)
        if len(after.metadata.get(TYPE_CHANGES, ())) > len(item.metadata.get(TYPE_CHANGES, ())):
            refuse_type_change(snapshot, path)
    made = old.replace(schema_string=merged.to_json())
    return mapped_metadata(made, old) if mapped else made


def _check_partitioning(snapshot: Snapshot, options: WriteOptions) -> None:
    if options.partition_by is None:
        return
    given = [column.lower() for column in options.partition_by]
    if given != [column.lower() for column in snapshot.partition_columns]:
        raise SchemaMismatchError(
            f"The table is partitioned by ({', '.join(snapshot.partition_columns)}), "
            f"but the write asks for ({', '.join(options.partition_by)}).",
            hint="Leave partitionBy out, or replace the partitioning with mode overwrite and overwriteSchema.",
            condition=Condition.of("DELTA_METADATA_MISMATCH"),
        )
