"""Read a table's Parquet files as Arrow batches, if Arrow is sure to read them as Spark does. No pyspark.

::

    file --bytes--> raw batches --columns by name, types of the table--> batches with the position of their first row
    old calendars, other types, other names, INT96 in zones … -> NeedsSpark
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pydelta.engines.arrow.tasks.arrow import file_array, spelled_out
from pydelta.errors import StorageError
from pydelta.protocol.actions import AddFile
from pydelta.protocol.paths import decode_log_path, is_absolute_path
from pydelta.storage import NearStore, Store
from pydelta.storage.ranges import RangeReader

__all__ = [
    "WHOLE_BYTES",
    "NeedsSpark",
    "OldFile",
    "check_columns",
    "chunks",
    "errors_of",
    "hidden_rows",
    "old_file",
    "open_source",
    "read_batches",
    "read_range",
    "rows_among",
    "with_row_ids",
]

BATCH_ROWS: Final = 131_072
WHOLE_BYTES: Final = 16 * 1024 * 1024
"""A file up to this size is read as a whole, in one request."""

_BUFFER_BYTES: Final = 8 << 20
_PAGE_BYTES: Final = 128 * 1024
"""How much of a column is read at once if only its first rows are needed."""

_TIMES: Final[Mapping[str, Any]] = {"coerce_int96_timestamp_unit": "us"}
_OLD_CALENDARS: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION: Final = b"org.apache.spark.version"
_ONE_CALENDAR_SINCE: Final = (3, 1)
_TRINO: Final = "parquet-mr-trino"
"""Name by which Trino's own writer identifies itself. It uses one calendar."""
_DAYS_TO_1900: Final = -25_567
_PER_DAY: Final = {"milliseconds": 86_400_000, "microseconds": 86_400_000_000, "nanoseconds": 86_400_000_000_000}


class NeedsSpark(Exception):
    """Raised for a file that Arrow might read differently from Spark. The text names the file and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFile:
    """A file to read.

    Args:
        path: Relative to the table, not URI-encoded.
        size: Size in bytes from the log.
        vector: Its deletion vector's descriptor, or None.
        base_row_id, row_version: If the table tracks rows, the defaults for rows without their own values.
    """

    path: str
    size: int
    vector: Any = None
    base_row_id: int | None = None
    row_version: int | None = None


def old_file(add: AddFile) -> OldFile:
    """Return a file of the log in the form for reading.

    Raises:
        NeedsSpark: It lies outside the table's folder, as those of a shallow clone do.
    """
    if is_absolute_path(add.path):
        raise NeedsSpark("a file outside the table's folder")
    return OldFile(
        path=decode_log_path(add.path).text,
        size=add.size,
        vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        row_version=add.default_row_commit_version,
    )


def hidden_rows(
    files: Sequence[OldFile], *, store: Store, root: str, options: Any
) -> dict[int, npt.NDArray[np.uint64]]:
    """Read the positions of the rows that deletion vectors hide, by the file's place in ``files``.

    Args:
        files: The files. Those without a vector are missing from the result.
        store: Store of the table.
        root: URI of the table.
        options: Storage options, for vectors elsewhere.

    Raises:
        LogCorruptedError: A vector is damaged or missing.
    """
    with_vector = [number for number, file in enumerate(files) if file.vector is not None]
    if not with_vector:
        return {}
    from pydelta.log.vector_files import read_deleted_rows

    vectors = [files[number].vector for number in with_vector]
    return dict(zip(with_vector, read_deleted_rows(vectors, store=store, root=root, options=options), strict=True))


def read_batches(
    file: OldFile,
    schema: pa.Schema,
    store: Store,
    *,
    rows: int | None = None,
    most_bytes: int | None = None,
    source: Any = None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Read columns of a file in the table's types, including hidden rows.

    Args:
        file: The file.
        schema: The columns, by their names in files. One that the file lacks is null.
        store: Store of the table.
        rows: Rows per batch if the caller stops early. Pages are then read as they are needed. None to read it all.
        most_bytes: Upper limit for the encoded size of a row group, which is read as a whole; None for no limit.
        source: The file, if ``open_source`` has opened it.

    Returns:
        The position of the first row of each batch in the file, and the batch.

    Raises:
        NeedsSpark: Names or types differ in a way that only Spark can resolve, or its times may be in another calendar.
        StorageError: It is missing or damaged, or the store failed.
    """
    with errors_of(file):
        if rows is None:
            parquet = _open_all(open_source(file, store) if source is None else source)
        else:
            parquet = _open_few(file, store)
        if most_bytes is not None:
            _refuse_large_groups(file, parquet.metadata, most_bytes)
        columns = _find_columns(file, parquet, schema)
        wanted = [name for name in columns if name is not None]
        start = 0
        for batch in _raw_batches(parquet, wanted, rows or BATCH_ROWS):
            yield start, _as_written(batch, columns, schema)
            start += batch.num_rows
            del batch


@contextmanager
def errors_of(file: OldFile) -> Iterator[None]:
    """Raise the errors of reading a file as this module's."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        raise NeedsSpark(f"{file.path}: {_first_line(error)}") from error
    except StorageError:
        raise
    except (pa.ArrowInvalid, OSError, EOFError, UnicodeDecodeError) as error:  # Thrift's errors come as OSError.
        raise StorageError(
            f"The data file {file.path} cannot be read: {_first_line(error)}",
            hint="It is damaged or was overwritten. Nothing was changed; restore the file, or delete its rows.",
        ) from error


def _refuse_large_groups(file: OldFile, metadata: pq.FileMetaData, most_bytes: int) -> None:
    largest = max((metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)), default=0)
    if largest > most_bytes:
        raise NeedsSpark(f"{file.path}: a row group of {largest} bytes, more than the {most_bytes} of a thread")


def open_source(file: OldFile, store: Store) -> Any:
    """Open the bytes of a file. If requests are slow, a small file is read into memory as a whole.

    Raises:
        StorageError, OSError: It is missing, or the store failed.
    """
    if isinstance(store, NearStore):
        return _near(file, store)
    if file.size <= WHOLE_BYTES:
        return pa.BufferReader(store.read(file.path))
    return io.BufferedReader(RangeReader(store, file.path, file.size), buffer_size=_BUFFER_BYTES)


def chunks(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Divide files into runs of at most ``most`` bytes, or of one file. Pure.

    Example:
        >>> chunks([3, 4, 9, 1, 1], 8)
        [[0, 1], [2], [3, 4]]
    """
    found: list[list[int]] = []
    left = 0
    for number, size in enumerate(sizes):
        if not found or size > left:
            found.append([])
            left = most
        found[-1].append(number)
        left -= size
    return found


def check_columns(source: Any, file: OldFile, schema: pa.Schema) -> None:
    """Check that Arrow reads columns of a file as Spark does.

    Args:
        source: The file, opened by ``open_source``.
        file: Its place, for errors.
        schema: The columns, by their names in files.

    Raises:
        NeedsSpark: See ``read_batches``.
    """
    _find_columns(file, _open_all(source), schema)


def read_range(source: Any, begin: int, size: int) -> memoryview:
    """Read bytes of a file that ``open_source`` has opened.

    Raises:
        EOFError: It ends before.
        OSError: The store failed.
    """
    source.seek(begin)
    data = source.read(size)
    if len(data) < size:
        raise EOFError(f"the file ends after {begin + len(data)} bytes")
    return memoryview(data)


def _open_all(source: Any) -> pq.ParquetFile:
    """Open a file of which all rows are read. Other threads fetch columns ahead only if requests are slow."""
    return pq.ParquetFile(source, pre_buffer=isinstance(source, io.BufferedReader), **_TIMES)


def _open_few(file: OldFile, store: Store) -> pq.ParquetFile:
    """Open a file of which only some rows are read: a column is fetched in pieces instead of as a whole."""
    source = RangeReader(store, file.path, file.size)
    return pq.ParquetFile(source, buffer_size=_PAGE_BYTES, pre_buffer=False, **_TIMES)


def _near(file: OldFile, store: NearStore) -> pa.NativeFile:
    try:
        return pa.OSFile(store.local_path(file.path))
    except (OSError, ValueError):  # A name that Arrow cannot encode is a ValueError.
        return pa.BufferReader(cast(Store, store).read(file.path))  # This reads the file or raises the store's error.


def _raw_batches(parquet: pq.ParquetFile, wanted: list[str], most: int) -> Iterator[pa.RecordBatch]:
    if wanted:
        yield from parquet.iter_batches(batch_size=most, columns=wanted, use_threads=False)
        return
    left = parquet.metadata.num_rows  # The file has none of the table's columns, so its rows are all null.
    while left:
        rows = min(left, most)
        yield pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["none"])
        left -= rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileColumns:
    """The columns of a table in those of its files that have one schema.

    Args:
        schema: The table's columns, by their names in files.
        physical, own: The schema of the files, as Parquet's and as Arrow's.
        columns: The file's column for each of the table's, None if the files lack it.
    """

    schema: pa.Schema
    physical: pq.ParquetSchema
    own: pa.Schema
    columns: Sequence[str | None]

    def are_of(self, physical: pq.ParquetSchema, own: pa.Schema, schema: pa.Schema) -> bool:
        """Return whether they are those of a file with these schemas."""
        return bool(
            self.schema is schema
            and self.physical.equals(physical)  # Only this one knows INT96.
            and self.own.equals(own, check_metadata=True)
        )


class _LastRead(threading.local):
    """The columns of the file that a thread has read last. Most files of a table have the same."""

    columns: _FileColumns | None = None


_LAST: Final = _LastRead()


def _find_columns(file: OldFile, parquet: pq.ParquetFile, schema: pa.Schema) -> Sequence[str | None]:
    """Find for each column of the table the file's column, None if the file lacks it.

    Raises:
        NeedsSpark: See ``read_batches``.
    """
    physical, own = parquet.schema, parquet.schema_arrow
    found = _LAST.columns
    if found is None or not found.are_of(physical, own, schema):
        columns = _columns_of(file, physical, own, schema)
        found = _FileColumns(schema=schema, physical=physical, own=own, columns=columns)
        _LAST.columns = found
    if any(map(_has_times, schema.types)):
        _refuse_old_calendar(file, parquet)
    return found.columns


def _columns_of(file: OldFile, physical: pq.ParquetSchema, own: pa.Schema, schema: pa.Schema) -> list[str | None]:
    """Find the columns as ``_find_columns`` does, for the first file of its schema."""
    int96 = {
        physical.column(index).path.split(".")[0]
        for index in range(len(physical))
        if physical.column(index).physical_type == "INT96"
    }
    names: dict[str, list[str]] = {}
    for name in own.names:
        names.setdefault(name.lower(), []).append(name)
    columns: list[str | None] = []
    for field in schema:
        found = names.get(field.name.lower(), [])
        if not found:
            columns.append(None)
            continue
        if found != [field.name]:
            raise NeedsSpark(f"{file.path}: the columns {found} stand for {field.name!r}")
        if not _same_values(own.field(field.name).type, field.type, int96=field.name in int96):
            raise NeedsSpark(f"{file.path}: {field.name!r} is {own.field(field.name).type}, not {field.type}")
        columns.append(field.name)
    return columns


def _has_times(data_type: pa.DataType) -> bool:
    """Return whether a column, or a part of one, is a date or a time."""
    if pa.types.is_nested(data_type):
        return any(_has_times(data_type.field(index).type) for index in range(data_type.num_fields))
    return bool(pa.types.is_temporal(data_type))


def _refuse_old_calendar(file: OldFile, parquet: pq.ParquetFile) -> None:
    """Refuse a file whose dates before 1900 may be in the Julian calendar, which Spark converts on reading."""
    metadata = parquet.metadata.metadata or {}
    if any(key in metadata for key in _OLD_CALENDARS):
        raise NeedsSpark(f"{file.path}: dates in an old calendar")
    version = metadata.get(_SPARK_VERSION)
    if version is not None:
        parts = version.decode("ascii", "replace").split(".")
        known = len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit()
        if (not known or (int(parts[0]), int(parts[1])) < _ONE_CALENDAR_SINCE) and not _all_since_1900(parquet):
            raise NeedsSpark(f"{file.path}: written by Spark {'.'.join(parts)}")
    elif "parquet-mr" in (parquet.metadata.created_by or "").replace(_TRINO, "") and not _all_since_1900(parquet):
        raise NeedsSpark(f"{file.path}: written by {parquet.metadata.created_by}, which may use an old calendar")


def _all_since_1900(parquet: pq.ParquetFile) -> bool:
    """Return whether the footer proves that no date or time is before 1900, where the calendars differ."""
    firsts: dict[int, int] = {}
    for index in range(len(parquet.schema)):
        column = parquet.schema.column(index)
        kind = json.loads(column.logical_type.to_json())
        if column.physical_type == "INT96" or kind.get("timeUnit", "microseconds") not in _PER_DAY:
            return False  # The first have no bounds, and it is not known what the bounds of the others mean.
        if kind["Type"] == "Date":
            firsts[index] = _DAYS_TO_1900
        elif kind["Type"] == "Timestamp":
            firsts[index] = _DAYS_TO_1900 * _PER_DAY[kind["timeUnit"]]
    groups = [parquet.metadata.row_group(number) for number in range(parquet.metadata.num_row_groups)]
    return all(_begins_at(group.column(index), first) for group in groups for index, first in firsts.items())


def _begins_at(chunk: pq.ColumnChunkMetaData, first: int) -> bool:
    """Return whether the statistics of a column in a row group show that each value is this one or a later one."""
    if chunk.num_values == 0:
        return True
    known = chunk.statistics
    if known is None:
        return False
    if known.has_min_max:
        return bool(known.min_raw >= first)
    return bool(known.has_null_count and known.null_count == chunk.num_values)


def _same_values(given: pa.DataType, target: pa.DataType, *, int96: bool) -> bool:
    """Return whether a cast from a file's type to the table's is unambiguous and preserves every value."""
    types, given = pa.types, spelled_out(given)
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
        return bool(types.is_string(given) or types.is_large_string(given) or types.is_string_view(given))
    if types.is_binary(target):
        return bool(types.is_binary(given) or types.is_large_binary(given) or types.is_binary_view(given))
    return bool(given.equals(target))


def _as_written(batch: pa.RecordBatch, columns: Sequence[str | None], schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    if not columns:  # A batch without arrays would have no rows.
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), batch.num_rows, [None]))
    arrays = []
    for name, field in zip(columns, schema, strict=True):
        if name is None:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            arrays.append(file_array(batch.column(batch.schema.get_field_index(name)), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_among(positions: npt.NDArray[np.uint64], start: int, size: int) -> npt.NDArray[np.bool_]:
    """Mark the rows among ``size`` rows from ``start`` that are at one of the ascending positions. Pure."""
    low, high = np.searchsorted(positions, np.array([start, start + size], dtype=positions.dtype))
    found = np.zeros(size, dtype=np.bool_)
    found[(positions[low:high] - np.array(start, dtype=positions.dtype)).astype(np.int64)] = True
    return found


def with_row_ids(rows: pa.RecordBatch, file: OldFile, start: int, *, hidden: int) -> pa.RecordBatch:
    """Fill in the ids and the versions of rows.

    Args:
        rows: The rows. The last ``hidden`` columns are those of row tracking. Without any, nothing is done.
        file: The file that they come from.
        start: Position in the file of the first of them.
        hidden: 2, or 0 if the table does not track rows.

    Protocol: "Row Tracking".
    """
    if not hidden:
        return rows
    at = rows.num_columns - hidden
    ids, versions = rows.column(at), rows.column(at + 1)
    if file.base_row_id is not None:
        first = file.base_row_id + start
        ids = pc.coalesce(ids, pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64)))
    if file.row_version is not None:
        versions = pc.fill_null(versions, file.row_version)
    return pa.RecordBatch.from_arrays([*rows.columns[:at], ids, versions], schema=rows.schema)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
