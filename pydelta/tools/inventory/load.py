"""Load deliveries into partitions of the inventory table, in one commit for all buckets.

::

    manifest + checksum --> data files, each checked against its MD5 --> rows --> bucket=…/part-*.parquet --+
    the buckets' old files --------------------------------------------------------------> removed -------+--> commit

A delivery that was already loaded, or is older than the loaded one, is skipped. ``txn`` actions record the progress of
each bucket.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.errors import InvalidArgumentError, ObjectNotFoundError, SchemaMismatchError
from pydelta.log import DeltaLog, Snapshot
from pydelta.predicate import Column, In
from pydelta.protocol.actions import AddFile, Metadata, SetTransaction, encode_json
from pydelta.protocol.features import required_protocol
from pydelta.protocol.partitions import partition_dir
from pydelta.protocol.paths import encode_log_path
from pydelta.protocol.stats import truncate_max, truncate_min
from pydelta.settings.clock import epoch_ms
from pydelta.storage import Store
from pydelta.storage.discarding import discard
from pydelta.tools.inventory.choice import ahead_error, is_ahead
from pydelta.tools.inventory.delivery import Delivery, data_path, read_manifest
from pydelta.tools.inventory.manifest import DeliveredFile, InventoryManifest
from pydelta.tools.inventory.rows import ROW_SCHEMA, Noncurrent, inventory_rows, raw_frames
from pydelta.tools.inventory.split import prefixes_in
from pydelta.txn import Operation, OptimisticTransaction, start_transaction

__all__ = ["LoadResult", "LoadedBucket", "load_deliveries", "loaded_until"]

_LOG = logging.getLogger(__name__)
_CHUNK: Final = 16 * 1024 * 1024
_FILE_ROWS: Final = 1_000_000
_BUCKET: Final = "bucket"
_TYPES: Final = {pl.String(): "string", pl.Int64(): "long", pl.Boolean(): "boolean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedBucket:
    """The result for a bucket's delivery. ``loaded`` is False if it was skipped, because the table is as new or newer.

    Args:
        bucket: The bucket.
        delivery: Its folder, relative to the location of the deliveries.
        created_ms: When the listing began, epoch milliseconds.
        rows: Rows in the table: latest versions that are not delete markers and not newer than the delivery.
        delivered: Rows in the delivery.
        noncurrent_objects, noncurrent_bytes: Noncurrent versions; None if the delivery does not list them.
        noncurrent_bytes_by_table: The same bytes per registered table that has any.
        delete_markers: Delete markers, current or not; None if the delivery does not list them.
    """

    bucket: str
    delivery: str
    created_ms: int
    loaded: bool
    rows: int = 0
    delivered: int = 0
    noncurrent_objects: int | None = None
    noncurrent_bytes: int | None = None
    noncurrent_bytes_by_table: Mapping[str, int] = field(default_factory=dict)
    delete_markers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The result of a load. ``version`` is None if nothing was new."""

    version: int | None
    buckets: tuple[LoadedBucket, ...]
    files_added: int = 0
    files_removed: int = 0


def loaded_until(snapshot: Snapshot, bucket: str) -> int | None:
    """Return when the loaded list of a bucket was made, in epoch milliseconds; None if none was loaded.

    If the bucket has several inventories, this is the time of the newest.
    """
    found = snapshot.set_transactions.get(_app_id(bucket))
    return None if found is None else found.version


def load_deliveries(
    log: DeltaLog,
    store: Store,
    deliveries: Sequence[Delivery],
    *,
    locations: Mapping[str, str] | None = None,
    force: bool = False,
    now_ms: int | None = None,
) -> LoadResult:
    """Replace the rows of the deliveries' buckets, leaving other buckets unchanged. Creates the table if needed.

    Args:
        log: The inventory table.
        store: Store of the deliveries.
        deliveries: At most one per inventory of a bucket. Those of one bucket are loaded together.
        locations: Name -> location of the registered tables, for the column ``table``.
        force: Also load deliveries that are not newer than the table's rows.
        now_ms: The clock, epoch milliseconds; None for now.

    Raises:
        InventoryUnusableError: A delivery is dated in the future.
        InvalidArgumentError: A delivery is damaged, of another bucket, or in an unsupported format. Nothing was
            changed.
        SchemaMismatchError: The table is not an inventory table.
        DeltaConcurrentModificationException: Another writer loaded the same bucket at the same time: run it again.
    """
    if len({(delivery.bucket, delivery.id) for delivery in deliveries}) < len(deliveries):
        raise InvalidArgumentError(
            "Two of the deliveries are of the same inventory of a bucket.", hint="Load one after the other."
        )
    clock = epoch_ms() if now_ms is None else now_ms
    txn = start_transaction(log)
    _check_table(txn)
    load = _Load(
        txn=txn, store=store, locations=locations or {}, force=force, clock_ms=clock, writer=_Writer(log.store)
    )
    try:
        with tempfile.TemporaryDirectory(prefix="inventory-") as folder:
            for bucket, parts in _by_bucket(deliveries).items():
                load.take(bucket, parts, Path(folder))
        return load.commit()
    except BaseException:
        if txn.surely_not_landed:
            load.writer.discard()
        raise


def _by_bucket(deliveries: Sequence[Delivery]) -> dict[str, list[Delivery]]:
    found: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        found.setdefault(delivery.bucket, []).append(delivery)
    return found


@dataclass(slots=True, kw_only=True)
class _Load:
    """A load in progress."""

    txn: OptimisticTransaction
    store: Store
    locations: Mapping[str, str]
    force: bool
    clock_ms: int
    writer: _Writer
    buckets: list[LoadedBucket] = field(default_factory=list)
    marks: list[SetTransaction] = field(default_factory=list)

    def take(self, bucket: str, parts: Sequence[Delivery], folder: Path) -> None:
        """Read the deliveries of a bucket into files of the table, if they are new."""
        manifests = [read_manifest(self.store, delivery) for delivery in parts]
        for delivery, manifest in zip(parts, manifests, strict=True):
            if is_ahead(manifest.created_ms, self.clock_ms):
                raise ahead_error(f"{self.store.root}/{delivery.folder}")
        marks = _marks(bucket, parts, manifests)
        is_known = all(_is_loaded(self.txn, mark, version, self.clock_ms) for mark, version in marks.items())
        for delivery, manifest in zip(parts, manifests, strict=True):
            if is_known and not self.force:
                found = LoadedBucket(
                    bucket=bucket, delivery=delivery.folder, created_ms=manifest.created_ms, loaded=False
                )
            else:
                found = _load(self.store, delivery, manifest, self.locations, self.writer, folder)
            self.buckets.append(found)
        if self.force or not is_known:
            self.marks += [
                SetTransaction(app_id=mark, version=version, last_updated=epoch_ms()) for mark, version in marks.items()
            ]

    def commit(self) -> LoadResult:
        """Commit the new files in place of the buckets' old ones. Commits nothing if nothing was new."""
        txn, adds = self.txn, self.writer.adds
        if not self.marks:
            return LoadResult(version=None, buckets=tuple(self.buckets))
        loaded = list(dict.fromkeys(item.bucket for item in self.buckets if item.loaded))
        condition = In(Column((_BUCKET,)), tuple(loaded))
        old = txn.snapshot.files.adds(txn.read_files((condition,))) if txn.table_exists else []
        now = epoch_ms()
        operation = Operation(
            name="WRITE",
            parameters={"mode": "Overwrite", "partitionOverwriteMode": "dynamic", "partitionBy": [_BUCKET]},
            metrics={
                "numFiles": len(adds),
                "numOutputRows": sum(item.rows for item in self.buckets),
                "numOutputBytes": sum(add.size for add in adds),
                "numRemovedFiles": len(old),
            },
        )
        removed = [add.remove(deletion_timestamp=now) for add in old]
        committed = txn.commit([*self.marks, *removed, *adds], operation)
        return LoadResult(
            version=committed.version, buckets=tuple(self.buckets), files_added=len(adds), files_removed=len(old)
        )


def _app_id(bucket: str) -> str:
    return f"inventory:{bucket}"


def _marks(bucket: str, deliveries: Sequence[Delivery], manifests: Sequence[InventoryManifest]) -> dict[str, int]:
    """Return the progress of a bucket by application id: the time of its newest list, and a sum for several lists.

    The sum is needed because one of several lists may be newer than its predecessor but older than another list.
    """
    made = [manifest.created_ms for manifest in manifests]
    marks = {_app_id(bucket): max(made)}
    if len(made) > 1:
        marks[f"{_app_id(bucket)} {' '.join(sorted(item.id for item in deliveries))}"] = sum(made)
    return marks


def _is_loaded(txn: OptimisticTransaction, mark: str, version: int, now_ms: int) -> bool:
    """Return whether the table already has a list as new as this. A recorded time in the future does not count."""
    before = txn.txn_version(mark)
    if before is None:
        return False
    # A mark of several inventories holds a sum, so compare its mean.
    return before >= version and not is_ahead(before // max(1, mark.count(" ")), now_ms)


def _check_table(txn: OptimisticTransaction) -> None:
    """Refuse a table that is not an inventory table. Define the table if there is none."""
    if txn.table_exists:
        snapshot = txn.snapshot
        have = {field.name: str(field.data_type) for field in snapshot.schema.fields}
        wanted = {name: _type_name(kind) for name, kind in ROW_SCHEMA.items()}
        wrong = [f"{name} {kind} (is {have.get(name, 'missing')})" for name, kind in wanted.items()
                 if have.get(name) != kind]  # fmt: skip
        if wrong or tuple(snapshot.partition_columns) != (_BUCKET,) or len(have) != len(wanted):
            extra = ", ".join(sorted(set(have) - set(wanted)))
            what = ", ".join(wrong) or (f"it also has {extra}" if extra else "it is not partitioned by bucket")
            raise SchemaMismatchError(
                f"{snapshot.table_uri} is not an inventory table: {what}.",
                hint="Name another table (--table); the job creates it with the columns that it needs.",
            )
        return
    fields = [{"name": name, "type": _type_name(kind), "nullable": True, "metadata": {}}
              for name, kind in ROW_SCHEMA.items()]  # fmt: skip
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=encode_json({"type": "struct", "fields": fields}),
        description="Objects by bucket, as S3 Inventory delivered them",
        partition_columns=(_BUCKET,),
        configuration=dict(txn.log.settings.default_properties),
        created_time=epoch_ms(),
    )
    txn.update_metadata(metadata)
    txn.update_protocol(required_protocol(metadata))


def _type_name(kind: pl.DataType) -> str:
    return _TYPES.get(kind, "timestamp")


def _load(
    store: Store,
    delivery: Delivery,
    manifest: InventoryManifest,
    locations: Mapping[str, str],
    writer: _Writer,
    folder: Path,
) -> LoadedBucket:
    prefixes = prefixes_in(locations, delivery.bucket)
    delivered = rows = 0
    others = Noncurrent()
    for file in manifest.files:
        source = f"{store.root}/{data_path(store, file, delivery)}"
        target = folder / "delivered"
        _fetch(store, file, data_path(store, file, delivery), target)
        for frame in raw_frames(target, manifest, source=source):
            delivered += frame.height
            others.add(frame, prefixes)
            found = inventory_rows(frame, manifest, prefixes, source=source)
            rows += found.height
            writer.write(delivery.bucket, found)
        target.unlink()
    writer.finish()
    return LoadedBucket(
        bucket=delivery.bucket,
        delivery=delivery.folder,
        created_ms=manifest.created_ms,
        loaded=True,
        rows=rows,
        delivered=delivered,
        noncurrent_objects=others.objects if others.is_told else None,
        noncurrent_bytes=others.bytes if others.is_told else None,
        noncurrent_bytes_by_table=others.by_table,
        delete_markers=others.markers if others.is_told else None,
    )


def _fetch(store: Store, file: DeliveredFile, path: str, target: Path) -> None:
    """Download a data file to local disk in pieces, and check it against the manifest."""
    hashed = hashlib.md5(usedforsecurity=False)
    size = 0
    try:
        with target.open("wb") as sink:
            while chunk := store.read_range(path, size, _CHUNK):
                hashed.update(chunk)
                sink.write(chunk)
                size += len(chunk)
    except ObjectNotFoundError as error:
        raise InvalidArgumentError(
            f"The manifest names {store.root}/{path}, which does not exist.",
            hint="The delivery was cleaned up or not finished: load another (--delivery), or wait for the next.",
        ) from error
    if hashed.hexdigest() != file.md5:
        raise InvalidArgumentError(
            f"{store.root}/{path} does not match its checksum: the manifest says {file.md5}, but it has "
            f"{hashed.hexdigest()} ({size} bytes; {file.size} expected).",
            hint="The file is damaged or not complete: load another delivery (--delivery), or wait for the next.",
        )


def _arrow_schema() -> pa.Schema:
    types = {pl.String(): pa.string(), pl.Int64(): pa.int64(), pl.Boolean(): pa.bool_()}
    return pa.schema(
        [(name, types.get(kind, pa.timestamp("us", "UTC"))) for name, kind in ROW_SCHEMA.items() if name != _BUCKET]
    )


@dataclass(slots=True)
class _Writer:
    """Writes rows, bucket by bucket, into data files with statistics. Each frame becomes a row group."""

    store: Store
    adds: list[AddFile] = field(default_factory=list)
    _written: list[str] = field(default_factory=list)
    _path: str = ""
    _bucket: str = ""
    _target: Any = None
    _file: pq.ParquetWriter | None = None
    _bounds: list[pl.DataFrame] = field(default_factory=list)
    _rows: int = 0

    def write(self, bucket: str, frame: pl.DataFrame) -> None:
        """Add rows of a bucket."""
        if not frame.height:
            return
        if self._file is None:
            name = f"part-{len(self.adds):05}-{uuid.uuid4()}.c000.snappy.parquet"
            self._path, self._bucket = f"{partition_dir({_BUCKET: bucket})}/{name}", bucket
            self._target = self.store.open_writer(self._path)
            self._file = pq.ParquetWriter(self._target, _arrow_schema(), compression="snappy")
        arrow = frame.drop(_BUCKET).to_arrow().cast(_arrow_schema())
        self._file.write_table(arrow)
        self._bounds.append(_bounds(frame))
        self._rows += frame.height
        if self._rows >= _FILE_ROWS:
            self.finish()

    def finish(self) -> None:
        """Close the open file."""
        if self._file is None:
            return
        self._file.close()
        self._written.append(self._path)
        self._target.close()
        self._file = None
        info = self.store.head(self._path)
        assert info is not None
        self.adds.append(
            AddFile(
                path=encode_log_path(self._path),
                partition_values={_BUCKET: self._bucket},
                size=info.size,
                modification_time=info.modification_time_ms,
                data_change=True,
                stats=_stats(pl.concat(self._bounds), self._rows),
            )
        )
        self._bounds, self._rows = [], 0

    def discard(self) -> None:
        """Delete what was written. No version names it."""
        if self._file is not None:
            abort = getattr(self._target, "abort", None)
            if abort is not None:
                abort()
        try:
            discard(self.store, self._written)
        except OSError:
            _LOG.warning("%d files that no version names were left in %s", len(self._written), self.store.root)


_INDEXED: Final = tuple(name for name, kind in ROW_SCHEMA.items() if name != _BUCKET and kind != pl.Boolean())


def _bounds(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        *(pl.col(name).min().alias(f"min.{name}") for name in _INDEXED),
        *(pl.col(name).max().alias(f"max.{name}") for name in _INDEXED),
        *(pl.col(name).null_count().cast(pl.Int64).alias(f"null.{name}") for name in ROW_SCHEMA if name != _BUCKET),
    )


def _stats(bounds: pl.DataFrame, rows: int) -> str:
    """Combine the statistics of row groups into the statistics JSON of a file."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for name in _INDEXED:
        least, most = bounds[f"min.{name}"].min(), bounds[f"max.{name}"].max()
        if isinstance(least, str) and isinstance(most, str):
            least, most = truncate_min(least), truncate_max(most)
        elif name == "inventory_date":
            least, most = (_iso(value) for value in (least, most))
        if least is not None:
            low[name] = least
        if most is not None:
            high[name] = most
    nulls = {name: int(bounds[f"null.{name}"].sum()) for name in ROW_SCHEMA if name != _BUCKET}
    return encode_json({"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _iso(value: Any) -> str | None:
    """Format a time. Creation times have whole milliseconds, so neither bound loses precision."""
    return None if value is None else value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
