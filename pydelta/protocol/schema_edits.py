"""Add, change, move or drop a column of a schema by its path. Pure.

A path lists fields from the top level down and enters arrays and maps by ``element``, ``key`` and ``value``.
Names compare case-insensitively. Unchanged fields keep spelling and metadata. Protocol: "Type Widening".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydelta.errors import BindError, SchemaError
from pydelta.errors.conditions import Condition
from pydelta.errors.suggestions import nearest
from pydelta.protocol.evolution import can_widen
from pydelta.protocol.names import quoted
from pydelta.protocol.types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType

__all__ = [
    "TYPE_CHANGES",
    "After",
    "First",
    "Position",
    "add_field",
    "all_paths",
    "change_type",
    "drop_field",
    "edit_field",
    "field_at",
    "fields_along",
    "map_fields",
    "move_field",
    "name_of",
    "parse_path",
    "resolve",
    "suggestion",
]

Path: TypeAlias = tuple[str, ...]

TYPE_CHANGES: Final = "delta.typeChanges"
"""Field metadata: the earlier types of a column, oldest first."""


@dataclass(frozen=True, slots=True)
class First:
    """Before all its siblings."""

    def __str__(self) -> str:
        return "FIRST"


@dataclass(frozen=True, slots=True)
class After:
    """Directly after a sibling."""

    name: str

    def __str__(self) -> str:
        return f"AFTER {name_of((self.name,))}"


Position: TypeAlias = First | After


def name_of(path: Sequence[str]) -> str:
    """Format a path as SQL and the history do: dotted, with unusual names in backticks."""
    return ".".join(part if part.replace("_", "a").isalnum() and not part.isdigit() else quoted(part) for part in path)


_PART: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^.`]+))\s*(?:\.|$)")


def parse_path(text: str) -> Path:
    """Split a dotted name, as users write it, into its parts.

    Raises:
        BindError: The text is not a name.
    """
    parts: list[str] = []
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            break
        parts.append(match.group(1).replace("``", "`") if match.group(1) else match.group(2).strip())
        position = match.end()
    if position < len(text) or not parts or text.endswith(".") or not all(parts):
        raise BindError(
            f"{text!r} is not the name of a column.", hint="Write it as a.b, with backticks around unusual names."
        )
    return tuple(parts)


def suggestion(name: str, there: Sequence[str], *, what: str = "columns") -> str:
    """Suggest the nearest existing name for a missing one and list all existing names."""
    meant = nearest(name, there)
    listed = f"The {what} are: {', '.join(there)}." if there else f"There are no {what}."
    return f"Did you mean {meant!r}? {listed}" if meant else listed


def _parts(data_type: DataType) -> Mapping[str, DataType]:
    if isinstance(data_type, ArrayType):
        return {"element": data_type.element_type}
    if isinstance(data_type, MapType):
        return {"key": data_type.key_type, "value": data_type.value_type}
    return {}


def resolve(schema: StructType, path: Path) -> Path:
    """Return the path in the schema's spelling.

    Raises:
        BindError: The column does not exist. The hint suggests the nearest name.
    """
    spelled: list[str] = []
    level: DataType = schema
    for part in path:
        if isinstance(level, StructType):
            field = level.field(part)
            if field is None:
                where = f" in {name_of(spelled)}" if spelled else ""
                raise BindError(
                    f"There is no column {name_of(path)}: no {part!r}{where}.",
                    hint=suggestion(part, level.names, what=f"fields of {name_of(spelled)}" if spelled else "columns"),
                    condition=Condition.of(
                        "UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName=name_of(path), proposal=level.names
                    ),
                )
            spelled.append(field.name)
            level = field.data_type
            continue
        inner = _parts(level)
        if part.lower() not in inner:
            ways = f", only {' and '.join(inner)}" if inner else ""
            raise BindError(
                f"There is no column {name_of(path)}: {name_of(spelled)} is {level} and has no {part!r}{ways}.",
                hint="Name the parts of arrays and maps as element, key and value.",
            )
        spelled.append(part.lower())
        level = inner[part.lower()]
    return tuple(spelled)


def fields_along(schema: StructType, path: Path) -> tuple[StructField | None, ...]:
    """Find the field of each part of a resolved path. Parts ``element``, ``key`` and ``value`` give None."""
    found: list[StructField | None] = []
    level: DataType = schema
    for part in path:
        if isinstance(level, StructType):
            field = level.field(part)
            assert field is not None
            found.append(field)
            level = field.data_type
        else:
            found.append(None)
            level = _parts(level)[part]
    return tuple(found)


def field_at(schema: StructType, path: Path) -> StructField:
    """Return the field at a path. For a part of an array or map, it is a field of that type without metadata.

    Raises:
        BindError: The column does not exist.
    """
    path = resolve(schema, path)
    level: DataType = schema
    field: StructField | None = None
    for part in path:
        if isinstance(level, StructType):
            field = level.field(part)
        elif isinstance(level, ArrayType):
            field = StructField(part, level.element_type, level.contains_null)
        elif isinstance(level, MapType) and part == "key":
            field = StructField(part, level.key_type, False)
        elif isinstance(level, MapType):
            field = StructField(part, level.value_type, level.value_contains_null)
        assert field is not None
        level = field.data_type
    assert field is not None
    return field


def all_paths(schema: StructType) -> Iterator[tuple[Path, StructField]]:
    """Yield every field at every depth, parents first."""
    yield from _paths(schema, ())


def _paths(data_type: DataType, prefix: Path) -> Iterator[tuple[Path, StructField]]:
    if data_type.user is not None:  # A user-defined type has no columns inside.
        return
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            yield (*prefix, field.name), field
            yield from _paths(field.data_type, (*prefix, field.name))
    else:
        for part, inner in _parts(data_type).items():
            yield from _paths(inner, (*prefix, part))


def map_fields(schema: StructType, change: Callable[[StructField], StructField]) -> StructType:
    """Apply ``change`` to every field of the schema at every depth, inner fields first."""

    def of_type(data_type: DataType) -> DataType:
        if data_type.user is not None:
            return data_type
        if isinstance(data_type, StructType):
            return map_fields(data_type, change)
        if isinstance(data_type, ArrayType):
            return ArrayType(of_type(data_type.element_type), data_type.contains_null)
        if isinstance(data_type, MapType):
            return MapType(of_type(data_type.key_type), of_type(data_type.value_type), data_type.value_contains_null)
        return data_type

    return StructType(tuple(change(field.replace(data_type=of_type(field.data_type))) for field in schema.fields))


def _edit(data_type: DataType, path: Path, change: Callable[[DataType], DataType]) -> DataType:
    """Change the type at a resolved ``path`` inside another type."""
    if path and data_type.user is not None:
        raise SchemaError(
            f"{path[-1]!r} is inside a value of a user-defined type, which has no columns to change.",
            hint="Change the column as a whole.",
        )
    if not path:
        return change(data_type)
    part, rest = path[0], path[1:]
    if isinstance(data_type, StructType):
        return StructType(
            tuple(
                field.replace(data_type=_edit(field.data_type, rest, change)) if field.name == part else field
                for field in data_type.fields
            )
        )
    if isinstance(data_type, ArrayType):
        return ArrayType(_edit(data_type.element_type, rest, change), data_type.contains_null)
    assert isinstance(data_type, MapType)
    key = _edit(data_type.key_type, rest, change) if part == "key" else data_type.key_type
    value = _edit(data_type.value_type, rest, change) if part == "value" else data_type.value_type
    return MapType(key, value, data_type.value_contains_null)


def _edit_struct(schema: StructType, parent: Path, change: Callable[[StructType], StructType]) -> StructType:
    def of_struct(data_type: DataType) -> DataType:
        if not isinstance(data_type, StructType) or data_type.user is not None:
            raise SchemaError(
                f"{name_of(parent)} is {data_type}, which has no fields.",
                hint="Only structs have fields; those in an array or map are below element, key or value.",
                condition=Condition.of("INVALID_FIELD_NAME", path=name_of(parent)),
            )
        return change(data_type)

    edited = _edit(schema, parent, of_struct)
    assert isinstance(edited, StructType)
    return edited


def edit_field(schema: StructType, path: Path, change: Callable[[StructField], StructField]) -> StructType:
    """Change one field of the schema. ``path`` is resolved and ends at a field."""

    def changed(struct: StructType) -> StructType:
        return StructType(tuple(change(field) if field.name == path[-1] else field for field in struct.fields))

    return _edit_struct(schema, path[:-1], changed)


def add_field(schema: StructType, parent: Path, field: StructField, position: Position | None = None) -> StructType:
    """Add a field to the schema.

    Args:
        schema: The schema.
        parent: Resolved path of the struct to add it to; empty for the top level.
        field: The new field.
        position: Its position among its siblings; None for the end.

    Raises:
        SchemaError: A field of that name exists, or the parent is not a struct.
        BindError: The sibling to place it after does not exist.
    """

    def grown(struct: StructType) -> StructType:
        there = struct.field(field.name)
        if there is not None:
            raise SchemaError(
                f"The column {name_of((*parent, there.name))} already exists.",
                hint="Names compare ignoring case. Choose another name, or change the existing column.",
                condition=Condition.of("FIELD_ALREADY_EXISTS", op="add", fieldNames=name_of((*parent, there.name))),
            )
        return _placed(struct.fields, field, position, parent)

    return _edit_struct(schema, parent, grown)


def _placed(fields: Sequence[StructField], field: StructField, position: Position | None, parent: Path) -> StructType:
    if position is None:
        return StructType((*fields, field))
    if isinstance(position, First):
        return StructType((field, *fields))
    names = [item.name.lower() for item in fields]
    if position.name.lower() not in names:
        where = f" in {name_of(parent)}" if parent else ""
        raise BindError(
            f"{name_of((*parent, field.name))} cannot go after {position.name!r}: there is no such column{where}.",
            hint=suggestion(position.name, [item.name for item in fields]),
            condition=Condition.of(
                "FIELD_NOT_FOUND", fieldName=name_of((position.name,)), fields=[item.name for item in fields]
            ),
        )
    at = names.index(position.name.lower()) + 1
    return StructType((*fields[:at], field, *fields[at:]))


def drop_field(schema: StructType, path: Path) -> StructType:
    """Drop a field from the schema. ``path`` is resolved and ends at a field.

    Raises:
        SchemaError: It is the last field of its struct or of the table.
    """

    def shrunk(struct: StructType) -> StructType:
        left = tuple(field for field in struct.fields if field.name != path[-1])
        if not left:
            what = f"the struct {name_of(path[:-1])}" if len(path) > 1 else "the table"
            raise SchemaError(
                f"{name_of(path)} is the last column of {what}, and it cannot be dropped.",
                hint="Add another column first" + (", or drop the struct." if len(path) > 1 else "."),
                condition=Condition.of("DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA"),
            )
        return StructType(left)

    return _edit_struct(schema, path[:-1], shrunk)


def move_field(schema: StructType, path: Path, position: Position) -> StructType:
    """Move a field among its siblings. ``path`` is resolved and ends at a field.

    Raises:
        BindError: The sibling to place it after does not exist.
    """

    def moved(struct: StructType) -> StructType:
        field = struct.field(path[-1])
        assert field is not None
        if isinstance(position, After) and position.name.lower() == field.name.lower():
            return struct
        return _placed([item for item in struct.fields if item.name != field.name], field, position, path[:-1])

    return _edit_struct(schema, path[:-1], moved)


def change_type(schema: StructType, path: Path, new: DataType, *, widening: bool) -> StructType:
    """Change the type of a column or of a part of it, and record what was widened.

    Args:
        schema: The table's schema.
        path: A resolved path. It may end at ``element``, ``key`` or ``value``.
        new: The new type. It may add fields to structs but not remove any.
        widening: Whether the table has type widening enabled.

    Raises:
        SchemaError: The type cannot be changed so. The error gives the reason and a way out.
    """
    fields = fields_along(schema, path)
    owner = max(index for index, field in enumerate(fields) if field is not None)
    changes: list[dict[str, Any]] = []
    relative = path[owner + 1 :]
    changed = _edit(schema, path, lambda old: _become(old, new, path, relative, widening, changes))
    assert isinstance(changed, StructType)
    if changes:
        changed = edit_field(changed, path[: owner + 1], lambda field: with_changes(field, changes))
    return changed


def with_changes(field: StructField, changes: Sequence[Mapping[str, Any]]) -> StructField:
    """Append type changes to the field's history."""
    if not changes:
        return field
    history = [*field.metadata.get(TYPE_CHANGES, []), *changes]
    return field.replace(metadata={**field.metadata, TYPE_CHANGES: history})


def _refused_change(path: Path, old: DataType, new: DataType) -> Condition:
    """Choose the condition of a refused type change. It is Spark's own if Spark has no lossless cast either."""
    names = {"fieldPath": name_of(path), "oldField": str(old).upper(), "newField": str(new).upper()}
    if can_widen(old, new) or new == PrimitiveType("string"):
        return Condition.of("DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP", **names)
    return Condition.of(
        "NOT_SUPPORTED_CHANGE_COLUMN", originName=name_of(path), originType=names["oldField"], newType=names["newField"]
    )


def _become(
    old: DataType, new: DataType, path: Path, relative: Path, widening: bool, changes: list[dict[str, Any]]
) -> DataType:
    """Return ``new`` with the names and metadata of ``old`` for the fields that they share."""
    if old.user is not None and old == new:
        return old
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _become_struct(old, new, path, widening)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        inner = (old.element_type, new.element_type)
        element = _become(*inner, (*path, "element"), (*relative, "element"), widening, changes)
        return ArrayType(element, old.contains_null)
    if isinstance(old, MapType) and isinstance(new, MapType):
        key = _become(old.key_type, new.key_type, (*path, "key"), (*relative, "key"), widening, changes)
        value = _become(old.value_type, new.value_type, (*path, "value"), (*relative, "value"), widening, changes)
        return MapType(key, value, old.value_contains_null)
    if old == new or old == PrimitiveType("void"):
        return new
    if not can_widen(old, new):
        raise SchemaError(
            f"{name_of(path)} is {old} and cannot become {new}.",
            hint="A type can only be widened: to a larger whole number, decimal or floating point number, or a date to "
            "timestamp_ntz. For another type, write the rows with overwriteSchema.",
            condition=_refused_change(path, old, new),
        )
    if not widening:
        raise SchemaError(
            f"{name_of(path)} is {old}, and a change to {new} needs type widening, which this table has not enabled.",
            hint="ALTER TABLE … SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true') enables it.",
            condition=_refused_change(path, old, new),
        )
    change = {"toType": new.to_dict(), "fromType": old.to_dict()}
    changes.append({**change, "fieldPath": ".".join(relative)} if relative else change)
    return new


def _become_struct(old: StructType, new: StructType, path: Path, widening: bool) -> StructType:
    lost = [field.name for field in old.fields if new.field(field.name) is None]
    if lost:
        raise SchemaError(
            f"The new type of {name_of(path)} has no {', '.join(lost)}.",
            hint=f"Fields are dropped with ALTER TABLE … DROP COLUMN {name_of((*path, lost[0]))}.",
        )
    fields = []
    for field in new.fields:
        there = old.field(field.name)
        if there is None:
            fields.append(field.replace(nullable=True))
            continue
        if there.nullable and not field.nullable:
            raise SchemaError(
                f"The new type of {name_of(path)} makes {there.name} NOT NULL, but it is nullable now.",
                hint="Leave NOT NULL out of the type; ALTER COLUMN … SET NOT NULL checks the rows.",
                condition=Condition.of(
                    "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP", fieldPath=name_of(path), oldField=old, newField=new
                ),
            )
        changes: list[dict[str, Any]] = []
        inner = _become(there.data_type, field.data_type, (*path, there.name), (), widening, changes)
        fields.append(with_changes(there.replace(data_type=inner), changes))
    return StructType(tuple(fields))
