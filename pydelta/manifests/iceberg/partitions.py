"""Turn a table's partition columns into an Iceberg partition spec, and their values in the log into records. Pure.

Every partition column becomes an identity field with the column's values. A spec stays as long as the columns stay.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
import polars as pl
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from pydelta.errors import UnsupportedFeatureError
from pydelta.manifests.iceberg.schema import EntrySchema, IcebergColumn
from pydelta.protocol.partitions import parse_partition_value
from pydelta.protocol.types import DataType, DecimalType, PrimitiveType

__all__ = ["partition_records", "partition_spec"]

_FIRST_FIELD_ID: Final = 1000
_DAY_ONE: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def partition_spec(
    entry: EntrySchema, partition_columns: Sequence[str], previous: Iterable[PartitionSpec] = ()
) -> PartitionSpec:
    """Return the spec of the partition columns: the previous one of the same columns, or a new one.

    Args:
        entry: The entry's schema.
        partition_columns: The table's partition columns, in order.
        previous: All specs that the entry has had.

    Raises:
        UnsupportedFeatureError: A partition column is left out of the entry.
    """
    columns = [_column(entry, name) for name in partition_columns]
    specs = list(previous)
    for spec in sorted(specs, key=lambda item: item.spec_id, reverse=True):
        if [item.source_id for item in spec.fields] == [column.field_id for column in columns] and all(
            isinstance(item.transform, IdentityTransform) and _is_free(item.name, item.source_id, entry)
            for item in spec.fields
        ):
            return spec
    ids = {item.source_id: item.field_id for spec in specs for item in spec.fields}
    highest = max([_FIRST_FIELD_ID - 1, *ids.values()])
    fields = []
    for column in columns:
        if column.field_id not in ids:
            highest += 1
            ids[column.field_id] = highest
        fields.append(PartitionField(column.field_id, ids[column.field_id], IdentityTransform(), column.name))
    return PartitionSpec(*fields, spec_id=max((spec.spec_id for spec in specs), default=-1) + 1)


def _column(entry: EntrySchema, name: str) -> IcebergColumn:
    column = entry.columns.get(name.lower())
    if column is None:
        raise UnsupportedFeatureError(
            f"The Iceberg entry cannot leave out {name!r}, because it is a partition column.",
            features=("iceberg",),
            hint="Partition the table by columns of other types.",
        )
    return column


def _is_free(name: str, source_id: int, entry: EntrySchema) -> bool:
    """Return whether a partition field may have the name. One of a column must be of that column."""
    column = entry.columns.get(name.lower())
    return column is None or column.field_id == source_id


def partition_records(
    frame: pl.DataFrame, spec: PartitionSpec, entry: EntrySchema, *, time_zone: str = "UTC"
) -> list[Record]:
    """Return the partition of each file. Files of one partition share a record.

    Args:
        frame: Files, with the partition values as the log spells them in the first columns, in order. Others are not
            used, but a table without partitions needs one, which counts the files.
        spec: Their spec.
        entry: The entry's schema.
        time_zone: Zone of timestamps whose text has none.

    Raises:
        LogCorruptedError: A text is not a value of its column's type.
        UnsupportedFeatureError: A value is a double that PyIceberg would read as another one.
    """
    if not spec.fields:
        return list(repeat(Record(), frame.height))
    types = {column.field_id: column.data_type for column in entry.columns.values()}
    names = [f"v{position}" for position in range(len(spec.fields))]
    texts = pl.DataFrame([frame.to_series(index).alias(name) for index, name in enumerate(names)])
    distinct = texts.unique(maintain_order=True)
    columns = [
        _values(distinct.get_column(name), types[part.source_id], time_zone)
        for name, part in zip(names, spec.fields, strict=True)
    ]
    records = [Record(*values) for values in zip(*columns, strict=True)]
    numbered = distinct.with_row_index("record")
    at = texts.join(numbered, on=names, how="left", nulls_equal=True, maintain_order="left").get_column("record")
    return [records[index] for index in at.to_list()]


def _values(texts: pl.Series, data_type: DataType, time_zone: str) -> list[Any]:
    known: dict[str | None, Any] = {None: None}
    convert = _converter(data_type)
    for text in texts.unique(maintain_order=True):  # The first wrong value is the one that an error names.
        value = parse_partition_value(text, data_type, time_zone=time_zone)
        known[text] = None if value is None else convert(value)
    return [known[text] for text in texts]


def _converter(data_type: DataType) -> Callable[[Any], Any]:
    """Return the function from a parsed value to the value in a manifest: days, microseconds, exact decimals."""
    if isinstance(data_type, DecimalType):
        step = decimal.Decimal(1).scaleb(-data_type.scale)
        return lambda value: value.quantize(step, context=_CONTEXT)
    assert isinstance(data_type, PrimitiveType), "a partition column has a simple type"
    return _CONVERTERS.get(data_type.name, lambda value: value)


def _microseconds(value: dt.datetime) -> int:
    return (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND


def _single(value: float) -> float:
    """Round to single precision, as the manifest stores the value. What is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _double(value: float) -> float:
    """Return a number that PyIceberg reads rightly: its decoder of manifests rounds doubles to single precision."""
    if math.isfinite(value) and _single(value) != value:
        raise UnsupportedFeatureError(
            f"The Iceberg entry cannot hold the partition value {value!r} of type double: PyIceberg reads it as "
            f"{_single(value)!r}.",
            features=("iceberg",),
            hint="Partition the table by a column of another type, such as a decimal or a string.",
        )
    return value


_CONTEXT: Final = decimal.Context(prec=80)
_CONVERTERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "date": lambda value: value.toordinal() - _DAY_ONE,
    "timestamp": _microseconds,
    "timestamp_ntz": _microseconds,
    "float": _single,
    "double": _double,
}
