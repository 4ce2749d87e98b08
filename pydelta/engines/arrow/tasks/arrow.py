"""Convert Arrow arrays from Spark's form to that of the files. Runs on executors, with pyarrow only.

The differences: physical names and field ids in structs, times in UTC or milliseconds, no void columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.errors import InvalidArgumentError, SchemaError, first_line

__all__ = [
    "file_array",
    "file_batch",
    "float_leaves",
    "leaf_column",
    "leaf_names",
    "optional",
    "replaced",
    "require_valid",
    "same_shape",
    "spelled_out",
    "struct_leaves",
]


def file_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the first columns of a batch under the names and types of ``schema``, matched by position.

    Raises:
        SchemaError: A column does not fit its type. The message names the column.
    """
    arrays = []
    for index, target in enumerate(schema):
        try:
            arrays.append(file_array(batch.column(index), target.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                f"Column {target.name!r} of type {batch.schema.field(index).type} cannot be written as {target.type}: "
                f"{first_line(error)}",
                hint="Cast the column to the table's type before writing.",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def file_array(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert an array to ``target``. Children of structs are matched by position, void ones are left out."""
    array = _spelled_out(array)
    source = array.type
    if source.equals(target, check_metadata=True):
        return array
    if array.offset and pa.types.is_nested(source):
        array = pa.concat_arrays([array, array.slice(0, 0)])  # A slice cannot have both offsets and a mask.
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _struct(array, target)
    if pa.types.is_map(source) and pa.types.is_map(target):
        keys = file_array(array.keys, target.key_type)
        items = file_array(array.items, target.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=_nulls(array))
    if _is_list(source) and _is_list(target):
        values = file_array(array.values, target.value_type)
        offsets = array.offsets.cast(pa.int32())
        return pa.ListArray.from_arrays(offsets, values, type=target, mask=_nulls(array))
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target) and target.unit == "ms":
        array = pc.floor_temporal(array, unit="millisecond")
    return array.cast(target)


def spelled_out(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the same values without a dictionary or a fixed list size."""
    if pa.types.is_dictionary(data_type):
        return data_type.value_type
    return pa.list_(data_type.value_field) if pa.types.is_fixed_size_list(data_type) else data_type


def _spelled_out(array: pa.Array) -> pa.Array:
    plain = spelled_out(array.type)
    if plain is array.type:
        return array
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array.cast(plain)


def same_shape(given: pa.DataType, held: pa.DataType) -> bool:
    """Return whether ``file_array`` converts a type to that of a file without changing a value."""
    if pa.types.is_struct(given) and pa.types.is_struct(held):
        parts = [given.field(index).type for index in range(given.num_fields)]
        kept = [part for part in parts if not pa.types.is_null(part)]
        return len(kept) == held.num_fields and all(
            same_shape(part, held.field(index).type) for index, part in enumerate(kept)
        )
    if pa.types.is_map(given) and pa.types.is_map(held):
        return same_shape(given.key_type, held.key_type) and same_shape(given.item_type, held.item_type)
    if _is_list(given) and _is_list(held):
        return same_shape(given.value_type, held.value_type)
    return bool(given.equals(held))


def replaced(array: pa.Array, mask: npt.NDArray[np.bool_], new: pa.Array) -> pa.Array:
    """Replace the values of an array of any type where a mask is true."""
    if not pa.types.is_nested(array.type):
        return pc.replace_with_mask(array, pa.array(mask), new)
    places = np.arange(len(array))
    places[mask] = len(array) + np.arange(len(new))
    return pa.concat_arrays([array, new]).take(pa.array(places))


def _struct(array: pa.Array, target: pa.StructType) -> pa.Array:
    source: pa.StructType = array.type
    logical = [target.field(index) for index in range(target.num_fields)]
    children = []
    kept = [index for index in range(source.num_fields) if not pa.types.is_null(source.field(index).type)]
    if len(kept) != len(logical):
        raise pa.ArrowInvalid(f"a struct of {len(kept)} fields was expected to have {len(logical)}")
    for index, field in zip(kept, logical, strict=True):
        children.append(file_array(array.field(index), field.type))
    return pa.StructArray.from_arrays(children, fields=logical, mask=_nulls(array))


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))


def require_valid(rows: pa.Table | pa.RecordBatch, what: str) -> None:
    """Check Arrow data from outside: an index beyond its dictionary would crash the process.

    Args:
        rows: The data.
        what: What it should be, for the message.

    Raises:
        InvalidArgumentError: It is damaged.
    """
    try:
        rows.validate(full=True)
    except pa.ArrowException as error:
        kind = "table" if isinstance(rows, pa.Table) else "batch"
        raise InvalidArgumentError(
            f"The rows are not {what}: {first_line(error)}",
            hint=f"Read or make them again; {kind}.validate(full=True) says what is wrong.",
        ) from error


def optional(schema: pa.Schema, *, milliseconds: bool = False) -> pa.Schema:
    """Make every field of a schema nullable (except map keys), and optionally times with a zone milliseconds.

    Nulls in columns are checked on the rows before they are written. Files mark all fields as optional, which every
    reader accepts.
    """

    def of_type(data_type: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(data_type):
            return pa.struct([of_field(data_type.field(index)) for index in range(data_type.num_fields)])
        if pa.types.is_map(data_type):
            key = data_type.key_field.with_type(of_type(data_type.key_type)).with_nullable(False)
            return pa.map_(key, of_field(data_type.item_field))
        if _is_list(data_type):
            return pa.list_(of_field(data_type.value_field))
        if milliseconds and pa.types.is_timestamp(data_type) and data_type.tz is not None:
            return pa.timestamp("ms", data_type.tz)
        return data_type

    def of_field(field: pa.Field) -> pa.Field:
        return pa.field(field.name, of_type(field.type), nullable=True, metadata=field.metadata)

    return pa.schema([of_field(field) for field in schema])


def struct_leaves(schema: pa.Schema) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Iterate over paths and types of the leaves reached through structs alone, in the schema's order."""

    def walk(fields: list[pa.Field], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
        for field in fields:
            path = (*above, field.name)
            if pa.types.is_struct(field.type):
                yield from walk([field.type.field(i) for i in range(field.type.num_fields)], path)
            elif not pa.types.is_nested(field.type):
                yield path, field.type

    return walk(list(schema), ())


def leaf_names(schema: pa.Schema) -> list[str]:
    """Return dotted Parquet names of the leaves outside lists and maps, in the form of ``write_statistics``."""
    return [".".join(path) for path, _ in struct_leaves(schema)]


def leaf_column(table: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    """Return the values at ``path``, null if a struct above is null."""
    column: Any = table.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def float_leaves(table: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Iterate over dotted name and values of each float or double leaf reached through structs alone."""
    for path, data_type in struct_leaves(table.schema):
        if pa.types.is_floating(data_type):
            yield ".".join(path), leaf_column(table, path)
