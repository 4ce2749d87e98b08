"""Rewrite bins of old Parquet files into one new file per bin, Arrow to Arrow. Runs on executors, without pyspark.

::

    a bin: file --bytes, ahead of need--> Arrow batches --deleted rows out, types of the table--> one writer --> record
    a file that only Spark's reader is sure to read right (old calendars, other types) -> the bin is handed back

Rows keep their order within a file, and files their order in the bin. No row passes through the JVM.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa

from pydelta.engines.arrow.tasks import old_files
from pydelta.engines.arrow.tasks.old_files import (
    NeedsSpark,
    OldFile,
    chunks,
    hidden_rows,
    read_batches,
    rows_among,
    with_row_ids,
)
from pydelta.engines.arrow.tasks.write_files import FileRecord, TaskWriter, WriteTask, check_rows
from pydelta.storage import NearStore, Store, open_store

__all__ = ["Bin", "BinDone", "HandedBack", "OldFile", "live_batches", "run_bins"]

_AHEAD: Final = 8
_AHEAD_BYTES: Final = 32 * 1024 * 1024
_READERS: Final = 4
_NEAR_READERS: Final = 2
"""Most threads that read files of this machine for a bin. More would only wait for each other's Python."""
_CHUNK_BYTES: Final = 1024 * 1024
"""Size of the small files that a thread reads one after the other."""
_JOINED_BYTES: Final = 64 * 1024 * 1024
"""Arrow bytes up to which the rows of such files become one batch. Beyond, the batches are large enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Files that become one. ``values`` are their partition values as text of the log, in the table's order."""

    number: int
    values: tuple[str | None, ...]
    files: tuple[OldFile, ...]

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class BinDone:
    """A bin that became one file, or none if all its rows were deleted."""

    number: int
    records: tuple[FileRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedBack:
    """A bin that was not rewritten because a file of it needs Spark's reader. ``reason`` names the file and cause."""

    number: int
    reason: str


Outcome: TypeAlias = BinDone | HandedBack


def run_bins(
    bins: Sequence[Bin],
    task: WriteTask,
    *,
    partition_id: int,
    store: Store | None = None,
    staged: Callable[[Sequence[str]], None] = lambda paths: None,
) -> Iterator[Outcome]:
    """Write the new file of each bin.

    Args:
        bins: The bins to rewrite.
        task: Options for writing the new files. Its ``hidden_columns`` are those of row tracking.
        partition_id: Number of the Spark task, for the file names.
        store: The table's store, opened from ``task`` by default.
        staged: Function that is called with the paths of finished files.

    Raises:
        StorageError: A file is missing, or the store refused a request. The files of the current bin are removed.
    """
    store = store or open_store(task.table_uri, task.store_options)
    readers = min(_NEAR_READERS, task.encoders) if isinstance(store, NearStore) else _READERS
    with ThreadPoolExecutor(max_workers=readers) as pool:
        for item in bins:
            outcome = _run_bin(item, task, partition_id=partition_id, store=store, pool=pool)
            if isinstance(outcome, BinDone):
                staged([record.path for record in outcome.records])
            yield outcome


def _run_bin(item: Bin, task: WriteTask, *, partition_id: int, store: Store, pool: ThreadPoolExecutor) -> Outcome:
    write = task
    while True:
        writer = TaskWriter(write, partition_id=partition_id, store=store)
        try:
            rows = 0
            for batch in _batches(item, write, store=store, pool=pool):
                rows += batch.num_rows
                writer.append(item.values, batch)
            records = writer.finish()
            check_rows(rows, records)
        except NeedsSpark as reason:
            writer.abort()
            return HandedBack(number=item.number, reason=str(reason))
        except BaseException:
            writer.abort()
            raise
        known = writer.nan_columns <= write.no_bounds and writer.zero_columns <= write.no_dictionary
        if len(records) <= 1 or known:
            return BinDone(number=item.number, records=tuple(records))
        # NaN or -0.0 splits the file if it first appears after the first row group, but not if it is known from the
        # start.
        writer.abort()
        write = replace(
            write,
            no_bounds=write.no_bounds | writer.nan_columns,
            no_dictionary=write.no_dictionary | writer.zero_columns,
        )


def _batches(item: Bin, write: WriteTask, *, store: Store, pool: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
    """Read the rows of all files. Small files are read and decoded in parallel, a few ahead of the writer."""
    deleted = hidden_rows(item.files, store=store, root=write.table_uri, options=write.store_options)
    ahead: deque[tuple[int, Future[list[pa.RecordBatch]]]] = deque()
    waiting = 0
    sizes = [file.size for file in item.files]
    try:
        for numbers in chunks(sizes, min(_CHUNK_BYTES, sum(sizes) // _AHEAD)):
            files = [(item.files[number], deleted.get(number)) for number in numbers]
            size = sum(file.size for file, _ in files)
            streamed = size > old_files.WHOLE_BYTES
            while ahead and (streamed or len(ahead) >= _AHEAD or waiting + size > _AHEAD_BYTES):
                read, future = ahead.popleft()
                waiting -= read
                yield from future.result()
            if streamed:
                [(file, hidden)] = files
                yield from live_batches(file, write, store, hidden)
            else:
                ahead.append((size, pool.submit(_read_joined, files, write, store)))
                waiting += size
        while ahead:
            yield from ahead.popleft()[1].result()
    finally:
        for _, future in ahead:
            future.cancel()


def _read_joined(files: Sequence[tuple[OldFile, Any]], write: WriteTask, store: Store) -> list[pa.RecordBatch]:
    """Read files, and join their rows if they are few: a column of many short arrays takes longer to encode."""
    found = [batch for file, hidden in files for batch in live_batches(file, write, store, hidden)]
    if len(found) < 2 or sum(batch.get_total_buffer_size() for batch in found) > _JOINED_BYTES:
        return found
    joined: list[pa.RecordBatch] = pa.Table.from_batches(found).combine_chunks().to_batches()
    return joined


def live_batches(file: OldFile, write: WriteTask, store: Store, deleted: Any) -> Iterator[pa.RecordBatch]:
    """Read the live rows of a file, with their ids and versions if the table tracks rows.

    Args:
        file: The file.
        write: Task that defines the columns of the new files.
        store: Store of the table.
        deleted: Positions of the rows that its deletion vector hides, or None.

    Raises:
        NeedsSpark, StorageError: As ``read_batches`` does.
    """
    for start, batch in read_batches(file, write.file_schema, store):
        rows = with_row_ids(batch, file, start, hidden=write.hidden_columns)
        if deleted is not None:
            gone = rows_among(deleted, start, rows.num_rows)
            rows = rows.filter(pa.array(~gone)) if gone.any() else rows
        if rows.num_rows:
            yield rows
