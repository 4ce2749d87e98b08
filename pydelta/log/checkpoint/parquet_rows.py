"""Read selected columns and rows from one Parquet file of a checkpoint.

A checkpoint part or sidecar holds one action per row and one struct column per kind of action. It is read by leaf
column and row group, so opening a large checkpoint does not load its statistics.

A file that claims much more data than its bytes can hold is refused before it is decompressed. Each action of a
checkpoint names its own file, application or domain, so it takes bytes. Parquet stores a repeated value once: a file of
kilobytes can claim billions of rows, or megabytes of text in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pydelta.errors import LogCorruptedError, ObjectNotFoundError, StorageError, first_line
from pydelta.storage.interface import Store
from pydelta.storage.ranges import RangeReader
from pydelta.storage.whole import read_listed

__all__ = ["ParquetRows", "inflated", "refuse_inflated", "repeated_texts", "struct_fields"]

_FREE_ROWS: Final = 100_000
_VALUES_PER_BYTE: Final = 64
_FREE_BYTES: Final = 256 * 1024 * 1024
_TIMES: Final = 1_000
_PLAIN_BYTES: Final = 16
_RATIO: Final = 100
_INFLATED_HINT: Final = (
    "No writer of Delta tables makes such a file. Do not use the table before you know who wrote it; delete the file "
    "if the commits before it are there."
)
WHOLE_READ_BYTES: Final = 8 * 1024 * 1024
INT96_UNIT: Final = "ms"  # Nanoseconds would overflow, and no other timestamp of a checkpoint has this unit.
_MAGIC: Final = b"PAR1"
_BATCH_ROWS: Final = 65_536
_WINDOW_BYTES: Final = 64 * 1024 * 1024
_MAP_FIELDS: Final = frozenset({"options", "configuration", "tags", "partitionValues"})
_HINT: Final = (
    "The file is truncated or damaged. An older checkpoint and the commits after it are used where they reach; "
    "if they do not, restore the file from a backup of _delta_log."
)


def refuse_inflated(metadata: Any, path: str, size: int) -> None:
    """Check the counts in a footer against the size of the file, and the types of its chunks against its schema.

    Arrow ends the process when it is asked for the statistics of a chunk whose type is not the column's.

    Raises:
        LogCorruptedError: The file claims more rows than bytes, or far more values, or a chunk has another type.
    """
    if metadata.num_rows > max(size, _FREE_ROWS):
        raise inflated(path, f"{metadata.num_rows:,} rows", size)
    types = [metadata.schema.column(leaf).physical_type for leaf in range(metadata.num_columns)]
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        for leaf in range(rows.num_columns):
            chunk = rows.column(leaf)
            if chunk.num_values > max(_VALUES_PER_BYTE * size, _FREE_ROWS):
                raise inflated(path, f"{chunk.num_values:,} values of {chunk.path_in_schema}", size)
            if chunk.physical_type != types[leaf]:
                found = f"{chunk.physical_type} for {metadata.schema.column(leaf).path} of type {types[leaf]}"
                raise LogCorruptedError(f"{path} is not a readable checkpoint file: {found}.", hint=_HINT)


def repeated_texts(chunk: Any, group: int, open_file: Callable[[list[str]], pq.ParquetFile], size: int) -> str | None:
    """Measure the strings of a column chunk that is small only because they repeat, without decompressing them.

    Args:
        chunk: Its metadata in the footer.
        group: Its row group.
        open_file: Opens the file so that the leaves with these names are read as dictionaries.
        size: The file's size in bytes.

    Returns:
        A description of the problem; None if the strings are within the limit.
    """
    total = _text_bytes(chunk, group, open_file)
    if total <= max(_FREE_BYTES, _TIMES * size):
        return None
    return f"{total:,} bytes of text in {chunk.path_in_schema}"


def _text_bytes(chunk: Any, group: int, open_file: Callable[[list[str]], pq.ParquetFile]) -> int:
    """Return the decompressed size of the strings in bytes, or 0 if it cannot be much more than the stored size."""
    if chunk.physical_type != "BYTE_ARRAY" or not chunk.has_dictionary_page:
        return 0
    stored, values = chunk.total_uncompressed_size, chunk.num_values
    is_plain = stored >= _PLAIN_BYTES * values and stored <= _RATIO * chunk.total_compressed_size
    if stored * values <= _FREE_BYTES or is_plain:
        return 0
    name = chunk.path_in_schema
    total = 0
    for batch in open_file([name]).iter_batches(batch_size=_BATCH_ROWS, row_groups=[group], columns=[name]):
        found = _leaf(batch.column(0))
        if not pa.types.is_dictionary(found.type):
            return 0
        lengths = pc.binary_length(found.dictionary).cast(pa.int64()).take(found.indices)
        total += pc.sum(lengths).as_py() or 0
    return total


def _leaf(array: Any) -> Any:
    while True:
        kind = array.type
        if pa.types.is_struct(kind):
            array = array.field(0)
        elif pa.types.is_map(kind):
            array = array.keys if pa.types.is_dictionary(array.keys.type) else array.items
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            array = array.values
        else:
            return array


def inflated(path: str, claims: str, size: int) -> LogCorruptedError:
    """Build the error for a file with impossible claims."""
    return LogCorruptedError(f"{path} claims to hold {claims} in {size:,} bytes.", hint=_INFLATED_HINT)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Convert errors that Arrow raises for a damaged file to ``LogCorruptedError``. Storage errors pass through.

    A missing file counts as damage too, because the checkpoint that names or implies it cannot be read.
    """
    try:
        yield
    except ObjectNotFoundError as error:
        raise LogCorruptedError(f"{path} is named by the checkpoint but missing.", hint=_HINT) from error
    except StorageError:
        raise
    except LogCorruptedError:
        raise
    except (
        pa.ArrowException, pl.exceptions.PolarsError, msgspec.MsgspecError, OSError, EOFError, KeyError, ValueError,
        IndexError, OverflowError,
    ) as error:  # fmt: skip
        message = first_line(error) or type(error).__name__
        raise LogCorruptedError(f"{path} is not a readable checkpoint file: {message}", hint=_HINT) from error


def _read(store: Store, path: str) -> bytes:
    """Read a whole file. If its end marker is missing, the store must confirm the size before it counts as damaged."""
    data = store.read(path)
    if data.endswith(_MAGIC):
        return data
    info = store.head(path)
    return data if info is None else read_listed(store, info)


class ParquetRows:
    """A Parquet file of actions, opened once: the footer is read immediately, columns on demand.

    Args:
        store: The store that holds it.
        path: Path in the store.
        size: Size in bytes, from a listing or a sidecar action; None asks the store.
        kept: Whether a small file's bytes stay in memory, so that it is fetched only once.

    Raises:
        LogCorruptedError: The file is missing, truncated or not Parquet.
    """

    def __init__(self, store: Store, path: str, size: int | None = None, *, kept: bool = True) -> None:
        self.path = path
        with reading(path):
            if size is None:
                info = store.head(path)
                if info is None:
                    raise ObjectNotFoundError(f"{path} does not exist.")
                size = info.size
            self._store, self.size = store, size
            self._whole = pa.py_buffer(_read(store, path)) if kept and size <= WHOLE_READ_BYTES else None
            self._metadata: Any = None
            self._leaves: dict[str, int] = {}
            self._measured: set[tuple[int, int]] = set()
            file = self._open((), ())
            refuse_inflated(file.metadata, path, size)
            self._metadata = file.metadata
            self.schema: pa.Schema = file.schema_arrow
            _check_types(self.schema, path)
            counts = [self._metadata.row_group(i).num_rows for i in range(self._metadata.num_row_groups)]
        self._starts: npt.NDArray[np.int64] = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        self._leaves = {self._metadata.schema.column(i).path: i for i in range(len(self._metadata.schema.names))}

    def _open(self, groups: Sequence[int], columns: Sequence[str], dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
        """Open a new reader, because readers have a position, and prefetch columns of some row groups."""
        source: Any
        if self._whole is not None:
            source = pa.BufferReader(self._whole)
        else:
            reader = RangeReader(self._store, self.path, self.size)
            reader.prefetch(self._ranges(groups, columns))
            source = pa.PythonFile(reader, mode="r")
        return pq.ParquetFile(
            source,
            metadata=self._metadata,
            coerce_int96_timestamp_unit=INT96_UNIT,
            read_dictionary=list(dictionaries),
        )

    def _chosen(self, columns: Sequence[str]) -> list[int]:
        wanted = set(columns)
        below = tuple(f"{column}." for column in columns)
        return [index for path, index in self._leaves.items() if path in wanted or path.startswith(below)]

    def _measure(self, group: int, columns: Sequence[str]) -> None:
        """Check the decompressed text size of a row group once."""
        for index in self._chosen(columns):
            if (group, index) in self._measured:
                continue
            self._measured.add((group, index))
            chunk = self._metadata.row_group(group).column(index)
            claims = repeated_texts(chunk, group, lambda names: self._open([group], names, names), self.size)
            if claims is not None:
                raise inflated(self.path, claims, self.size)

    def _ranges(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[int, int]]:
        chosen = self._chosen(columns)
        for group in groups:
            rows = self._metadata.row_group(group)
            for index in chosen:
                chunk = rows.column(index)
                first = chunk.data_page_offset
                if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                    first = min(first, chunk.dictionary_page_offset)
                yield first, chunk.total_compressed_size

    def _read(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Yield each row group with its batches. Bytes for several row groups are fetched together, within a limit."""
        window: list[int] = []
        held = 0
        for position, group in enumerate(groups):
            window.append(group)
            held += sum(length for _, length in self._ranges([group], columns))
            if held < _WINDOW_BYTES and position + 1 < len(groups):
                continue
            file = self._open(window, columns)
            for ready in window:
                self._measure(ready, columns)
                batches = file.iter_batches(batch_size=_BATCH_ROWS, row_groups=[ready], columns=list(columns))
                yield ready, map(_checked, batches)
            del file  # This releases its bytes before the next window is fetched.
            window, held = [], 0

    @property
    def num_rows(self) -> int:
        """Number of rows of all kinds."""
        return int(self._starts[-1])

    def has(self, *path: str) -> bool:
        """Return whether the struct column has this field, for example ``has("add", "stats")``."""
        kind: Any = self.schema
        for name in path:
            index = kind.get_field_index(name) if not isinstance(kind, pa.DataType) or pa.types.is_struct(kind) else -1
            if index < 0:
                return False
            kind = kind.field(index).type
        return True

    def field_type(self, *path: str) -> pa.DataType:
        """Return the Arrow type of an existing field."""
        kind: Any = self.schema.field(path[0]).type
        for name in path[1:]:
            kind = kind.field(name).type
        return kind

    def _has_values(self, group: int, kind: str) -> bool:
        """Return whether the row group can hold an action of this kind, judged by the footer's null counts."""
        rows = self._metadata.row_group(group)
        for index in self._chosen([kind]):
            statistics = rows.column(index).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count < rows.num_rows:
                return True
        return False

    def batches(self, columns: Sequence[str], *, kind: str) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Read leaf columns (a prefix selects all below it) of the row groups that can hold ``kind``.

        Yields:
            The index of the batch's first row in the file, and the batch.

        Raises:
            LogCorruptedError: The file is damaged.
        """
        if self.schema.get_field_index(kind) < 0:
            return
        groups = [i for i in range(self._metadata.num_row_groups) if self._has_values(i, kind)]
        with reading(self.path):
            for group, batches in self._read(groups, columns):
                start = int(self._starts[group])
                for batch in batches:
                    yield start, batch
                    start += batch.num_rows

    def structs(self, kind: str, fields: Sequence[str] | None = None) -> Iterator[tuple[npt.NDArray[np.int64], Any]]:
        """Read the non-null structs of one kind of action.

        Args:
            kind: Column, such as ``add``.
            fields: Fields to read (``path``, ``deletionVector.offset``); None for all.

        Yields:
            Row indexes in the file, and the structs as an Arrow array of the same length.
        """
        columns = [kind] if fields is None else [f"{kind}.{name}" for name in fields]
        for start, batch in self.batches(columns, kind=kind):
            if batch.num_columns == 0:
                continue
            array = batch.column(0)
            present = np.asarray(array.is_valid())
            rows = np.flatnonzero(present).astype(np.int64)
            if len(rows):
                yield rows + start, array if len(rows) == len(array) else array.filter(pa.array(present))

    def take(
        self, kind: str, fields: Sequence[str] | None, rows: npt.NDArray[np.int64]
    ) -> Iterator[tuple[npt.NDArray[np.int64], Any]]:
        """Read the structs of given rows, only from the row groups that hold them.

        Args:
            kind: Column, such as ``add``.
            fields: Fields to read; None for all.
            rows: Ascending row indexes.

        Yields:
            Positions within ``rows``, and the structs at them.
        """
        columns = [kind] if fields is None else [f"{kind}.{name}" for name in fields]
        bounds = np.searchsorted(rows, self._starts)
        groups = [i for i in range(self._metadata.num_row_groups) if bounds[i] < bounds[i + 1]]
        with reading(self.path):
            for group, batches in self._read(groups, columns):
                first, last = int(bounds[group]), int(bounds[group + 1])
                start = int(self._starts[group])
                for batch in batches:
                    end = start + batch.num_rows
                    low = first + int(np.searchsorted(rows[first:last], start))
                    high = first + int(np.searchsorted(rows[first:last], end))
                    if low < high and batch.num_columns:
                        yield np.arange(low, high), batch.column(0).take(pa.array(rows[low:high] - start))
                    start = end
                    if high == last:
                        break

    def objects(self, kind: str) -> Iterator[dict[str, Any]]:
        """Read actions of a kind as JSON objects with camelCase keys, omitting nulls. Too slow for adds.

        Raises:
            LogCorruptedError: They are not structs, or a map in them does not consist of pairs.
        """
        for _, array in self.structs(kind):
            if not pa.types.is_struct(array.type):
                raise _unreadable(self.path, f"{kind} is {array.type}, not a struct")
            for value in array.to_pylist():
                try:
                    yield plain(value)
                except (TypeError, ValueError):
                    raise _unreadable(self.path, f"{kind} has a map without keys and values") from None


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch after checking that its strings are UTF-8 and its offsets valid, as later code assumes."""
    batch.validate(full=True)
    return batch


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    # Some writers omit the annotation that marks binary as text.
    if types.is_binary(kind) or types.is_large_binary(kind):
        return True
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_map(kind: pa.DataType) -> bool:
    """Return whether the type is a map of strings, or a list of pairs, as a map without the MAP annotation is read."""
    if pa.types.is_map(kind):
        return _is_text(kind.key_type) and _is_text(kind.item_type)
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
        return False
    return all(_is_text(kind.value_type.field(index).type) for index in (0, 1))


_CHECKS: Final[Mapping[str, tuple[str, Callable[[pa.DataType], bool]]]] = {
    "path": ("text", _is_text),
    "partitionValues": ("a map of strings", _is_map),
    "size": ("a whole number", pa.types.is_integer),
    "modificationTime": ("a whole number", pa.types.is_integer),
    "deletionTimestamp": ("a whole number", pa.types.is_integer),
    "baseRowId": ("a whole number", pa.types.is_integer),
    "defaultRowCommitVersion": ("a whole number", pa.types.is_integer),
    "stats": ("text", _is_text),
    "stats_parsed": ("a struct", pa.types.is_struct),
    "deletionVector": ("a struct", pa.types.is_struct),
    "storageType": ("text", _is_text),
    "pathOrInlineDv": ("text", _is_text),
    "offset": ("a whole number", pa.types.is_integer),
}
_NEEDED: Final = {"add": ("path", "size", "modificationTime"), "remove": ("path",)}
_VECTOR: Final = ("storageType", "pathOrInlineDv")


def _check_types(schema: pa.Schema, path: str) -> None:
    """Check the types of the fields that are read as columns, if present.

    Raises:
        LogCorruptedError: A field has another type, or a required one is missing.
    """
    for kind, needed in _NEEDED.items():
        if schema.get_field_index(kind) >= 0:
            _check_struct(schema.field(kind).type, kind, needed, path)


def _check_struct(found: pa.DataType, name: str, needed: Sequence[str], path: str) -> None:
    wrong = None if pa.types.is_struct(found) else f"{name} is {found}, not a struct"
    fields = [] if wrong else list(found)
    names = [field.name for field in fields]
    for field in fields:
        meant, check = _CHECKS.get(field.name, ("", None))
        if check is not None and not check(field.type) and not pa.types.is_null(field.type):
            wrong = f"{name}.{field.name} is {field.type}, not {meant}"
        elif field.name == "deletionVector" and not pa.types.is_null(field.type):
            _check_struct(field.type, f"{name}.deletionVector", _VECTOR, path)
    if len(set(names)) < len(names):
        wrong = f"{name} has two fields of one name"
    missing = [item for item in needed if item not in names] if wrong is None else []
    if wrong or missing:
        raise _unreadable(path, wrong or f"{name} has no field {missing[0]}")


def _unreadable(path: str, what: str) -> LogCorruptedError:
    return LogCorruptedError(f"{path} is not a readable checkpoint file: {what}.", hint=_HINT)


def plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an Arrow struct in Python form to its JSON object: maps become objects, nulls are omitted."""
    result: dict[str, Any] = {}
    for name, item in value.items():
        if item is None:
            continue
        if name in _MAP_FIELDS and isinstance(item, list):
            result[name] = dict(item)
        elif isinstance(item, dict):
            result[name] = plain(item)
        else:
            result[name] = item
    return result


def struct_fields(array: Any) -> dict[str, Any]:
    """Return the child arrays of an Arrow struct array by name. Null structs become null children."""
    return {field.name: child for field, child in zip(array.type, array.flatten(), strict=True)}
