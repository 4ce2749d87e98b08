"""Read one data file of a snapshot as Arrow batches, for the data source of last resort."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pydelta.protocol.partitions import parse_partition_value
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.schema import physical_name, to_arrow
from pydelta.protocol.types import ArrayType, DataType, MapType, StructType
from pydelta.storage import open_store

if TYPE_CHECKING:
    from pydelta.log import Snapshot
    from pydelta.protocol.actions import DeletionVectorDescriptor

__all__ = ["read_file"]

_BATCH_ROWS: Final = 10_000


def read_file(
    snapshot: Snapshot,
    path: str,
    values: Mapping[str, str | None],
    options: Mapping[str, str],
    vector: DeletionVectorDescriptor | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of one data file.

    Args:
        snapshot: The version, for its schema.
        path: As the log spells it.
        values: Partition values as text, by physical name.
        options: Storage options.
        vector: The file's deletion vector.

    Yields:
        Batches with the table's columns in its order; a column that the file lacks is null.
    """
    target = to_arrow(snapshot.schema)
    hidden = _deleted(snapshot.table_uri, vector, options)
    first = 0
    partitions = {name.lower() for name in snapshot.partition_columns}
    mapped = snapshot.column_mapping_mode != "none"
    source = pa.BufferReader(_read(snapshot.table_uri, path, options))
    file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")  # Nanoseconds would overflow.
    names = {name.lower(): name for name in file.schema_arrow.names}
    wanted = {}
    for field in snapshot.schema.fields:
        name = physical_name(field) if mapped else field.name
        if field.name.lower() not in partitions and name.lower() in names:
            wanted[field.name] = names[name.lower()]
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(wanted.values())):
        columns = []
        for field, arrow in zip(snapshot.schema.fields, target, strict=True):
            name = physical_name(field) if mapped else field.name
            if field.name in wanted:
                columns.append(_fit(batch.column(wanted[field.name]), field.data_type, arrow.type, mapped))
            else:
                value = parse_partition_value(values.get(name), field.data_type) if name in values else None
                columns.append(_constant(value, arrow.type, batch.num_rows))
        rows = pa.RecordBatch.from_arrays(columns, schema=target)
        if len(hidden):
            inside = hidden[np.searchsorted(hidden, first) : np.searchsorted(hidden, first + rows.num_rows)]
            live = np.ones(rows.num_rows, dtype=bool)
            live[inside - first] = False
            rows = rows.filter(pa.array(live))
        first += batch.num_rows
        yield rows


def _deleted(root: str, vector: DeletionVectorDescriptor | None, options: Mapping[str, str]) -> Any:
    if vector is None:
        return np.empty(0, dtype=np.int64)
    from pydelta.log.vector_files import read_deleted_rows

    rows = read_deleted_rows([vector], store=open_store(root, options), root=root, options=options)
    return rows[0].astype(np.int64)


def _read(root: str, path: str, options: Mapping[str, str]) -> bytes:
    folder, there = decode_log_path(path).place(root)
    return open_store(folder or root, options).read(there)


def _constant(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def _fit(array: pa.Array, data_type: DataType, kind: pa.DataType, mapped: bool) -> pa.Array:
    """Rename nested fields to their logical names, fill missing ones with null, and cast leaves."""
    if array.null_count == len(array):
        return pa.nulls(len(array), kind)
    if isinstance(data_type, StructType):
        present = {field.name.lower(): position for position, field in enumerate(array.type)}
        parts = []
        for field, arrow in zip(data_type.fields, kind, strict=True):
            position = present.get((physical_name(field) if mapped else field.name).lower())
            parts.append(
                pa.nulls(len(array), arrow.type)
                if position is None
                else _fit(pc.struct_field(array, position), field.data_type, arrow.type, mapped)
            )
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pc.is_null(array))
    if isinstance(data_type, ArrayType):
        values = _fit(array.values, data_type.element_type, kind.value_type, mapped)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=pc.is_null(array))
    if isinstance(data_type, MapType):
        keys = _fit(array.keys, data_type.key_type, kind.key_type, mapped)
        items = _fit(array.items, data_type.value_type, kind.item_type, mapped)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=pc.is_null(array))
    return array.cast(kind)
