"""Prune a file table to the files that may match the conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from pydelta.errors import LogCorruptedError
from pydelta.log.columns import PV_PREFIX
from pydelta.predicate import Expr, NotEvaluable, columns, partition_mask, rename_columns, skipping_masks
from pydelta.predicate.generated import generated_partitions
from pydelta.protocol.schema import leaf_paths, logical_to_physical, physical_partition_columns
from pydelta.protocol.stats import stat_column
from pydelta.protocol.types import DataType, DecimalType, StructField, StructType

__all__ = ["FileColumns", "PartitionSpec", "prune_by_generated", "prune_by_partition", "prune_by_statistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """The parts of the schema that the file table needs.

    Args:
        schema: The table's logical schema.
        partition_columns: Logical names, in order.
        physical_names: Keys of ``partitionValues``, in the same order.
        mode: ``delta.columnMapping.mode``.
    """

    schema: StructType
    partition_columns: tuple[str, ...]
    physical_names: tuple[str, ...]
    mode: str

    @classmethod
    def of(cls, schema: StructType, partition_columns: Sequence[str], mode: str) -> PartitionSpec:
        """Derive the spec, including the physical names, from a schema.

        Raises:
            LogCorruptedError: A partition column is listed twice.
        """
        if len(set(partition_columns)) < len(partition_columns):
            raise LogCorruptedError(
                f"The metadata names a partition column twice: {', '.join(partition_columns)}.",
                hint="Restore the commit that last changed the metadata from a backup of _delta_log.",
            )
        return cls(
            schema=schema,
            partition_columns=tuple(partition_columns),
            physical_names=physical_partition_columns(schema, partition_columns, mode),
            mode=mode,
        )

    @property
    def keys(self) -> list[str]:
        """The partition columns of the file table's frames, in order."""
        return [PV_PREFIX + name for name in self.physical_names]

    def partition_schema(self) -> StructType:
        """Return the partition columns as a struct, with logical names as spelled in the metadata."""
        fields = []
        for name in self.partition_columns:
            field = self.schema.field(name)
            if field is None:
                raise LogCorruptedError(
                    f"The metadata partitions the table by {name!r}, which is not a column of its schema.",
                    hint="Restore the commit that last changed the metadata from a backup of _delta_log.",
                )
            fields.append(StructField(name, field.data_type))
        return StructType(tuple(fields))


class FileColumns(Protocol):
    """The interface of a file table that pruning needs."""

    @property
    def spec(self) -> PartitionSpec:
        """The partition columns."""

    def partition_frame(self, frame: pl.DataFrame, *, time_zone: str) -> pl.DataFrame:
        """Return typed partition values of rows of the file table."""

    def stats_columns(self, frame: pl.DataFrame, leaves: Sequence[tuple[tuple[str, ...], DataType]]) -> pl.DataFrame:
        """Return typed statistics of some leaf columns, one row per row of ``frame``."""


def prune_by_partition(files: FileColumns, frame: pl.DataFrame, expr: Expr, *, time_zone: str) -> pl.DataFrame:
    """Keep the rows whose partition values make ``expr`` true. Each distinct combination is evaluated once.

    Rows are dropped if the condition is false or null. A condition that cannot be evaluated, or a partition value that
    does not fit its type, drops nothing.
    """
    spec = files.spec
    used = {path[0].lower() for path in columns(expr)}
    physical = [
        PV_PREFIX + name
        for name, logical in zip(spec.physical_names, spec.partition_columns, strict=True)
        if logical.lower() in used
    ]
    if frame.is_empty():
        return frame
    distinct = frame.select(PV_PREFIX + name if PV_PREFIX + name in physical else
                            pl.lit(None, dtype=pl.String).alias(PV_PREFIX + name)
                            for name in spec.physical_names).unique()  # fmt: skip
    try:
        mask = partition_mask(expr, files.partition_frame(distinct, time_zone=time_zone))
    except (NotEvaluable, LogCorruptedError):
        return frame
    keep = mask.fill_null(False)
    if bool(keep.all()):
        return frame
    if not bool(keep.any()):
        return frame.clear()
    kept = distinct.filter(keep).select(physical)
    return frame.join(kept, on=physical, how="semi", nulls_equal=True, maintain_order="left")


def prune_by_generated(
    files: FileColumns, frame: pl.DataFrame, conditions: Sequence[Expr], *, time_zone: str
) -> pl.DataFrame:
    """Drop rows whose generated partition values rule out a condition on their base columns."""
    if frame.is_empty() or not conditions:
        return frame
    generated = generated_partitions(files.spec.schema, files.spec.partition_columns)
    for expr in generated.derive(conditions):
        frame = prune_by_partition(files, frame, expr, time_zone=time_zone)
    return frame


def prune_by_statistics(
    files: FileColumns, frame: pl.DataFrame, conditions: Sequence[Expr], *, time_zone: str
) -> pl.DataFrame:
    """Drop rows whose statistics rule out one of the conditions.

    A partition column in a mixed condition counts with its exact value.
    """
    spec = files.spec
    physical = logical_to_physical(spec.schema, spec.mode)
    leaves: dict[tuple[str, ...], tuple[tuple[str, ...], DataType]] = {}
    for (path, data_type), (stored, _) in zip(leaf_paths(spec.schema), leaf_paths(physical), strict=True):
        leaves[tuple(part.lower() for part in path)] = (stored, data_type)
    used = {path for expr in conditions for path in columns(expr)}
    found = {path: leaves[key] for path in used if (key := tuple(part.lower() for part in path)) in leaves}
    partitions = {name.lower() for name in spec.partition_columns}
    on_data = {path: leaf for path, leaf in found.items() if path[0].lower() not in partitions}
    if not found:
        return frame
    # Each stored column is read once, however the conditions spell it.
    wanted = {stored: (stored, data_type) for stored, data_type in on_data.values()}
    stats = files.stats_columns(frame, list(wanted.values()))
    if len(on_data) < len(found):
        stats = _with_partition_values(files, frame, stats, time_zone=time_zone)
    renamed = {path: leaf[0] for path, leaf in on_data.items()}
    renamed |= {path: _partition_path(path[0]) for path in found if path not in on_data}
    decimals = {renamed[path] for path, (_, data_type) in found.items() if isinstance(data_type, DecimalType)}
    mask = skipping_masks([rename_columns(expr, renamed) for expr in conditions], stats, decimals=decimals)
    return frame if bool(mask.all()) else frame.filter(mask)


def _partition_path(name: str) -> tuple[str, ...]:
    """Return the path of a partition column among the statistics, which cannot collide with any data column."""
    return ("", name.lower())


def _with_partition_values(
    files: FileColumns, frame: pl.DataFrame, stats: pl.DataFrame, *, time_zone: str
) -> pl.DataFrame:
    """Add statistics of partition columns. All rows of a file have the same value."""
    try:
        typed = files.partition_frame(frame, time_zone=time_zone)
    except LogCorruptedError:
        return stats
    records = pl.col("numRecords")
    return stats.with_columns(
        column
        for name in typed.columns
        for column in (
            typed[name].alias(stat_column("min", _partition_path(name))),
            typed[name].alias(stat_column("max", _partition_path(name))),
            pl.when(typed[name].is_null())
            .then(records)
            .otherwise(0)
            .alias(stat_column("nullCount", _partition_path(name))),
        )
    )
