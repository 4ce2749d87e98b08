"""Compute a scan's row count, minimum and maximum from statistics if they are exact, otherwise return None.

Statistics exist to skip files, so most are loose: strings and timestamps (to milliseconds) are truncated, floats ignore
NaN and -0.0, deletion vectors widen bounds. Exact are row counts, bounds of integers and dates, and the values of
partition columns. Protocol: "Per-file Statistics".
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import polars as pl

from pydelta.errors import LogCorruptedError
from pydelta.log.files import FileTable
from pydelta.protocol.schema import physical_name
from pydelta.protocol.stats import parse_stats_columns, stat_column
from pydelta.protocol.types import PrimitiveType, StructField

__all__ = ["ExactStatistics", "Value"]

Value: TypeAlias = int | str | bool | dt.date

_INTEGERS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_GREGORIAN: Final = dt.date(1582, 10, 15)
"""Earlier days are ambiguous, because writers used two calendars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A minimum or maximum. ``value`` is None if no row has a value."""

    value: Value | None


class ExactStatistics:
    """Statistics of some files of a table, as far as they are exact.

    Args:
        files: The table's files.
        frame: Rows of ``files.core`` for the files in question.
    """

    def __init__(self, files: FileTable, frame: pl.DataFrame) -> None:
        self._files = files
        self._frame = frame
        self._texts: pl.Series | None = None
        self._live: pl.Series | None = None

    def num_rows(self) -> int | None:
        """Return the number of live rows in the files, or None if it is not known exactly."""
        live = self._live_rows()
        return None if live is None else int(live.sum())

    def bound(self, field: StructField, kind: Literal["min", "max"]) -> Bound | None:
        """Return the minimum or maximum of a column, ignoring nulls; None if only a scan can find it.

        Args:
            field: A top-level column of the schema.
            kind: ``min`` or ``max``.
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
        """Return the number of live rows per file, or None if one is unknown."""
        if self._live is None:
            frame = self._frame
            records = self._files.stats_columns(frame, [])["numRecords"].cast(pl.Int64)
            marked = frame["dv_id"].is_not_null()
            if marked.any():
                vectors = [add.deletion_vector for add in self._files.adds(frame.filter(marked))]
                deleted = pl.Series([0 if item is None else item.cardinality for item in vectors], dtype=pl.Int64)
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
        columns = spec.keys
        held = self._frame.filter(live > 0).select(columns).unique()
        try:
            typed = self._files.partition_frame(held)
        except LogCorruptedError:
            return None
        name = next(item for item in typed.columns if item.lower() == field.name.lower())
        return Bound(value=_value(typed[name].drop_nulls(), kind))

    def _of_data(self, field: StructField, type_name: str, kind: str) -> Bound | None:
        if self._frame["dv_id"].is_not_null().any():
            return None  # The bound may belong to a hidden row.
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
            return None  # A file must have either a bound or only nulls.
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
