"""Sum up the statistics of a table's columns from its log, in slices of files, until a deadline. Reads no data file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from pydelta.errors import DeltaError
from pydelta.errors.redaction import hide_value
from pydelta.log import Snapshot
from pydelta.log.exact_statistics import ExactStatistics
from pydelta.protocol.names import path_text
from pydelta.protocol.schema import leaf_paths, logical_to_physical
from pydelta.protocol.stats import leaves_with_stats, stat_column
from pydelta.protocol.types import DataType
from pydelta.settings.clock import Deadline
from pydelta.tools.ui.catalog.facts import ColumnSums, TableSums
from pydelta.tools.ui.formats import of

__all__ = ["MOST_COLUMNS", "sum_columns"]

MOST_COLUMNS: Final = 100
"""Statistics are shown of this many leading columns."""
_FIRST_FILES: Final = 256
_FEWEST_FILES: Final = 64
_MOST_FILES: Final = 262_144
_SLICE_SECONDS: Final = 1.5
"""A slice should take this long. Columns of a checkpoint are read much faster than text, which a slice shows."""
_FASTER: Final = 8
_MOST_VECTORS: Final = 20_000
_TEXT_LENGTH: Final = 100

_Leaf = tuple[tuple[str, ...], DataType]


def sum_columns(snapshot: Snapshot, deadline: Deadline, *, shows_values: bool = True) -> TableSums:
    """Sum up a table's statistics.

    Args:
        snapshot: The version.
        deadline: When to give up. Nothing is then known of columns.
        shows_values: Whether bounds may be shown, which are values of rows.

    Raises:
        DeltaError: The log cannot be read.
    """
    stored = logical_to_physical(snapshot.schema, snapshot.column_mapping_mode)
    pairs = zip(leaf_paths(snapshot.schema), leaf_paths(stored), strict=True)
    recorded = leaves_with_stats(snapshot.schema, snapshot.properties, snapshot.partition_columns)
    indexed = {path for path, _ in recorded}
    leaves: dict[str, _Leaf] = {
        path_text(path): (physical, data_type) for (path, data_type), (physical, _) in pairs if path in indexed
    }
    shown = dict(list(leaves.items())[:MOST_COLUMNS])
    hides = snapshot.files.has_live_vectors()
    sums = _sums(snapshot, list(shown.values()), deadline)
    if sums is None:
        limited = f"The statistics of {of(snapshot.files.core.height, 'file')} were not summed up in time."
        return TableSums(version=snapshot.version, hides=hides, limited=limited)
    columns = {name: _column(sums, leaf, name, shows_values=shows_values) for name, leaf in shown.items()}
    columns |= _partitions(snapshot, shows_values=shows_values)
    more = len(leaves) - len(shown)
    return TableSums(
        version=snapshot.version,
        rows=_rows(snapshot, sums),
        hides=hides,
        columns=columns,
        limited=f"Statistics are shown of the first {MOST_COLUMNS} columns; {more} have none here." if more else None,
    )


def _sums(snapshot: Snapshot, leaves: Sequence[_Leaf], deadline: Deadline) -> dict[str, Any] | None:
    """Sum up all files, as one row; None if the deadline passes before."""
    files, core = snapshot.files, snapshot.files.core
    start, size = 0, _FIRST_FILES
    parts: list[pl.DataFrame] = []
    while start < core.height or not parts:
        if not deadline.remaining():
            return None
        began = time.monotonic()
        stats = files.stats_columns(core.slice(start, size), leaves)
        parts.append(stats.select(_partial(stats)))
        start += size
        faster = min(_SLICE_SECONDS / max(time.monotonic() - began, 0.001), _FASTER)
        size = min(max(int(size * faster), _FEWEST_FILES), _MOST_FILES)
    whole = pl.concat(parts, how="diagonal_relaxed")
    return whole.select(_total(name) for name in whole.columns).row(0, named=True)


def _partial(stats: pl.DataFrame) -> list[pl.Expr]:
    """Sum up a slice. ``gaps.`` counts files without the statistic that have rows which need it."""
    records = pl.col("numRecords")
    found = [records.sum(), records.null_count().alias("gaps.numRecords")]
    for name in stats.columns:
        if name == "numRecords":
            continue
        column, (kind, _, rest) = pl.col(name), name.partition(".")
        if kind == "nullCount":
            found += [column.sum(), column.null_count().alias(f"gaps.{name}")]
            continue
        found.append(column.min() if kind == "min" else column.max())
        nulls = f"nullCount.{rest}"
        # A file whose rows are all null has no bound, and needs none.
        needs = (pl.col(nulls) != records).fill_null(value=True) if nulls in stats.columns else pl.lit(value=True)
        found.append((column.is_null() & needs & (records != 0).fill_null(value=True)).sum().alias(f"gaps.{name}"))
    return found


def _total(name: str) -> pl.Expr:
    kind = name.partition(".")[0]
    column = pl.col(name)
    return column.min() if kind == "min" else column.max() if kind == "max" else column.sum()


def _column(sums: dict[str, Any], leaf: _Leaf, name: str, *, shows_values: bool) -> ColumnSums:
    nulls, low, high = (stat_column(kind, leaf[0]) for kind in ("nullCount", "min", "max"))
    if nulls not in sums:  # The name cannot be looked up in statistics.
        return ColumnSums()
    bounds: list[str | None] = [None, None]
    if shows_values:
        bounds = [_bound(sums, key, name) for key in (low, high)]
    without = int(sums[f"gaps.{nulls}"])
    return ColumnSums(nulls=None if without else int(sums[nulls]), low=bounds[0], high=bounds[1], without=without)


def _bound(sums: dict[str, Any], key: str, name: str) -> str | None:
    """Return a bound as text; None if a file lacks it, because it is then not a bound of the table."""
    value = sums.get(key)
    return None if value is None or sums[f"gaps.{key}"] else _text(name, value)


def _text(name: str, value: Any) -> str:
    text = str(hide_value(name, value if isinstance(value, str) else str(value)))
    return text if len(text) <= _TEXT_LENGTH else f"{text[:_TEXT_LENGTH]}…"


def _rows(snapshot: Snapshot, sums: dict[str, Any]) -> int | None:
    """Count live rows: those of all files, without those that deletion vectors hide."""
    if sums["gaps.numRecords"]:
        return None
    core = snapshot.files.core
    marked = core.filter(pl.col("dv_id").is_not_null())
    if marked.height > _MOST_VECTORS:
        return None
    total = int(sums["numRecords"])
    if marked.is_empty():
        return total
    live = ExactStatistics(snapshot.files, marked).num_rows()
    written = snapshot.files.stats_columns(marked, [])["numRecords"].sum()
    return None if live is None else total - int(written) + live


def _partitions(snapshot: Snapshot, *, shows_values: bool) -> dict[str, ColumnSums]:
    """Sum up partition columns from their distinct values, which the log has exactly."""
    files = snapshot.files
    keys = files.spec.keys
    if not keys:
        return {}
    core = files.core
    records = files.stats_columns(core.select("row", "dv_id", *keys), [])["numRecords"]
    counted = core.select(keys).with_columns(rows=records)
    found = {}
    try:
        typed = files.partition_frame(core.select(keys).unique())
    except DeltaError:
        return {}
    for key, name in zip(keys, files.spec.partition_columns, strict=True):
        rows = counted.filter(pl.col(key).is_null())["rows"]
        values = typed[name].drop_nulls()
        low, high = (None, None) if values.is_empty() or not shows_values else (values.min(), values.max())
        found[name] = ColumnSums(
            nulls=None if rows.null_count() else int(rows.sum()),
            low=None if low is None else _text(name, low),
            high=None if high is None else _text(name, high),
        )
    return found
