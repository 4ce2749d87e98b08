"""Find rows and rewrite files of a table in this process: the row work of DELETE and UPDATE, without a Spark job.

::

    find_rows: files --the condition's columns--> batches --evaluate--> rows of files          one thread per file
    rewrite:   files --all columns--> batches --rows that stay, rows that change--> new files  one thread per group
               large file, some columns change, no row goes: these are encoded, the others copied

Files are read and written by the code that Spark's executors run for compaction: same types, names, statistics, row
ids, partition values. Each group holds only some batches and a row group in memory.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pydelta.commands.engine import RewriteOutput
from pydelta.engines.arrow.columns import ArrowColumns, refuse_table
from pydelta.engines.arrow.evaluate import true_rows
from pydelta.engines.arrow.expressions import Exact, NotHere
from pydelta.engines.arrow.layout import output_of
from pydelta.engines.arrow.tasks.copied_columns import CopiedColumns, columns_to_copy
from pydelta.engines.arrow.tasks.old_files import (
    OldFile,
    check_columns,
    errors_of,
    hidden_rows,
    old_file,
    open_source,
    read_batches,
    read_range,
    rows_among,
    with_row_ids,
)
from pydelta.engines.arrow.tasks.split import split_by_partition
from pydelta.engines.arrow.tasks.write_files import FileRecord, TaskWriter, WriteTask, check_rows
from pydelta.engines.arrow.threads import cores, for_threads, read_files, run_groups
from pydelta.errors import RowsDoNotAddUpError
from pydelta.log import Snapshot
from pydelta.predicate.expressions import fields_of
from pydelta.protocol.actions import AddFile
from pydelta.protocol.row_sets import RowSet
from pydelta.storage import Store

__all__ = [
    "Change",
    "ChangeOfColumns",
    "ChangeOfMatches",
    "FilePlace",
    "Rewritten",
    "check_condition",
    "delete_rows",
    "find_rows",
    "rewrite",
]

_GROUP_BYTES: Final = 16 * 1024 * 1024
_COPIED_BYTES: Final = 4 * 1024 * 1024
"""Size from which a file's unchanged columns are copied. Of smaller files, several become one."""
_Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlace:
    """The store of a table's files.

    Args:
        store: Store of the table.
        options: Options of the store, for files elsewhere. They may hold secrets.
        most_bytes: Upper limit for the encoded size of a row group, where Spark can do the work instead.
    """

    store: Store
    most_bytes: int | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def check_condition(snapshot: Snapshot, condition: Exact) -> ArrowColumns:
    """Return the columns that a condition reads, after checking that this process can find rows of the table.

    Raises:
        NotHere: It cannot, whatever the files hold.
    """
    refuse_table(snapshot)
    columns = ArrowColumns(snapshot, fields_of(condition))
    if not len(columns.schema):
        raise NotHere("a condition that reads no column of the files")
    return columns


def find_rows(snapshot: Snapshot, files: pl.DataFrame, condition: Exact, place: FilePlace) -> dict[int, RowSet]:
    """Find the live rows of files for which a condition is true. See ``Engine.match_rows``.

    Args:
        snapshot: The table.
        files: Rows of its file table.
        condition: The condition over its columns.
        place: Store of the files.

    Raises:
        NotHere, NeedsSpark: Only Spark can find them reliably.
        StorageError: A file is missing or damaged, or the store failed.
    """
    columns = check_condition(snapshot, condition)
    adds = snapshot.files.adds(files)
    old = [old_file(add) for add in adds]
    hidden = hidden_rows(old, store=place.store, root=snapshot.table_uri, options=place.options)

    def search(number: int) -> RowSet:
        found = []
        for start, batch in read_batches(old[number], columns.schema, place.store, most_bytes=place.most_bytes):
            holds = true_rows(condition, columns.of(adds[number].partition_values, batch), batch.num_rows)
            if number in hidden:
                holds &= ~rows_among(hidden[number], start, batch.num_rows)
            found.append(np.flatnonzero(holds).astype(np.uint64) + np.uint64(start))
        return RowSet.of(np.concatenate(found) if found else np.empty(0, dtype=np.uint64))

    rows = read_files(search, len(old), place.store)
    return {number: found for number, found in enumerate(rows) if len(found.words)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """New rows made from a batch of old rows.

    Args:
        rows: Rows of the table that stay in the file's partition.
        changes: Rows of its change feed in this partition, by kind of change.
        moved: Updated rows, with their partition values after their columns. They are also written to the feed.
    """

    rows: pa.RecordBatch
    changes: tuple[tuple[str, pa.RecordBatch], ...] = ()
    moved: pa.RecordBatch | None = None


Change: TypeAlias = Callable[[AddFile, pa.RecordBatch, _Mask, _Mask], Rewritten]
"""``change(add, batch, live, matched)``. The batch has the columns of the new files, including row ids."""


class ChangeOfColumns(ABC):
    """A ``Change`` that sets some columns in the rows that matched, and keeps all rows where they are."""

    @abstractmethod
    def __call__(self, add: AddFile, batch: pa.RecordBatch, live: _Mask, matched: _Mask) -> Rewritten:
        """See ``Change``."""

    @abstractmethod
    def columns(self) -> Collection[str]:
        """Return the files' columns that are read or set."""

    @abstractmethod
    def within(self, task: WriteTask) -> Change:
        """Return the same change of batches that have only the columns of a task."""

    @abstractmethod
    def required(self) -> Collection[str]:
        """Return the files' columns that are NOT NULL."""


@dataclass(frozen=True, slots=True)
class ChangeOfMatches:
    """A ``Change`` that leaves out the rows that did not match. No row is read after the last one that did."""

    change: Change

    def __call__(self, add: AddFile, batch: pa.RecordBatch, live: _Mask, matched: _Mask) -> Rewritten:
        """See ``Change``."""
        return self.change(add, batch, live, matched)


def delete_rows(add: AddFile, batch: pa.RecordBatch, live: _Mask, matched: _Mask) -> Rewritten:
    """Drop the rows that matched. This is a ``Change``."""
    del add
    gone, stays = live & matched, live & ~matched
    stay = batch if stays.all() else batch.filter(pa.array(stays))
    return Rewritten(rows=stay, changes=(("delete", batch.filter(pa.array(gone))),) if gone.any() else ())


def rewrite(
    snapshot: Snapshot,
    files: pl.DataFrame,
    rows: Mapping[int, RowSet] | None,
    change: Change,
    *,
    task: WriteTask,
    place: FilePlace,
) -> RewriteOutput:
    """Write new files with the changed rows of old ones.

    Args:
        snapshot: The table.
        files: Rows of its file table.
        rows: The rows that matched, by position in ``files`` (every position must be present), or None for all. Threads
            look them up, once per file.
        change: Change of these rows and of the others.
        task: Options for writing files of the table.
        place: Store of the files.

    Returns:
        The new files. If the task has ``change_data``, also those of the change feed.

    Raises:
        NotHere, NeedsSpark: Only Spark can do it reliably. Files written before the error are deleted.
        StorageError: A file is missing or damaged, or the store refused a request.
        RowsDoNotAddUpError: The new files hold other rows than they were given.
    """
    refuse_table(snapshot)
    adds = snapshot.files.adds(files)
    sources = [
        _Source(add=add, file=old_file(add), matched=None if rows is None else partial(rows.__getitem__, number))
        for number, add in enumerate(adds)
    ]
    hidden = hidden_rows([item.file for item in sources], store=place.store, root=task.table_uri, options=place.options)
    groups = list(enumerate(_groups([add.size for add in adds])))
    stop, write = threading.Event(), for_threads(task, len(groups))

    def run(group: tuple[int, Sequence[int]]) -> list[FileRecord]:
        writing = _Writing(write, place, group[0])
        return writing.run([(sources[number], hidden.get(number)) for number in group[1]], change, stop)

    records = run_groups(run, groups, stop, place.store)
    return output_of(records)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A file to rewrite. ``matched`` returns the rows that matched; None for all."""

    add: AddFile
    file: OldFile
    matched: Callable[[], RowSet] | None


class _Writing:
    """The writers of one group of files, like those of one Spark task."""

    def __init__(self, task: WriteTask, place: FilePlace, number: int) -> None:
        self._task = task
        self._place = place
        halves = task.halves() if task.change_data else (task,)
        self._halves = halves
        self._writers = [TaskWriter(half, partition_id=number, store=place.store) for half in halves]

    def run(
        self,
        sources: Sequence[tuple[_Source, npt.NDArray[np.uint64] | None]],
        change: Change,
        stop: threading.Event,
    ) -> list[FileRecord]:
        given = 0
        try:
            for source, hidden in sources:
                given += self._file(source, hidden, change, stop)
            records = [record for writer in self._writers for record in writer.finish()]
            check_rows(given, records)
        except BaseException:
            for writer in self._writers:
                writer.abort()
            raise
        return records

    def _file(
        self, source: _Source, hidden: npt.NDArray[np.uint64] | None, change: Change, stop: threading.Event
    ) -> int:
        """Write one file's changed rows. Returns the number of rows given to the writers."""
        keys = [column.name for column in self._task.partition_columns]
        values = tuple(source.add.partition_values.get(key) or None for key in keys)
        opened = None
        if hidden is None and isinstance(change, ChangeOfColumns) and self._may_copy(source.file):
            with errors_of(source.file):
                opened = open_source(source.file, self._place.store)
                copied = self._copied(opened, source.file, change)
            if copied is not None:
                task = _without(self._task, copied.names)
                made = self._made(source, None, change.within(task), stop, task.file_schema, opened)
                return self._append_copied(values, source.file, made, copied)
        return sum(
            self._append(values, made)
            for made in self._made(source, hidden, change, stop, self._task.file_schema, opened)
        )

    def _made(
        self,
        source: _Source,
        hidden: npt.NDArray[np.uint64] | None,
        change: Change,
        stop: threading.Event,
        schema: pa.Schema,
        opened: Any,
    ) -> Iterator[Rewritten]:
        """Read columns of a file, and change its rows."""
        matched = None if source.matched is None else source.matched().positions()
        for start, batch in read_batches(
            source.file, schema, self._place.store, most_bytes=self._place.most_bytes, source=opened
        ):
            if stop.is_set():
                raise NotHere("a rewrite in which another part failed")
            size = batch.num_rows
            old = with_row_ids(batch, source.file, start, hidden=self._task.hidden_columns)
            live = np.ones(size, dtype=np.bool_) if hidden is None else ~rows_among(hidden, start, size)
            found = np.ones(size, dtype=np.bool_) if matched is None else rows_among(matched, start, size)
            yield change(source.add, old, live, found)
            if isinstance(change, ChangeOfMatches) and matched is not None and not np.any(matched[-1:] >= start + size):
                return

    def _may_copy(self, file: OldFile) -> bool:
        task = self._task
        whole = not (task.change_data or task.max_records_per_file or len(task.constants))
        return whole and file.size >= _COPIED_BYTES

    def _copied(self, opened: Any, file: OldFile, change: ChangeOfColumns) -> CopiedColumns | None:
        names = self._task.file_schema.names
        changed = {*change.columns(), *names[len(names) - self._task.hidden_columns :]}
        check_columns(opened, file, self._task.file_schema)
        return columns_to_copy(partial(read_range, opened), file.size, self._task, changed, change.required())

    def _append_copied(
        self,
        values: tuple[str | None, ...],
        file: OldFile,
        made: Iterator[Rewritten],
        copied: CopiedColumns,
    ) -> int:
        """Write a file's row groups, with columns copied from it. Returns the number of rows given to the writers."""
        writer, given = self._writers[0], 0
        writer.close_file(values)
        for number, rows in enumerate(_in_groups(made, copied.group_rows)):
            with errors_of(file):
                chunks = copied.chunks(number)
            writer.append_group(values, rows, chunks)
            given += rows.num_rows
        writer.close_file(values)
        return given

    def _append(self, values: tuple[str | None, ...], made: Rewritten) -> int:
        given = int(made.rows.num_rows)
        if given:
            self._writers[0].append(values, made.rows)
        if self._task.change_data:
            feed = self._writers[-1]
            for kind, rows in made.changes:
                given += int(rows.num_rows)
                feed.append(values, self._of_feed(kind, rows))
        return given + (0 if made.moved is None else self._move(made.moved))

    def _move(self, moved: pa.RecordBatch) -> int:
        """Write rows under their new partition values. Returns the number of rows given to the writers."""
        width = len(self._task.file_schema)
        data = pa.RecordBatch.from_arrays(moved.columns[:width], schema=self._task.file_schema)
        given = 0
        for values, rows in split_by_partition(moved.columns[width:], self._task.partition_columns, data):
            self._writers[0].append(values, rows)
            given += int(rows.num_rows)
            if self._task.change_data:
                self._writers[-1].append(values, self._of_feed("update_postimage", rows))
                given += int(rows.num_rows)
        return given

    def _of_feed(self, kind: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        shown = rows.columns[: rows.num_columns - self._task.hidden_columns]
        kinds = pa.repeat(pa.scalar(kind, pa.string()), rows.num_rows)
        return pa.RecordBatch.from_arrays([*shown, kinds], schema=self._halves[-1].file_schema)


def _in_groups(made: Iterator[Rewritten], sizes: Sequence[int]) -> Iterator[pa.Table]:
    """Divide rows that kept their places into row groups of given sizes.

    Raises:
        RowsDoNotAddUpError: There are more rows, or fewer.
    """
    batches = (item.rows for item in made if item.rows.num_rows)
    rest = next(batches, None)
    for size in sizes:
        taken: list[pa.RecordBatch] = []
        missing = size
        while missing and rest is not None:
            taken.append(rest.slice(0, missing))
            missing -= taken[-1].num_rows
            rest = rest.slice(taken[-1].num_rows) if rest.num_rows > taken[-1].num_rows else next(batches, None)
        if missing:
            raise _uneven()
        yield pa.Table.from_batches(taken)
    if rest is not None:
        raise _uneven()


def _uneven() -> RowsDoNotAddUpError:
    return RowsDoNotAddUpError(
        "The columns of a file that an UPDATE copies and those that it changes have different numbers of rows.",
        hint="Nothing was changed. Read the file with another engine: it may be damaged.",
    )


def _without(task: WriteTask, names: Collection[str]) -> WriteTask:
    """Return a task whose files lack some columns."""
    return replace(task, file_schema=pa.schema([field for field in task.file_schema if field.name not in names]))


def _groups(sizes: Sequence[int]) -> list[list[int]]:
    """Divide files into groups of similar size, one for each thread that pays off. Pure.

    Files of a group in one partition become one file, unless it gets too large.
    """
    most = min(cores(), max(1, sum(sizes) // _GROUP_BYTES), max(1, len(sizes)))
    groups: list[list[int]] = [[] for _ in range(most)]
    load = [0] * most
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        lightest = load.index(min(load))
        groups[lightest].append(number)
        load[lightest] += sizes[number]
    return [sorted(group) for group in groups if group]
