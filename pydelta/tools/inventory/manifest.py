"""Parse and write ``manifest.json`` and ``manifest.checksum`` of an S3 Inventory delivery. No I/O.

The checksum is the last object of a delivery. Without it, the delivery is not complete.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from pydelta.errors import InvalidArgumentError
from pydelta.protocol.malformed import MALFORMED_JSON, reason

__all__ = [
    "CHECKSUM",
    "CSV_COLUMNS",
    "MANIFEST",
    "DeliveredFile",
    "InventoryManifest",
    "decode_manifest",
    "delivery_stamp",
    "encode_manifest",
    "md5_hex",
    "verified_manifest",
]

MANIFEST: Final = "manifest.json"
CHECKSUM: Final = "manifest.checksum"
FORMATS: Final = ("Parquet", "CSV")
_VERSION: Final = "2016-11-30"
_ARN: Final = "arn:aws:s3:::"

CSV_COLUMNS: Final = ("Bucket", "Key", "Size", "LastModifiedDate", "ETag", "StorageClass")
"""Columns of our own CSV deliveries, in this order, without a header."""

_PARQUET_SCHEMA: Final = (
    "message s3.inventory { required binary bucket (STRING); required binary key (STRING); "
    "optional int64 size; optional int64 last_modified_date (TIMESTAMP(MILLIS,true)); "
    "optional binary e_tag (STRING); optional binary storage_class (STRING);}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredFile:
    """A data file: its ``key`` in the destination bucket, its ``size`` in bytes, and its MD5 in hexadecimal."""

    key: str
    size: int
    md5: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryManifest:
    """The content of a manifest.

    Args:
        source_bucket: The bucket that was listed.
        destination_bucket: The bucket of the data files, as an ARN.
        created_ms: When the listing began, epoch milliseconds. It does not know newer objects.
        file_format: ``Parquet`` or ``CSV``.
        file_schema: Column names of CSV files, or the schema of Parquet files.
        files: The data files.
    """

    source_bucket: str
    destination_bucket: str
    created_ms: int
    file_format: str
    file_schema: str
    files: tuple[DeliveredFile, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names of CSV files, in order."""
        return tuple(name.strip() for name in self.file_schema.split(","))

    @classmethod
    def of(
        cls,
        *,
        source_bucket: str,
        destination_bucket: str,
        created_ms: int,
        file_format: str,
        files: tuple[DeliveredFile, ...],
    ) -> InventoryManifest:
        """Build the manifest of our own delivery. ``destination_bucket`` is the plain name.

        Raises:
            InvalidArgumentError: An unsupported file format.
        """
        if file_format not in FORMATS:
            raise InvalidArgumentError(
                f"The file format {file_format!r} is not supported.", hint=f"Choose one of {', '.join(FORMATS)}."
            )
        return cls(
            source_bucket=source_bucket,
            destination_bucket=_ARN + destination_bucket,
            created_ms=created_ms,
            file_format=file_format,
            file_schema=_PARQUET_SCHEMA if file_format == "Parquet" else ", ".join(CSV_COLUMNS),
            files=files,
        )


def md5_hex(data: bytes) -> str:
    """Compute the MD5 in hexadecimal, which S3 Inventory uses against damage, not against forgery."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def delivery_stamp(created_ms: int) -> str:
    """Return the folder name of a delivery.

    Example:
        >>> delivery_stamp(1_700_000_000_000)
        '2023-11-14T22-13Z'
    """
    return dt.datetime.fromtimestamp(created_ms / 1000, dt.UTC).strftime("%Y-%m-%dT%H-%MZ")


def encode_manifest(manifest: InventoryManifest) -> tuple[bytes, bytes]:
    """Encode the contents of ``manifest.json`` and ``manifest.checksum``."""
    text = json.dumps(
        {
            "sourceBucket": manifest.source_bucket,
            "destinationBucket": manifest.destination_bucket,
            "version": _VERSION,
            "creationTimestamp": str(manifest.created_ms),
            "fileFormat": manifest.file_format,
            "fileSchema": manifest.file_schema,
            "files": [{"key": file.key, "size": file.size, "MD5checksum": file.md5} for file in manifest.files],
        },
        indent=2,
        ensure_ascii=False,
    ).encode()
    return text, md5_hex(text).encode()


def decode_manifest(data: bytes, *, source: str) -> InventoryManifest:
    """Parse ``manifest.json``.

    Args:
        data: Content of the file.
        source: Origin of the content, for messages.

    Raises:
        InvalidArgumentError: Invalid JSON, missing or invalid fields, or an unsupported format.
    """
    try:
        fields = json.loads(data)
        files = tuple(_file(item) for item in fields["files"])
        manifest = InventoryManifest(
            source_bucket=_text(fields, "sourceBucket"),
            destination_bucket=_text(fields, "destinationBucket"),
            created_ms=int(fields["creationTimestamp"]),
            file_format=_text(fields, "fileFormat"),
            file_schema=_text(fields, "fileSchema"),
            files=files,
        )
    except (*MALFORMED_JSON, KeyError, TypeError, AttributeError, OverflowError) as error:
        what = f"the field {error} is missing" if isinstance(error, KeyError) else reason(error)
        raise InvalidArgumentError(
            f"{source} is not a manifest of an S3 Inventory: {what}.",
            hint="Load another delivery (--delivery), or run the inventory again.",
        ) from error
    if manifest.file_format not in FORMATS:
        raise InvalidArgumentError(
            f"The delivery {source} is in {manifest.file_format} files, which are not supported.",
            hint="Set the inventory's output format to Apache Parquet or CSV; the next delivery can be loaded.",
        )
    return manifest


def verified_manifest(data: bytes, checksum: bytes, *, source: str, bucket: str | None = None) -> InventoryManifest:
    """Parse ``manifest.json`` after checking it against its checksum and the expected bucket.

    Raises:
        InvalidArgumentError: They do not agree; see ``decode_manifest`` for other reasons.
    """
    expected = checksum.decode("ascii", errors="replace").strip().lower()
    if expected != md5_hex(data):
        raise InvalidArgumentError(
            f"{source} does not match its checksum: {CHECKSUM} says {expected[:40]!r}, but it has {md5_hex(data)}.",
            hint="It may be damaged or not complete: load an earlier delivery (--delivery), or wait for the next.",
        )
    manifest = decode_manifest(data, source=source)
    if bucket is not None and manifest.source_bucket != bucket:
        raise InvalidArgumentError(
            f"{source} is an inventory of the bucket {manifest.source_bucket!r}, but {bucket!r} was expected.",
            hint="Name the bucket that it lists, or give the folder in which the other's deliveries are.",
        )
    return manifest


def _text(fields: dict[str, Any], name: str) -> str:
    if not isinstance(fields[name], str):
        raise TypeError(f"{name} is not text")
    return str(fields[name])


def _file(item: Any) -> DeliveredFile:
    file = DeliveredFile(key=_text(item, "key"), size=int(item["size"]), md5=_text(item, "MD5checksum").lower())
    if re.fullmatch(r"[0-9a-f]{32}", file.md5) is None:
        raise ValueError(f"{file.md5!r} is not an MD5 checksum")
    return file
