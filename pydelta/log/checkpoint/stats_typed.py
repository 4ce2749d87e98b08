"""Read typed statistics of a checkpoint file's rows directly from ``stats_parsed``.

The result equals that of ``parse_stats_columns`` on the JSON strings, but no text is read or parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from pydelta.log.checkpoint.parquet_rows import ParquetRows, struct_fields
from pydelta.protocol.stats import has_bounds, stat_column, widened_float
from pydelta.protocol.types import DataType, DecimalType, PrimitiveType

__all__ = ["Leaf", "read_typed_stats"]

Leaf: TypeAlias = tuple[tuple[str, ...], DataType]
_CUT: Final = timedelta(milliseconds=1)
_EXACT_DIGITS: Final = 15


def _columns(leaves: Sequence[Leaf]) -> dict[str, tuple[tuple[str, ...], DataType, str]]:
    """Map each result column to its path in ``stats_parsed``, type and kind."""
    wanted: dict[str, tuple[tuple[str, ...], DataType, str]] = {
        "numRecords": (("numRecords",), PrimitiveType("long"), "count")
    }
    for path, data_type in leaves:
        wanted[stat_column("nullCount", path)] = (("nullCount", *path), PrimitiveType("long"), "count")
        if has_bounds(data_type):
            wanted[stat_column("min", path)] = (("minValues", *path), data_type, "min")
            wanted[stat_column("max", path)] = (("maxValues", *path), data_type, "max")
    return wanted


def read_typed_stats(part: ParquetRows, rows: npt.NDArray[np.int64], leaves: Sequence[Leaf]) -> pl.DataFrame | None:
    """Read the statistics of ascending rows.

    Args:
        part: The file.
        rows: Row indexes in it.
        leaves: Physical paths and types.

    Returns:
        Columns as in ``parse_stats_columns``, one row per requested row, null where ``stats_parsed`` is null. None if
        the file lacks one of the columns, so that the strings must be read.
    """
    wanted = _columns(leaves)
    if not all(part.has("add", "stats_parsed", *path) for path, _, _ in wanted.values()):
        return None
    fields = [".".join(("stats_parsed", *path)) for path, _, _ in wanted.values()]
    pieces: list[pl.DataFrame] = []
    for _, structs in part.take("add", fields, rows):
        parsed = struct_fields(structs)["stats_parsed"]
        pieces.append(pl.DataFrame([_leaf(parsed, path, name) for name, (path, _, _) in wanted.items()]))
    if not pieces:
        return None
    frame = pl.concat(pieces)
    return frame.select(_normal(pl.col(name), frame[name].dtype, kind, of).alias(name)
                        for name, (_, of, kind) in wanted.items())  # fmt: skip


def _leaf(parsed: Any, path: Sequence[str], name: str) -> pl.Series:
    for part in path:
        parsed = struct_fields(parsed)[part]
    series = pl.from_arrow(parsed)
    assert isinstance(series, pl.Series)
    return series.alias(name)


def _normal(column: pl.Expr, stored: pl.DataType, kind: str, data_type: DataType) -> pl.Expr:
    """Convert a stored bound to the type and width of one parsed from text."""
    if isinstance(data_type, DecimalType):
        number = column.cast(pl.Float64)
        slack = number.abs() * 2.0**-50
        if data_type.precision <= _EXACT_DIGITS:
            return number
        return number - slack if kind == "min" else number + slack
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in ("timestamp", "timestamp_ntz"):
        moment = column.cast(pl.Datetime("us", stored.time_zone)) if isinstance(stored, pl.Datetime) else column
        if name == "timestamp" and isinstance(stored, pl.Datetime):
            utc = moment.dt.replace_time_zone("UTC") if stored.time_zone is None else moment.dt.convert_time_zone("UTC")
            moment = utc
        return moment + _CUT if kind == "max" else moment
    if name in ("float", "double"):
        number = column.cast(pl.Float64)
        return widened_float(number, kind) if name == "float" and kind != "count" else number
    return column if name in ("string", "date") else column.cast(pl.Int64)
