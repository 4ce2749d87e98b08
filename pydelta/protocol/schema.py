"""Look up parts of a schema: names, physical names, leaves, the Arrow form. Types are defined in ``types``.

Protocol: "Schema Serialization Format", "Column Mapping".
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydelta.errors import SchemaError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.protocol.evolution import can_store, can_widen, check_write_compatible, merge_schemas
from pydelta.protocol.iceberg_compat import NESTED_IDS
from pydelta.protocol.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    parse_schema,
    parse_type,
)

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

__all__ = [
    "EXISTENCE_DEFAULT",
    "FIELD_ID",
    "PHYSICAL_NAME",
    "ArrayType",
    "DataType",
    "DecimalType",
    "MapType",
    "PrimitiveType",
    "StructField",
    "StructType",
    "can_store",
    "can_widen",
    "check_write_compatible",
    "leaf_paths",
    "logical_to_physical",
    "merge_schemas",
    "parse_schema",
    "parse_type",
    "physical_name",
    "physical_partition_columns",
    "to_arrow",
    "to_arrow_type",
    "to_polars_dtype",
    "validate_names",
    "without_void",
]

PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
FIELD_ID: Final = "delta.columnMapping.id"
EXISTENCE_DEFAULT: Final = "EXISTS_DEFAULT"
"""Metadata key of the value that a column has in files older than the column."""
_PARQUET_FIELD_ID: Final = "parquet.field.id"


def physical_name(field: StructField) -> str:
    """Return the name of the column in data files, partition values and statistics."""
    return str(field.metadata.get(PHYSICAL_NAME, field.name))


def logical_to_physical(schema: StructType, mode: str) -> StructType:
    """Return the schema of the data files.

    Args:
        schema: The table's schema.
        mode: ``delta.columnMapping.mode``. ``none`` returns the schema unchanged. ``name`` and ``id`` use physical
            names and add each field's id as ``parquet.field.id``.
    """
    if mode == "none":
        return schema
    return StructType(tuple(_physical_field(field, mode) for field in schema.fields))


def _physical_field(field: StructField, mode: str) -> StructField:
    metadata = dict(field.metadata)
    if FIELD_ID in metadata:
        metadata[_PARQUET_FIELD_ID] = metadata[FIELD_ID]
    return StructField(physical_name(field), _physical_type(field.data_type, mode), field.nullable, metadata)


def _physical_type(data_type: DataType, mode: str) -> DataType:
    if data_type.user is not None:
        return data_type
    if isinstance(data_type, StructType):
        return logical_to_physical(data_type, mode)
    if isinstance(data_type, ArrayType):
        return ArrayType(_physical_type(data_type.element_type, mode), data_type.contains_null)
    if isinstance(data_type, MapType):
        return MapType(
            _physical_type(data_type.key_type, mode),
            _physical_type(data_type.value_type, mode),
            data_type.value_contains_null,
        )
    return data_type


def physical_partition_columns(schema: StructType, partition_columns: Iterable[str], mode: str) -> tuple[str, ...]:
    """Return partition columns by their names in ``partitionValues``."""
    names = []
    for name in partition_columns:
        field = schema.field(name)
        names.append(physical_name(field) if field is not None and mode != "none" else name)
    return tuple(names)


_FORBIDDEN: Final = " ,;{}()\n\t="


def validate_names(schema: StructType, *, column_mapping: bool = False) -> None:
    """Check that the names are valid column names.

    Raises:
        SchemaError: Two names are equal ignoring case, or one is empty or, without column mapping, has a character that
            Parquet does not allow. Names the column.
    """
    _validate(schema, "", column_mapping)


def _validate(data_type: DataType, prefix: str, column_mapping: bool) -> None:
    if isinstance(data_type, ArrayType):
        _validate(data_type.element_type, f"{prefix}element.", column_mapping)
    elif isinstance(data_type, MapType):
        _validate(data_type.key_type, f"{prefix}key.", column_mapping)
        _validate(data_type.value_type, f"{prefix}value.", column_mapping)
    elif isinstance(data_type, StructType):
        seen: dict[str, str] = {}
        for field in data_type.fields:
            name = prefix + field.name
            if field.name.lower() in seen:
                raise SchemaError(
                    f"The columns {seen[field.name.lower()]!r} and {name!r} have the same name, ignoring case.",
                    hint="Rename one of them.",
                    condition=Condition.of("DELTA_DUPLICATE_COLUMNS_FOUND.DATA", duplicateCols=name),
                )
            seen[field.name.lower()] = name
            bad = sorted({char for char in field.name if char in _FORBIDDEN})
            if not field.name or (bad and not column_mapping):
                raise SchemaError(
                    f"The column name {name!r} "
                    + (f"has characters that Parquet does not allow: {bad}." if field.name else "is empty."),
                    hint="Rename the column, for example with df.withColumnRenamed, or set the table property "
                    "'delta.columnMapping.mode' = 'name', which allows any name.",
                    condition=Condition.of("DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", invalidColumnNames=name),
                )
            _validate(field.data_type, f"{name}.", column_mapping)


def leaf_paths(schema: StructType) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """Yield the columns that can have statistics, depth first. Structs are entered; arrays and maps are leaves."""
    for field in schema.fields:
        if isinstance(field.data_type, StructType) and field.data_type.user is None:
            for path, leaf in leaf_paths(field.data_type):
                yield (field.name, *path), leaf
        else:
            yield (field.name,), field.data_type


def without_void(schema: StructType) -> StructType:
    """Return the schema without ``void`` columns, which files never contain.

    Raises:
        SchemaError: ``void`` is inside an array or map, or a struct or the table has no other columns.
    """
    fields = []
    for field in schema.fields:
        if field.data_type == PrimitiveType("void"):
            continue
        _refuse_void_parts(field.data_type, field.name)
        inner = field.data_type
        if isinstance(inner, StructType) and inner.user is None:
            field = field.replace(data_type=without_void(inner))
        fields.append(field)
    if schema.fields and not fields:
        raise SchemaError(
            "Every column is of type void, but a data file needs at least one other column.",
            hint="Give a column a type by casting.",
            condition=Condition.of("DELTA_CANNOT_WRITE_EMPTY_SCHEMA.TABLE_ALL_VOID_COLUMNS"),
        )
    return StructType(tuple(fields))


def _refuse_void_parts(data_type: DataType, name: str) -> None:
    parts: tuple[DataType, ...] = ()
    if isinstance(data_type, ArrayType):
        parts = (data_type.element_type,)
    elif isinstance(data_type, MapType):
        parts = (data_type.key_type, data_type.value_type)
    for part in parts:
        if part == PrimitiveType("void"):
            raise SchemaError(
                f"The column {name!r} is {data_type}: void cannot be the type of an element, key or value.",
                hint="Cast it to the type that it should have.",
                condition=Condition.of(
                    "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE", columName=name, dataType=data_type
                ),
            )
        _refuse_void_parts(part, name)


@functools.cache
def _arrow_types() -> Mapping[str, Any]:
    """Return Arrow types by name. Importing PyArrow takes 0.1 s, so it waits for the first use."""
    import pyarrow as pa

    return {
        "string": pa.string(),
        "long": pa.int64(),
        "integer": pa.int32(),
        "short": pa.int16(),
        "byte": pa.int8(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "void": pa.null(),
        "variant": pa.struct(
            [pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)]
        ),
    }


_PLANNED: Final[Mapping[str, str]] = {"geometry": "geospatial", "geography": "geospatial"}
"""Types of a future protocol version, by the table feature that adds them."""


def to_arrow_type(data_type: DataType, ids: Mapping[str, int] | None = None, path: str = "") -> pa.DataType:
    """Return the Arrow type of a column.

    Args:
        data_type: The column's type.
        ids: Field ids of its elements, keys and values, keyed as in ``delta.columnMapping.nested.ids``.
        path: Its physical name, the prefix of those keys.

    Raises:
        UnsupportedFeatureError: The protocol does not define the type. Names it.
    """
    import pyarrow as pa

    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    ids = ids or {}
    if isinstance(data_type, ArrayType):
        return pa.list_(_part("element", data_type.element_type, data_type.contains_null, ids, path))
    if isinstance(data_type, MapType):
        key = _part("key", data_type.key_type, False, ids, path)
        if pa.types.is_null(key.type):
            raise _outside_protocol(str(data_type))
        return pa.map_(key, _part("value", data_type.value_type, data_type.value_contains_null, ids, path))
    if isinstance(data_type, StructType):
        return pa.struct(list(to_arrow(data_type)))
    if data_type.name not in _arrow_types():
        raise _outside_protocol(data_type.name)
    return _arrow_types()[data_type.name]


def _part(name: str, data_type: DataType, nullable: bool, ids: Mapping[str, int], path: str) -> pa.Field:
    import pyarrow as pa

    there = f"{path}.{name}"
    kind = to_arrow_type(data_type, ids, there)
    return pa.field(name, kind, nullable or pa.types.is_null(kind), _field_id(ids.get(there)))


def _field_id(identifier: int | None) -> dict[bytes, bytes] | None:
    return {b"PARQUET:field_id": str(identifier).encode()} if identifier is not None else None


def _outside_protocol(name: str) -> UnsupportedFeatureError:
    """Make the error for an unsupported type. It names the table feature planned for the type, if any."""
    hint = "Cast the column to a type of the protocol, for example to string."
    feature = _PLANNED.get(name.partition("(")[0])
    if feature is None:
        return UnsupportedFeatureError(
            f"The type {name!r} is not supported by Delta tables.",
            features=(name,),
            hint=hint,
            condition=Condition.of("DELTA_UNSUPPORTED_DATA_TYPES", dataTypeList=name),
        )
    return UnsupportedFeatureError(
        f"The type {name!r} is not in the released Delta protocol (readers 3, writers 7): the table feature {feature} "
        f"is to bring it, and so far it is only a preview ({feature}-dev).",
        features=(feature,),
        hint=f"{hint} A geometry fits into binary as WKB (ST_AsBinary).",
        condition=Condition.of("DELTA_GEOSPATIAL_NOT_SUPPORTED"),
    )


def to_arrow(schema: StructType) -> pa.Schema:
    """Return the Arrow schema. A field id becomes Arrow's ``PARQUET:field_id``."""
    import pyarrow as pa

    fields = []
    for field in schema.fields:
        identifier = field.metadata.get(_PARQUET_FIELD_ID)
        nested = field.metadata.get(NESTED_IDS) if identifier is not None else None
        kind = to_arrow_type(field.data_type, nested, field.name)
        fields.append(pa.field(field.name, kind, field.nullable or pa.types.is_null(kind), _field_id(identifier)))
    return pa.schema(fields)


def to_polars_dtype(data_type: DataType) -> pl.DataType:
    """Return the Polars type of a flat column. Timestamps are microseconds in UTC."""
    import polars as pl

    if isinstance(data_type, DecimalType):
        return pl.Decimal(data_type.precision, data_type.scale)
    flat: dict[str, pl.DataType] = {
        "string": pl.String(),
        "long": pl.Int64(),
        "integer": pl.Int32(),
        "short": pl.Int16(),
        "byte": pl.Int8(),
        "float": pl.Float32(),
        "double": pl.Float64(),
        "boolean": pl.Boolean(),
        "binary": pl.Binary(),
        "date": pl.Date(),
        "timestamp": pl.Datetime("us", "UTC"),
        "timestamp_ntz": pl.Datetime("us"),
        "void": pl.Null(),
    }
    if not isinstance(data_type, PrimitiveType) or data_type.name not in flat:
        raise SchemaError(f"{data_type} is not the type of a simple column.")
    return flat[data_type.name]
