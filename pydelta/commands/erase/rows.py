"""Rewrite the live files that hold a key, in one commit, without the rows of the keys.

::

    files that may hold a key (partition values, statistics)
      -> rows with a key, those that deletion vectors hide included
      -> new files with the other live rows -> remove + add in one commit

Hidden rows of the keys have to leave the files too, so that a file is also rewritten if only they are found. So is one
whose bounds are a key that no row of it has any more: bounds may be wider than the rows. The change feed gets no copy
of the rows: the version is given up afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import polars as pl

from pydelta.commands.change.reconcile import RowCounts, reconcile
from pydelta.commands.engine import NOTHING_WRITTEN, RewriteOutput
from pydelta.commands.erase.keys import KeyColumn, Subject
from pydelta.commands.erase.parquet import FoundRows, find_keys
from pydelta.commands.erase.texts import is_key_text
from pydelta.commands.run import Attempt, Command, Refusal
from pydelta.errors import StorageError
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.columns import PV_PREFIX
from pydelta.log.runs import joined, num_bytes, removes_of
from pydelta.log.vector_files import place_of, read_deleted_rows
from pydelta.protocol.actions import AddFile
from pydelta.protocol.roaring import Positions
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.stats import MAX_STRING_LENGTH, stat_column, truncate_max, truncate_min
from pydelta.storage.readers import read_all
from pydelta.txn import Operation

__all__ = ["APPEND_ONLY", "ERASE", "EraseRows", "ErasedRows", "live_files_with", "may_hold", "with_bounds_of"]

ERASE: Final = "ERASE"
APPEND_ONLY: Final = Refusal("no row can be erased from it")
"""How an append-only table refuses an erasure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedRows:
    """The result of one commit. ``version`` is None if no live file held a key.

    Args:
        num_rows: Live rows that were erased.
        num_hidden_rows: Rows of the keys that deletion vectors hid, and that left their files too.
        num_removed_files, num_added_files: Files before and after.
        removed_bytes, added_bytes: Their sizes.
        num_copied_rows: Live rows of others in the rewritten files.
    """

    version: int | None = None
    num_rows: int = 0
    num_hidden_rows: int = 0
    num_removed_files: int = 0
    num_added_files: int = 0
    removed_bytes: int = 0
    added_bytes: int = 0
    num_copied_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Touched:
    """Live files to rewrite.

    Args:
        frame: Rows of the file table.
        adds: The same files.
        found: The rows of the keys in each of them, and how many rows it has.
        hidden: Rows that its deletion vector hides.
    """

    frame: pl.DataFrame
    adds: list[AddFile] = field(repr=False)
    found: list[FoundRows] = field(repr=False)
    hidden: list[Positions] = field(repr=False)

    @property
    def num_live(self) -> int:
        """Live rows of all files."""
        return sum(rows.num_rows - len(hidden) for rows, hidden in zip(self.found, self.hidden, strict=True))

    @property
    def num_rows(self) -> int:
        """Live rows of the keys."""
        return sum(map(len, self._live_rows()))

    def _live_rows(self) -> list[Positions]:
        pairs = zip(self.found, self.hidden, strict=True)
        return [np.setdiff1d(rows.rows, hidden, assume_unique=True) for rows, hidden in pairs]


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseRows(Command[ErasedRows]):
    """Delete the rows of keys from the live files of a table.

    Args:
        subject: The keys.
        digest: A digest of the request, which the history shows in place of the keys.

    Raises:
        RowsDoNotAddUpError: Rows would have been lost. Nothing was changed.
        UnsupportedFeatureError: A file can only be rewritten by Spark.

    Protocol: "Add File and Remove File", "Deletion Vectors".
    """

    subject: Subject = field(repr=False)
    digest: str

    is_statement = True

    def append_only(self) -> Refusal:
        """See ``Command.append_only``."""
        return APPEND_ONLY

    def execute(self, attempt: Attempt) -> ErasedRows:
        """See ``Command.execute``."""
        touched = _touched(attempt.log, attempt.snapshot, self.subject)
        if not touched.adds:
            return ErasedRows()
        attempt.txn.mark_read(touched.frame)
        written = self._rewrite(attempt, touched)
        counts = RowCounts(live=touched.num_live, deleted=touched.num_rows, written=written.num_rows)
        reconcile(counts, table=attempt.log.uri)  # The files' footers counted them, not the log.
        result = ErasedRows(
            num_rows=touched.num_rows,
            num_hidden_rows=sum(len(rows.rows) for rows in touched.found) - touched.num_rows,
            num_removed_files=len(touched.adds),
            num_added_files=len(written.adds),
            removed_bytes=num_bytes(touched.adds),
            added_bytes=num_bytes(written.adds),
            num_copied_rows=written.num_rows,
        )
        removes = removes_of(touched.adds, deletion_timestamp=attempt.now_ms())
        committed = attempt.txn.commit(joined(removes, written.adds), self._operation(attempt, result))
        return replace(result, version=committed.version)

    def _rewrite(self, attempt: Attempt, touched: _Touched) -> RewriteOutput:
        rows = {place: RowSet.of(found.rows) for place, found in enumerate(touched.found)}
        if touched.num_rows == touched.num_live:
            return NOTHING_WRITTEN
        return attempt.stage(attempt.engine.write_without(attempt.snapshot.without_change_feed(), touched.frame, rows))

    def _operation(self, attempt: Attempt, result: ErasedRows) -> Operation:
        columns = [column.name for column in self.subject.columns]
        numbers = sum(len(column.values) for column in self.subject.columns)
        return Operation(
            name=ERASE,
            parameters={"columns": columns, "numKeys": numbers, "request": self.digest},
            metrics={
                "numDeletedRows": result.num_rows,
                "numHiddenRows": result.num_hidden_rows,
                "numCopiedRows": result.num_copied_rows,
                "numRemovedFiles": result.num_removed_files,
                "numRemovedBytes": result.removed_bytes,
                "numAddedFiles": result.num_added_files,
                "numAddedBytes": result.added_bytes,
                "executionTimeMs": attempt.elapsed_ms,
                **attempt.statement.metrics,
            },
        )


def _touched(log: DeltaLog, snapshot: Snapshot, subject: Subject) -> _Touched:
    """Find the live files to rewrite, and their rows of the keys."""
    frame, found = live_files_with(log, snapshot, subject)
    adds = snapshot.files.adds(frame)
    marked = [number for number, add in enumerate(adds) if add.deletion_vector is not None]
    vectors = [vector for add in adds if (vector := add.deletion_vector) is not None]
    rows = read_deleted_rows(vectors, store=log.store, root=log.uri, options=log.options)
    hidden = dict(zip(marked, rows, strict=True))
    nothing: Positions = np.empty(0, dtype=np.uint64)
    return _Touched(
        frame=frame, adds=adds, found=found, hidden=[hidden.get(number, nothing) for number in range(len(adds))]
    )


def live_files_with(log: DeltaLog, snapshot: Snapshot, subject: Subject) -> tuple[pl.DataFrame, list[FoundRows]]:
    """Find the live files of a version that hold a key, or whose bounds are one.

    Args:
        log: The table.
        snapshot: The version.
        subject: The keys.

    Returns:
        Rows of the file table, and for each the rows with a key.

    Raises:
        StorageError: A file is missing or damaged.
    """
    candidates = may_hold(snapshot, subject)
    if candidates.is_empty():
        return candidates, []
    inside = [column for column in subject.columns if not column.is_partition]
    whole = _by_partition(candidates, subject)
    named = with_bounds_of(snapshot, candidates, inside)

    def search(place: int) -> FoundRows:
        path, size = candidates["path"][place], candidates["size"][place]
        store, there = place_of(path, store=log.store, root=log.uri, options=log.options)
        found = find_keys(store, there, size, inside)
        if found is None:
            raise StorageError(
                f"The data file {path} cannot be read: it does not end as a Parquet file does.",
                hint="It is damaged. Restore it from a backup, or restore a version before it.",
                table=log.uri,
            )
        if whole[place]:
            return FoundRows(rows=np.arange(found.num_rows, dtype=np.uint64), num_rows=found.num_rows)
        return found

    found = read_all(search, range(candidates.height))
    places = [place for place, rows in enumerate(found) if len(rows.rows) or named[place] or whole[place]]
    return candidates[places], [found[place] for place in places]


def may_hold(snapshot: Snapshot, subject: Subject) -> pl.DataFrame:
    """Return the live files that may hold a key by partition values and statistics, as rows of the file table."""
    may_match = snapshot.files.select(data_filters=(subject.condition(),))
    # Statistics need not cover the rows that a vector hides.
    with_vector = snapshot.files.narrowed(lambda files: files.filter(pl.col("dv_id").is_not_null()))
    return pl.concat([may_match, with_vector]).unique("row", keep="first", maintain_order=True)


def _by_partition(files: pl.DataFrame, subject: Subject) -> pl.Series:
    """Return for each file whether its partition is that of a key."""
    result = pl.repeat(value=False, n=files.height, dtype=pl.Boolean, eager=True)
    for column in subject.columns:
        if column.is_partition:
            texts = files[PV_PREFIX + column.physical[0]]
            keys = [text for text in texts.unique().drop_nulls() if is_key_text(text, column)]
            result = result | texts.is_in(keys).fill_null(value=False)
    return result


def with_bounds_of(snapshot: Snapshot, files: pl.DataFrame, columns: Sequence[KeyColumn]) -> pl.Series:
    """Return for each file whether a bound in its statistics is a key, or the beginning of one."""
    result = pl.repeat(value=False, n=files.height, dtype=pl.Boolean, eager=True)
    if files.is_empty():
        return result
    for column in columns:
        leaf = (column.physical, column.data_type)
        bounds = snapshot.files.stats_columns(files, [leaf])
        for kind, keys in _bounds(column).items():
            name = stat_column(kind, column.physical)
            if name in bounds.columns:
                values = pl.Series(keys, dtype=bounds.schema[name], strict=False)
                result = result | bounds[name].is_in(values.implode()).fill_null(value=False)
    return result


def _bounds(column: KeyColumn) -> Mapping[str, list[Any]]:
    """Return the bounds that statistics have for a key, by their kind. Texts are cut."""
    if not column.is_text:
        return {"min": list(column.values), "max": list(column.values)}
    long = [text for text in column.values if len(text) > MAX_STRING_LENGTH]
    return {
        "min": [*column.values, *map(truncate_min, long)],
        "max": [*column.values, *(cut for text in long if (cut := truncate_max(text)) is not None)],
    }
