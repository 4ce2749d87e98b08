"""Merge the schema of new data into the table's schema, or explain why the data does not fit.

Names compare case-insensitively and keep the table's spelling.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from pydelta.errors import SchemaMismatchError
from pydelta.errors.conditions import Condition
from pydelta.protocol.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType

__all__ = [
    "can_store",
    "can_widen",
    "check_write_compatible",
    "merge_schemas",
    "only_assigned",
    "widens_in_writes",
    "with_nullable_parts",
]

_INTEGERS: Final = ("byte", "short", "integer", "long")
_COMPUTED: Final = ("CURRENT_DEFAULT", "delta.generationExpression", "delta.identity.step")
"""Metadata keys of columns that incoming rows may omit."""
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 20}


def can_store(data: DataType, table: DataType) -> bool:
    """Return whether every value of type ``data`` can be cast to ``table`` without loss, so that a write may cast it.

    Integers fit wider ones, float and double where exact, and decimals that are wide enough; float fits double;
    decimals fit wider ones; date fits timestamps; void fits anything. Nested types follow the same rules.
    """
    if data == table or data == PrimitiveType("void"):
        return True
    if isinstance(table, DecimalType):
        if isinstance(data, DecimalType):
            return data.scale <= table.scale and data.precision - data.scale <= table.precision - table.scale
        return isinstance(data, PrimitiveType) and _DIGITS.get(data.name, 99) <= table.precision - table.scale
    if isinstance(data, PrimitiveType) and isinstance(table, PrimitiveType):
        if data.name in _INTEGERS and table.name in _INTEGERS:
            return _INTEGERS.index(data.name) <= _INTEGERS.index(table.name)
        return (data.name, table.name) in {
            ("byte", "float"),
            ("short", "float"),
            ("byte", "double"),
            ("short", "double"),
            ("integer", "double"),
            ("float", "double"),
            ("date", "timestamp"),
            ("date", "timestamp_ntz"),
        }
    if isinstance(data, ArrayType) and isinstance(table, ArrayType):
        return can_store(data.element_type, table.element_type)
    if isinstance(data, MapType) and isinstance(table, MapType):
        return can_store(data.key_type, table.key_type) and can_store(data.value_type, table.value_type)
    if isinstance(data, StructType) and isinstance(table, StructType):
        known = {item.name.lower() for item in table.fields}
        if any(item.name.lower() not in known for item in data.fields):
            return False
        for item in table.fields:
            given = data.field(item.name)
            if given is None:
                if not item.nullable:
                    return False
            elif not can_store(given.data_type, item.data_type):
                return False
        return True
    return False


def can_widen(old: DataType, new: DataType) -> bool:
    """Return whether type widening allows a column to change from ``old`` to ``new`` ("Type Widening")."""
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        more_scale = new.scale - old.scale
        return more_scale >= 0 and new.precision - old.precision >= more_scale and old != new
    if isinstance(old, PrimitiveType) and isinstance(new, DecimalType):
        least = {"byte": 10, "short": 10, "integer": 10, "long": 20}.get(old.name)
        return least is not None and new.precision - new.scale >= least
    if isinstance(old, PrimitiveType) and isinstance(new, PrimitiveType):
        if old.name in _INTEGERS and new.name in _INTEGERS:
            return _INTEGERS.index(old.name) < _INTEGERS.index(new.name)
        return (old.name, new.name) in {
            ("float", "double"),
            ("byte", "double"),
            ("short", "double"),
            ("integer", "double"),
            ("date", "timestamp_ntz"),
        }
    return False


def check_write_compatible(table: StructType, data: StructType) -> None:
    """Check that rows of schema ``data`` can be written to a table of schema ``table`` without changing the schema.

    Missing nullable columns become null. Types must fit by ``can_store``.

    Raises:
        SchemaMismatchError: Lists each differing column and shows both schemas.
    """
    differences = [*_differences(table, data, "")]
    if differences:
        raise _mismatch(table, data, differences)


def _mismatch(table: StructType, data: StructType, differences: list[str]) -> SchemaMismatchError:
    hint = "Cast the column to the table's type"
    if any("occurs twice" in text for text in differences):
        hint = "Drop one of the two columns, or rename it"
    elif any("not in the table" in text for text in differences):
        hint = "Set the option mergeSchema to true to add the new columns"
    listed = "\n".join(f"  - {text}" for text in differences)
    return SchemaMismatchError(
        f"The data does not fit the table's schema:\n{listed}\n"
        f"Table schema:\n{table.tree()}\nData schema:\n{data.tree()}",
        hint=f"{hint}; to replace the schema, write with mode overwrite and the option overwriteSchema.",
        condition=_condition(differences),
    )


_TYPES: Final = re.compile(r"column '(.*)' is .* in the data and .* in the table", re.DOTALL)
_LEFT_OUT: Final = re.compile(r"column '(.*)' is NOT NULL in the table and missing in the data", re.DOTALL)


def _condition(differences: list[str]) -> Condition:
    """Choose the error condition, in the reference's order: it merges schemas first and looks for values last."""
    for text in differences:
        if found := _TYPES.fullmatch(text):
            return Condition.of("DELTA_FAILED_TO_MERGE_FIELDS", currentField=found[1], updateField=found[1])
    left_out = [_LEFT_OUT.fullmatch(text) for text in differences]
    if all(left_out) and left_out[0] is not None:
        return Condition.of("DELTA_MISSING_NOT_NULL_COLUMN_VALUE", columnName=left_out[0][1])
    return Condition.of("DELTA_METADATA_MISMATCH")


def _differences(table: StructType, data: StructType, prefix: str) -> Iterator[str]:
    seen: set[str] = set()
    for item in data.fields:
        name = prefix + item.name
        if item.name.lower() in seen:
            yield f"column {name!r} occurs twice (names compare ignoring case)"
            continue
        seen.add(item.name.lower())
        target = table.field(item.name)
        if target is None:
            yield f"column {name!r} ({item.data_type}) is not in the table"
        elif isinstance(target.data_type, StructType) and isinstance(item.data_type, StructType):
            yield from _differences(target.data_type, item.data_type, f"{name}.")
        elif can_store(item.data_type, target.data_type):
            continue
        elif _brings_fields_alone(target, item):
            yield f"column {name!r} is {item.data_type}, with fields that are not in the table: {target.data_type}"
        else:
            yield f"column {name!r} is {item.data_type} in the data and {target.data_type} in the table"
    yield from _left_out(table, seen, prefix)


def _left_out(table: StructType, seen: Collection[str], prefix: str) -> Iterator[str]:
    for target in table.fields:
        computed = not target.metadata.keys().isdisjoint(_COMPUTED)
        if target.name.lower() not in seen and not target.nullable and not computed:
            yield f"column {prefix + target.name!r} is NOT NULL in the table and missing in the data"


def _brings_fields_alone(target: StructField, item: StructField) -> bool:
    """Return whether the types differ only by fields that a schema merge would add, also inside arrays and maps."""
    problems: list[str] = []
    _merge_type(target.data_type, item.data_type, item.name, False, problems)
    return not problems


def merge_schemas(
    table: StructType, data: StructType, *, allow_widening: bool = False, casts: bool = False
) -> StructType:
    """Append the data's new columns to the table's schema, including nested fields.

    Existing columns keep name, metadata and type. A ``void`` column takes the data's type. With ``allow_widening``
    (type widening enabled) a column takes the data's wider type and records the change.

    Args:
        table: The table's schema.
        data: The data's schema.
        allow_widening: See above.
        casts: Whether values are cast to the table's types later, so that types may differ.

    Raises:
        SchemaMismatchError: The types of a column cannot be merged. Names the column and shows both schemas.
    """
    problems: list[str] = []
    merged = _merge_struct(table, data, "", allow_widening, problems)
    if problems and not casts:
        raise _mismatch(table, data, problems)
    return merged


def only_assigned(data: StructType, targets: Collection[tuple[str, ...]], *, all_columns: bool) -> StructType:
    """Keep the columns and fields of a merge's source that its clauses assign to a column of the same name.

    Args:
        data: The source's schema.
        targets: Paths that clauses set by name, in lower case, starting with the column.
        all_columns: Whether a clause sets all columns.
    """
    return StructType(tuple(_assigned_fields(data, targets, (), all_columns)))


def _assigned_fields(
    level: StructType, targets: Collection[tuple[str, ...]], prefix: tuple[str, ...], all_columns: bool
) -> Iterator[StructField]:
    for item in level.fields:
        path = (*prefix, item.name.lower())
        inner = any(target[: len(path)] == path for target in targets)
        if path in targets or (all_columns and not inner):
            yield item
        elif inner and isinstance(item.data_type, StructType):
            inner_fields = _assigned_fields(item.data_type, targets, path, all_columns)
            yield item.replace(data_type=StructType(tuple(inner_fields)))


def _merge_struct(
    table: StructType, data: StructType, prefix: str, allow_widening: bool, problems: list[str]
) -> StructType:
    fields = []
    for item in table.fields:
        given = data.field(item.name)
        if given is None:
            fields.append(item)
            continue
        merged = _merge_type(item.data_type, given.data_type, prefix + item.name, allow_widening, problems)
        changed = item.replace(data_type=merged)
        changes = [*_widened(item.data_type, merged, ())]
        if changes:
            history = [*item.metadata.get("delta.typeChanges", []), *changes]
            changed = changed.replace(metadata={**item.metadata, "delta.typeChanges": history})
        fields.append(changed)
    known = {item.name.lower() for item in table.fields}
    for item in data.fields:
        if item.name.lower() not in known:
            known.add(item.name.lower())
            fields.append(StructField(item.name, with_nullable_parts(item.data_type), True, item.metadata))
    return StructType(tuple(fields))


def _widened(old: DataType, new: DataType, path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the type changes to record for a field or its elements, keys and values. Struct fields record their own."""
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        yield from _widened(old.element_type, new.element_type, (*path, "element"))
    elif isinstance(old, MapType) and isinstance(new, MapType):
        yield from _widened(old.key_type, new.key_type, (*path, "key"))
        yield from _widened(old.value_type, new.value_type, (*path, "value"))
    elif can_widen(old, new):
        change = {"toType": new.to_dict(), "fromType": old.to_dict()}
        yield {**change, "fieldPath": ".".join(path)} if path else change


def _merge_type(table: DataType, data: DataType, name: str, allow_widening: bool, problems: list[str]) -> DataType:
    if table.user is not None and table == data:
        return table
    if isinstance(table, StructType) and isinstance(data, StructType):
        return _merge_struct(table, data, f"{name}.", allow_widening, problems)
    if isinstance(table, ArrayType) and isinstance(data, ArrayType):
        element = _merge_type(table.element_type, data.element_type, f"{name}.element", allow_widening, problems)
        return ArrayType(element, table.contains_null)
    if isinstance(table, MapType) and isinstance(data, MapType):
        key = _merge_type(table.key_type, data.key_type, f"{name}.key", allow_widening, problems)
        value = _merge_type(table.value_type, data.value_type, f"{name}.value", allow_widening, problems)
        return MapType(key, value, table.value_contains_null)
    if table == PrimitiveType("void"):
        return data
    if can_store(data, table):
        return table
    if allow_widening and widens_in_writes(table, data):
        return data
    problems.append(f"column {name!r} is {data} in the data and {table} in the table")
    return table


def widens_in_writes(old: DataType, new: DataType) -> bool:
    """Return whether a write that evolves the schema widens a column from ``old`` to ``new`` (if widening is on).

    Arrays and maps are widened part by part.
    """
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return widens_in_writes(old.element_type, new.element_type)
    if isinstance(old, MapType) and isinstance(new, MapType):
        pairs = (old.key_type, new.key_type), (old.value_type, new.value_type)
        return any(widens_in_writes(*pair) for pair in pairs) and all(
            widens_in_writes(before, after) or can_store(after, before) for before, after in pairs
        )
    return can_widen(old, new) and not _changes_kind(old, new)


def _changes_kind(old: DataType, new: DataType) -> bool:
    """Return whether an integer would become a decimal or floating point. Only ALTER TABLE may do that."""
    whole = isinstance(old, PrimitiveType) and old.name in _INTEGERS
    return whole and not (isinstance(new, PrimitiveType) and new.name in _INTEGERS)


def with_nullable_parts(data_type: DataType) -> DataType:
    """Make all parts of a new column's type nullable, because older files do not contain them."""
    if data_type.user is not None:
        return data_type
    if isinstance(data_type, StructType):
        return StructType(
            tuple(
                item.replace(data_type=with_nullable_parts(item.data_type), nullable=True) for item in data_type.fields
            )
        )
    if isinstance(data_type, ArrayType):
        return ArrayType(with_nullable_parts(data_type.element_type), True)
    if isinstance(data_type, MapType):
        return MapType(with_nullable_parts(data_type.key_type), with_nullable_parts(data_type.value_type), True)
    return data_type
