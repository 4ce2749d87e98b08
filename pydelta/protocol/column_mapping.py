"""Add ids and physical names to columns that have none. Pure.

::

    new table, mode name or id       every column, at every depth: id 1, 2, …   physical name col-<uuid>
    table that is upgraded to name   every column: id 1, 2, …                   physical name = current name
    new column of a mapped table     next ids above delta.columnMapping.maxColumnId, physical name col-<uuid>

Ids and physical names are never reused, so a column of an old file cannot be mistaken for a new one.
Protocol: "Column Mapping".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydelta.errors import InvalidArgumentError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.protocol.actions import Metadata
from pydelta.protocol.iceberg_compat import NESTED_IDS, nested_parts
from pydelta.protocol.schema import FIELD_ID, PHYSICAL_NAME
from pydelta.protocol.types import ArrayType, DataType, MapType, StructField, StructType, parse_schema
from pydelta.settings.table import iceberg_compat_version

__all__ = ["MAX_COLUMN_ID", "MODE", "check_mode_change", "mapped_metadata", "mode_of", "without_mapping"]

MODE: Final = "delta.columnMapping.mode"
MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
_MODES: Final = ("none", "name", "id")


def mode_of(configuration: Mapping[str, str]) -> str:
    """Return the column mapping mode in the properties: ``none``, ``name`` or ``id``.

    Raises:
        InvalidArgumentError: The property has another value.
    """
    mode = configuration.get(MODE, "none").strip().lower()
    if mode not in _MODES:
        raise InvalidArgumentError(
            f"{MODE} is {mode!r}.",
            hint="Set it to name, id or none.",
            condition=Condition.of("DELTA_INVALID_PROPERTY_VALUE", property=MODE, value=mode),
        )
    return mode


def check_mode_change(old: str, new: str) -> None:
    """Refuse a change of mode that the table's files do not allow.

    Raises:
        UnsupportedFeatureError: The change is not from ``none`` to ``name``.
    """
    if old == new or (old, new) == ("none", "name"):
        return
    hint = "A table with rows can only be changed from none to name."
    if new == "none":
        hint = "Its files use other column names than the table: ALTER TABLE … SET TBLPROPERTIES rewrites them."
    elif old == "none":
        hint = f"Its files have no column ids. Set {MODE} to name, or make a new table in mode id."
    raise UnsupportedFeatureError(
        f"{MODE} cannot change from {old!r} to {new!r}.",
        features=("columnMapping",),
        hint=hint,
        condition=Condition.of("DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE", oldMode=old, newMode=new),
    )


def mapped_metadata(metadata: Metadata, old: Metadata | None, *, fresh: bool = False) -> Metadata:
    """Assign an id and a physical name to every column without them, if column mapping is on.

    Args:
        metadata: The new definition.
        old: The current definition; None for a new table.
        fresh: Whether a new schema replaces the old one. Columns of the same name and kind keep their id and physical
            name.

    Returns:
        The definition with ``maxColumnId`` set to the highest id ever assigned. In mode ``none`` a new schema has
        neither ids nor physical names.

    Raises:
        InvalidArgumentError: The mode is unknown.
        UnsupportedFeatureError: The files do not allow the change of mode.
    """
    compat = iceberg_compat_version(metadata.configuration)
    # Iceberg compatibility requires column mapping, so a new table gets it.
    if compat and old is None and MODE not in metadata.configuration:
        metadata = metadata.replace(configuration={**metadata.configuration, MODE: "name"})
    mode = mode_of(metadata.configuration)
    schema = parse_schema(metadata.schema_string)
    if mode == "none":
        plain = without_mapping(schema) if fresh or old is None else schema
        return metadata if plain == schema else metadata.replace(schema_string=plain.to_json())
    before = mode_of(old.configuration) if old is not None else "none"
    upgraded = old is not None and before == "none" and not fresh
    if old is not None and fresh and before != "none":
        schema = _inherited(schema, parse_schema(old.schema_string))
    elif old is None or (fresh and before == "none"):
        schema = without_mapping(schema)
    given = [int(text) for source in (metadata, old) if source and (text := source.configuration.get(MAX_COLUMN_ID))]
    highest = max([0, *given, *_ids(schema), *(_ids(parse_schema(old.schema_string)) if old is not None else ())])
    counter = _Counter(highest, (lambda field: field.name) if upgraded else _new_name, nested=compat == 2)
    schema = counter.struct(schema)
    configuration = {**metadata.configuration, MODE: mode, MAX_COLUMN_ID: str(counter.highest)}
    return metadata.replace(schema_string=schema.to_json(), configuration=configuration)


def _new_name(field: StructField) -> str:
    return f"col-{uuid.uuid4()}"


class _Counter:
    """Assigns ids, parents first. With ``nested``, elements, keys and values get ids too."""

    def __init__(self, highest: int, name: Callable[[StructField], str], *, nested: bool) -> None:
        self.highest = highest
        self._name = name
        self._nested = nested

    def struct(self, struct: StructType) -> StructType:
        return StructType(tuple(self._field(field) for field in struct.fields))

    def _field(self, field: StructField) -> StructField:
        metadata: dict[str, Any] = dict(field.metadata)
        if FIELD_ID not in metadata:
            self.highest += 1
            metadata[FIELD_ID] = self.highest
        if PHYSICAL_NAME not in metadata:
            metadata[PHYSICAL_NAME] = self._name(field)
        if self._nested and (parts := [*nested_parts(field.data_type, metadata[PHYSICAL_NAME])]):
            metadata[NESTED_IDS] = self._nested_ids(parts, metadata.get(NESTED_IDS, {}))
        return field.replace(data_type=self._type(field.data_type), metadata=metadata)

    def _nested_ids(self, parts: Sequence[str], given: Mapping[str, int]) -> dict[str, int]:
        ids = {part: given[part] for part in parts if part in given}
        for part in parts:
            if part not in ids:
                self.highest += 1
                ids[part] = self.highest
        return ids

    def _type(self, data_type: DataType) -> DataType:
        return _in_parts(data_type, self.struct)


def _in_parts(data_type: DataType, change: Callable[[StructType], StructType]) -> DataType:
    """Apply a change to the outermost structs of a type."""
    if data_type.user is not None:
        return data_type
    if isinstance(data_type, StructType):
        return change(data_type)
    if isinstance(data_type, ArrayType):
        return ArrayType(_in_parts(data_type.element_type, change), data_type.contains_null)
    if isinstance(data_type, MapType):
        key, value = (_in_parts(part, change) for part in (data_type.key_type, data_type.value_type))
        return MapType(key, value, data_type.value_contains_null)
    return data_type


def _ids(data_type: DataType) -> Iterator[int]:
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            if FIELD_ID in field.metadata:
                yield int(field.metadata[FIELD_ID])
            yield from map(int, field.metadata.get(NESTED_IDS, {}).values())
            yield from _ids(field.data_type)
    elif isinstance(data_type, ArrayType):
        yield from _ids(data_type.element_type)
    elif isinstance(data_type, MapType):
        yield from _ids(data_type.key_type)
        yield from _ids(data_type.value_type)


def without_mapping(schema: StructType) -> StructType:
    """Remove ids and physical names from a schema."""

    def plain(struct: StructType) -> StructType:
        return StructType(
            tuple(
                field.replace(
                    data_type=_in_parts(field.data_type, plain),
                    metadata={key: value for key, value in field.metadata.items() if key not in _MARKS},
                )
                for field in struct.fields
            )
        )

    return plain(schema)


_MARKS: Final = (FIELD_ID, PHYSICAL_NAME, NESTED_IDS)


def _inherited(new: StructType, old: StructType) -> StructType:
    """Return the new schema, with ids and physical names from old columns of the same name and kind."""
    fields = []
    for field in without_mapping(new).fields:
        there = old.field(field.name)
        if there is not None and _same_kind(field.data_type, there.data_type):
            marks = {key: there.metadata[key] for key in _MARKS if key in there.metadata}
            inner = _inherited_type(field.data_type, there.data_type)
            field = field.replace(data_type=inner, metadata={**field.metadata, **marks})
        fields.append(field)
    return StructType(tuple(fields))


def _inherited_type(new: DataType, old: DataType) -> DataType:
    if new.user is not None:
        return new
    if isinstance(new, StructType) and isinstance(old, StructType):
        return _inherited(new, old)
    if isinstance(new, ArrayType) and isinstance(old, ArrayType):
        return ArrayType(_inherited_type(new.element_type, old.element_type), new.contains_null)
    if isinstance(new, MapType) and isinstance(old, MapType):
        key = _inherited_type(new.key_type, old.key_type)
        return MapType(key, _inherited_type(new.value_type, old.value_type), new.value_contains_null)
    return new


def _same_kind(new: DataType, old: DataType) -> bool:
    nested = (StructType, ArrayType, MapType)
    return type(new) is type(old) if isinstance(new, nested) or isinstance(old, nested) else new == old
