"""Render ``stats_parsed`` structs as the JSON text of ``add.stats``.

Dates and timestamps become the strings of "Per-file Statistics" (timestamps cut to milliseconds). Decimals stay
numbers.
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from pydelta.log.checkpoint.parquet_rows import INT96_UNIT

__all__ = ["struct_stats_to_json"]

_NUMBER_MARK: Final = "\ue000"


def _printable(expr: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Struct):
        fields = [_printable(expr.struct.field(f.name), _instance(f.dtype)).alias(f.name) for f in dtype.fields]
        return pl.when(expr.is_not_null()).then(pl.struct(fields)) if fields else expr
    if isinstance(dtype, pl.Datetime):
        is_instant = dtype.time_zone is not None or dtype.time_unit == INT96_UNIT
        local = expr if dtype.time_zone is None else expr.dt.convert_time_zone("UTC")
        return local.dt.strftime("%Y-%m-%dT%H:%M:%S%.3f" + ("Z" if is_instant else ""))
    if isinstance(dtype, pl.Decimal):
        return pl.lit(_NUMBER_MARK) + expr.cast(pl.String)
    if isinstance(dtype, pl.Binary):
        return pl.lit(None, dtype=pl.String)
    return expr


def _instance(dtype: Any) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()


def struct_stats_to_json(structs: Any) -> pl.Series:
    """Render one JSON text per struct. A null struct gives null.

    Args:
        structs: Arrow array of ``stats_parsed``.

    Returns:
        A String series of the same length. Null fields of the struct are null (not absent) in the text.
    """
    series = pl.from_arrow(structs)
    assert isinstance(series, pl.Series)
    if not isinstance(series.dtype, pl.Struct) or not series.dtype.fields:
        return pl.repeat(None, len(structs), dtype=pl.String, eager=True)
    frame = series.alias("stats").to_frame()
    text = frame.select(
        stats=pl.when(pl.col("stats").is_not_null()).then(
            _printable(pl.col("stats"), series.dtype).struct.json_encode()
        )
    )["stats"]
    return text.str.replace_all(f'"{_NUMBER_MARK}([^"]*)"', "$1")
