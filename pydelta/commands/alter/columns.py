"""Plan a change of a table's columns. Pure; see ``plan_alter``.

Protocol: "Change Metadata", "Column Mapping", "Type Widening", "Default Columns".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydelta.commands.alter.clustering import clustering_paths
from pydelta.commands.alter.dependants import GENERATION, IDENTITY, dependants, refuse_needed, refuse_type_change
from pydelta.commands.alter.requests import (
    AddColumns,
    AlterPlan,
    ChangeColumn,
    ChangeColumns,
    DropColumns,
    MustHold,
    NewColumn,
    RenameColumn,
    ReplaceColumns,
    SyncIdentity,
)
from pydelta.commands.change_feed import refuse_reserved_names
from pydelta.commands.write.plan import check_columns, refuse_collations
from pydelta.errors import BindError, SchemaError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.protocol.actions import Metadata
from pydelta.protocol.column_mapping import MODE, mapped_metadata
from pydelta.protocol.identity import HIGH_WATER_MARK, identity_column, with_marks
from pydelta.protocol.schema import validate_names
from pydelta.protocol.schema_edits import (
    TYPE_CHANGES,
    add_field,
    all_paths,
    change_type,
    drop_field,
    edit_field,
    field_at,
    fields_along,
    move_field,
    name_of,
    parse_path,
    resolve,
)
from pydelta.protocol.sized_texts import LENGTH, SIZED, sized_field
from pydelta.protocol.types import DataType, PrimitiveType, StructField, StructType
from pydelta.txn import Operation

__all__ = ["add", "change", "change_together", "drop", "new_field", "rename", "replace", "sync_identity"]

CURRENT_DEFAULT: Final = "CURRENT_DEFAULT"
_STATS_COLUMNS: Final = "delta.dataSkippingStatsColumns"
_UPGRADE: Final = f"ALTER TABLE … SET TBLPROPERTIES ('{MODE}' = 'name') makes it possible, without a rewrite."


def add(snapshot: Snapshot, change: AddColumns) -> AlterPlan:
    """Add columns, which are null in existing rows."""
    schema = snapshot.schema
    logged = []
    for column in change.columns:
        parent = resolve(schema, column.path[:-1])
        field = new_field(column)
        inside = all_paths(StructType((field,)))
        if not column.nullable or not all(item.nullable for _, item in inside):
            what = "has a field that is NOT NULL" if column.nullable else "is NOT NULL"
            raise SchemaError(
                f"The new column {name_of(column.path)} {what}, and existing rows would have null in it.",
                hint="Add it without NOT NULL, fill it with UPDATE, then ALTER COLUMN … SET NOT NULL.",
                condition=Condition.of("DELTA_OPERATION_NOT_ALLOWED", operation="NOT NULL in ALTER TABLE ADD COLUMNS"),
            )
        if column.default is not None:
            raise UnsupportedFeatureError(
                f"The new column {name_of(column.path)} has a DEFAULT, which existing rows would not have.",
                features=("allowColumnDefaults",),
                hint="Add the column without it, then ALTER COLUMN … SET DEFAULT for the rows to come.",
                condition=Condition.of("WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED"),
            )
        if any(key == GENERATION or key.startswith(IDENTITY) for key in field.metadata):
            raise UnsupportedFeatureError(
                f"The new column {name_of(column.path)} is generated, and existing rows have no value for it.",
                features=("generatedColumns",),
                hint="Declare generated and identity columns when you create the table.",
            )
        schema = add_field(schema, parent, field, column.position)
        logged.append(_logged((*parent, field.name), _declared(field), column.position))
    metadata = _with_schema(snapshot, schema)
    return AlterPlan(metadata=metadata, operation=Operation(name="ADD COLUMNS", parameters={"columns": logged}))


def drop(snapshot: Snapshot, change: DropColumns) -> AlterPlan:
    """Drop columns without rewriting files; readers ignore the old data."""
    schema, metadata = snapshot.schema, _metadata(snapshot)
    paths: list[tuple[str, ...]] = []
    for named in change.paths:
        try:
            path = resolve(schema, named)
        except BindError:
            if change.if_exists:
                continue
            raise
        if path not in paths:
            paths.append(path)
    operation = Operation(name="DROP COLUMNS", parameters={"columns": [_shown(path) for path in paths]})
    if not paths:
        return AlterPlan(metadata=metadata, operation=operation, changed=False)
    _require_mapping(snapshot, "Columns can be dropped", Condition.of("DELTA_UNSUPPORTED_DROP_COLUMN", advice=_UPGRADE))
    going = {path[0].lower() for path in paths if len(path) == 1}
    rest = StructType(tuple(field for field in schema.fields if field.name.lower() not in going))
    for path in paths:
        needing = dependants(
            rest,
            metadata.configuration,
            path,
            partition_columns=snapshot.partition_columns,
            clustering=clustering_paths(snapshot),
        )
        refuse_needed(path, needing, "dropped")
        _require_field(schema, path, "dropped")
    for path in paths:
        try:
            schema = drop_field(schema, resolve(schema, path))
        except BindError:  # It was dropped together with its struct.
            continue
    configuration = _stats_columns(metadata.configuration, lambda path: None if _below(path, paths) else path)
    return AlterPlan(metadata=_with_schema(snapshot, schema, configuration), operation=operation)


def rename(snapshot: Snapshot, change: RenameColumn) -> AlterPlan:
    """Rename a column; files, partition values and clustering use the physical name and stay."""
    schema, metadata = snapshot.schema, _metadata(snapshot)
    path = resolve(schema, change.path)
    new = (*path[:-1], change.name)
    operation = Operation(
        name="RENAME COLUMN", parameters={"oldColumnPath": _shown(path), "newColumnPath": _shown(new)}
    )
    _require_mapping(
        snapshot, "Columns can be renamed", Condition.of("DELTA_UNSUPPORTED_RENAME_COLUMN", advice=_UPGRADE)
    )
    _require_field(schema, path, "renamed")
    if new == path:
        return AlterPlan(metadata=metadata, operation=operation, changed=False)
    siblings = _siblings(schema, path)
    if any(name.lower() == change.name.lower() and name != path[-1] for name in siblings):
        raise SchemaError(
            f"{name_of(path)} cannot be renamed to {change.name!r}: there is already such a column.",
            hint="Names compare ignoring case. Choose another one.",
            condition=Condition.of("FIELD_ALREADY_EXISTS", op="rename", fieldNames=name_of(new)),
        )
    refuse_needed(path, dependants(schema, metadata.configuration, path), "renamed")
    schema = edit_field(schema, path, lambda field: field.replace(name=change.name))
    partitions = tuple(
        change.name if len(path) == 1 and column.lower() == path[0].lower() else column
        for column in metadata.partition_columns
    )

    def renamed(column: tuple[str, ...]) -> tuple[str, ...]:
        return (*new, *column[len(path) :]) if _below(column, [path]) else column

    configuration = _stats_columns(metadata.configuration, renamed)
    made = _with_schema(snapshot, schema, configuration).replace(partition_columns=partitions)
    return AlterPlan(metadata=made, operation=operation)


def change(snapshot: Snapshot, change: ChangeColumn) -> AlterPlan:
    """Change type, nullability, comment, default or position of one column."""
    schema, rules, path = _changed(snapshot, snapshot.schema, change)
    logged = _logged(path, field_at(schema, path), change.position)
    return _changed_plan(snapshot, schema, rules, Operation(name="CHANGE COLUMN", parameters=logged))


def change_together(snapshot: Snapshot, change: ChangeColumns) -> AlterPlan:
    """Change several columns in one version, or none of them."""
    schema = snapshot.schema
    rules: list[MustHold] = []
    paths = []
    for one in change.changes:
        schema, rule, path = _changed(snapshot, schema, one)
        rules += rule
        paths.append(path)
    logged = [_logged(path, field_at(schema, path), None)["column"] for path in paths]
    return _changed_plan(snapshot, schema, rules, Operation(name="CHANGE COLUMNS", parameters={"columns": logged}))


def _changed_plan(snapshot: Snapshot, schema: StructType, rules: Sequence[MustHold], operation: Operation) -> AlterPlan:
    if schema == snapshot.schema:
        return AlterPlan(metadata=_metadata(snapshot), operation=operation, changed=False)
    return AlterPlan(metadata=_with_schema(snapshot, schema), operation=operation, must_hold=tuple(rules))


def _changed(
    snapshot: Snapshot, schema: StructType, change: ChangeColumn
) -> tuple[StructType, Sequence[MustHold], tuple[str, ...]]:
    """Return the schema with a column changed, the conditions on its rows, and the column's path."""
    path = resolve(schema, change.path)
    rules: Sequence[MustHold] = ()
    if change.data_type is not None:
        schema = _retyped(snapshot, schema, path, change.data_type)
    if change.drop_default or any(item is not None for item in (change.comment, change.position, change.default)):
        _require_field(schema, path, "changed but for its type")
    if change.nullable is not None:
        schema, rules = _with_nullability(schema, path, change.nullable)
    if change.comment is not None:
        schema = edit_field(schema, path, lambda field: _with(field, "comment", change.comment))
    if change.default is not None or change.drop_default:
        schema = _with_default(schema, path, None if change.drop_default else change.default)
    if change.position is not None:
        schema = move_field(schema, path, change.position)
    return schema, rules, path


def sync_identity(snapshot: Snapshot, change: SyncIdentity) -> AlterPlan:
    """Move an identity column's mark to the furthest value in the rows; it never moves back."""
    metadata, identity = _metadata(snapshot), identity_column(snapshot.schema, change.column)
    field = field_at(snapshot.schema, (identity.column,))
    unmarked = {key: value for key, value in field.metadata.items() if key != HIGH_WATER_MARK}
    logged = _logged((identity.column,), field.replace(metadata=unmarked), None)
    operation = Operation(name="CHANGE COLUMN", parameters=logged)
    if change.furthest is None:
        return AlterPlan(metadata=metadata, operation=operation, changed=False)
    schema = with_marks(snapshot.schema, {identity.column: identity.mark_for(change.furthest)})
    if schema == snapshot.schema:
        return AlterPlan(metadata=metadata, operation=operation, changed=False)
    return AlterPlan(metadata=_with_schema(snapshot, schema), operation=operation)


def replace(snapshot: Snapshot, change: ReplaceColumns) -> AlterPlan:
    """Replace all columns: those with an existing name keep their data, new ones are null in existing rows."""
    old, metadata = snapshot.schema, _metadata(snapshot)
    named = {column.path[0].lower() for column in change.columns}
    left_out = [field.name for field in old.fields if field.name.lower() not in named]
    if left_out:
        what = f"REPLACE COLUMNS leaves out {', '.join(left_out)}. Columns can be dropped"
        _require_mapping(snapshot, what, Condition.of("DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP", details=what))
    added = [column.path[0] for column in change.columns if old.field(column.path[0]) is None]
    if left_out and added:
        what = f"REPLACE COLUMNS leaves out {', '.join(left_out)} and adds {', '.join(added)}"
        raise SchemaError(
            f"{what}: values of a column that was meant to be renamed would be lost.",
            hint="Write ALTER TABLE … RENAME COLUMN, DROP COLUMNS and ADD COLUMNS as separate statements.",
            condition=Condition.of("DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP", details=what, oldSchema=old.tree()),
        )
    dropped = drop(snapshot, DropColumns(paths=tuple((name,) for name in left_out))).metadata if left_out else metadata
    fields: list[StructField] = []
    widening = snapshot.properties.enable_type_widening
    for column in change.columns:
        existing = old.field(column.path[0])
        field = new_field(column)
        if existing is None:
            if not column.nullable:
                raise SchemaError(
                    f"The new column {field.name} is NOT NULL, and existing rows would have null in it.",
                    hint="Leave NOT NULL out, fill the column with UPDATE, then ALTER COLUMN … SET NOT NULL.",
                    condition=Condition.of("DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP", oldSchema=old.tree()),
                )
            fields.append(field)
            continue
        if existing.nullable and not column.nullable:
            raise SchemaError(
                f"REPLACE COLUMNS would make {existing.name} NOT NULL, but it is nullable now.",
                hint=f"ALTER TABLE … ALTER COLUMN {name_of((existing.name,))} SET NOT NULL checks the rows first.",
                condition=Condition.of("DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP", oldSchema=old.tree()),
            )
        retyped = change_type(StructType((existing,)), (existing.name,), field.data_type, widening=widening).fields[0]
        if retyped.data_type != existing.data_type:
            refuse_type_change(snapshot, (existing.name,))
        comment = {"comment": column.comment} if column.comment is not None else {}
        fields.append(retyped.replace(nullable=column.nullable, metadata={**retyped.metadata, **comment}))
    schema = StructType(tuple(fields))
    logged = [_logged((field.name,), field, None) for field in fields]
    operation = Operation(name="REPLACE COLUMNS", parameters={"columns": [item["column"] for item in logged]})
    if schema == old:
        return AlterPlan(metadata=metadata, operation=operation, changed=False)
    return AlterPlan(metadata=_with_schema(snapshot, schema, dropped.configuration), operation=operation)


def new_field(column: NewColumn) -> StructField:
    """Build the field of a new column, with string length, comment and default in its metadata."""
    metadata = dict(column.metadata)
    if column.comment is not None:
        metadata["comment"] = column.comment
    if column.default is not None:
        metadata[CURRENT_DEFAULT] = column.default
    return sized_field(StructField(column.path[-1], column.data_type, column.nullable, metadata))


def _metadata(snapshot: Snapshot) -> Metadata:
    assert snapshot.metadata is not None
    return snapshot.metadata


def _with_schema(snapshot: Snapshot, schema: StructType, configuration: Mapping[str, str] | None = None) -> Metadata:
    """Return the definition with another schema, checking names and types and assigning ids to new columns."""
    old = _metadata(snapshot)
    validate_names(schema, column_mapping=snapshot.column_mapping_mode != "none")
    check_columns(schema)
    refuse_collations(schema, but=snapshot.schema)
    if snapshot.properties.enable_change_data_feed:
        refuse_reserved_names(schema.fields)
    made = old.replace(schema_string=schema.to_json())
    if configuration is not None:
        made = made.replace(configuration=dict(configuration))
    return mapped_metadata(made, old) if snapshot.column_mapping_mode != "none" else made


def _require_mapping(snapshot: Snapshot, what: str, condition: Condition) -> None:
    if snapshot.column_mapping_mode == "none":
        raise UnsupportedFeatureError(
            f"{what} only in a table with column mapping: this one's files use the columns' names.",
            features=("columnMapping",),
            hint=_UPGRADE,
            condition=condition,
        )


def _require_field(schema: StructType, path: tuple[str, ...], what: str) -> None:
    if fields_along(schema, path)[-1] is None:
        raise SchemaError(
            f"{name_of(path)} is a part of {name_of(path[:-1])} and cannot be {what}.",
            hint="Name a column, or a field of a struct.",
            condition=Condition.of("DELTA_UNSUPPORTED_COMMENT_MAP_ARRAY", fieldPath=name_of(path))
            if what not in ("dropped", "renamed")
            else Condition.of(
                "DELTA_UNSUPPORTED_DROP_NESTED_COLUMN_FROM_NON_STRUCT_TYPE", struct=field_at(schema, path).data_type
            ),
        )


def _below(path: Sequence[str], ancestors: Sequence[Sequence[str]]) -> bool:
    """Return whether a path is one of the others or below it, ignoring case."""
    folded = [part.lower() for part in path]
    return any(folded[: len(item)] == [part.lower() for part in item] for item in ancestors)


def _siblings(schema: StructType, path: tuple[str, ...]) -> tuple[str, ...]:
    level: DataType = field_at(schema, path[:-1]).data_type if len(path) > 1 else schema
    return level.names if isinstance(level, StructType) else ()


def _stats_columns(configuration: Mapping[str, str], change: Any) -> dict[str, str]:
    """Return the properties with ``change`` applied to each statistics column; a result of None removes the column."""
    if _STATS_COLUMNS not in configuration:
        return dict(configuration)
    texts = re.findall(r"((?:`(?:[^`]|``)*`|[^,`])+)", configuration[_STATS_COLUMNS])
    kept = [name_of(path) for text in texts if (path := change(parse_path(text.strip()))) is not None]
    rest = {key: value for key, value in configuration.items() if key != _STATS_COLUMNS}
    return {**rest, _STATS_COLUMNS: ",".join(kept)} if kept else rest


def _with(field: StructField, key: str, value: Any) -> StructField:
    """Return the field with one entry of its metadata set or removed."""
    rest = {name: item for name, item in field.metadata.items() if name != key}
    return field.replace(metadata=rest if value is None else {**rest, key: value})


def _retyped(snapshot: Snapshot, schema: StructType, path: tuple[str, ...], data_type: DataType) -> StructType:
    """Return the schema with a column of another type; the length limit of a string can only be raised or removed."""
    current = field_at(schema, path)
    declared = current.metadata.get(LENGTH)
    wanted = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if declared is not None or SIZED.fullmatch(wanted):
        if not _longer(str(declared) if declared is not None else None, wanted):
            raise SchemaError(
                f"{name_of(path)} is {declared or current.data_type} and cannot become {data_type}.",
                hint="The limit of a string can only be raised or removed: varchar(n) to a longer varchar, or to "
                "string.",
                condition=Condition.of(
                    "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
                    fieldPath=name_of(path),
                    oldField=declared or current.data_type,
                    newField=data_type,
                ),
            )
        limit = wanted if SIZED.fullmatch(wanted) else None
        return edit_field(schema, path, lambda field: _with(field, LENGTH, limit))
    changed = change_type(schema, path, data_type, widening=snapshot.properties.enable_type_widening)
    if changed != schema:
        refuse_type_change(snapshot, path)
    return changed


def _longer(old: str | None, new: str) -> bool:
    """Return whether every string of a declared limit fits another one; None is a string without a limit."""
    if old is None:
        return False
    if new == "string" or old == new:
        return True
    before, after = SIZED.fullmatch(old), SIZED.fullmatch(new)
    if before is None or after is None or after.group(1) != "varchar":
        return False
    return int(after.group(2)) >= int(before.group(2))


def _with_nullability(
    schema: StructType, path: tuple[str, ...], nullable: bool
) -> tuple[StructType, tuple[MustHold, ...]]:
    field = field_at(schema, path)
    if field.nullable == nullable:
        return schema, ()
    rules: tuple[MustHold, ...] = ()
    if fields_along(schema, path)[-1] is None:
        raise _fixed_nullability(path, field, nullable)
    if not nullable:
        if any(item is None for item in fields_along(schema, path)):
            raise _fixed_nullability(path, field, nullable)
        missing = " OR ".join([*(f"{name_of(path[:end])} IS NULL" for end in range(1, len(path)))])
        not_null = f"{name_of(path)} IS NOT NULL"
        rules = (
            MustHold(
                what=f"NOT NULL of {name_of(path)}",
                expression=f"{missing} OR {not_null}" if missing else not_null,
                not_null=name_of(path),
            ),
        )
    return edit_field(schema, path, lambda item: item.replace(nullable=nullable)), rules


def _fixed_nullability(path: tuple[str, ...], field: StructField, nullable: bool) -> SchemaError:
    change = "made nullable" if nullable else "made NOT NULL"
    return SchemaError(
        f"{name_of(path)} is inside an array or map, and cannot be {change}.",
        hint="NOT NULL is for columns and for fields of structs that are in no array or map.",
        condition=Condition.of(
            "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
            fieldPath=name_of(path),
            oldField=field,
            newField=field.replace(nullable=nullable),
        ),
    )


def _with_default(schema: StructType, path: tuple[str, ...], default: str | None) -> StructType:
    field = field_at(schema, path)
    if default is None:
        return edit_field(schema, path, lambda item: _with(item, CURRENT_DEFAULT, None))
    if len(path) > 1:
        raise SchemaError(
            f"{name_of(path)} is a field of {name_of(path[:-1])}, and only whole columns have a default.",
            hint="Set a default for the whole column.",
        )
    if any(key == GENERATION or key.startswith(IDENTITY) for key in field.metadata):
        raise SchemaError(
            f"{name_of(path)} is a generated or identity column, so it has no default.", hint="Leave DEFAULT out."
        )
    return edit_field(schema, path, lambda item: _with(item, CURRENT_DEFAULT, default))


def _shown(path: Sequence[str]) -> str:
    """Format a path as in the history: backticks only around names with a dot."""
    return ".".join(f"`{part}`" if "." in part else part for part in path)


def _kind(data_type: DataType) -> str:
    """Format a type as in the history: for a nested one only its kind."""
    described = data_type.to_dict()
    return described if isinstance(described, str) else str(described["type"])


def _declared(field: StructField) -> StructField:
    """Return a new column as in the history: a string of limited length has its declared type."""
    declared = field.metadata.get(LENGTH)
    return field if declared is None else _with(field, LENGTH, None).replace(data_type=PrimitiveType(str(declared)))


def _logged(path: tuple[str, ...], field: StructField, position: Any) -> dict[str, Any]:
    """Describe a column as in the history."""
    column = {
        "name": _shown(path),
        "type": _kind(field.data_type),
        "nullable": field.nullable,
        "metadata": {key: item for key, item in field.metadata.items() if key != TYPE_CHANGES},
    }
    return {"column": column} if position is None else {"column": column, "position": str(position)}
