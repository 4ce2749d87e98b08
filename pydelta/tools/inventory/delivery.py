"""Write a delivery of a bucket in the layout of S3 Inventory, and find existing deliveries.

::

    <destination>/<bucket>/<id>/data/<uuid>.parquet         first, during the listing
    <destination>/<bucket>/<id>/<YYYY-MM-DDTHH-MMZ>/manifest.json
    <destination>/<bucket>/<id>/<YYYY-MM-DDTHH-MMZ>/manifest.checksum   last: it completes the delivery

A process that dies before writing the checksum leaves files that nobody reads.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

import polars as pl

from pydelta.errors import InvalidArgumentError, ObjectNotFoundError
from pydelta.settings.clock import epoch_ms
from pydelta.storage import Store, normalize_uri, open_store, scheme_of
from pydelta.storage.kinds import kind_of
from pydelta.storage.uris import bucket_of
from pydelta.tools.inventory.listing import key_source, list_keys
from pydelta.tools.inventory.manifest import (
    CHECKSUM,
    FORMATS,
    MANIFEST,
    DeliveredFile,
    InventoryManifest,
    delivery_stamp,
    encode_manifest,
    verified_manifest,
)
from pydelta.tools.inventory.rows import write_csv, write_parquet

__all__ = [
    "Delivery",
    "DeliveryResult",
    "ListingOptions",
    "buckets_with_deliveries",
    "data_path",
    "find_deliveries",
    "read_manifest",
    "write_delivery",
]

_LOG = logging.getLogger(__name__)
_FOLDER: Final = re.compile(
    rf"^(?P<id>[^/]+)/(?P<stamp>\d{{4}}-\d\d-\d\dT\d\d-\d\dZ)/(?P<name>{re.escape(MANIFEST)}|{re.escape(CHECKSUM)})$"
)
_MINUTE_MS: Final = 60_000
_COLON: Final = "%3A"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingOptions:
    """The options of listing and writing a delivery.

    Args:
        file_format: ``Parquet`` or ``CSV``.
        workers: Number of parallel listings.
        rows_per_file: Rows per data file. This many are held in memory.
        keep: Keep this many of the newest complete deliveries and remove older ones of the same id. None keeps all.
    """

    file_format: str = "Parquet"
    workers: int = 16
    rows_per_file: int = 1_000_000
    keep: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A delivery that was found. It is ``complete`` if its checksum exists."""

    bucket: str
    id: str
    stamp: str
    complete: bool

    @property
    def folder(self) -> str:
        """Its folder, relative to the destination."""
        return f"{_folder_of(self.bucket)}/{self.id}/{self.stamp}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """The result of writing a delivery. Sizes are in bytes, ``created_ms`` in epoch milliseconds."""

    bucket: str
    manifest: str
    created_ms: int
    objects: int
    bytes: int
    files: int
    list_requests: int
    seconds: float
    removed: tuple[str, ...] = ()


def write_delivery(
    source: str,
    destination: str,
    *,
    inventory_id: str = "lakehouse",
    options: Mapping[str, str] | None = None,
    how: ListingOptions | None = None,
    now_ms: int | None = None,
) -> DeliveryResult:
    """List a bucket, a directory in it, or a file system, and write a delivery of what is there.

    Args:
        source: ``s3a://bucket``, ``s3a://bucket/prefix``, ``hdfs://host/dir``, a local path.
        destination: Location for deliveries, in another bucket so that they are not listed themselves.
        inventory_id: Name of this inventory. A bucket can have several.
        options: Storage options.
        how: See ``ListingOptions``.
        now_ms: The clock, epoch milliseconds.

    Raises:
        InvalidArgumentError: An invalid id or format.
        StorageError: Listing or writing failed. The delivery is not complete then, unless only the reply to writing the
            checksum was lost.
    """
    how = how or ListingOptions()
    if re.fullmatch(r"[A-Za-z0-9._-]{1,64}", inventory_id) is None or inventory_id.startswith("."):
        raise InvalidArgumentError(
            f"{inventory_id!r} is not a valid name of an inventory.", hint="Use letters, digits, '-', '_' and '.'."
        )
    if how.file_format not in FORMATS or how.rows_per_file < 1 or (how.keep is not None and how.keep < 1):
        raise InvalidArgumentError(
            f"A delivery cannot have format {how.file_format!r}, {how.rows_per_file} rows per file, {how.keep} kept.",
            hint=f"Use one of the formats {', '.join(FORMATS)}, and numbers of 1 or more.",
        )
    started = time.monotonic()
    created = epoch_ms() if now_ms is None else now_ms
    place = bucket_of(source)
    folder = f"{_folder_of(place.bucket)}/{inventory_id}"
    store, head = open_store(destination, options), _key_prefix(destination)
    keys = key_source(place, options)
    written: list[DeliveredFile] = []
    objects = size = 0
    try:
        for frame in _chunks(list_keys(keys, workers=how.workers), how.rows_per_file):
            objects += frame.height
            size += int(frame["size"].sum())
            written.append(_write(store, folder, head, place.bucket, frame, how.file_format))
        manifest = InventoryManifest.of(
            source_bucket=place.bucket,
            destination_bucket=bucket_of(destination).bucket,
            created_ms=created,
            file_format=how.file_format,
            files=tuple(written),
        )
        delivery = _announce(store, folder, manifest)
    except BaseException:
        _discard(store, [file.key.removeprefix(head) for file in written])
        raise
    # From here on the delivery may be complete, whatever the store replies, so its files stay.
    store.put(f"{delivery}/{CHECKSUM}", encode_manifest(manifest)[1])
    return DeliveryResult(
        bucket=place.bucket,
        manifest=f"{store.root}/{delivery}/{MANIFEST}",
        created_ms=created,
        objects=objects,
        bytes=size,
        files=len(written),
        list_requests=keys.requests,
        seconds=round(time.monotonic() - started, 3),
        removed=_remove_old(store, place.bucket, inventory_id, head, how.keep),
    )


def find_deliveries(store: Store, bucket: str, *, inventory_id: str | None = None) -> list[Delivery]:
    """Find the deliveries of a bucket, oldest first, skipping other folders (``data``, ``hive``).

    Args:
        store: Store of the destination.
        bucket: The bucket.
        inventory_id: Find only deliveries of this inventory.
    """
    found: dict[tuple[str, str], set[str]] = {}
    folder = _folder_of(bucket)
    for info in store.list_all(folder):
        match = _FOLDER.match(info.path.removeprefix(f"{folder}/"))
        if match is not None and inventory_id in (None, match["id"]):
            found.setdefault((match["stamp"], match["id"]), set()).add(match["name"])
    return [
        Delivery(bucket=bucket, id=name, stamp=stamp, complete=files == {MANIFEST, CHECKSUM})
        for (stamp, name), files in sorted(found.items())
    ]


def buckets_with_deliveries(store: Store) -> list[str]:
    """List the buckets that have a delivery, complete or not, sorted."""
    found = set()
    for info in store.list_all():
        folder, _, rest = info.path.partition("/")
        if _FOLDER.match(rest) is not None:
            found.add(folder.replace(_COLON, ":"))
    return sorted(found)


def _folder_of(bucket: str) -> str:
    """Return the folder name of a bucket. A NameNode's name has a port, but HDFS allows no colon in a path."""
    return bucket.replace(":", _COLON)


def read_manifest(store: Store, delivery: Delivery) -> InventoryManifest:
    """Read the manifest of a delivery, and check it against its checksum and the bucket.

    Raises:
        InvalidArgumentError: See ``verified_manifest``; or the manifest or checksum is missing.
    """
    source = f"{store.root}/{delivery.folder}/{MANIFEST}"
    try:
        data = store.read(f"{delivery.folder}/{MANIFEST}")
        checksum = store.read(f"{delivery.folder}/{CHECKSUM}")
    except ObjectNotFoundError as error:
        raise InvalidArgumentError(
            f"The delivery {store.root}/{delivery.folder} is not complete: {error.message}",
            hint="It may not be complete yet: load an earlier delivery (--delivery), or wait for the next.",
        ) from error
    return verified_manifest(data, checksum, source=source, bucket=delivery.bucket)


def data_path(store: Store, file: DeliveredFile, delivery: Delivery) -> str:
    """Return the path of a data file in the store. It must lie in the delivery's own folder.

    Raises:
        InvalidArgumentError: It lies outside of that folder.
    """
    head = _key_prefix(store.root)
    path = file.key.removeprefix(head)
    own = f"{_folder_of(delivery.bucket)}/{delivery.id}/"
    if not file.key.startswith(head) or not path.startswith(own):
        raise InvalidArgumentError(
            f"The delivery {store.root}/{delivery.folder} names {file.key!r}, which is not below {head}{own}.",
            hint="Give the location under which the deliveries were made: bucket and prefix as in the configuration.",
        )
    return path


def _key_prefix(destination: str) -> str:
    """Return the key prefix of all paths below a destination in its bucket; "" on a file system."""
    uri = normalize_uri(destination)
    if not kind_of(scheme_of(uri)).buckets:
        return ""
    key = bucket_of(uri).key
    return f"{key}/" if key else ""


class _Hashing:
    """A stream that counts and hashes the bytes written through it."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner
        self._hash = hashlib.md5(usedforsecurity=False)
        self.size = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Write bytes to the inner stream."""
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self.size += len(view)
        self._inner.write(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing, because nothing is buffered."""

    def close(self) -> None:
        """Do nothing, because the inner stream is closed where it was opened."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False

    def hexdigest(self) -> str:
        """Return the MD5 of all bytes."""
        return self._hash.hexdigest()


def _write(store: Store, folder: str, head: str, bucket: str, frame: pl.DataFrame, file_format: str) -> DeliveredFile:
    path = f"{folder}/data/{uuid.uuid4()}.{'parquet' if file_format == 'Parquet' else 'csv.gz'}"
    target = store.open_writer(path)
    stream = _Hashing(target)
    try:
        rows = frame.sort("key").with_columns(bucket=pl.lit(bucket))
        (write_parquet if file_format == "Parquet" else write_csv)(rows, cast(BinaryIO, stream))
        target.close()
    except BaseException:
        abort = getattr(target, "abort", None)
        if abort is not None:
            abort()
        raise
    return DeliveredFile(key=head + path, size=stream.size, md5=stream.hexdigest())


def _announce(store: Store, folder: str, manifest: InventoryManifest) -> str:
    """Write the manifest without its checksum. If this minute already has a delivery, the next free minute is used."""
    data, _ = encode_manifest(manifest)
    moment = manifest.created_ms
    while store.head(f"{folder}/{delivery_stamp(moment)}/{CHECKSUM}") is not None:
        moment += _MINUTE_MS
    path = f"{folder}/{delivery_stamp(moment)}"
    store.put(f"{path}/{MANIFEST}", data)
    return path


def _discard(store: Store, paths: Iterable[str]) -> None:
    """Delete files that nobody will read. A failure here must not hide the original error."""
    try:
        store.delete_many(paths)
    except OSError:
        _LOG.warning("files of a delivery that failed were left in %s", store.root)


def _remove_old(store: Store, bucket: str, inventory_id: str, head: str, keep: int | None) -> tuple[str, ...]:
    """Remove older deliveries: the checksum first, so that a partly removed one never looks complete."""
    if keep is None:
        return ()
    complete = [item for item in find_deliveries(store, bucket, inventory_id=inventory_id) if item.complete]
    for old in complete[:-keep]:
        files = [data_path(store, file, old) for file in read_manifest(store, old).files]
        store.delete_many([f"{old.folder}/{CHECKSUM}"])
        store.delete_many([f"{old.folder}/{MANIFEST}", *files])
    return tuple(item.stamp for item in complete[:-keep])


def _chunks(frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """Combine frames into larger ones of about this many rows."""
    held: list[pl.DataFrame] = []
    count = 0
    for frame in frames:
        held.append(frame)
        count += frame.height
        if count >= rows:
            yield pl.concat(held)
            held, count = [], 0
    if count:
        yield pl.concat(held)
