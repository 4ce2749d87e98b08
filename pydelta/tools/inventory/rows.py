"""Read data files of a delivery as rows of the inventory table. Keys are URL-encoded in CSV, but not in Parquet.

Only latest versions that are not delete markers count. Keys newer than the delivery are left out, because the listing
saw them only by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote_plus, unquote_plus

import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from pydelta.errors import DeltaError, InvalidArgumentError, first_line
from pydelta.tools.inventory.manifest import CSV_COLUMNS, InventoryManifest
from pydelta.tools.inventory.split import with_longest_prefix

__all__ = [
    "ROW_SCHEMA",
    "Noncurrent",
    "decode_keys",
    "encode_keys",
    "inventory_rows",
    "raw_frames",
    "write_csv",
    "write_parquet",
]

BATCH_ROWS: Final = 200_000
_BLOCK_BYTES: Final = 16 * 1024 * 1024

ROW_SCHEMA: Final[dict[str, pl.DataType]] = {
    "bucket": pl.String(),
    "key": pl.String(),
    "length": pl.Int64(),
    "isDir": pl.Boolean(),
    "modificationTime": pl.Int64(),
    "storage_class": pl.String(),
    "table": pl.String(),
    "encryption_status": pl.String(),
    "inventory_date": pl.Datetime("us", "UTC"),
}

_NAMES: Final[Mapping[str, str]] = {
    "bucket": "bucket",
    "key": "key",
    "islatest": "latest",
    "isdeletemarker": "marker",
    "versionid": "version",
    "size": "size",
    "lastmodifieddate": "modified",
    "etag": "etag",
    "storageclass": "storage_class",
    "encryptionstatus": "encryption_status",
}
"""Maps column names, in lower case and without underscores, to the names in the frames of ``raw_frames``."""

_KEPT: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~/")
_ESCAPES: Final = {chr(code): quote_plus(chr(code)) for code in range(128) if code not in _KEPT}
_DECODED: Final = {
    "+": " ",
    **{f"%{code:02X}": chr(code) for code in range(128)},
    **{f"%{code:02x}": chr(code) for code in range(128)},
}


def decode_keys(keys: pl.Series) -> pl.Series:
    """Decode the URL-encoded keys of CSV deliveries, in which ``+`` is a space.

    ASCII is decoded by columns. Only keys with other characters are decoded one by one.
    """
    frame = keys.to_frame("key").with_columns(
        wide=pl.col("key").str.contains("%[89a-fA-F]").fill_null(value=False),
        plain=pl.col("key").str.replace_many(list(_DECODED), list(_DECODED.values())),
    )
    if not frame["wide"].any():
        return frame["plain"].alias(keys.name)
    frame = frame.with_columns(
        plain=pl.when("wide").then(pl.col("key").map_elements(unquote_plus, return_dtype=pl.String)).otherwise("plain")
    )
    return frame["plain"].alias(keys.name)


def encode_keys(keys: pl.Series) -> pl.Series:
    """Encode keys for URLs as CSV deliveries do, leaving slashes unchanged."""
    frame = keys.to_frame("key").with_columns(
        wide=pl.col("key").str.contains(r"[^\x00-\x7F]").fill_null(value=False),
        plain=pl.col("key").str.replace_many(list(_ESCAPES), list(_ESCAPES.values())),
    )
    if not frame["wide"].any():
        return frame["plain"].alias(keys.name)

    def encode(text: str) -> str:
        return quote_plus(text, safe="/")

    frame = frame.with_columns(
        plain=pl.when("wide").then(pl.col("key").map_elements(encode, return_dtype=pl.String)).otherwise("plain")
    )
    return frame["plain"].alias(keys.name)


def raw_frames(path: Path, manifest: InventoryManifest, *, source: str) -> Iterator[pl.DataFrame]:
    """Read the rows of a data file in bounded frames, with the same column names for both formats.

    Args:
        path: The file on local disk.
        manifest: Manifest of its delivery.
        source: Origin of the file, for messages.

    Yields:
        Frames with ``bucket key size modified`` and those of ``latest marker etag storage_class encryption_status``
        that the delivery has. Times are in UTC.

    Raises:
        InvalidArgumentError: The file cannot be read, or lacks a required column.
    """
    try:
        if manifest.file_format == "CSV":
            yield from _csv_frames(path, manifest.columns, source)
        else:
            yield from _parquet_frames(path, source)
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, pl.exceptions.PolarsError) as error:
        if isinstance(error, DeltaError):
            raise
        raise InvalidArgumentError(
            f"{source} cannot be read as {manifest.file_format}: {first_line(error)}",
            hint="Load another delivery (--delivery), or run the inventory again.",
        ) from error


def _wanted(columns: Sequence[str], source: str) -> dict[str, str]:
    """Map the columns of a file to our names. Other columns are not read."""
    found = {name: _NAMES[plain] for name in columns if (plain := name.replace("_", "").lower()) in _NAMES}
    missing = {"bucket", "key", "size", "modified"} - set(found.values())
    if missing:
        fields = {"bucket": "Bucket", "key": "Key", "size": "Size", "modified": "LastModifiedDate"}
        raise InvalidArgumentError(
            f"{source} has no column {', '.join(fields[name] for name in sorted(missing))}; it has "
            f"{', '.join(columns)}.",
            hint="Add the optional fields Size and Last modified to the inventory's configuration.",
        )
    if "version" in found.values() and "latest" not in found.values():
        raise InvalidArgumentError(
            f"{source} lists versions of objects, but has no column IsLatest that says which is current.",
            hint="Let the inventory list current versions only, or with the columns that S3 gives to all versions.",
        )
    return found


def _csv_frames(path: Path, columns: Sequence[str], source: str) -> Iterator[pl.DataFrame]:
    wanted = _wanted(columns, source)
    convert = pc.ConvertOptions(
        column_types=dict.fromkeys(columns, pa.string()), include_columns=list(wanted), strings_can_be_null=False
    )
    read = pc.ReadOptions(column_names=list(columns), block_size=_BLOCK_BYTES)
    with pa.input_stream(str(path), compression="gzip") as stream:
        head = stream.read(1)
    if not head:
        return
    with (
        pa.input_stream(str(path), compression="gzip") as stream,
        pc.open_csv(
            stream, read_options=read, parse_options=pc.ParseOptions(newlines_in_values=True), convert_options=convert
        ) as reader,
    ):
        for batch in reader:
            frame = _frame(batch).rename(wanted)
            yield frame.with_columns(
                decode_keys(frame["key"]),
                pl.col("size").replace("", None).cast(pl.Int64),
                pl.col("modified").str.to_datetime(time_unit="ms", time_zone="UTC", strict=True),
                *(pl.col(name).str.to_lowercase() == "true" for name in ("latest", "marker") if name in frame.columns),
            )


def _frame(batch: pa.RecordBatch) -> pl.DataFrame:
    """Convert a batch without its metadata, after checking its strings, because Polars assumes valid UTF-8."""
    batch.validate(full=True)
    columns = zip(batch.schema.names, batch.columns, strict=True)
    try:
        return pl.DataFrame([pl.Series(name, pl.from_arrow(column)) for name, column in columns])
    except pl.exceptions.PanicException as error:  # Polars panics on types that it does not know.
        raise ValueError(f"its columns are of types that cannot be read: {first_line(batch.schema)}") from error


def _parquet_frames(path: Path, source: str) -> Iterator[pl.DataFrame]:
    with pq.ParquetFile(path) as file:
        wanted = _wanted(file.schema_arrow.names, source)
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(wanted)):
            frame = _frame(batch).rename(wanted)
            kind = frame.schema["modified"]
            time = pl.col("modified")
            if kind == pl.String:
                time = time.str.to_datetime(time_unit="ms", time_zone="UTC")
            elif kind.is_integer():
                time = time.cast(pl.Datetime("ms", "UTC"))
            else:
                time = time.dt.replace_time_zone("UTC") if getattr(kind, "time_zone", None) is None else time
            yield frame.with_columns(time.cast(pl.Datetime("ms", "UTC")), pl.col("size").cast(pl.Int64))


@dataclass(slots=True)
class Noncurrent:
    """Totals of the noncurrent versions in a delivery of all versions. Bytes are those of the objects."""

    is_told: bool = False
    objects: int = 0
    bytes: int = 0
    markers: int = 0
    by_table: dict[str, int] = field(default_factory=dict)

    def add(self, frame: pl.DataFrame, prefixes: Mapping[str, str]) -> None:
        """Add rows from ``raw_frames``."""
        if "latest" not in frame.columns:
            return
        self.is_told = True
        marker = pl.col("marker").fill_null(value=False) if "marker" in frame.columns else pl.lit(value=False)
        self.markers += frame.filter(marker).height
        old = frame.filter(~pl.col("latest").fill_null(value=True) & ~marker)
        self.objects += old.height
        self.bytes += int(old["size"].sum() or 0)
        named = with_longest_prefix(old.lazy(), prefixes).filter(pl.col("table").is_not_null())
        for table, size in named.group_by("table").agg(pl.col("size").sum()).collect().iter_rows():
            self.by_table[table] = self.by_table.get(table, 0) + size


def inventory_rows(
    frame: pl.DataFrame, manifest: InventoryManifest, prefixes: Mapping[str, str], *, source: str
) -> pl.DataFrame:
    """Convert a frame to rows of the inventory table: ``ROW_SCHEMA``.

    Args:
        frame: A frame from ``raw_frames``.
        manifest: Manifest of the delivery.
        prefixes: Prefixes of the registered tables in the bucket, see ``prefixes_in``.
        source: Origin of the rows, for messages.

    Raises:
        InvalidArgumentError: A row belongs to another bucket than the manifest names.
    """
    others = frame.filter(pl.col("bucket") != manifest.source_bucket)["bucket"]
    if others.len():
        raise InvalidArgumentError(
            f"{source} has rows of the bucket {others[0]!r}, but its manifest says {manifest.source_bucket!r}.",
            hint="The delivery is inconsistent: run the inventory again.",
        )
    rows = frame.lazy()
    if "latest" in frame.columns:
        rows = rows.filter(pl.col("latest").fill_null(value=True))
    if "marker" in frame.columns:
        rows = rows.filter(~pl.col("marker").fill_null(value=False))
    created = pl.lit(manifest.created_ms).cast(pl.Datetime("ms")).dt.replace_time_zone("UTC")
    rows = with_longest_prefix(rows, prefixes).with_columns(
        length=pl.col("size").fill_null(0),
        modificationTime=pl.col("modified").dt.epoch("ms"),
        inventory_date=created.cast(pl.Datetime("us", "UTC")),
        **{
            name: pl.lit(None, pl.String)
            for name in ("storage_class", "encryption_status")
            if name not in frame.columns
        },
    )
    rows = rows.with_columns(isDir=(pl.col("length") == 0) & pl.col("key").str.ends_with("/"))
    listed = rows.filter(pl.col("modificationTime") <= manifest.created_ms)
    return listed.select(pl.col(name).cast(kind) for name, kind in ROW_SCHEMA.items()).collect()


def write_parquet(frame: pl.DataFrame, target: BinaryIO) -> None:
    """Write a Parquet data file like the ones that S3 delivers, from the columns ``bucket key size modified etag
    storage_class``.
    """
    schema = pa.schema(
        [
            pa.field("bucket", pa.string(), nullable=False),
            pa.field("key", pa.string(), nullable=False),
            pa.field("size", pa.int64()),
            pa.field("last_modified_date", pa.timestamp("ms", "UTC")),
            pa.field("e_tag", pa.string()),
            pa.field("storage_class", pa.string()),
        ]
    )
    arrow = frame.select("bucket", "key", "size", "modified", "etag", "storage_class").to_arrow()
    columns: list[Any] = [column.cast(field.type) for column, field in zip(arrow.columns, schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), target, compression="zstd")


def write_csv(frame: pl.DataFrame, target: BinaryIO) -> None:
    """Write a data file as gzipped CSV without a header, with every field quoted and keys URL-encoded."""
    shown = frame.with_columns(
        encode_keys(frame["key"]), pl.col("modified").dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
    ).select("bucket", "key", "size", "modified", "etag", "storage_class")
    assert len(shown.columns) == len(CSV_COLUMNS)
    with pa.CompressedOutputStream(pa.PythonFile(target, mode="w"), "gzip") as stream:
        shown.write_csv(stream, include_header=False, quote_style="always", null_value="")
