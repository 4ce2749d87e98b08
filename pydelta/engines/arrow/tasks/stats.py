"""Collect the statistics JSON of a file's ``add`` action while its row groups are written.

Bounds come from the Parquet footer, where they cost nothing. Values that a footer lacks (INT96 times, nulls of whole
arrays and maps) come from the Arrow data. Runs on executors.

Protocol: "Per-file Statistics".
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pydelta.engines.arrow.tasks.arrow import leaf_column
from pydelta.protocol.stats import has_bounds, json_bound, truncate_max, truncate_min
from pydelta.protocol.types import DataType

__all__ = ["IndexedLeaf", "StatisticsCollector", "needs_values"]

IndexedLeaf = tuple[tuple[str, ...], DataType]
"""Physical path and type of a column that gets statistics."""

_MILLISECOND = dt.timedelta(milliseconds=1)


class StatisticsCollector:
    """Collects the statistics of one file.

    Args:
        schema: Arrow schema of the file.
        indexed: Columns that get bounds and null counts.
        int96: Whether times with a zone are INT96, for which footers carry no statistics.
    """

    def __init__(self, schema: pa.Schema, indexed: Sequence[IndexedLeaf], *, int96: bool) -> None:
        self._indexed = indexed
        self._ordinals = _leaf_ordinals(schema)
        self._watched = [path for path, _ in indexed if _needs_values(self._ordinals, path, int96)]
        self._nulls: dict[tuple[str, ...], int] = dict.fromkeys(self._watched, 0)
        self._bounds: dict[tuple[str, ...], list[tuple[Any, Any]] | None] = {path: [] for path in self._watched}

    def add(self, table: pa.Table) -> None:
        """Collect the statistics of a row group before it is written."""
        for path in self._watched:
            column = leaf_column(table, path)
            self._nulls[path] += column.null_count
            bounds = self._bounds[path]
            if bounds is not None and path in self._ordinals and column.null_count < len(column):
                try:
                    bounds.append(_extremes(column))
                except (ValueError, OverflowError):  # Python cannot represent the time.
                    self._bounds[path] = None

    def finish(self, footer: pq.FileMetaData) -> str:
        """Return the statistics of the finished file as JSON text."""
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        smallest: dict[str, Any] = {}
        largest: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for path, data_type in self._indexed:
            if path in self._nulls:
                null_count: int | None = self._nulls[path]
                bounds = self._bounds[path]
            else:
                null_count, bounds = _from_footer(groups, self._ordinals[path][0], footer.schema)
            if null_count is not None:
                _set(nulls, path, null_count)
            if bounds and has_bounds(data_type):
                low = _low(min(bound[0] for bound in bounds))
                high = _high(max(bound[1] for bound in bounds))
                if low is not None:
                    _set(smallest, path, low)
                if high is not None:
                    _set(largest, path, high)
        return _dump({"numRecords": footer.num_rows, "minValues": smallest, "maxValues": largest, "nullCount": nulls})


def needs_values(schema: pa.Schema, indexed: Sequence[IndexedLeaf], int96: bool) -> set[str]:
    """Return the columns whose statistics come from their values, because the footer of a file lacks them.

    Args:
        schema: Arrow schema of the file.
        indexed: Columns that get bounds and null counts.
        int96: Whether times with a zone are INT96.
    """
    ordinals = _leaf_ordinals(schema)
    return {path[0] for path, _ in indexed if _needs_values(ordinals, path, int96)}


def _needs_values(ordinals: Mapping[tuple[str, ...], tuple[int, bool]], path: tuple[str, ...], int96: bool) -> bool:
    ordinal = ordinals.get(path)
    return ordinal is None or (int96 and ordinal[1])


def _from_footer(
    groups: Sequence[Any], ordinal: int, schema: pq.ParquetSchema
) -> tuple[int | None, list[tuple[Any, Any]] | None]:
    """Return the null count, and the bounds of each row group with values, or None if a row group lacks them."""
    nulls: int | None = 0
    bounds: list[tuple[Any, Any]] | None = []
    stored_type = schema.column(ordinal).physical_type
    for group in groups:
        chunk = group.column(ordinal)
        if chunk.physical_type != stored_type:  # Arrow ends the process that asks for the statistics of such a chunk.
            return None, None
        statistics = chunk.statistics
        if statistics is None:
            return None, None
        counted = statistics.null_count if statistics.has_null_count else None
        nulls = None if nulls is None or counted is None else nulls + counted
        if counted is not None and counted == group.num_rows:
            continue
        if not statistics.has_min_max or bounds is None:
            bounds = None
            continue
        try:
            bounds.append((statistics.min, statistics.max))
        except (ValueError, OverflowError):  # Python cannot represent the date.
            bounds = None
    return nulls, bounds


def _extremes(column: pa.ChunkedArray) -> tuple[Any, Any]:
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


@functools.lru_cache(maxsize=16)
def _leaf_ordinals(schema: pa.Schema) -> Mapping[tuple[str, ...], tuple[int, bool]]:
    """Number the leaves outside lists and maps by Parquet column, and mark times with a zone."""
    ordinals: dict[tuple[str, ...], tuple[int, bool]] = {}
    position = 0

    def walk(fields: Iterator[pa.Field], above: tuple[str, ...] | None) -> None:
        nonlocal position
        for field in fields:
            path = None if above is None else (*above, field.name)
            if pa.types.is_nested(field.type):
                inside = path if pa.types.is_struct(field.type) else None
                walk(_parts(field.type), inside)
                continue
            if path is not None:
                ordinals[path] = (position, bool(pa.types.is_timestamp(field.type) and field.type.tz))
            position += 1

    walk(iter(schema), ())
    return ordinals


def _parts(data_type: pa.DataType) -> Iterator[pa.Field]:
    if pa.types.is_map(data_type):
        return iter([data_type.key_field, data_type.item_field])
    return (data_type.field(index) for index in range(data_type.num_fields))


def _set(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = value


def _low(value: Any) -> Any:
    if isinstance(value, str):
        return truncate_min(value)
    return _bound(value)


def _high(value: Any) -> Any:
    if isinstance(value, str):
        return truncate_max(value)
    if isinstance(value, dt.datetime) and value.microsecond % 1000:
        try:  # Round up, so that readers need not know that the text is cut to milliseconds.
            value += _MILLISECOND
        except OverflowError:
            return None
    return _bound(value)


def _bound(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, Decimal) else json_bound(value)


def _dump(value: Any) -> str:
    """Render compact JSON in which decimals keep all their digits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_QUOTE(key)}:{_dump(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value, ensure_ascii=False)


_QUOTE: Callable[[str], str] = functools.partial(json.dumps, ensure_ascii=False)
