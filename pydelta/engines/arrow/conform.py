"""Fit Arrow arrays of any type to columns of a table: each value unchanged, or an error with the path of its field.

::

    an array  dictionaries and runs decoded, extensions unwrapped
    struct    fields by name, ignoring case: an unknown one is refused, a missing one is null
    list, map lengths and live values separated, whatever the layout; keys, values and elements fitted
    leaf      a cast that Arrow checks, within one kind: no text becomes a number, and no time gets a zone

A fitted column holds the values that Spark stores. Otherwise nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.engines.arrow.tasks.arrow import optional
from pydelta.errors import ConstraintViolatedError, SchemaMismatchError, first_line
from pydelta.errors.conditions import Condition
from pydelta.protocol.schema import to_arrow
from pydelta.protocol.types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType

__all__ = ["arrow_type", "conformed", "without_empty"]

_T = TypeVar("_T")
_SLICE_ROWS: Final = 131_072
_VARIANT: Final = StructType(
    (StructField("value", PrimitiveType("binary"), False), StructField("metadata", PrimitiveType("binary"), False))
)
_OPENED: Final = ("arrow.json", "arrow.uuid")
"""Extension types whose storage has the same meaning."""
_WHOLE: Final = pa.decimal128(20, 0)
"""A type that holds every 64-bit whole number."""


def arrow_type(field: StructField) -> pa.DataType:
    """Return the Arrow type of a column, nullable in all parts."""
    return optional(to_arrow(StructType((field,)))).field(0).type


def conformed(column: pa.ChunkedArray, field: StructField, *, partition: bool = False) -> pa.ChunkedArray:
    """Return a column of the table's type with the same values.

    Args:
        column: The values, of any type.
        field: The table's column.
        partition: Whether the table is partitioned by it, so that an empty string is null.

    Raises:
        SchemaMismatchError: The types do not match, or a value does not fit. The message names the path of the field.
        ConstraintViolatedError: A null in a column, or a part of it, that is NOT NULL.
    """
    target = arrow_type(field)
    if not column.type.equals(target, check_metadata=True) or pa.types.is_nested(target):
        parts = [_fit(part, field.data_type, target, field.name) for part in _slices(column, field.name)]
        column = pa.chunked_array(parts, type=target)
    if partition:
        column = without_empty(column)
    if not field.nullable and column.null_count:
        _refuse_null(field.name)
    return column


def without_empty(values: Any) -> Any:
    """Return values of a partition column as the log keeps them, with an empty string as null.

    Protocol: "Partition Value Serialization".
    """
    kinds = pa.types
    texts = (kinds.is_string, kinds.is_binary, kinds.is_large_string, kinds.is_large_binary)
    if not any(is_one(values.type) for is_one in texts):
        return values
    empty = pc.equal(pc.binary_length(values), 0)
    return pc.if_else(pc.fill_null(empty, True), pa.scalar(None, values.type), values)


def _slices(column: pa.ChunkedArray, path: str) -> Iterator[pa.Array]:
    """Split the chunks into pieces small enough for 32-bit offsets. Yields at least one piece, which may be empty."""
    if not len(column):
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        yield _checked(lambda: pa.chunked_array([], kind).combine_chunks(), path, str(kind))
    for chunk in column.chunks:
        for start in range(0, len(chunk), _SLICE_ROWS):
            yield chunk.slice(start, _SLICE_ROWS)


def _fit(array: pa.Array, data_type: DataType, target: pa.DataType, path: str) -> pa.Array:
    array = _plain(array, data_type, path)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if data_type == PrimitiveType("variant"):
        data_type = _VARIANT
    if isinstance(data_type, StructType):
        return _struct(array, data_type, target, path)
    if isinstance(data_type, ArrayType):
        return _list(array, data_type, target, path)
    if isinstance(data_type, MapType):
        return _map(array, data_type, target, path)
    return _leaf(array, data_type, target, path)


def _plain(array: pa.Array, data_type: DataType, path: str) -> pa.Array:
    """Unwrap dictionaries, runs and extensions around an array's values."""
    while True:
        source = array.type
        if isinstance(source, pa.BaseExtensionType):
            if source.extension_name not in _OPENED:
                raise _mismatch(path, f"the extension type {source.extension_name}", str(data_type))
            array = array.storage
        elif pa.types.is_dictionary(source):
            array = _checked(partial(_of_dictionary, array), path, str(source))
        elif pa.types.is_run_end_encoded(source):
            array = _checked(partial(pc.run_end_decode, array), path, str(source))
        else:
            return array


def _of_dictionary(array: pa.DictionaryArray) -> pa.Array:
    return _takeable(array.dictionary).take(array.indices)


def _takeable(values: pa.Array) -> pa.Array:
    """Convert views to strings and bytes with offsets, because Arrow cannot take rows from views."""
    if pa.types.is_string_view(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary_view(values.type) else values


def _struct(array: pa.Array, data_type: StructType, target: pa.StructType, path: str) -> pa.Array:
    source = array.type
    if not pa.types.is_struct(source):
        raise _mismatch(path, str(source), str(data_type))
    places: dict[str, int] = {}
    for place in range(source.num_fields):
        name = source.field(place).name
        if data_type.field(name) is None or name.lower() in places:
            why = "is not in the table" if data_type.field(name) is None else "is there twice, ignoring case"
            raise SchemaMismatchError(
                f"The rows have a field {f'{path}.{name}'!r}, which {why}.",
                hint=f"The fields of {path!r} are: {', '.join(data_type.names)}.",
                condition=Condition.of("DELTA_METADATA_MISMATCH"),
            )
        places[name.lower()] = place
    given = _checked(array.flatten, path, str(source))  # Values below a null struct are null, whatever is stored there.
    children = []
    for field, into in zip(data_type.fields, target, strict=True):
        inner = f"{path}.{field.name}"
        at = places.get(field.name.lower())
        if at is None and not field.nullable:
            raise SchemaMismatchError(
                f"The rows have no field {inner!r}, which is NOT NULL in the table.",
                hint="Add the field to the rows.",
                condition=Condition.of("DELTA_MISSING_NOT_NULL_COLUMN_VALUE", columnName=inner),
            )
        absent = at is None
        child = pa.nulls(len(array), into.type) if absent else _fit(given[at], field.data_type, into.type, inner)
        if not field.nullable and child.null_count and pc.any(pc.and_(child.is_null(), array.is_valid())).as_py():
            _refuse_null(inner)
        children.append(child)
    if not children:
        raise _mismatch(path, str(source), "a struct without fields, which files cannot hold")
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_nulls(array))


def _list(array: pa.Array, data_type: ArrayType, target: pa.ListType, path: str) -> pa.Array:
    kinds, source, inner = pa.types, array.type, f"{path}.element"
    lists = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list, kinds.is_list_view, kinds.is_large_list_view)
    if not any(is_one(source) for is_one in lists):
        raise _mismatch(path, str(source), str(data_type))
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    values = _checked(array.flatten, path, str(source))  # Values stored below nulls are left out.
    child = _fit(values, data_type.element_type, target.value_type, inner)
    if not data_type.contains_null and child.null_count:
        _refuse_null(inner)
    offsets = _offsets(lengths, path)
    return pa.ListArray.from_arrays(offsets, child, type=target, mask=_nulls(array))


def _map(array: pa.Array, data_type: MapType, target: pa.MapType, path: str) -> pa.Array:
    source = array.type
    if not pa.types.is_map(source):
        raise _mismatch(path, str(source), str(data_type))
    bounds = array.offsets.to_numpy()
    lengths = np.diff(bounds)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
    offsets = _offsets(lengths, path)
    keys, items = array.keys, array.items
    first, total = int(bounds[0]), int(lengths.sum())
    if total == int(bounds[-1]) - first:
        keys, items = keys.slice(first, total), items.slice(first, total)
    else:  # Entries are stored below null maps.
        live = pa.array(np.repeat(bounds[:-1] - (np.cumsum(lengths) - lengths), lengths) + np.arange(total))
        keys = _checked(lambda: _takeable(array.keys).take(live), path, str(source))
        items = _checked(lambda: _takeable(array.items).take(live), path, str(source))
    key = _fit(keys, data_type.key_type, target.key_type, f"{path}.key")
    value = _fit(items, data_type.value_type, target.item_type, f"{path}.value")
    for part, required, name in ((key, True, "key"), (value, not data_type.value_contains_null, "value")):
        if required and part.null_count:
            _refuse_null(f"{path}.{name}")
    return pa.MapArray.from_arrays(offsets, key, value, type=target, mask=_nulls(array))


def _offsets(lengths: Any, path: str) -> pa.Array:
    ends = np.concatenate([[0], np.cumsum(lengths)])
    if ends[-1] > np.iinfo(np.int32).max:
        raise _mismatch(path, f"{ends[-1]} elements in {len(lengths)} rows", "at most 2147483647 of them at once")
    return pa.array(ends, pa.int32())


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _leaf(array: pa.Array, data_type: DataType, target: pa.DataType, path: str) -> pa.Array:
    source = array.type
    if source.equals(target):
        return array
    if not _of_one_kind(source, target):
        raise _mismatch(path, f"{source}, which is another kind of value", str(data_type))

    def cast() -> pa.Array:
        exact = array.cast(_WHOLE) if pa.types.is_decimal(target) and pa.types.is_integer(source) else array
        found = exact.cast(target, safe=True)
        if pa.types.is_floating(source) and pa.types.is_floating(target):
            back = pc.or_(pc.equal(found, array.cast(pa.float64())), pc.is_nan(array))
            if not pc.all(back, min_count=0).as_py():  # Arrow does not check casts between floating types.
                raise pa.ArrowInvalid("a number would be rounded")
        return found

    return _checked(cast, path, f"{source}, but the column is {data_type}")


def _of_one_kind(given: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a cast changes only the storage of a value."""
    kinds = pa.types
    if kinds.is_timestamp(target):
        return bool(kinds.is_timestamp(given) and (given.tz is None) == (target.tz is None))
    if kinds.is_string(target):
        return bool(kinds.is_large_string(given) or kinds.is_string_view(given))
    if kinds.is_binary(target):
        is_bytes = (kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary)
        return any(is_one(given) for is_one in is_bytes)
    if kinds.is_decimal(target):
        return bool(kinds.is_decimal(given) or kinds.is_integer(given))
    if kinds.is_integer(target) or kinds.is_floating(target):
        return bool(kinds.is_integer(given) or kinds.is_floating(given))
    return bool(kinds.is_date(given) and kinds.is_date(target))


def _checked(make: Callable[[], _T], path: str, what: str) -> _T:
    try:
        return make()
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"Column {path!r} of the rows is {what}: {first_line(error)}",
            hint="Cast the column to the table's type first.",
        ) from error


def _mismatch(path: str, given: str, wanted: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Column {path!r} is {wanted} in the table, and the rows have {given}.",
        hint="Cast the column to the table's type first.",
        condition=Condition.of("DELTA_FAILED_TO_MERGE_FIELDS", currentField=path, updateField=path),
    )


def _refuse_null(path: str) -> NoReturn:
    raise ConstraintViolatedError(
        f"Column {path!r} is NOT NULL in the table and null in the data.",
        hint="Filter out such rows.",
        condition=Condition.of("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", columnName=path),
    )
