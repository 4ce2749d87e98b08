"""Rewrite bins of old Parquet files into one new file per bin, Arrow to Arrow. Runs on executors, without pyspark.

::

    a bin: file --bytes, ahead of need--> Arrow batches --deleted rows out, types of the table--> one writer --> record
    a file that only Spark's reader is sure to read right (old calendars, other types) -> the bin is handed back

Rows keep their order within a file, and files that of the bin. No row passes through the JVM.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pydelta.errors import StorageError
from pydelta.spark.tasks.arrow import file_array
from pydelta.spark.tasks.write_files import FileRecord, TaskWriter, WriteTask, check_rows
from pydelta.storage import Store, open_store
from pydelta.storage.ranges import RangeReader

__all__ = ["Bin", "BinDone", "HandedBack", "OldFile", "run_bins"]

_BATCH_ROWS: Final = 131_072
_WHOLE_BYTES: Final = 16 * 1024 * 1024
_AHEAD: Final = 8
_AHEAD_BYTES: Final = 32 * 1024 * 1024
_READERS: Final = 4
_OLD_CALENDARS: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION: Final = b"org.apache.spark.version"
_ONE_CALENDAR_SINCE: Final = (3, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFile:
    """A file to be read.

    Args:
        path: Relative to the table, not URI-encoded.
        size: Bytes, as the log says.
        vector: Its deletion vector's descriptor, or None.
        base_row_id, row_version: Where the table tracks rows: what rows have that carry nothing of their own.
    """

    path: str
    size: int
    vector: Any = None
    base_row_id: int | None = None
    row_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Files that become one; ``values`` are their partition values as the log spells them, in the table's order."""

    number: int
    values: tuple[str | None, ...]
    files: tuple[OldFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all the files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class BinDone:
    """A bin that became files: one, or none when all its rows were deleted."""

    number: int
    records: tuple[FileRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedBack:
    """A bin that was not touched, because one of its files needs Spark's reader; ``reason`` says which and why."""

    number: int
    reason: str


Outcome: TypeAlias = BinDone | HandedBack


class _NeedsSpark(Exception):
    """A file that Arrow might read otherwise than Spark."""


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
        bins: What to rewrite.
        task: How the new files are written; its ``hidden_columns`` are those of row tracking.
        partition_id: Number of the Spark task, for the file names.
        store: The table's store; opened from ``task`` by default.
        staged: Told the paths of finished files.

    Raises:
        StorageError: A file is missing, or the store refused. The files of the bin under way are removed again.
    """
    store = store or open_store(task.table_uri, task.store_options)
    with ThreadPoolExecutor(max_workers=_READERS) as pool:
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
        except _NeedsSpark as reason:
            writer.abort()
            return HandedBack(number=item.number, reason=str(reason))
        except BaseException:
            writer.abort()
            raise
        if len(records) <= 1 or writer.nan_columns <= write.no_bounds:
            return BinDone(number=item.number, records=tuple(records))
        # NaN came after the first row group and split the file. Known from the start, it does not.
        writer.abort()
        write = replace(write, no_bounds=write.no_bounds | writer.nan_columns)


def _batches(item: Bin, write: WriteTask, *, store: Store, pool: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
    """The rows of all files. Small files are read and decoded side by side, a few ahead of the writer."""
    deleted = _deleted_rows(item, write, store)
    ahead: deque[tuple[int, Future[list[pa.RecordBatch]]]] = deque()
    waiting = 0
    try:
        for number, file in enumerate(item.files):
            streamed = file.size > _WHOLE_BYTES
            while ahead and (streamed or len(ahead) >= _AHEAD or waiting + file.size > _AHEAD_BYTES):
                size, future = ahead.popleft()
                waiting -= size
                yield from future.result()
            if streamed:
                yield from _file_batches(file, write, store, deleted.get(number))
            else:
                ahead.append((file.size, pool.submit(_whole_file, file, write, store, deleted.get(number))))
                waiting += file.size
        while ahead:
            yield from ahead.popleft()[1].result()
    finally:
        for _, future in ahead:
            future.cancel()


def _whole_file(file: OldFile, write: WriteTask, store: Store, deleted: Any) -> list[pa.RecordBatch]:
    return list(_file_batches(file, write, store, deleted))


def _deleted_rows(item: Bin, write: WriteTask, store: Store) -> Mapping[int, Any]:
    """Positions of the deleted rows, by the number of the file."""
    with_vector = [number for number, file in enumerate(item.files) if file.vector is not None]
    if not with_vector:
        return {}
    from pydelta.log.vector_files import read_deleted_rows

    vectors = [item.files[number].vector for number in with_vector]
    found = read_deleted_rows(vectors, store=store, root=write.table_uri, options=write.store_options)
    return dict(zip(with_vector, found, strict=True))


def _file_batches(file: OldFile, write: WriteTask, store: Store, deleted: Any) -> Iterator[pa.RecordBatch]:
    try:
        parquet = _open(file, store)
        columns = _columns_of(file, parquet, write)
        wanted = [name for name in columns if name is not None]
        start = 0
        for batch in _raw_batches(parquet, wanted):
            rows = _with_row_ids(_as_written(batch, columns, write), file, write, start)
            if deleted is not None:
                rows = _without(rows, deleted, start)
            start += batch.num_rows
            if rows.num_rows:
                yield rows
    except pa.ArrowNotImplementedError as error:
        raise _NeedsSpark(f"{file.path}: {_first_line(error)}") from error
    except (pa.ArrowInvalid, EOFError) as error:
        raise StorageError(
            f"The data file {file.path} cannot be read: {_first_line(error)}",
            hint="It is damaged or was overwritten. Nothing was changed; restore the file, or delete its rows.",
        ) from error


def _open(file: OldFile, store: Store) -> pq.ParquetFile:
    """The file, in memory as a whole if it is small."""
    if file.size <= _WHOLE_BYTES:
        source: Any = pa.BufferReader(store.read(file.path))
    else:
        source = io.BufferedReader(RangeReader(store, file.path, file.size), buffer_size=8 << 20)
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")


def _raw_batches(parquet: pq.ParquetFile, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    if wanted:
        yield from parquet.iter_batches(batch_size=_BATCH_ROWS, columns=wanted, use_threads=False)
        return
    left = parquet.metadata.num_rows  # none of the table's columns is in the file: its rows are all null
    while left:
        rows = min(left, _BATCH_ROWS)
        yield pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["none"])
        left -= rows


def _columns_of(file: OldFile, parquet: pq.ParquetFile, write: WriteTask) -> list[str | None]:
    """For each column of the table the file's column, None where the file has none.

    Raises:
        _NeedsSpark: Names or types differ in a way that is Spark's to settle, or the file's times may be in another
            calendar.
    """
    schema = parquet.schema_arrow
    _refuse_old_calendar(file, parquet)
    int96 = {
        parquet.schema.column(index).path.split(".")[0]
        for index in range(len(parquet.schema))
        if parquet.schema.column(index).physical_type == "INT96"
    }
    names: dict[str, list[str]] = {}
    for name in schema.names:
        names.setdefault(name.lower(), []).append(name)
    columns: list[str | None] = []
    for field in write.file_schema:
        found = names.get(field.name.lower(), [])
        if not found:
            columns.append(None)
            continue
        if found != [field.name]:
            raise _NeedsSpark(f"{file.path}: the columns {found} stand for {field.name!r}")
        if not _same_values(schema.field(field.name).type, field.type, int96=field.name in int96):
            raise _NeedsSpark(f"{file.path}: {field.name!r} is {schema.field(field.name).type}, not {field.type}")
        columns.append(field.name)
    return columns


def _refuse_old_calendar(file: OldFile, parquet: pq.ParquetFile) -> None:
    """Dates and times before 1900 may have been written in the Julian calendar, which Spark converts on reading."""
    metadata = parquet.metadata.metadata or {}
    if any(key in metadata for key in _OLD_CALENDARS):
        raise _NeedsSpark(f"{file.path}: dates in an old calendar")
    version = metadata.get(_SPARK_VERSION)
    if version is not None:
        parts = version.decode("ascii", "replace").split(".")
        known = len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit()
        if not known or (int(parts[0]), int(parts[1])) < _ONE_CALENDAR_SINCE:
            raise _NeedsSpark(f"{file.path}: written by Spark {'.'.join(parts)}")
    elif "parquet-mr" in (parquet.metadata.created_by or ""):
        raise _NeedsSpark(f"{file.path}: written by {parquet.metadata.created_by}, which may use an old calendar")


def _same_values(given: pa.DataType, target: pa.DataType, *, int96: bool) -> bool:
    """Whether a cast from a file's type to the table's keeps every value and cannot be read in two ways."""
    types = pa.types
    if types.is_struct(target):
        if not types.is_struct(given) or given.num_fields != target.num_fields:
            return False
        pairs = [(given.field(index), target.field(index)) for index in range(target.num_fields)]
        return all(old.name == new.name and _same_values(old.type, new.type, int96=int96) for old, new in pairs)
    if types.is_map(target):
        return bool(
            types.is_map(given)
            and _same_values(given.key_type, target.key_type, int96=int96)
            and _same_values(given.item_type, target.item_type, int96=int96)
        )
    if types.is_list(target):
        is_list = types.is_list(given) or types.is_large_list(given)
        return is_list and _same_values(given.value_type, target.value_type, int96=int96)
    if types.is_timestamp(target):
        if not types.is_timestamp(given) or given.unit not in ("us", "ms", target.unit):
            return False
        in_utc = int96 or given.tz is not None
        return in_utc == (target.tz is not None) and (given.unit == target.unit or target.unit == "us")
    if types.is_string(target):
        return bool(types.is_string(given) or types.is_large_string(given))
    if types.is_binary(target):
        return bool(types.is_binary(given) or types.is_large_binary(given))
    return bool(given.equals(target))


def _as_written(batch: pa.RecordBatch, columns: Sequence[str | None], write: WriteTask) -> pa.RecordBatch:
    arrays = []
    for name, field in zip(columns, write.file_schema, strict=True):
        if name is None:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            arrays.append(file_array(batch.column(batch.schema.get_field_index(name)), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=write.file_schema)


def _with_row_ids(rows: pa.RecordBatch, file: OldFile, write: WriteTask, start: int) -> pa.RecordBatch:
    """Rows with the id and version that they have had, written out. Protocol: "Row Tracking"."""
    if not write.hidden_columns:
        return rows
    at = len(write.file_schema) - write.hidden_columns
    ids, versions = rows.column(at), rows.column(at + 1)
    if file.base_row_id is not None:
        first = file.base_row_id + start
        ids = pc.coalesce(ids, pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64)))
    if file.row_version is not None:
        versions = pc.fill_null(versions, file.row_version)
    arrays = [*rows.columns[:at], ids, versions]
    return pa.RecordBatch.from_arrays(arrays, schema=write.file_schema)


def _without(rows: pa.RecordBatch, deleted: Any, start: int) -> pa.RecordBatch:
    """The rows whose positions in the file are not among the deleted ones (ascending)."""
    low, high = np.searchsorted(deleted, np.array([start, start + rows.num_rows], dtype=deleted.dtype))
    if low == high:
        return rows
    kept = np.ones(rows.num_rows, dtype=bool)
    kept[(deleted[low:high] - np.array(start, dtype=deleted.dtype)).astype(np.int64)] = False
    return rows.filter(pa.array(kept))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
