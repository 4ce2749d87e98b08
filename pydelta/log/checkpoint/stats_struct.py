"""Parse JSON statistics and partition values into the structs ``stats_parsed`` and ``partitionValues_parsed``.

The columns are those with statistics, by physical name and in the table's types ("Checkpoints"). A value that JSON
cannot carry exactly (a decimal with more digits than a double) becomes null rather than wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import polars as pl
import pyarrow as pa

from pydelta.log.snapshot import Snapshot
from pydelta.protocol.schema import logical_to_physical, to_arrow_type, to_polars_dtype
from pydelta.protocol.stats import has_bounds, leaves_with_stats
from pydelta.protocol.types import DataType, DecimalType, PrimitiveType, StructType

__all__ = ["StatsShape", "partition_struct", "stats_shape"]

Tree: TypeAlias = "dict[str, Tree | DataType]"
_EXACT_DIGITS: Final = 15
_LOST_ROWS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsShape:
    """The leaves of ``stats_parsed``.

    Args:
        counts: All leaves, nested by physical name, for ``nullCount``.
        bounds: Those of them with ``minValues`` and ``maxValues``.
    """

    counts: Tree
    bounds: Tree

    def arrow_type(self) -> pa.DataType:
        """Return the struct's type."""
        fields = [pa.field("numRecords", pa.int64())]
        if self.bounds:
            bounds = _arrow(self.bounds, counts=False)
            fields += [pa.field("minValues", bounds), pa.field("maxValues", bounds)]
        if self.counts:
            fields.append(pa.field("nullCount", _arrow(self.counts, counts=True)))
        fields.append(pa.field("tightBounds", pa.bool_()))
        return pa.struct(fields)

    def parse(self, texts: pl.Series) -> Any:
        """Parse JSON strings into an Arrow array of ``arrow_type``. A null text gives null.

        An invalid text, or one of another shape, gives null, also for at most ``_LOST_ROWS`` rows around it.
        """
        raw: dict[str, Any] = {"numRecords": pl.Int64(), "tightBounds": pl.Boolean()}
        if self.bounds:
            raw["minValues"] = raw["maxValues"] = _raw(self.bounds, counts=False)
        if self.counts:
            raw["nullCount"] = _raw(self.counts, counts=True)
        try:
            decoded = texts.str.json_decode(pl.Struct(raw))
        except pl.exceptions.PolarsError:
            if len(texts) <= _LOST_ROWS:
                return pa.nulls(len(texts), self.arrow_type())
            half = len(texts) // 2
            return pa.concat_arrays([self.parse(texts[:half]), self.parse(texts[half:])])
        stats = pl.col("stats")
        fields = [stats.struct.field("numRecords")]
        if self.bounds:
            fields += [_typed(stats.struct.field(name), self.bounds).alias(name) for name in ("minValues", "maxValues")]
        if self.counts:
            fields.append(stats.struct.field("nullCount"))
        fields.append(stats.struct.field("tightBounds"))
        frame = decoded.alias("stats").to_frame()
        typed = frame.select(stats=pl.when(stats.is_not_null()).then(pl.struct(fields)))["stats"]
        return typed.to_arrow().cast(self.arrow_type())


def stats_shape(snapshot: Snapshot) -> StatsShape:
    """Return the leaves that the snapshot's table collects statistics for."""
    leaves = leaves_with_stats(snapshot.schema, snapshot.properties, snapshot.partition_columns)
    counts: Tree = {}
    bounds: Tree = {}
    mode = snapshot.column_mapping_mode
    for path, data_type in leaves:
        if not _storable(data_type):
            continue
        physical = _physical_path(snapshot.schema, path, mode)
        _insert(counts, physical, data_type)
        if has_bounds(data_type):
            _insert(bounds, physical, data_type)
    return StatsShape(counts=counts, bounds=bounds)


def _storable(data_type: DataType) -> bool:
    return not (isinstance(data_type, PrimitiveType) and data_type.name == "void")


def _physical_path(schema: StructType, path: Sequence[str], mode: str) -> tuple[str, ...]:
    names: list[str] = []
    level: DataType = schema
    for part in path:
        assert isinstance(level, StructType)
        field = level.field(part)
        assert field is not None
        names.append(logical_to_physical(StructType((field,)), mode).fields[0].name)
        level = field.data_type
    return tuple(names)


def _insert(tree: Tree, path: Sequence[str], data_type: DataType) -> None:
    for name in path[:-1]:
        inner = tree.setdefault(name, {})
        assert isinstance(inner, dict)
        tree = inner
    tree[path[-1]] = data_type


def _arrow(tree: Tree, *, counts: bool) -> pa.DataType:
    fields = []
    for name, item in tree.items():
        if isinstance(item, dict):
            fields.append(pa.field(name, _arrow(item, counts=counts)))
        else:
            fields.append(pa.field(name, pa.int64() if counts else to_arrow_type(item)))
    return pa.struct(fields)


def _raw(tree: Tree, *, counts: bool) -> pl.Struct:
    leaf = pl.Int64() if counts else pl.String()
    return pl.Struct(
        {name: _raw(item, counts=counts) if isinstance(item, dict) else leaf for name, item in tree.items()}
    )


def _typed(expr: pl.Expr, tree: Tree) -> pl.Expr:
    fields = [
        (
            _typed(expr.struct.field(name), item) if isinstance(item, dict) else _value(expr.struct.field(name), item)
        ).alias(name)
        for name, item in tree.items()
    ]
    return pl.when(expr.is_not_null()).then(pl.struct(fields))


def _value(text: pl.Expr, data_type: DataType) -> pl.Expr:
    if isinstance(data_type, DecimalType):
        number = text.cast(pl.Float64, strict=False)
        exact = number.abs() < 10.0 ** (_EXACT_DIGITS - data_type.scale)
        return pl.when(exact).then(text.cast(to_polars_dtype(data_type), strict=False))
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name == "date":
        return text.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False)
    if name == "timestamp":
        zoned = text.str.replace(r"Z$", "+00:00").str.replace(" ", "T", literal=True)
        zoned = pl.when(zoned.str.contains(r"[+-]\d{2}:?\d{2}$")).then(zoned).otherwise(zoned + "+00:00")
        return zoned.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%:z", time_unit="us", time_zone="UTC", strict=False)
    if name == "timestamp_ntz":
        plain = text.str.replace(r"Z$", "").str.replace(" ", "T", literal=True)
        return plain.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
    return text.cast(to_polars_dtype(data_type), strict=False)


def partition_struct(typed: pl.DataFrame, physical_names: Sequence[str], schema: StructType) -> Any:
    """Convert typed partition values to the Arrow struct ``partitionValues_parsed``, with fields by physical name."""
    arrays = [typed[field.name].to_arrow().cast(to_arrow_type(field.data_type)) for field in schema.fields]
    fields = [pa.field(name, array.type) for name, array in zip(physical_names, arrays, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields)
