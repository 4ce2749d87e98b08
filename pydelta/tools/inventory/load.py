"""Load deliveries into partitions of the inventory table, in one commit for all the buckets, or none.

::

    manifest + checksum --> data files, each compared with its MD5 --> rows --> bucket=…/part-*.parquet --+
    the buckets' old files --------------------------------------------------------------> removed -------+--> commit

A delivery that was loaded before, or is older than what was, is passed over: ``txn`` actions say how far each bucket
is.
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
    """What became of a bucket's delivery. ``loaded`` is False for one that was there already, or newer than that.

    Args:
        bucket: Which.
        delivery: Its folder, from the location of the deliveries.
        created_ms: When the listing began, epoch milliseconds.
        rows: Rows in the table; latest versions, no delete markers, nothing newer than the delivery.
        delivered: Rows of the delivery.
        noncurrent_objects, noncurrent_bytes: Versions that are no longer current; None where it does not tell them.
        noncurrent_bytes_by_table: The same bytes for each registered table that has some.
        delete_markers: Current or not; None likewise.
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
    """What a load did. ``version`` is None when nothing was new."""

    version: int | None
    buckets: tuple[LoadedBucket, ...]
    files_added: int = 0
    files_removed: int = 0


def loaded_until(snapshot: Snapshot, bucket: str) -> int | None:
    """Tell when the bucket's list in the table was made, in epoch milliseconds; None if none was loaded.

    Of several inventories of the bucket, the newest.
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
    """Replace the rows of the deliveries' buckets; other buckets' rows stay. The table is made where there is none.

    Args:
        log: The inventory table.
        store: Where the deliveries are.
        deliveries: At most one for an inventory of a bucket; those of one bucket are loaded together.
        locations: Name -> location of the registered tables, for the column ``table``.
        force: Load what is no newer than the table's rows, too.
        now_ms: The clock, epoch milliseconds; None for now.

    Raises:
        InventoryUnusableError: A delivery is dated in the future.
        InvalidArgumentError: A delivery that is damaged, of another bucket, or in a format that is not read; nothing
            was changed then.
        SchemaMismatchError: The table is another one.
        DeltaConcurrentModificationException: Somebody else loaded the same bucket meanwhile: run it again.
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
    """One load under way."""

    txn: OptimisticTransaction
    store: Store
    locations: Mapping[str, str]
    force: bool
    clock_ms: int
    writer: _Writer
    buckets: list[LoadedBucket] = field(default_factory=list)
    marks: list[SetTransaction] = field(default_factory=list)

    def take(self, bucket: str, parts: Sequence[Delivery], folder: Path) -> None:
        """Read the deliveries of a bucket into files of the table, where they are new."""
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
        """Put the new files in the place of the buckets' old ones; nothing, where nothing was new."""
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
    """How far a bucket is, by application id: when its newest list was made, and of several all of them together.

    A sum, since one of them may be newer than its own last list and older than another's.
    """
    made = [manifest.created_ms for manifest in manifests]
    marks = {_app_id(bucket): max(made)}
    if len(made) > 1:
        marks[f"{_app_id(bucket)} {' '.join(sorted(item.id for item in deliveries))}"] = sum(made)
    return marks


def _is_loaded(txn: OptimisticTransaction, mark: str, version: int, now_ms: int) -> bool:
    """Whether the table is as far; what it says of a time to come is an error of the past."""
    before = txn.txn_version(mark)
    if before is None:
        return False
    return before >= version and not is_ahead(before // max(1, mark.count(" ")), now_ms)  # the mean of several


def _check_table(txn: OptimisticTransaction) -> None:
    """Refuse a table that is not an inventory; define one where there is none."""
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
                hint="Name another table (--table); it is made with the columns that it needs.",
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
    """A data file to local disk, piece by piece, compared with what the manifest says of it."""
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
            f"The manifest names {store.root}/{path}, which is not there.",
            hint="The delivery was cleaned up or not finished: load another (--delivery), or wait for the next.",
        ) from error
    if hashed.hexdigest() != file.md5:
        raise InvalidArgumentError(
            f"{store.root}/{path} does not match its checksum: the manifest says {file.md5}, and it has "
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
    """Rows of one bucket after the other into data files with statistics; a row group a frame."""

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
        """Some more rows of a bucket."""
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
        """Close the file that is open."""
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
        """Drop what was written; no version names it."""
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
    """The statistics JSON of a file, from those of its row groups."""
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
    """Creation times have whole milliseconds, so that neither bound is cut."""
    return None if value is None else value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
