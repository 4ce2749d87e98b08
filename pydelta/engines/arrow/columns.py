"""Find the columns of an expression in a table's files and in its partition values.

::

    ArrowColumns(snapshot, fields) --schema--> the columns to read of each file, under their names in files
                                   --of(add, batch)--> the function that ``evaluate`` calls: a path -> values
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.engines.arrow.evaluate import Columns, true_rows
from pydelta.engines.arrow.expressions import Exact, NotHere, check_simple
from pydelta.engines.arrow.tasks.arrow import optional
from pydelta.errors import UnsupportedFeatureError
from pydelta.log import Snapshot
from pydelta.log.columns import PV_PREFIX
from pydelta.predicate.expressions import Column, fields_of
from pydelta.protocol.partitions import parse_partition_value
from pydelta.protocol.schema import (
    EXISTENCE_DEFAULT,
    logical_to_physical,
    physical_name,
    to_arrow,
    to_arrow_type,
    without_void,
)
from pydelta.protocol.sized_texts import LENGTH
from pydelta.protocol.types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType

__all__ = [
    "ArrowColumns",
    "fields_in",
    "files_of_partitions",
    "needs_sparks_reader",
    "only_spark",
    "partition_scalar",
    "refuse_depth",
    "refuse_table",
]

_COLLATIONS: Final = "__COLLATIONS"
_DEEPEST: Final = 99
_FLOATS: Final = ("float", "double")
_FLOAT_DIGITS: Final = 15
_NUMBER: Final = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|Infinity)|NaN")


def refuse_table(snapshot: Snapshot) -> None:
    """Check that rows of a table have the same meaning here as in Spark.

    Raises:
        NotHere: Columns are found by ids or have a default for files without them, a string has a collation, a column
            is ``char``, which Spark pads on reading, or a column is nested too deeply for Arrow to open its files.
    """
    refuse_depth(snapshot.schema)
    if needs_sparks_reader(snapshot):
        raise NotHere("a table whose columns are mapped by id or have a default for old files")
    for field in fields_in(snapshot.schema):
        if "char(" in str(field.metadata.get(LENGTH, "")).lower().replace("varchar(", ""):
            raise NotHere("a table with a column of type char")
        if _COLLATIONS in field.metadata:
            raise NotHere("a table with a collation")


def needs_sparks_reader(snapshot: Snapshot) -> bool:
    """Return whether only Spark finds the columns in all files: by ids, or by a default if a file lacks one.

    Such a default (``EXISTS_DEFAULT``) comes from converted Parquet tables.
    """
    return snapshot.column_mapping_mode == "id" or any(
        EXISTENCE_DEFAULT in field.metadata for field in fields_in(snapshot.schema)
    )


def refuse_depth(schema: StructType) -> None:
    """Check that files of a schema can be read here. Arrow writes nested files that it then refuses to open.

    Raises:
        NotHere: A column is nested too deeply.
    """
    for field in schema.fields:
        if (depth := _depth(field.data_type)) > _DEEPEST:
            raise NotHere(f"a column of {depth} levels in Parquet ({field.name}), more than {_DEEPEST}")


def _depth(data_type: DataType) -> int:
    """Count levels in Parquet, where a list or a map adds a level above its elements."""
    if isinstance(data_type, StructType):
        return 1 + max((_depth(field.data_type) for field in data_type.fields), default=0)
    if isinstance(data_type, ArrayType):
        return 2 + _depth(data_type.element_type)
    if isinstance(data_type, MapType):
        return 2 + max(_depth(data_type.key_type), _depth(data_type.value_type))
    return 1


def fields_in(data_type: DataType) -> Iterator[StructField]:
    """Iterate over all fields of a type, at any depth."""
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            yield field
            yield from fields_in(field.data_type)
    elif isinstance(data_type, ArrayType):
        yield from fields_in(data_type.element_type)
    elif isinstance(data_type, MapType):
        yield from fields_in(data_type.key_type)
        yield from fields_in(data_type.value_type)


class ArrowColumns:
    """The columns that expressions read, in files and in partition values.

    Args:
        snapshot: The table.
        fields: Columns that the expressions read.

    Raises:
        NotHere: One cannot be read here.
    """

    def __init__(self, snapshot: Snapshot, fields: Iterable[Column]) -> None:
        mode = snapshot.column_mapping_mode
        partitions = {name.lower() for name in snapshot.partition_columns}
        self._partitions: dict[str, tuple[str, DataType]] = {}
        tops: dict[str, StructField] = {}
        self._paths: dict[tuple[str, ...], tuple[str, ...]] = {}
        for item in fields:
            field = snapshot.schema.field(item.path[0])
            assert field is not None, "the field was resolved against the same schema"
            check_simple(item.type)
            if field.name.lower() in partitions:
                self._partitions[field.name] = (_name(field, mode), _partition_type(field.data_type))
            else:
                tops[field.name] = field
                self._paths[item.path] = _names_in_files(snapshot.schema, item.path, mode)
        self._mode = mode
        self._chosen = StructType(tuple(field for field in snapshot.schema.fields if field.name in tops))

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The columns to read of each file, under their names in files."""
        return optional(to_arrow(logical_to_physical(without_void(self._chosen), self._mode)))

    def of(self, partition_values: Mapping[str, str | None], batch: pa.RecordBatch) -> Columns:
        """Return a function that gives the values of a column in rows of one file.

        Args:
            partition_values: Partition values of the file, from its ``add``.
            batch: Rows of the file, with at least the columns of ``schema``.
        """

        def column(path: tuple[str, ...]) -> Any:
            if path not in self._paths:
                key, data_type = self._partitions[path[0]]
                return partition_scalar(partition_values.get(key), data_type)
            top, *inner = self._paths[path]
            values = batch.column(batch.schema.get_field_index(top))
            return pc.struct_field(values, inner) if inner else values

        return column

    def of_partitions(self, texts: Mapping[str, Sequence[str | None]]) -> Columns:
        """Return a function that gives the values of partition columns, one row per combination of values.

        Args:
            texts: Values of each partition column as strings of the log, by its physical name.

        Raises:
            NotHere: By the returned function, for another column, or as ``partition_scalar`` raises it.
        """

        def column(path: tuple[str, ...]) -> Any:
            if path in self._paths:
                raise NotHere("a condition that partition values do not decide")
            key, data_type = self._partitions[path[0]]
            return pa.array([partition_scalar(text, data_type) for text in texts[key]], to_arrow_type(data_type))

        return column


def _name(field: StructField, mode: str) -> str:
    return field.name if mode == "none" else physical_name(field)


def _names_in_files(schema: StructType, path: tuple[str, ...], mode: str) -> tuple[str, ...]:
    level: DataType = schema
    found = []
    for name in path:
        field = level.field(name) if isinstance(level, StructType) else None
        assert field is not None, "the path was resolved against the same schema"
        found.append(_name(field, mode))
        level = field.data_type
    return tuple(found)


def _partition_type(data_type: DataType) -> DataType:
    """Check the type of a partition column, in which strings of the log are read."""
    return check_simple(data_type)


def partition_scalar(text: str | None, data_type: DataType) -> pa.Scalar:
    """Return a partition value of the log.

    Raises:
        NotHere: The value depends on the session's zone, or on Spark's own rules for the type.
    """
    _partition_type(data_type)
    kind = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if text and kind == "timestamp" and not text.endswith("Z"):
        raise NotHere("a partition value that is a time without a zone")
    if text and kind in _FLOATS and _NUMBER.fullmatch(text) is None:
        raise NotHere(f"a partition value of type {kind} that is not spelled as Spark writes it")
    value = parse_partition_value(text, data_type)
    if text and kind == "float" and len(text) > _FLOAT_DIGITS and not np.isnan(value) and np.float32(value) != value:
        raise NotHere("a float partition value that Java may read differently")  # The value was rounded twice.
    return pa.scalar(value, to_arrow_type(data_type))


def files_of_partitions(snapshot: Snapshot, files: pl.DataFrame, condition: Exact) -> pl.DataFrame:
    """Keep the files whose partition values make a condition true, testing each combination of values once.

    Args:
        snapshot: The table.
        files: Rows of its file table.
        condition: The condition, over partition columns alone.

    Raises:
        NotHere: Only Spark can determine some value.
    """
    refuse_table(snapshot)
    columns = ArrowColumns(snapshot, fields_of(condition))
    names = snapshot.files.spec.physical_names
    if not names:
        return files if true_rows(condition, columns.of_partitions({}), 1)[0] else files.clear()
    keys = [PV_PREFIX + name for name in names]
    found = files.select(keys).unique()
    texts = {name: found[PV_PREFIX + name].to_list() for name in names}
    holds = true_rows(condition, columns.of_partitions(texts), found.height)
    return files.join(found.filter(pl.Series(holds)), on=keys, how="semi", nulls_equal=True)


def only_spark(reason: Exception, snapshot: Snapshot) -> UnsupportedFeatureError:
    """Return the error for work that only Spark can do."""
    return UnsupportedFeatureError(
        f"Only Spark is sure to compute this right: {reason}.",
        features=("a command without Spark",),
        hint="Run it in a session: DeltaTable.forPath(spark, path), or pydelta sql.",
        table=snapshot.table_uri,
    )
