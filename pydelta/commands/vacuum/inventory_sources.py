"""Open an inventory: a Delta table, Parquet or CSV files, or a frame. It is read without Spark.

::

    inventory_from_delta(log)  from_parquet(uri)  from_csv(uri)  from_frame(frame)  -> Inventory -> VACUUM
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyarrow.lib import ArrowException

from pydelta.commands.vacuum.inventory import Inventory, check_columns, version_columns
from pydelta.errors import InvalidArgumentError, SchemaMismatchError, StorageError, TableNotFoundError
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.vector_files import place_of, read_deleted_rows
from pydelta.predicate import Column, Compare, Expr, Literal, TextTest
from pydelta.protocol.schema import physical_name, to_polars_dtype
from pydelta.storage import Store, normalize_uri, open_store
from pydelta.storage.ranges import open_stream
from pydelta.storage.uris import bucket_of, scheme_of

__all__ = ["from_csv", "from_frame", "from_parquet", "inventory_at", "inventory_columns", "inventory_from_delta"]

_BATCH_ROWS: Final = 200_000
_CSV_BYTES: Final = 16 * 1024 * 1024
_AS_OF: Final = "inventory_date"
_COLUMNS: Final = ("path", "bucket", "key", "length", "isDir", "modificationTime", _AS_OF)


def from_frame(frame: pl.DataFrame, *, as_of_ms: int | None = None, encoded: bool | None = None) -> Inventory:
    """Make an inventory of a frame in memory.

    Args:
        frame: The rows.
        as_of_ms: Time at which it was made, epoch milliseconds, or None to take it from the rows.
        encoded: Whether paths are URI-encoded, or None to detect it.

    Raises:
        SchemaMismatchError: It is not an inventory.
    """
    description = "The inventory"
    check_columns(frame.schema, description=description)
    columns = inventory_columns(frame)
    return Inventory(description=description, frames=lambda root: iter([columns]), as_of_ms=as_of_ms, encoded=encoded)


def is_inventory_column(name: str) -> bool:
    """Return whether a column of this name is read from an inventory."""
    return name in _COLUMNS or bool(version_columns([name]))


def inventory_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns that are used, by our names. The date of a row's delivery becomes ``asOf``."""
    found = frame.select([name for name in frame.columns if is_inventory_column(name)])
    found = found.rename(dict(version_columns(found.columns)))
    kind = found.schema.get(_AS_OF)
    if isinstance(kind, pl.Datetime):
        return found.with_columns(asOf=pl.col(_AS_OF).dt.epoch("ms")).drop(_AS_OF)
    return found.drop(_AS_OF, strict=False)


# --- a Delta table -----------------------------------------------------------------------------------------------


def inventory_at(location: str, options: Mapping[str, str]) -> Inventory:
    """Open the inventory at a location: Parquet or CSV by its ending, else a Delta table or a folder of Parquet."""
    if location.endswith((".csv", ".csv.gz")):
        return from_csv(location, options=options)
    if location.endswith(".parquet"):
        return from_parquet(location, options=options)
    log = DeltaLog.for_table(location, options=options)
    return inventory_from_delta(log) if log.table_exists() else from_parquet(location, options=options)


def inventory_from_delta(log: DeltaLog, *, version: int | None = None) -> Inventory:
    """Open a Delta table as an inventory, with ``path``, or with ``bucket`` and ``key`` as in S3 Inventory.

    In the second form, partitions and statistics select the files that may hold keys under the vacuumed table. The
    column ``inventory_date``, if present, is the time of a row's list.

    Args:
        log: The inventory table.
        version: One of its versions, or None for the newest.

    Raises:
        TableNotFoundError: There is no such table.
        SchemaMismatchError: It is not an inventory.
    """
    snapshot = log.snapshot(version=version)
    if snapshot.metadata is None:
        raise TableNotFoundError.at(log.uri)
    description = f"The inventory table {log.uri}"
    check_columns(_schema_of(snapshot), description=description)

    def frames(root: str) -> Iterator[pl.DataFrame]:
        for rows in snapshot.files.select(None, _under(root, snapshot)).iter_slices(64):
            yield from _read_files(log, snapshot, rows)

    encoded = False if snapshot.schema.field("path") is None else None  # The keys are not URL-encoded.
    return Inventory(description=description, frames=frames, encoded=encoded)


def _schema_of(snapshot: Snapshot) -> pl.Schema:
    """Return the table's columns that an inventory uses, as a frame's schema."""
    fields = [field for field in snapshot.schema.fields if is_inventory_column(field.name)]
    return pl.Schema({field.name: to_polars_dtype(field.data_type) for field in fields})


def _under(root: str, snapshot: Snapshot) -> list[Expr]:
    """Return conditions that are true of rows under a table's root, if the inventory has buckets and keys."""
    if snapshot.schema.field("path") is not None or scheme_of(root) == "memory":
        return []
    place = bucket_of(root)
    found: list[Expr] = [Compare("=", Column(("bucket",)), Literal(place.bucket, "string"))]
    if place.key:
        found.append(TextTest("starts", Column(("key",)), place.key + "/"))
    return found


def _read_files(log: DeltaLog, snapshot: Snapshot, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    partitions = snapshot.files.partition_frame(rows)
    fields = [field for field in snapshot.schema.fields if is_inventory_column(field.name)]
    stored = {physical_name(field): field.name for field in fields if field.name not in snapshot.partition_columns}
    schema = _schema_of(snapshot)
    for number, add in enumerate(snapshot.files.adds(rows)):
        store, path = place_of(add.path, store=log.store, root=log.uri, options=log.options)
        deleted = pl.Series([], dtype=pl.UInt64)
        if add.deletion_vector is not None:
            (positions,) = read_deleted_rows([add.deletion_vector], store=log.store, root=log.uri, options=log.options)
            deleted = pl.Series(positions, dtype=pl.UInt64)
        values = [
            pl.lit(partitions[name][number], dtype=schema[name]).alias(name)
            for name in snapshot.partition_columns
            if name in schema
        ]
        for frame in _parquet_batches(store, path, set(stored).__contains__):
            kept = frame.filter(~pl.col("row").is_in(deleted.implode())) if len(deleted) else frame
            named = kept.drop("row").rename(stored, strict=False)
            absent = [pl.lit(None, dtype=schema[name]).alias(name) for name in stored.values() if name not in named]
            yield inventory_columns(named.with_columns(*absent, *values))


def _parquet_batches(store: Store, path: str, wanted: Callable[[str], bool]) -> Iterator[pl.DataFrame]:
    """Read rows of a Parquet file: the wanted columns that it has, and ``row``, the positions from 0."""
    try:
        file = pq.ParquetFile(pa.PythonFile(open_stream(store, path), mode="r"))
        present = [name for name in file.schema_arrow.names if wanted(name)]
        first = 0
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=present):
            frame: Any = pl.from_arrow(batch)
            position = pl.int_range(first, first + batch.num_rows, dtype=pl.UInt64, eager=True)
            first += batch.num_rows
            yield frame.with_columns(position.alias("row"))
    except ArrowException as error:
        raise StorageError(
            f"{store.root}/{path} cannot be read as Parquet: {error}", hint="Write the inventory again."
        ) from error


# --- files -------------------------------------------------------------------------------------------------------


def from_parquet(uri: str, *, options: Mapping[str, str] | None = None) -> Inventory:
    """Open a Parquet file, or a folder of them, as an inventory, with storage options under Hadoop's names."""
    return _from_files(uri, (".parquet",), _parquet_rows, options)


def from_csv(uri: str, *, options: Mapping[str, str] | None = None, encoded: bool | None = None) -> Inventory:
    """Open CSV files (also ``.csv.gz``) with column names in the first line as an inventory. See ``from_parquet``.

    Args:
        uri: Location of the file or folder.
        options: Storage options under Hadoop's names.
        encoded: Whether paths are URI-encoded, or None to detect it.
    """
    return _from_files(uri, (".csv", ".csv.gz"), _csv_rows, options, encoded)


def _from_files(
    uri: str,
    endings: tuple[str, ...],
    read: Callable[[Store, str, str], Iterator[pl.DataFrame]],
    options: Mapping[str, str] | None,
    encoded: bool | None = None,
) -> Inventory:
    description = f"The inventory {uri}"

    def frames(root: str) -> Iterator[pl.DataFrame]:
        del root
        store, paths = _files(uri, options, endings)
        for path in paths:
            yield from map(inventory_columns, read(store, path, description))

    return Inventory(description=description, frames=frames, encoded=encoded)


def _parquet_rows(store: Store, path: str, description: str) -> Iterator[pl.DataFrame]:
    for frame in _parquet_batches(store, path, is_inventory_column):
        check_columns(frame.schema, description=description)
        yield frame


def _csv_rows(store: Store, path: str, description: str) -> Iterator[pl.DataFrame]:
    return (_typed(texts, description) for texts in _csv_batches(store, path))


def _csv_batches(store: Store, path: str) -> Iterator[pl.DataFrame]:
    """Read rows of a CSV file with a line of names, the used columns as text. Empty values are null."""
    shape = pyarrow.csv.ParseOptions(newlines_in_values=True)
    blocks = pyarrow.csv.ReadOptions(block_size=_CSV_BYTES)
    try:
        with _unpacked(store, path) as stream:
            names = pyarrow.csv.open_csv(stream, parse_options=shape).schema.names
        present = [name for name in names if is_inventory_column(name)]
        texts = pyarrow.csv.ConvertOptions(
            include_columns=present,
            column_types=dict.fromkeys(present, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
        )
        with _unpacked(store, path) as stream:
            for batch in pyarrow.csv.open_csv(stream, parse_options=shape, read_options=blocks, convert_options=texts):
                frame: Any = pl.from_arrow(batch)
                yield frame
    except (ArrowException, OSError) as error:
        raise StorageError(
            f"{store.root}/{path} cannot be read as CSV: {error}", hint="Write the inventory again."
        ) from error


def _unpacked(store: Store, path: str) -> Any:
    stream = pa.PythonFile(open_stream(store, path), mode="r")
    return pa.CompressedInputStream(stream, "gzip") if path.endswith(".gz") else stream


def _files(uri: str, options: Mapping[str, str] | None, endings: tuple[str, ...]) -> tuple[Store, list[str]]:
    """Find the file, or the files of a folder with these endings."""
    normal = normalize_uri(uri)
    if normal.endswith(endings):
        folder, _, name = normal.rpartition("/")
        store = open_store(folder, options)
        plain = unquote(name) if scheme_of(normal) == "file" else name
        if store.head(plain) is not None:
            return store, [plain]
    store = open_store(normal, options)
    paths = sorted(
        info.path
        for info in store.list_all()
        if info.path.endswith(endings) and not info.path.rpartition("/")[2].startswith(("_", "."))
    )
    if not paths:
        raise InvalidArgumentError(
            f"There is no {' or '.join(endings)} file at {uri}.", hint="Name the inventory's file, or its folder."
        )
    return store, paths


def _typed(texts: pl.DataFrame, description: str) -> pl.DataFrame:
    """Convert strings of a CSV file to the inventory's types.

    Raises:
        SchemaMismatchError: A column is missing, or a text is not of its type.
    """
    flags = {"true": True, "false": False, "1": True, "0": False}
    casts = {
        "length": pl.col("length").cast(pl.Int64, strict=False),
        "modificationTime": pl.col("modificationTime").cast(pl.Int64, strict=False),
        "isDir": pl.col("isDir").str.to_lowercase().replace_strict(flags, default=None, return_dtype=pl.Boolean),
    }
    typed = texts.with_columns(cast.alias(name) for name, cast in casts.items() if name in texts.columns)
    check_columns(typed.schema, description=description)
    for name in casts:
        bad = texts.filter(texts[name].is_not_null() & typed[name].is_null() & (texts[name] != ""))
        if bad.height:
            raise SchemaMismatchError(
                f"{description} is not an inventory: {name} is {bad[name][0]!r} for {bad.row(0)[0]!r}.",
                hint="length and modificationTime are whole numbers (bytes, epoch milliseconds), isDir true or false.",
            )
    return typed
