"""Rewrite files of a table in this process without changing a row: compaction, purge, and rows along a curve.

::

    compact: bins --divided among threads--> the code that executors run (``tasks.compact``), one new file per bin
    lay out: a partition's live rows in memory --order along the curve--> pieces of the target size, one file each

Files that only Spark is sure to read (``NeedsSpark``), and partitions too large to sort in memory (``NotHere``), leave
the whole work to Spark: files written here are deleted.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.commands.engine import RewriteOutput
from pydelta.commands.optimize.plan import BIN, Layout
from pydelta.engines.arrow.changes import FilePlace
from pydelta.engines.arrow.columns import ArrowColumns, needs_sparks_reader, refuse_table
from pydelta.engines.arrow.curves import row_order
from pydelta.engines.arrow.exact import field_of
from pydelta.engines.arrow.expressions import NotHere, type_of
from pydelta.engines.arrow.layout import output_of
from pydelta.engines.arrow.tasks.arrow import float_leaves
from pydelta.engines.arrow.tasks.compact import Bin, HandedBack, live_batches, run_bins
from pydelta.engines.arrow.tasks.dictionaries import negative_zeros
from pydelta.engines.arrow.tasks.old_files import NeedsSpark, hidden_rows, old_file
from pydelta.engines.arrow.tasks.write_files import FileRecord, TaskWriter, WriteTask, check_rows
from pydelta.engines.arrow.threads import cores, for_threads, read_files, run_groups
from pydelta.log import Snapshot
from pydelta.protocol.actions import AddFile
from pydelta.protocol.paths import is_absolute_path
from pydelta.protocol.types import DataType
from pydelta.storage.discarding import discard

__all__ = ["ANY_SIZE", "RowOrder", "bins_of", "check_plan", "compact", "deal", "lay_out"]

ANY_SIZE: Final = 1 << 62
"""The target size of a task whose files are never split."""

_FILE_COST_BYTES: Final = 1024 * 1024
_MOST_BYTES: Final = 512 * 1024 * 1024
"""Maximum size in Arrow of a partition that is sorted here. Its sorted rows are made piece by piece."""

_BATCH_ROWS: Final = 131_072


def bins_of(
    files: Sequence[AddFile], plan: pl.DataFrame, task: WriteTask, *, by_sparks_reader: bool
) -> tuple[list[Bin], list[int]]:
    """Return the bins of a plan as values, and the numbers of those that are known to need Spark's reader.

    Args:
        files: The files to rewrite.
        plan: The same files with ``bin``, in the same order.
        task: Options for writing the new files.
        by_sparks_reader: See ``needs_sparks_reader``.
    """
    keys = [column.name for column in task.partition_columns]
    members: dict[int, list[AddFile]] = {}
    for number, add in zip(plan[BIN], files, strict=True):
        members.setdefault(number, []).append(add)
    bins: list[Bin] = []
    for_spark: list[int] = []
    for number, adds in members.items():
        if by_sparks_reader or any(is_absolute_path(add.path) for add in adds):
            for_spark.append(number)
            continue
        old = tuple(old_file(add) for add in adds)
        values = tuple(adds[0].partition_values.get(key) or None for key in keys)
        bins.append(Bin(number=number, values=values, files=old))
    return bins, for_spark


def deal(bins: Sequence[Bin], tasks: int) -> list[list[Bin]]:
    """Divide bins into at most this many groups of similar work, the largest bins first. Pure."""
    groups: list[list[Bin]] = [[] for _ in range(min(tasks, len(bins)))]
    load = [(0, number) for number in range(len(groups))]
    for item in sorted(bins, key=lambda item: (-item.size, item.number)):
        busy, number = heapq.heappop(load)
        groups[number].append(item)
        heapq.heappush(load, (busy + item.size + _FILE_COST_BYTES * len(item.files), number))
    return groups


def compact(
    snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, task: WriteTask, place: FilePlace
) -> RewriteOutput:
    """Write the live rows of each bin into one new file. See ``Engine.compact``.

    Args:
        snapshot: The table.
        files: The files to rewrite.
        plan: The same files with ``bin``.
        task: Options for writing files, with ``ANY_SIZE``.
        place: Store of the files.

    Raises:
        NotHere, NeedsSpark: Only Spark can do it reliably. Files written before the error are deleted.
        StorageError: A file is missing or damaged, or the store refused a request.
    """
    bins = _bins_here(snapshot, files, plan, task)
    groups = list(enumerate(deal(bins, cores())))
    stop, write = threading.Event(), for_threads(task, len(groups))

    def run(group: tuple[int, list[Bin]]) -> list[FileRecord]:
        records: list[FileRecord] = []
        try:
            for item in group[1]:
                if stop.is_set():
                    raise NotHere("a rewrite in which another part failed")
                [outcome] = run_bins([item], write, partition_id=group[0], store=place.store)
                if isinstance(outcome, HandedBack):
                    raise NeedsSpark(outcome.reason)
                records += outcome.records
        except BaseException:
            discard(place.store, [record.path for record in records])
            raise
        return records

    return _written(run_groups(run, groups, stop, place.store))


def check_plan(
    snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, layout: Layout | None, task: WriteTask
) -> None:
    """Check that this process can carry out a plan, as far as this is known before a file is read.

    Args:
        snapshot: The table.
        files: The files to rewrite.
        plan: The same files with ``bin``.
        layout: Columns and curve, or None for compaction.
        task: Options for writing files.

    Raises:
        NotHere: Only Spark can do it reliably.
    """
    if layout is not None:
        _order_here(snapshot, layout, task)
    _bins_here(snapshot, files, plan, task)


def _bins_here(snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, task: WriteTask) -> list[Bin]:
    bins, for_spark = bins_of(files, plan, task, by_sparks_reader=needs_sparks_reader(snapshot))
    if for_spark:
        raise NotHere("columns mapped by id or with a default for old files, or files outside the table's folder")
    return bins


def _order_here(snapshot: Snapshot, layout: Layout, task: WriteTask) -> _OrderBy:
    refuse_table(snapshot)
    return _OrderBy(snapshot, layout, task)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of rows in new files.

    Args:
        layout: Columns and curve.
        target_bytes: Size of old files that go into one new file.
    """

    layout: Layout
    target_bytes: int


def lay_out(
    snapshot: Snapshot,
    files: Sequence[AddFile],
    plan: pl.DataFrame,
    order: RowOrder,
    *,
    task: WriteTask,
    place: FilePlace,
) -> RewriteOutput:
    """Write the live rows of the files in the order of a layout. See ``Engine.lay_out``.

    Args:
        snapshot: The table.
        files: The files to rewrite.
        plan: The same files with ``bin``, one per partition.
        order: Order of the rows.
        task: Options for writing files, with ``ANY_SIZE``.
        place: Store of the files.

    Raises:
        NotHere, NeedsSpark: Only Spark can do it reliably, or there are too many rows to sort here.
        StorageError: A file is missing or damaged, or the store refused a request.
    """
    order_by = _order_here(snapshot, order.layout, task)
    bins = _bins_here(snapshot, files, plan, task)
    records: list[FileRecord] = []
    try:
        for item in bins:
            rows = _in_memory(item, task, place)
            if rows.num_rows:
                pieces = max(1, math.ceil(item.size / order.target_bytes))
                records += _write_sorted(item, rows, order_by(item, rows), pieces, task=task, place=place)
    except BaseException:
        discard(place.store, [record.path for record in records])
        raise
    return _written(records)


class _OrderBy:
    """Finds the order of a partition's rows."""

    def __init__(self, snapshot: Snapshot, layout: Layout, task: WriteTask) -> None:
        self._fields = [field_of(snapshot.schema, path) for path in layout.columns]
        self._columns = ArrowColumns(snapshot, self._fields)
        self._keys = {column.name: column.data_type for column in task.partition_columns}
        self._curve = layout.curve

    def __call__(self, item: Bin, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        column = self._columns.of(dict(zip(self._keys, item.values, strict=True)), rows)
        found: list[tuple[pa.Array, DataType]] = []
        for field in self._fields:
            values: Any = column(field.path)
            if isinstance(values, pa.Scalar):
                values = pa.repeat(values, rows.num_rows)
            found.append((values, type_of(field)))
        return row_order(found, curve=self._curve)


def _in_memory(item: Bin, task: WriteTask, place: FilePlace) -> pa.RecordBatch:
    """Read the live rows of a partition, in the order of its files."""
    hidden = hidden_rows(item.files, store=place.store, root=task.table_uri, options=place.options)
    lock, size = threading.Lock(), 0

    def read(number: int) -> list[pa.RecordBatch]:
        nonlocal size
        found = []
        for batch in live_batches(item.files[number], task, place.store, hidden.get(number)):
            with lock:
                size += batch.nbytes
                if size > _MOST_BYTES:
                    raise NotHere(f"a partition of more than {_MOST_BYTES} bytes in memory to put in order")
            found.append(batch)
        return found

    table = pa.Table.from_batches(itertools.chain(*read_files(read, len(item.files), place.store)), task.file_schema)
    arrays = []
    for _ in task.file_schema:  # Go column by column, so that at most one column is in memory twice.
        column, table = table.column(0), table.remove_column(0)
        arrays.append(pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type))
        del column
    return pa.RecordBatch.from_arrays(arrays, schema=task.file_schema)


def _write_sorted(
    item: Bin, rows: pa.RecordBatch, order: npt.NDArray[np.int64], pieces: int, *, task: WriteTask, place: FilePlace
) -> list[FileRecord]:
    """Write rows in an order, as pieces with similar numbers of rows."""
    whole = pa.Table.from_batches([rows])
    nan = {path for path, leaf in float_leaves(whole) if pc.any(pc.is_nan(leaf)).as_py()}
    ends = [len(order) * piece // pieces for piece in range(pieces + 1)]
    spans = [(start, end) for start, end in itertools.pairwise(ends) if end > start]
    write = replace(  # Otherwise a row group with NaN, or with -0.0, would split the file.
        for_threads(task, len(spans)),
        no_bounds=task.no_bounds | nan,
        no_dictionary=task.no_dictionary | negative_zeros(whole),
    )

    def run(piece: tuple[int, tuple[int, int]]) -> list[FileRecord]:
        number, (start, end) = piece
        writer = TaskWriter(write, partition_id=number, store=place.store)
        try:
            for at in range(start, end, _BATCH_ROWS):
                writer.append(item.values, rows.take(pa.array(order[at : min(at + _BATCH_ROWS, end)])))
            records = writer.finish()
            check_rows(end - start, records)
        except BaseException:
            writer.abort()
            raise
        return records

    return run_groups(run, list(enumerate(spans)), threading.Event(), place.store)


def _written(records: Sequence[FileRecord]) -> RewriteOutput:
    return output_of(records)
