"""Compare the columns that a query was planned for with the current columns of its table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydelta.protocol.schema import physical_name
from pydelta.protocol.types import ArrayType, DataType, MapType, StructField, StructType

if TYPE_CHECKING:
    from pydelta.log import Snapshot

__all__ = ["changes_since", "columns_as_of"]


def changes_since(then: Snapshot, now: Snapshot) -> list[str]:
    """List the changes that keep a query over one version from running over another. Added columns do not.

    Args:
        then: Snapshot that the query was planned for.
        now: Snapshot that it will read.
    """
    if now.metadata is None:
        return ["there is no table any more"]
    if then.metadata is now.metadata:
        return []
    found = list(_differences(then.schema, now.schema, ""))
    if found or then.column_mapping_mode == now.column_mapping_mode == "none":
        return found
    if now.column_mapping_mode == "none":
        return ["column mapping was switched off"]
    mapped = then.column_mapping_mode != "none"
    before, after = dict(_paths(then.schema, mapped)), dict(_paths(now.schema, True))
    return [f"{shown} is another column" for path, shown in before.items() if after.get(path) != shown]


def columns_as_of(then: Snapshot, now: Snapshot) -> StructType | None:
    """Return one version's columns as the files of another version are read by them, or None for all columns.

    Args:
        then: Snapshot that defines the columns.
        now: Snapshot of the files. ``changes_since`` must list nothing.
    """
    if then.metadata is now.metadata or then.schema == now.schema:
        return None
    return _narrowed(then.schema, now.schema)


def _differences(then: StructType, now: StructType, inside: str) -> Iterator[str]:
    fields = {field.name.lower(): field for field in now.fields}
    for field in then.fields:
        name, new = f"{inside}{field.name}", fields.get(field.name.lower())
        if new is None or new.name != field.name:
            yield f"{name} is gone"
        elif new.nullable and not field.nullable:
            yield f"{name} may be null"
        else:
            yield from _types(field.data_type, new.data_type, name)


def _types(then: DataType, now: DataType, name: str) -> Iterator[str]:
    if isinstance(then, StructType) and isinstance(now, StructType):
        yield from _differences(then, now, f"{name}.")
    elif isinstance(then, ArrayType) and isinstance(now, ArrayType):
        if now.contains_null and not then.contains_null:
            yield f"elements of {name} may be null"
        yield from _types(then.element_type, now.element_type, f"{name}.element")
    elif isinstance(then, MapType) and isinstance(now, MapType):
        if now.value_contains_null and not then.value_contains_null:
            yield f"values of {name} may be null"
        yield from _types(then.key_type, now.key_type, f"{name}.key")
        yield from _types(then.value_type, now.value_type, f"{name}.value")
    elif str(then) not in (str(now), "void"):
        yield f"{name} was {then} and is {now}"


def _paths(schema: StructType, mapped: bool) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the physical path and the logical name of each field that has a name."""

    def within(data_type: DataType, path: tuple[str, ...], name: str) -> Iterator[tuple[tuple[str, ...], str]]:
        if isinstance(data_type, StructType):
            for field in data_type.fields:
                below = (*path, physical_name(field) if mapped else field.name)
                shown = f"{name}.{field.name}" if name else field.name
                yield below, shown
                yield from within(field.data_type, below, shown)
        elif isinstance(data_type, ArrayType):
            yield from within(data_type.element_type, (*path, "element"), f"{name}.element")
        elif isinstance(data_type, MapType):
            yield from within(data_type.key_type, (*path, "key"), f"{name}.key")
            yield from within(data_type.value_type, (*path, "value"), f"{name}.value")

    return within(schema, (), "")


def _narrowed(then: StructType, now: StructType) -> StructType:
    fields = {field.name: field for field in now.fields}
    return StructType(tuple(_field(field, fields[field.name]) for field in then.fields))


def _field(then: StructField, now: StructField) -> StructField:
    """Combine an old field with the column mapping by which it is found in the current files."""
    own = ("delta.columnMapping.", "parquet.")
    mapping = {name: value for name, value in now.metadata.items() if name.startswith(own)}
    return then.replace(data_type=_type(then.data_type, now.data_type), metadata={**then.metadata, **mapping})


def _type(then: DataType, now: DataType) -> DataType:
    if isinstance(then, StructType) and isinstance(now, StructType):
        return _narrowed(then, now)
    if isinstance(then, ArrayType) and isinstance(now, ArrayType):
        return ArrayType(_type(then.element_type, now.element_type), then.contains_null)
    if isinstance(then, MapType) and isinstance(now, MapType):
        key, value = _type(then.key_type, now.key_type), _type(then.value_type, now.value_type)
        return MapType(key, value, then.value_contains_null)
    return then
