"""Build the rows of a snapshot's checkpoint in batches: file actions as the protocol's Arrow structs.

Old checkpoint rows are copied column by column. Only later commits pass through Python objects.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.errors import LogCorruptedError
from pydelta.log.checkpoint.parquet_rows import struct_fields
from pydelta.log.checkpoint.read import PART_BITS, Checkpoint
from pydelta.log.checkpoint.stats_struct import StatsShape, partition_struct, stats_shape
from pydelta.log.checkpoint.stats_text import struct_stats_to_json
from pydelta.log.columns import PV_PREFIX, adds_from_frame, partition_series
from pydelta.log.deltas import DELTA_BIT
from pydelta.log.runs import RUN_LENGTH, RemoveRun, read_removes
from pydelta.log.snapshot import Snapshot
from pydelta.protocol.actions import AddFile, RemoveFile
from pydelta.protocol.partitions import typed_frame
from pydelta.protocol.types import StructType

__all__ = ["STATE_TYPES", "FileRows"]

BATCH_ROWS: Final = 50_000
_TEXTS: Final = pa.map_(pa.string(), pa.string())
_VECTOR: Final = pa.struct(
    [
        ("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()), ("cardinality", pa.int64()),
    ]
)  # fmt: skip
_ADD_FIELDS: Final[dict[str, pa.DataType]] = {
    "path": pa.string(), "partitionValues": _TEXTS, "size": pa.int64(), "modificationTime": pa.int64(),
    "dataChange": pa.bool_(), "tags": _TEXTS, "deletionVector": _VECTOR, "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(), "clusteringProvider": pa.string(),
}  # fmt: skip
_REMOVE_FIELDS: Final[dict[str, pa.DataType]] = {
    "path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_(),
    "extendedFileMetadata": pa.bool_(), "partitionValues": _TEXTS, "size": pa.int64(), "deletionVector": _VECTOR,
    "baseRowId": pa.int64(), "defaultRowCommitVersion": pa.int64(),
}  # fmt: skip
STATE_TYPES: Final[dict[str, pa.DataType]] = {
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "metaData": pa.struct(
        [
            ("id", pa.string()), ("name", pa.string()), ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
            ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string())),
            ("configuration", _TEXTS), ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()),
            ("readerFeatures", pa.list_(pa.string())), ("writerFeatures", pa.list_(pa.string())),
        ]
    ),
    "domainMetadata": pa.struct(
        [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
    ),
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", _TEXTS)]),
    "sidecar": pa.struct(
        [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64()), ("tags", _TEXTS)]
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FileRows:
    """The file actions of a checkpoint.

    Args:
        snapshot: The snapshot to write.
        expired_before_ms: Tombstones removed at or before this time are omitted.
        without: Parts of the underlying checkpoint whose rows are omitted.
    """

    snapshot: Snapshot
    expired_before_ms: int
    without: frozenset[int] = frozenset()

    @functools.cached_property
    def _shape(self) -> StatsShape | None:
        """The shape of ``stats_parsed``. None (text only) if it is off or a partition value does not fit its type."""
        if not self.snapshot.properties.checkpoint_write_stats_as_struct:
            return None
        files = self.snapshot.files
        try:
            distinct = files.partition_texts()
            if distinct.width:
                files.partition_frame(distinct)
        except LogCorruptedError:
            return None
        return stats_shape(self.snapshot)

    def types(self) -> dict[str, pa.DataType]:
        """Return the Arrow types of the columns ``add`` and ``remove``."""
        return {"add": pa.struct(list(self._add_types().items())), "remove": pa.struct(list(_REMOVE_FIELDS.items()))}

    def _add_types(self) -> dict[str, pa.DataType]:
        types = dict(_ADD_FIELDS)
        shape = self._shape
        properties = self.snapshot.properties
        if properties.checkpoint_write_stats_as_json or (shape is None and properties.checkpoint_write_stats_as_struct):
            types["stats"] = pa.string()
        if shape is not None:
            types["stats_parsed"] = shape.arrow_type()
            if self.snapshot.partition_columns:
                typed = pl.DataFrame(schema=dict.fromkeys(self.snapshot.partition_columns, pl.String))
                types["partitionValues_parsed"] = self._parsed_partitions(typed).type
        return types

    def adds(self) -> Iterator[Any]:
        """Yield struct arrays of the column ``add``, in the order of the file table's parts."""
        files = self.snapshot.files
        in_parts = files.in_parts
        base, _ = files.layers()
        alive = None if in_parts else self._to_write(files.core["row"].to_numpy(), base)
        shape, types = self._shape, self._add_types()
        for number, part in enumerate(base.parts if base else ()):
            if number in self.without:
                continue
            assert base is not None, "it has the part"
            live = files.live_rows(number) if alive is None else base.rows_of(number, alive)
            wanted = ["stats", "stats_parsed", *_ADD_FIELDS]
            for at, structs in part.structs("add", [name for name in wanted if part.has("add", name)]):
                kept = np.ones(len(at), dtype=bool) if live is None else np.isin(at, live, assume_unique=True)
                if kept.any():
                    chosen = structs if kept.all() else structs.filter(pa.array(kept))
                    yield self._add_structs(struct_fields(chosen), len(chosen), shape, types)
        rows_of_commits = files.recent(files.new_rows())
        plain = rows_of_commits.filter(pl.col("rest").is_null())
        for start in range(0, plain.height, BATCH_ROWS):
            slice_ = plain.slice(start, BATCH_ROWS)
            yield self._add_structs(_plain_columns(slice_, files.spec.physical_names), slice_.height, shape, types)
        others = rows_of_commits.filter(pl.col("rest").is_not_null())
        for start in range(0, others.height, BATCH_ROWS):
            batch = adds_from_frame(others.slice(start, BATCH_ROWS), files.spec.physical_names)
            fields = _columns([_add_row(add) for add in batch], _ADD_FIELDS | {"stats": pa.string()})
            yield self._add_structs(fields, len(batch), shape, types)

    def _to_write(self, rows: npt.NDArray[np.uint64], base: Checkpoint | None) -> npt.NDArray[np.uint64]:
        """Return rows of the underlying checkpoint, ascending, without the omitted parts."""
        if not bool((rows[:-1] <= rows[1:]).all()):
            rows = np.sort(rows)
        written = [number for number in range(len(base.parts) if base else 0) if number not in self.without]
        bounds = np.searchsorted(
            rows, [np.uint64(number << PART_BITS) for part in written for number in (part, part + 1)]
        )
        pieces = [rows[low:high] for low, high in zip(bounds[::2], bounds[1::2], strict=True)]
        return np.concatenate(pieces) if pieces else rows[:0]

    def _add_structs(
        self, fields: dict[str, Any], length: int, shape: StatsShape | None, types: dict[str, pa.DataType]
    ) -> Any:
        arrays = {name: _conform(fields.get(name), kind, length) for name, kind in _ADD_FIELDS.items()}
        arrays["dataChange"] = pa.repeat(pa.scalar(False), length)
        parsed = fields.get("stats_parsed")
        text = _texts(fields.get("stats"), parsed, length)
        if "stats" in types:
            arrays["stats"] = text.to_arrow().cast(pa.string())
        if shape is not None:
            usable = parsed is not None and parsed.null_count == 0 and parsed.type.equals(shape.arrow_type())
            arrays["stats_parsed"] = parsed if usable else shape.parse(text)
        if "partitionValues_parsed" in types:
            names = self.snapshot.files.spec.physical_names
            columns = partition_series(arrays["partitionValues"], names)
            logical = self.snapshot.partition_columns
            frame = pl.DataFrame([column.alias(name) for column, name in zip(columns, logical, strict=True)])
            arrays["partitionValues_parsed"] = self._parsed_partitions(frame)
        return pa.StructArray.from_arrays(
            [arrays[name] for name in types], fields=[pa.field(name, kind) for name, kind in types.items()]
        )

    def _parsed_partitions(self, texts: pl.DataFrame) -> Any:
        spec = self.snapshot.files.spec
        schema: StructType = spec.partition_schema()
        return partition_struct(typed_frame(texts, schema), spec.physical_names, schema)

    def removes(self) -> Iterator[Any]:
        """Yield structs of the column ``remove``: unexpired tombstones, without statistics and tags."""
        files = self.snapshot.files
        kept = self.snapshot.tombstones().filter(pl.col("deletion_timestamp") > self.expired_before_ms)
        base, _ = files.layers()
        alive = self._to_write(kept["row"].to_numpy(), base)
        for number, part in enumerate(base.parts if base else ()):
            removed = base.rows_of(number, alive) if base else alive
            if not len(removed) or number in self.without:
                continue
            for at, structs in part.structs("remove", [name for name in _REMOVE_FIELDS if part.has("remove", name)]):
                chosen = structs.filter(pa.array(np.isin(at, removed, assume_unique=True)))
                if len(chosen):
                    yield _remove_structs(struct_fields(chosen), len(chosen))
        recent = kept.filter((pl.col("row") & DELTA_BIT) != 0)
        for start in range(0, recent.height, BATCH_ROWS):
            batch_rows = recent.slice(start, BATCH_ROWS)
            runs = read_removes(files.remove_texts(batch_rows)) if len(batch_rows) >= RUN_LENGTH else None
            for run in runs or ():
                yield _remove_structs(_remove_columns(run), len(run))
            if runs is not None:
                continue
            batch = files.remove_actions(batch_rows)
            yield _remove_structs(_columns([_remove_row(remove) for remove in batch], _REMOVE_FIELDS), len(batch))


def _plain_columns(frame: pl.DataFrame, partition_names: Sequence[str]) -> dict[str, Any]:
    """Convert files without further fields to Arrow columns of their adds."""
    length, width = frame.height, len(partition_names)
    offsets = pa.array(np.arange(length + 1, dtype=np.int32) * width)
    keys = pa.array(list(partition_names) * length, type=pa.string())
    if width:
        by_column = pl.concat([frame[PV_PREFIX + name].alias("value") for name in partition_names])
        values = by_column[np.arange(length * width).reshape(width, length).T.ravel()].to_arrow().cast(pa.string())
    else:
        values = pa.array([], type=pa.string())
    return {
        "path": frame["path"].to_arrow().cast(pa.string()),
        "partitionValues": pa.MapArray.from_arrays(offsets, keys, values),
        "size": frame["size"].to_arrow(),
        "modificationTime": frame["modification_time"].to_arrow(),
        "stats": frame["stats"].to_arrow(),
    }


def _remove_columns(run: RemoveRun) -> dict[str, Any]:
    """Convert the tombstones of a run to Arrow columns of their removes."""
    columns = _plain_columns(run.frame.with_columns(modification_time=pl.lit(0, dtype=pl.Int64)), run.names)
    return {
        "path": columns["path"],
        "deletionTimestamp": run.frame["deletion_timestamp"].to_arrow(),
        "extendedFileMetadata": pa.repeat(pa.scalar(True), len(run)),
        "partitionValues": columns["partitionValues"],
        "size": columns["size"],
    }


def _add_row(add: AddFile) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(add)
    return body


def _remove_row(remove: RemoveFile) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(remove)
    return body


def _columns(rows: Sequence[dict[str, Any]], types: dict[str, pa.DataType]) -> dict[str, Any]:
    """Convert decoded actions to Arrow columns."""
    return {
        name: pa.array([_for_arrow(row.get(name), kind) for row in rows], type=kind) for name, kind in types.items()
    }


def _for_arrow(value: Any, kind: pa.DataType) -> Any:
    return list(value.items()) if isinstance(value, dict) and pa.types.is_map(kind) else value


def _remove_structs(fields: dict[str, Any], length: int) -> Any:
    arrays = {name: _conform(fields.get(name), kind, length) for name, kind in _REMOVE_FIELDS.items()}
    arrays["dataChange"] = pa.repeat(pa.scalar(False), length)
    return pa.StructArray.from_arrays(
        list(arrays.values()), fields=[pa.field(name, kind) for name, kind in _REMOVE_FIELDS.items()]
    )


def _texts(stats: Any | None, parsed: Any | None, length: int) -> pl.Series:
    """Return ``stats`` as text, rendered from ``stats_parsed`` where only that exists."""
    text = pl.repeat(None, length, dtype=pl.String, eager=True)
    if stats is not None:
        series = pl.from_arrow(stats)
        assert isinstance(series, pl.Series)
        text = series.cast(pl.String)
    if parsed is not None and text.null_count():
        absent = text.is_null()
        made = struct_stats_to_json(parsed)
        text = pl.select(pl.when(absent).then(made).otherwise(text)).to_series()
    return text.alias("stats")


def _conform(array: Any | None, kind: pa.DataType, length: int) -> Any:
    """Convert an array to the type in our checkpoints. A field that the old one lacks is null."""
    if array is None:
        return pa.nulls(length, kind)
    if array.type.equals(kind):
        return array
    if pa.types.is_map(kind):
        return _conform_map(array, length)
    if pa.types.is_struct(kind):
        fields = struct_fields(array)
        children = [_conform(fields.get(child.name), child.type, length) for child in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=pc.is_null(array))
    return array.cast(kind)


def _conform_map(array: Any, length: int) -> Any:
    compact = array.take(pa.array(np.arange(length, dtype=np.int64)))
    if pa.types.is_map(compact.type):
        keys, items = compact.keys, compact.items
    else:
        keys, items = compact.values.field(0), compact.values.field(1)
    return pa.MapArray.from_arrays(
        compact.offsets, keys.cast(pa.string()), items.cast(pa.string()), mask=pc.is_null(compact)
    )
