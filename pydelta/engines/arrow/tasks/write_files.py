"""Write Arrow batches of one task to Parquet files under final names, one record per file. Runs on executors.

::

    batch -> file types (physical names, no void columns) -> runs of equal partition values -> a sink each
    sink: buffered batches -> row group -> open file -> rolled at the target size -> record (path, values, size, stats)
    too much buffered, or too many open files: row groups are flushed, the file written to longest ago is closed

Every file gets a new uuid, so that a retried or speculative attempt can only leave files that no version names. The
uuids of one write have the same beginning, by which its files can be found.

Nothing here needs a Spark session, and pyspark is not imported.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pydelta.engines.arrow.tasks.arrow import file_batch, float_leaves, leaf_names
from pydelta.engines.arrow.tasks.dictionaries import DICTIONARY_BYTES, leaves, negative_zeros, with_dictionary
from pydelta.engines.arrow.tasks.footers import Chunk
from pydelta.engines.arrow.tasks.side_by_side import SideBySideWriter
from pydelta.engines.arrow.tasks.split import PartitionColumn, split_by_partition
from pydelta.engines.arrow.tasks.stats import IndexedLeaf, StatisticsCollector
from pydelta.errors import RowsDoNotAddUpError, SchemaError, first_line
from pydelta.errors.conditions import Condition
from pydelta.protocol.partitions import parse_partition_value, partition_dir
from pydelta.settings.clock import epoch_ms
from pydelta.storage import Store, open_store
from pydelta.storage.discarding import discard

__all__ = [
    "CHANGE_FOLDER",
    "CHANGE_TYPE",
    "CODEC_SUFFIXES",
    "RECORD_SCHEMA",
    "FileRecord",
    "PartitionColumn",
    "TaskWriter",
    "WriteTask",
    "check_rows",
    "format_options",
    "record_batch",
    "run_task",
]

_LOG = logging.getLogger(__name__)

CODEC_SUFFIXES: Final[Mapping[str, tuple[str, str]]] = {
    "snappy": ("snappy", ".snappy"),
    "zstd": ("zstd", ".zstd"),
    "gzip": ("gzip", ".gz"),
    "lz4": ("lz4", ".lz4raw"),
    "lz4_raw": ("lz4", ".lz4raw"),
    "uncompressed": ("none", ""),
    "none": ("none", ""),
}
"""Codec names in options and properties, with pyarrow's name and the part of the file name."""

RECORD_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("partition_values", pa.string()),
        ("size", pa.int64()),
        ("modification_time_ms", pa.int64()),
        ("num_rows", pa.int64()),
        ("stats", pa.string()),
        ("change", pa.bool_()),
    ]
)
"""The records that a task returns to the driver, one row per file. ``partition_values`` is a JSON object of strings and
nulls.
"""

_LARGE_BYTES: Final = 4 * 1024 * 1024
"""Arrow bytes of a first row group from which threads encode its columns: a tenth of a second of one thread."""

CHANGE_FOLDER: Final = "_change_data"
CHANGE_TYPE: Final = "_change_type"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """The parameters of an executor's task, pickled into the job.

    The batches hold the data columns first, in the order of ``file_schema``, then the partition columns, then, with
    ``change_data``, the kind of change as text: null for a row of the table, else a row of the change data feed.

    Args:
        table_uri: Root of the table.
        store_options: Settings of the store. They may hold secrets, so ``repr`` does not show them.
        file_schema: Arrow schema of the files (physical names, field ids in the fields' metadata).
        partition_columns: Partition columns in the table's order.
        constants: Arrow schema of the partition columns that files also hold, after their own. Usually empty.
        time_zone: Zone of a partition value that is a time without a zone.
        indexed: Physical leaf paths (and their types) that get minimum, maximum and null count.
        codec: A key of ``CODEC_SUFFIXES``.
        int96: Whether to write timestamps with a zone as INT96.
        target_file_size_bytes: Size from which a file gets no further row group.
        max_records_per_file: Number of rows at which a file is closed, 0 for no limit.
        max_open_files: Maximum number of Parquet files open at once.
        row_group_bytes: Arrow bytes of a row group.
        buffer_bytes: Arrow bytes that the task may buffer over all partitions.
        footer: Key-value metadata of each file.
        prefix_length: Length of a random directory name before the path, 0 for none.
        change_data: Whether the batches' last column is the kind of change.
        hidden_columns: Number of the last columns of ``file_schema`` that are not the table's (materialised row ids).
            The change data feed lacks them.
        no_bounds: Dotted names of float columns without bounds from the first row group on, because a row holds NaN.
        no_dictionary: Dotted names of float columns without a dictionary, because a row holds -0.0.
        folder: Folder of the files under the root, empty for the root.
        file_prefix: Beginning of the files' names.
        encoders: Number of threads that encode the columns of a large file.
        mark: Part of the names of all files of this write alone: the first half of their uuids.
    """

    table_uri: str
    store_options: Mapping[str, str] = field(repr=False)
    file_schema: pa.Schema
    partition_columns: tuple[PartitionColumn, ...] = ()
    constants: pa.Schema = field(default_factory=lambda: pa.schema([]))
    time_zone: str = "UTC"
    indexed: tuple[IndexedLeaf, ...] = ()
    codec: str = "snappy"
    int96: bool = False
    target_file_size_bytes: int = 128 * 1024 * 1024
    max_records_per_file: int = 0
    max_open_files: int = 64
    row_group_bytes: int = 64 * 1024 * 1024
    buffer_bytes: int = 128 * 1024 * 1024
    footer: Mapping[str, str] = field(default_factory=dict)
    prefix_length: int = 0
    change_data: bool = False
    hidden_columns: int = 0
    no_bounds: frozenset[str] = frozenset()
    no_dictionary: frozenset[str] = frozenset()
    folder: str = ""
    file_prefix: str = "part"
    encoders: int = 1
    mark: str = field(default_factory=lambda: str(uuid.uuid4())[:19])

    def halves(self) -> tuple[WriteTask, WriteTask]:
        """Split into the tasks for the table's rows and for the feed's, which share the memory limit."""
        share: dict[str, Any] = {
            "change_data": False,
            "hidden_columns": 0,
            "max_open_files": max(self.max_open_files // 2, 1),
            "buffer_bytes": self.buffer_bytes // 2,
        }
        columns = list(self.file_schema)[: len(self.file_schema) - self.hidden_columns]
        changes = pa.schema([*columns, pa.field(CHANGE_TYPE, pa.string())])
        feed = {"file_schema": changes, "indexed": (), "folder": CHANGE_FOLDER, "file_prefix": "cdc"}
        return replace(self, **share), replace(self, **share, **feed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One finished file. ``path`` is relative to the table and not URI-encoded. ``size`` is in bytes.

    ``num_rows`` comes from the footer, and ``change`` marks a file of the change data feed.
    """

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_time_ms: int
    num_rows: int
    stats: str
    change: bool = False


def record_batch(records: Sequence[FileRecord]) -> pa.RecordBatch:
    """Turn records into one Arrow batch of ``RECORD_SCHEMA``."""
    columns = [
        [record.path for record in records],
        [json.dumps(dict(record.partition_values), ensure_ascii=False) for record in records],
        [record.size for record in records],
        [record.modification_time_ms for record in records],
        [record.num_rows for record in records],
        [record.stats for record in records],
        [record.change for record in records],
    ]
    arrays = [pa.array(values, type=f.type) for values, f in zip(columns, RECORD_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


def run_task(
    batches: Iterable[pa.RecordBatch], task: WriteTask, *, partition_id: int, store: Store | None = None
) -> list[FileRecord]:
    """Write the rows of one task attempt.

    Either every file is finished and recorded, or the files of this attempt are removed (if the store still answers)
    and the error is raised. A task without rows writes nothing.

    Args:
        batches: Rows with the columns described in ``WriteTask``.
        task: Parameters of the task.
        partition_id: Number of the task, for the file names.
        store: The store to write to, opened from ``task`` by default.

    Raises:
        StorageError: The store refused a write (full, read-only, no permission).
        SchemaError: A batch does not fit the files' schema.
        RowsDoNotAddUpError: The files hold other rows than were given.
    """
    tasks = task.halves() if task.change_data else (task,)
    writers = [TaskWriter(half, partition_id=partition_id, store=store) for half in tasks]
    given = 0
    try:
        for batch in batches:
            given += batch.num_rows
            parts = _by_kind(batch, task) if task.change_data else (batch,)
            for writer, rows in zip(writers, parts, strict=True):
                if rows.num_rows:
                    writer.add(rows)
        records = [record for writer in writers for record in writer.finish()]
        check_rows(given, records)
        return records
    except BaseException:
        for writer in writers:
            writer.abort()
        raise


def check_rows(given: int, records: Sequence[FileRecord]) -> None:
    """Compare the number of given rows with that in the footers of the files.

    Raises:
        RowsDoNotAddUpError: Rows were lost or duplicated.
    """
    written = sum(record.num_rows for record in records)
    if written != given:
        raise RowsDoNotAddUpError(
            f"{given} rows reached a task of the write, but its files hold {written}.",
            hint="This is a defect of the engine; report it with the types of the columns.",
        )


def _by_kind(batch: pa.RecordBatch, task: WriteTask) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Split a batch into rows of the table and of the feed, which have the kind of change after the data columns."""
    kind = batch.column(batch.num_columns - 1)
    columns = batch.columns[:-1]
    width = len(task.file_schema)
    shown = width - task.hidden_columns
    both = [f"c{index}" for index in range(len(columns) + 1)]
    data = pa.RecordBatch.from_arrays(columns, names=both[: len(columns)])
    if kind.null_count == len(kind):
        return data, pa.RecordBatch.from_arrays([], names=[])
    feed = [*columns[:shown], kind.cast(pa.string()), *columns[width:]]
    changes = pa.RecordBatch.from_arrays(feed, names=both[: len(feed)])
    if kind.null_count == 0:
        return data.slice(0, 0), changes
    return data.filter(kind.is_null()), changes.filter(kind.is_valid())


class TaskWriter:
    """The sinks of one task, one per combination of partition values, and their limits.

    Raises:
        SchemaError: The files would have no column, and a file without one has no rows.
    """

    def __init__(self, task: WriteTask, *, partition_id: int, store: Store | None) -> None:
        if not task.file_schema.names:
            raise SchemaError(
                "A data file needs to contain at least one non-partitioned column, and the table has none.",
                hint="Add a column to the table first.",
                condition=Condition.of("DELTA_NON_PARTITION_COLUMN_ABSENT", details=""),
            )
        self._task = task
        self._partition_id = partition_id
        self._store = store
        self._sinks: OrderedDict[tuple[str | None, ...], _Sink] = OrderedDict()
        self._buffered = 0
        self._records: list[FileRecord] = []
        self._previous: tuple[str | None, ...] | None = None
        self.nan_columns: set[str] = set()
        self.zero_columns: set[str] = set()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows as described in ``WriteTask``."""
        width = len(self._task.file_schema)
        data = file_batch(batch, self._task.file_schema)
        if not self._task.partition_columns:
            self._append((), data)
        else:
            keys = [batch.column(width + index) for index in range(len(self._task.partition_columns))]
            for values, rows in split_by_partition(keys, self._task.partition_columns, data):
                self._append(values, rows)
        self._hold_back_little()

    def append(self, values: tuple[str | None, ...], rows: pa.RecordBatch) -> None:
        """Add rows of one partition that already have the files' columns and types. Partition values are strings."""
        self._append(values, rows)
        self._hold_back_little()

    def append_group(self, values: tuple[str | None, ...], rows: pa.Table, copied: Sequence[Chunk]) -> None:
        """Write a row group of one partition, of which some columns are encoded already.

        Args:
            values: Partition values as strings.
            rows: The other columns, in the files' types and order.
            copied: The columns that are encoded.
        """
        sink = self._sinks.setdefault(values, _Sink(values))
        assert not sink.buffered, "rows come before or after those of another file"
        sink.rows_in_file += rows.num_rows
        self._write_group(sink, rows, copied)

    def close_file(self, values: tuple[str | None, ...]) -> None:
        """Close the open file of a partition, so that the next rows begin another."""
        if values in self._sinks:
            self._close(self._sinks[values])

    def _hold_back_little(self) -> None:
        if self._buffered > self._task.buffer_bytes:
            for sink in list(self._sinks.values()):
                self._flush(sink)

    def finish(self) -> list[FileRecord]:
        """Close open files, and return the records of all files."""
        for sink in list(self._sinks.values()):
            self._close(sink)
        return self._records

    def abort(self) -> None:
        """Drop open files and remove finished ones. If the store fails here too, orphans remain, which is logged."""
        for sink in self._sinks.values():
            if sink.file is not None:
                sink.file.abort()
        if self._records:
            try:
                discard(self._open_store(), [record.path for record in self._records])
            except OSError:
                _LOG.warning("%d files of a failed write are left behind", len(self._records), exc_info=True)

    def _append(self, values: tuple[str | None, ...], rows: pa.RecordBatch) -> None:
        if values != self._previous and self._previous is not None:
            # The input is sorted by partition: close the finished one at once, so that little is buffered.
            self._retire(self._previous)
        self._previous = values
        sink = self._sinks.get(values)
        if sink is None:
            sink = self._sinks[values] = _Sink(values)
        limit = self._task.max_records_per_file
        while limit and sink.rows_in_file + rows.num_rows >= limit:
            room = limit - sink.rows_in_file
            self._buffer(sink, rows.slice(0, room))
            self._close(sink, forget=False)
            rows = rows.slice(room)
        if rows.num_rows:
            self._buffer(sink, rows)
            if sink.buffered_bytes >= sink.row_group_bytes(self._task):
                self._flush(sink)

    def _retire(self, values: tuple[str | None, ...]) -> None:
        """Close the sink of the previous partition, unless that partition keeps coming back (unsorted input)."""
        sink = self._sinks.get(values)
        if sink is None:
            return
        sink.visits += 1
        if sink.visits == 1 and (sink.file is not None or sink.buffered_bytes >= self._task.row_group_bytes // 16):
            self._close(sink, forget=False)

    def _buffer(self, sink: _Sink, rows: pa.RecordBatch) -> None:
        size = rows.nbytes
        sink.buffered.append(rows)
        sink.buffered_bytes += size
        sink.rows_in_file += rows.num_rows
        self._buffered += size

    def _flush(self, sink: _Sink) -> None:
        """Write a sink's buffer as one row group, and close its file if it is large enough."""
        if not sink.buffered:
            return
        table = pa.Table.from_batches(sink.buffered, schema=self._task.file_schema)
        self._buffered -= sink.buffered_bytes
        arrow_bytes, sink.buffered_bytes, sink.buffered = sink.buffered_bytes, 0, []
        sink.compression = max(self._write_group(sink, table) / max(arrow_bytes, 1), 0.001)

    def _write_group(self, sink: _Sink, table: pa.Table, copied: Sequence[Chunk] = ()) -> int:
        """Write a row group, and return its bytes. Close the file if it is large enough then."""
        with_nan = {path for path, leaf in float_leaves(table) if pc.any(pc.is_nan(leaf)).as_py()}
        self.nan_columns |= with_nan
        with_nan |= self._task.no_bounds
        zeros = negative_zeros(table)
        self.zero_columns |= zeros
        if sink.file is not None and (with_nan - sink.file.without_statistics or sink.file.has_dictionary(zeros)):
            # Readers may take a footer's maximum as a bound on NaN too, so this column has no statistics from here on.
            self._close_file(sink)
            sink.rows_in_file = table.num_rows
        if sink.file is None:
            self._make_room()
            dictionary = with_dictionary(table, zeros | self._task.no_dictionary)
            is_large = table.nbytes >= _LARGE_BYTES
            encoders = max(self._task.encoders, 2) if copied else self._task.encoders if is_large else 1
            sink.file = self._open_file(sink, with_nan, dictionary, encoders)
        self._sinks.move_to_end(sink.values)
        before = sink.file.written
        sink.file.write(table, copied)
        written = sink.file.written - before
        if sink.file.written >= self._task.target_file_size_bytes:
            self._close_file(sink)
        return written

    def _make_room(self) -> None:
        open_sinks = [sink for sink in self._sinks.values() if sink.file is not None]
        for sink in open_sinks[: max(len(open_sinks) + 1 - self._task.max_open_files, 0)]:
            self._close_file(sink)

    def _close(self, sink: _Sink, *, forget: bool = True) -> None:
        self._flush(sink)
        if sink.file is not None:
            self._close_file(sink)
        if forget:
            del self._sinks[sink.values]

    def _close_file(self, sink: _Sink) -> None:
        assert sink.file is not None
        file, sink.file, sink.rows_in_file = sink.file, None, 0
        values = {c.name: v for c, v in zip(self._task.partition_columns, sink.values, strict=True)}
        self._records.append(file.close(values))

    def _open_store(self) -> Store:
        if self._store is None:
            self._store = open_store(self._task.table_uri, self._task.store_options)
        return self._store

    def _open_file(
        self, sink: _Sink, without_statistics: set[str], dictionary: bool | list[str], encoders: int
    ) -> _File:
        task = replace(self._task, encoders=encoders)
        number = f"{task.file_prefix}-{self._partition_id:05d}"
        name = f"{number}-{task.mark}{str(uuid.uuid4())[19:]}.c000{CODEC_SUFFIXES[task.codec][1]}.parquet"
        names = [column.name for column in task.partition_columns]
        folder = partition_dir(dict(zip(names, sink.values, strict=True))) if names else ""
        if task.prefix_length:
            folder = uuid.uuid4().hex[: task.prefix_length]
        path = "/".join(part for part in (task.folder, folder, name) if part)
        return _File(task, self._open_store(), path, without_statistics, dictionary, sink.values)


def _constants(task: WriteTask, values: tuple[str | None, ...]) -> list[pa.Scalar]:
    """Return the partition values of a file as it holds them.

    Raises:
        SchemaError: A type cannot hold its value.
    """
    found = []
    for column, text, target in zip(task.partition_columns, values, task.constants, strict=False):
        try:
            value = parse_partition_value(text, column.data_type, time_zone=task.time_zone)
            found.append(pa.scalar(value, target.type))
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise SchemaError(
                f"The partition value {text!r} of {column.name!r} cannot be written into a file as {target.type}: "
                f"{first_line(error)}",
                hint="Drop the table feature materializePartitionColumns, or leave this partition as it is.",
            ) from error
    return found


class _Sink:
    """The buffer and the open file of one combination of partition values."""

    __slots__ = ("buffered", "buffered_bytes", "compression", "file", "rows_in_file", "values", "visits")

    def __init__(self, values: tuple[str | None, ...]) -> None:
        self.values = values
        self.buffered: list[pa.RecordBatch] = []
        self.buffered_bytes = 0
        self.rows_in_file = 0
        self.visits = 0
        self.compression = 1.0
        self.file: _File | None = None

    def row_group_bytes(self, task: WriteTask) -> int:
        """Return the Arrow bytes at which to flush: a full row group, or the estimated rest of the file."""
        room = task.target_file_size_bytes - (self.file.written if self.file is not None else 0)
        return min(task.row_group_bytes, max(int(room / self.compression), 1))


def format_options(task: WriteTask) -> dict[str, Any]:
    """Return the options of ``ParquetWriter`` that all files of a task share."""
    return {
        "compression": CODEC_SUFFIXES[task.codec][0],
        "use_deprecated_int96_timestamps": task.int96,
        "store_decimal_as_integer": True,
        "store_schema": False,
    }


def _writer(sink: Any, schema: pa.Schema, encoders: int, **options: Any) -> Any:
    if encoders > 1 and len(schema) > 1:
        return SideBySideWriter(sink, schema, threads=encoders, **options)
    return pq.ParquetWriter(sink, schema, **options)


def _footer(writer: Any) -> Any:
    return writer.metadata if isinstance(writer, SideBySideWriter) else writer.writer.metadata


class _File:
    """One Parquet file being written."""

    def __init__(
        self,
        task: WriteTask,
        store: Store,
        path: str,
        without_statistics: set[str],
        dictionary: bool | list[str],
        partition_values: tuple[str | None, ...],
    ) -> None:
        self._task = task
        self._path = path
        self.without_statistics = frozenset(without_statistics)
        self._constants = _constants(task, partition_values)
        self._dictionary = dictionary
        schema = pa.schema([*task.file_schema, *task.constants])
        self._sink = cast(Any, store.open_writer(path))
        self._statistics = StatisticsCollector(task.file_schema, task.indexed, int96=task.int96)
        statistics: bool | list[str] = True
        constants = dict(zip(task.constants.names, self._constants, strict=True))
        plain = {name for name, value in constants.items() if str(value.as_py()) == "-0.0"}
        if plain and dictionary is True:
            dictionary = [*leaves(task.file_schema)]
        if isinstance(dictionary, list):
            dictionary = [*dictionary, *(name for name in constants if name not in plain)]
        if without_statistics:
            statistics = [leaf for leaf in leaf_names(schema) if leaf not in without_statistics]
        try:
            self._writer = _writer(
                self._sink,
                schema,
                task.encoders,
                write_statistics=statistics,
                write_page_index=True,  # Spark and Trino then read only the pages that their filters keep.
                use_dictionary=dictionary,
                dictionary_pagesize_limit=DICTIONARY_BYTES,
                **format_options(task),
            )
        except BaseException:
            self._sink.abort()
            raise

    def has_dictionary(self, columns: Collection[str]) -> bool:
        """Return whether one of these columns is written with a dictionary."""
        return bool(columns) and (self._dictionary is True or not set(columns).isdisjoint(self._dictionary or ()))

    @property
    def written(self) -> int:
        """Bytes passed to the store so far."""
        return cast(int, self._sink.tell())

    def write(self, table: pa.Table, copied: Sequence[Chunk] = ()) -> None:
        self._statistics.add(table)
        for column, value in zip(self._task.constants, self._constants, strict=True):
            table = table.append_column(column, pa.repeat(value, table.num_rows))
        more = {"copied": copied} if copied else {}
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1), **more)

    def close(self, values: Mapping[str, str | None]) -> FileRecord:
        try:
            if self._task.footer:
                self._writer.add_key_value_metadata(dict(self._task.footer))
            self._writer.close()
            footer = _footer(self._writer)
            size = self.written
            self._sink.close()
        except BaseException:
            self.abort()
            raise
        return FileRecord(
            path=self._path,
            partition_values=values,
            size=size,
            modification_time_ms=epoch_ms(),
            num_rows=footer.num_rows,
            stats=self._statistics.finish(footer),
            change=self._task.folder == CHANGE_FOLDER,
        )

    def abort(self) -> None:
        """Drop the written bytes. The store keeps no object of them."""
        self._writer.is_open = False  # Otherwise its finaliser would write a footer into the dropped stream.
        self._sink.abort()
