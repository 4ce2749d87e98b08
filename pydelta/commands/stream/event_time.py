"""Find the files of a slice of event time in a stream's initial snapshot, so that no row is late for a watermark. Pure.

The time from the earliest to the latest row is divided into slices of equal length, as many as the snapshot has
batches. A slice reads the files that may have rows in it, by their statistics, and returns only those rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from pydelta.protocol.schema import leaf_paths, logical_to_physical
from pydelta.protocol.stats import stat_column

if TYPE_CHECKING:
    from pydelta.commands.stream.options import SourceOptions
    from pydelta.log import Snapshot

__all__ = ["EventTimes", "TimeSlice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSlice:
    """Rows by their event time, in epoch microseconds.

    Args:
        column: The column with the time.
        first: The earliest time included; None for all before ``end`` and rows without a time.
        end: The first time excluded; None for all from ``first`` on.
    """

    column: str
    first: int | None
    end: int | None


class EventTimes:
    """The event times of files, from their statistics.

    Args:
        files: The files in the order of a stream.
        first: Earliest time of each file, in epoch microseconds; null if unknown.
        last: Latest time, likewise.
        slices: The number of slices.
    """

    def __init__(self, files: pl.DataFrame, first: pl.Series, last: pl.Series, slices: int) -> None:
        self._files = files.with_columns(__first=first.cast(pl.Int64), __last=last.cast(pl.Int64))
        begin, end = self._files["__first"].min(), self._files["__last"].max()
        known = isinstance(begin, int) and isinstance(end, int) and begin < end
        self._bounds: list[int] = []
        if known and slices > 1:
            assert isinstance(begin, int)
            assert isinstance(end, int)
            width = -(-(end - begin + 1) // slices)
            self._bounds = list(range(begin + width, end + 1, width))

    @classmethod
    def of(cls, snapshot: Snapshot, files: pl.DataFrame, column: str, options: SourceOptions) -> EventTimes:
        """Read the times of a snapshot's files.

        Args:
            snapshot: The snapshot.
            files: Its files in the order of the stream.
            column: The column with the time.
            options: The limits of a batch.
        """
        physical = logical_to_physical(snapshot.schema, snapshot.column_mapping_mode)
        paths = zip(leaf_paths(snapshot.schema), leaf_paths(physical), strict=True)
        leaf = next(stored for (path, _), stored in paths if path == (column,))
        stats = snapshot.files.stats_columns(files, [leaf])
        wanted = 1
        if options.max_files is not None:
            wanted = max(wanted, -(-files.height // options.max_files))
        if options.max_bytes is not None:
            wanted = max(wanted, -(-int(files["size"].sum() or 0) // options.max_bytes))
        nothing = pl.Series([None] * files.height, dtype=pl.Int64)
        bounds = [stats[name].dt.epoch("us") if name in stats.columns else nothing for name in _bounds_of(leaf[0])]
        return cls(files, bounds[0], bounds[1], wanted)

    def end_after(self, first: int | None) -> int | None:
        """Return the end of the time slice, extended until it holds a file; None at the end of the table.

        Args:
            first: Where the slice begins; None for the beginning.
        """
        for bound in self._bounds:
            if (first is None or bound > first) and self.between(first, bound).height:
                return bound
        return None

    def between(self, first: int | None, end: int | None) -> pl.DataFrame:
        """Return the files that may have rows in a slice."""
        chosen = pl.lit(value=True)
        if first is not None:
            chosen &= (pl.col("__last") >= first).fill_null(value=True)
        if end is not None:
            chosen &= (pl.col("__first") < end).fill_null(value=True)
        return self._files.filter(chosen).drop("__first", "__last")


def _bounds_of(path: tuple[str, ...]) -> tuple[str, str]:
    return stat_column("min", path), stat_column("max", path)
