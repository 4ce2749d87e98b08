"""Pair the rows of a merge's source with those of the table by equal keys. Here the source is in memory.

::

    candidate files --columns of keys and conditions--> TargetRows --keys--+
                                                                           +--join--> Pairs, file by file
    source --------------------------------------------------------keys---+

``spilled_merge`` does the same for a source that is larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pydelta.engines.arrow.changes import FilePlace
from pydelta.engines.arrow.columns import ArrowColumns
from pydelta.engines.arrow.evaluate import Columns, evaluate
from pydelta.engines.arrow.merge.merge_rule import MergeRule, both_sides, one_array
from pydelta.engines.arrow.merge.spill import BLOCK_ROWS
from pydelta.engines.arrow.tasks.old_files import chunks, hidden_rows, old_file, read_batches, rows_among
from pydelta.engines.arrow.tasks.write_files import WriteTask
from pydelta.engines.arrow.threads import cores, read_files
from pydelta.log import Snapshot
from pydelta.protocol.actions import AddFile

__all__ = ["HeldSource", "LiveRows", "MergeSource", "Numbers", "Pairs", "TargetRows", "chunks", "keys_of", "one_batch"]

Numbers = npt.NDArray[Any]
"""Positions of rows."""

_CHUNK_BYTES: Final = 64 * 1024 * 1024
"""Files of this size per processor are joined at once, so that memory does not grow with the table."""


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Live rows of a file: their positions in it, ascending, and the columns that pairing reads."""

    positions: Numbers
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Rows of a file and of the source that have equal keys.

    Args:
        number: The file's number among those searched. Pairs of a file may come in several parts, in order.
        rows: Rows of the file: all live ones, or only those that ``at`` names.
        at: For each pair, its row among them, ascending.
        sources: For each pair, the source's row, as ``MergeSource.rows`` takes it.
    """

    number: int
    rows: LiveRows
    at: Numbers
    sources: Numbers


class TargetRows:
    """Reads the columns of the table that pairing needs.

    Args:
        snapshot: The table.
        rule: The merge.
        task: Options for writing files of the table.
        place: Store of the files.

    Raises:
        NotHere: Only Spark can read a column.
    """

    def __init__(self, snapshot: Snapshot, rule: MergeRule, *, task: WriteTask, place: FilePlace) -> None:
        self._columns = ArrowColumns(snapshot, rule.table_fields)
        self._snapshot, self._rule, self._place = snapshot, rule, place
        self._schema: pa.Schema = self._columns.schema
        if not len(self._schema):  # With partition columns alone, any column of the files gives the number of rows.
            flat = [field for field in task.file_schema if not pa.types.is_nested(field.type)]
            self._schema = pa.schema([*flat, *task.file_schema][:1])

    def of(self, add: AddFile, batch: pa.RecordBatch) -> Columns:
        """Return a function that gives the values of a column of the table."""
        return self._columns.of(add.partition_values, batch)

    def keys(self, add: AddFile, batch: pa.RecordBatch) -> pl.DataFrame:
        """Return the keys of rows, as ``keys_of`` returns those of the source."""
        column = both_sides(self.of(add, batch), None)
        return pl.DataFrame(
            {f"k{number}": _joinable(evaluate(key, column, batch.num_rows))
             for number, (key, _) in enumerate(self._rule.keys)}
        )  # fmt: skip

    def hidden(self, adds: Sequence[AddFile]) -> dict[int, npt.NDArray[np.uint64]]:
        """Return the rows of files that deletion vectors hide, by the files' numbers."""
        old = [old_file(add) for add in adds]
        return hidden_rows(old, store=self._place.store, root=self._snapshot.table_uri, options=self._place.options)

    def batches(self, add: AddFile, hidden: npt.NDArray[np.uint64] | None) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
        """Yield the live rows of a file with their positions."""
        for start, batch in read_batches(old_file(add), self._schema, self._place.store):
            live = np.ones(batch.num_rows, dtype=np.bool_)
            if hidden is not None:
                live = ~rows_among(hidden, start, batch.num_rows)
            positions = np.flatnonzero(live).astype(np.int64) + start
            yield positions, batch if live.all() else batch.filter(pa.array(live))

    def load(self, adds: Sequence[AddFile]) -> list[LiveRows]:
        """Read all live rows of files, in parallel."""
        hidden = self.hidden(adds)

        def read(number: int) -> LiveRows:
            parts = list(self.batches(adds[number], hidden.get(number)))
            return self._joined_parts([part[0] for part in parts], [part[1] for part in parts])

        return read_files(read, len(adds), self._place.store)

    def select(self, add: AddFile, positions: Numbers) -> LiveRows:
        """Read rows of a file by their positions, ascending and each once."""
        parts = []
        for start, batch in read_batches(old_file(add), self._schema, self._place.store):
            first, last = np.searchsorted(positions, [start, start + batch.num_rows])
            if first < last:
                parts.append(batch.take(pa.array(positions[first:last].astype(np.int64) - start)))
        return self._joined_parts([positions], parts)

    def search(self, adds: Sequence[AddFile], find: Any) -> list[Any]:
        """Call ``find(add, hidden)`` for each file, in parallel. Returns the results in order."""
        hidden = self.hidden(adds)
        return read_files(lambda number: find(adds[number], hidden.get(number)), len(adds), self._place.store)

    def _joined_parts(self, positions: Sequence[Numbers], batches: Sequence[pa.RecordBatch]) -> LiveRows:
        whole = np.concatenate(positions) if positions else np.empty(0, np.int64)
        return LiveRows(whole, one_batch(pa.Table.from_batches(batches, schema=self._schema)))


class MergeSource(Protocol):
    """The rows of a source, bound to a merge. ``pairs`` is called before the other methods, once."""

    num_rows: int

    @property
    def held(self) -> pa.Table | None:
        """All rows, if they are in memory, with columns named by their positions."""

    def pairs(self, adds: Sequence[AddFile], target: TargetRows, *, all_rows: bool) -> Iterator[Pairs]:
        """Yield pairs of rows with equal keys.

        Args:
            adds: The files to search.
            target: Reads them.
            all_rows: Whether every file comes, once, with all its live rows.
        """

    def rows(self, sources: Numbers) -> pa.Table:
        """Return rows of the source, with columns named by their positions; there may be more columns after them."""

    def mark(self, sources: Numbers) -> None:
        """Record that rows of the source match."""

    @property
    def num_matched(self) -> int:
        """How many rows of the source match."""

    def unmatched(self) -> Iterator[pa.Table]:
        """Yield the rows of the source that do not match."""

    def close(self) -> None:
        """Release the rows."""


class HeldSource:
    """A source in memory. See ``MergeSource``.

    Args:
        table: Its rows.
        rule: The merge.
    """

    def __init__(self, table: pa.Table, rule: MergeRule) -> None:
        self._table, self._rule = table, rule
        self.num_rows = table.num_rows
        self._matched = np.zeros(table.num_rows, dtype=np.bool_)

    @property
    def held(self) -> pa.Table:
        """See ``MergeSource.held``."""
        return self._table

    def pairs(self, adds: Sequence[AddFile], target: TargetRows, *, all_rows: bool) -> Iterator[Pairs]:
        """See ``MergeSource.pairs``. Files come with all their live rows, since the join has read them."""
        del all_rows
        right = keys_of(self._table, self._rule).with_row_index("s")
        for numbers in chunks([add.size for add in adds], max(_CHUNK_BYTES * cores(), self._table.nbytes)):
            part = [adds[number] for number in numbers]
            loaded = target.load(part)
            joined = self._joined(part, loaded, target, right)
            for at_part, number in enumerate(numbers):
                at, sources = joined.get(at_part, (np.empty(0, np.int64), np.empty(0, np.int64)))
                yield Pairs(number=number, rows=loaded[at_part], at=at, sources=sources)

    @staticmethod
    def _joined(
        adds: Sequence[AddFile], loaded: Sequence[LiveRows], target: TargetRows, right: pl.DataFrame
    ) -> dict[int, tuple[Numbers, Numbers]]:
        """Join by keys. Returns the positions of paired live rows and of source rows, by file."""
        parts = []
        for number, (add, rows) in enumerate(zip(adds, loaded, strict=True)):
            if len(rows.positions):
                part = target.keys(add, rows.batch).with_row_index("at")
                parts.append(part.with_columns(pl.lit(number, dtype=pl.UInt32).alias("file")))
        if not parts or right.is_empty():
            return {}
        names = right.columns[1:]
        pairs = pl.concat(parts).join(right, on=names, how="inner", nulls_equal=False).select("file", "at", "s")
        found = {}
        for (number,), part in pairs.sort("file", "at", "s").group_by("file", maintain_order=True):
            found[int(str(number))] = part["at"].to_numpy().astype(np.int64), part["s"].to_numpy().astype(np.int64)
        return found

    def rows(self, sources: Numbers) -> pa.Table:
        """See ``MergeSource.rows``."""
        return self._table.take(pa.array(sources))

    def mark(self, sources: Numbers) -> None:
        """See ``MergeSource.mark``."""
        self._matched[sources] = True

    @property
    def num_matched(self) -> int:
        """See ``MergeSource.num_matched``."""
        return int(self._matched.sum())

    def unmatched(self) -> Iterator[pa.Table]:
        """See ``MergeSource.unmatched``."""
        others = np.flatnonzero(~self._matched)
        for start in range(0, len(others), BLOCK_ROWS):
            yield self._table.take(pa.array(others[start : start + BLOCK_ROWS]))

    def close(self) -> None:
        """See ``MergeSource.close``."""


def keys_of(source: pa.Table, rule: MergeRule) -> pl.DataFrame:
    """Return the keys of the source's rows: ``k0``, ``k1`` …, equal in Polars if and only if equal in Spark."""
    column = both_sides(None, source)
    return pl.DataFrame(
        {f"k{number}": _joinable(evaluate(key, column, source.num_rows)) for number, (_, key) in enumerate(rule.keys)}
    )


def _joinable(values: pa.Array) -> pl.Series:
    """Convert keys so that they are equal in Polars if and only if they are equal in Spark."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())  # With the same scale, equal numbers have equal text.
    elif pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    return pl.Series(pl.from_arrow(values))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table as one batch."""
    return pa.RecordBatch.from_arrays([one_array(column) for column in table.columns], schema=table.schema)
