"""Compute a scan's row count, minimum and maximum from statistics where these are exact; else give None.

Statistics are made to skip files, so most of them are loose: strings are cut, timestamps are cut to milliseconds,
floats do not count NaN and -0.0, deletion vectors make bounds wide. What is left is exact: counts of rows, bounds of
whole numbers and dates, and the values of partition columns. Protocol: "Per-file Statistics".
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import polars as pl

from pydelta.errors import LogCorruptedError
from pydelta.log.columns import PV_PREFIX
from pydelta.log.files import FileTable
from pydelta.protocol.schema import physical_name
from pydelta.protocol.stats import parse_stats_columns, stat_column
from pydelta.protocol.types import PrimitiveType, StructField

__all__ = ["ExactStatistics", "Value"]

Value: TypeAlias = int | str | bool | dt.date

_INTEGERS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_GREGORIAN: Final = dt.date(1582, 10, 15)
"""Earlier days were written by two calendars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A least or greatest value; ``value`` is None where no row has one."""

    value: Value | None


class ExactStatistics:
    """Statistics of some files of a table, as far as they are exact.

    Args:
        files: The table's files.
        frame: Rows of ``files.core``: the files asked about.
    """

    def __init__(self, files: FileTable, frame: pl.DataFrame) -> None:
        self._files = files
        self._frame = frame
        self._texts: pl.Series | None = None
        self._live: pl.Series | None = None

    def num_rows(self) -> int | None:
        """Tell how many live rows the files hold."""
        live = self._live_rows()
        return None if live is None else int(live.sum())

    def bound(self, field: StructField, kind: Literal["min", "max"]) -> Bound | None:
        """Return the least or greatest value of a column, nulls left out; None where only a scan can tell.

        Args:
            field: A top-level column, as the schema has it.
            kind: Which.
        """
        name = field.data_type.name if isinstance(field.data_type, PrimitiveType) else ""
        if "__COLLATIONS" in field.metadata:
            return None
        partitions = {item.lower() for item in self._files.spec.partition_columns}
        if field.name.lower() in partitions:
            known = (*_INTEGERS, "date", "string", "boolean")
            return self._of_partitions(field, kind) if name in known else None
        if name not in (*_INTEGERS, "date"):
            return None
        return self._of_data(field, name, kind)

    def _live_rows(self) -> pl.Series | None:
        """Live rows of each file."""
        if self._live is None:
            frame = self._frame
            records = self._files.stats_columns(frame, [])["numRecords"].cast(pl.Int64)
            marked = frame["dv_id"].is_not_null()
            if marked.any():
                gone = [add.deletion_vector for add in self._files.adds(frame.filter(marked))]
                deleted = pl.Series([0 if item is None else item.cardinality for item in gone], dtype=pl.Int64)
                at = marked.arg_true()
                records = records.scatter(at, records.gather(at) - deleted)
            self._live = records
        if self._live.null_count() or bool((self._live < 0).any()):
            return None
        return self._live

    def _of_partitions(self, field: StructField, kind: str) -> Bound | None:
        live = self._live_rows()
        if live is None:
            return None
        spec = self._files.spec
        columns = [PV_PREFIX + name for name in spec.physical_names]
        held = self._frame.filter(live > 0).select(columns).unique()
        try:
            typed = self._files.partition_frame(held)
        except LogCorruptedError:
            return None
        name = next(item for item in typed.columns if item.lower() == field.name.lower())
        return Bound(value=_value(typed[name].drop_nulls(), kind))

    def _of_data(self, field: StructField, type_name: str, kind: str) -> Bound | None:
        if self._frame["dv_id"].is_not_null().any():
            return None  # the bound may be that of a deleted row
        path = (physical_name(field) if self._files.spec.mode != "none" else field.name,)
        texts = self._stats_texts()
        bound_name, nulls_name = stat_column(kind, path), stat_column("nullCount", path)
        raw = PrimitiveType("string") if type_name == "date" else field.data_type
        stats = parse_stats_columns(texts, [(path, raw)])
        if bound_name not in stats.columns:
            return None
        stats = stats.with_columns(texts.str.json_path_match("$.tightBounds").alias("tight"))
        if bool((stats["tight"] == "false").any()) or stats["numRecords"].null_count():
            return None
        held = stats.filter(pl.col("numRecords") > 0)
        all_null = (pl.col(nulls_name) == pl.col("numRecords")).fill_null(False)
        if held.filter(all_null == pl.col(bound_name).is_not_null()).height:
            return None  # neither a bound nor all rows null; or both, which cannot be
        bounds = held[bound_name].drop_nulls()
        if type_name == "date":
            days = bounds.str.to_date("%Y-%m-%d", strict=False)
            if days.null_count() or not (bounds.str.len_chars() == 10).all() or bool((days < _GREGORIAN).any()):
                return None
            return Bound(value=_value(days, kind))
        value = _value(bounds, kind)
        limit = 1 << (_INTEGERS[type_name] - 1)
        if isinstance(value, int) and not -limit <= value < limit:
            return None
        return Bound(value=value)

    def _stats_texts(self) -> pl.Series:
        if self._texts is None:
            self._texts = self._files.with_stats(self._frame)["stats"]
        return self._texts


def _value(values: pl.Series, kind: str) -> Value | None:
    found = values.min() if kind == "min" else values.max()
    assert found is None or isinstance(found, int | str | bool | dt.date)
    return found
