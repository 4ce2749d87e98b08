"""Convert ``add`` and ``remove`` structs or actions to Polars columns of the file table.

Core columns: ``path`` (as in the log), ``dv_id``, ``size`` (bytes), ``modification_time`` (epoch ms),
``pv:<physical name>`` (serialized partition value, with empty as null) and ``row`` (opaque locator).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.log.checkpoint.parquet_rows import struct_fields
from pydelta.protocol.actions import AddFile, RemoveFile
from pydelta.protocol.paths import decode_log_path, is_absolute_path

__all__ = [
    "ADD_FIELDS",
    "PV_PREFIX",
    "REMOVE_FIELDS",
    "add_frame",
    "adds_from_frame",
    "adds_to_frame",
    "canonical_path",
    "core_schema",
    "file_key",
    "keys_of",
    "remove_frame",
    "removes_from_frame",
    "removes_to_frame",
    "spellings",
]

PV_PREFIX: Final = "pv:"
ADD_FIELDS: Final = (
    "path", "partitionValues", "size", "modificationTime",
    "deletionVector.storageType", "deletionVector.pathOrInlineDv", "deletionVector.offset",
)  # fmt: skip
REMOVE_FIELDS: Final = (
    "path", "size", "deletionTimestamp",
    "deletionVector.storageType", "deletionVector.pathOrInlineDv", "deletionVector.offset",
)  # fmt: skip
KEY_SEPARATOR: Final = "\x00"


def core_schema(partition_names: Sequence[str]) -> dict[str, pl.DataType]:
    """Return columns and types of a core frame for the given physical partition column names."""
    schema: dict[str, pl.DataType] = {
        "path": pl.String(), "dv_id": pl.String(), "size": pl.Int64(), "modification_time": pl.Int64(),
    }  # fmt: skip
    schema |= {PV_PREFIX + name: pl.String() for name in partition_names}
    schema["row"] = pl.UInt64()
    return schema


def _text(array: Any) -> pl.Series:
    series = pl.from_arrow(array)
    assert isinstance(series, pl.Series)
    return series if series.dtype == pl.String else series.cast(pl.String)


def _integers(array: Any) -> pl.Series:
    series = pl.from_arrow(array)
    assert isinstance(series, pl.Series)
    return series.cast(pl.Int64)


def _vector_ids(fields: dict[str, Any], length: int) -> pl.Series:
    vector = fields.get("deletionVector")
    if vector is None or vector.null_count == length:
        return pl.Series("dv_id", [None], dtype=pl.String).new_from_index(0, length)
    parts = struct_fields(vector)
    frame = pl.DataFrame({"type": _text(parts["storageType"]), "body": _text(parts["pathOrInlineDv"])})
    offset = _integers(parts["offset"]) if "offset" in parts else pl.Series([None] * length, dtype=pl.Int64)
    base = pl.col("type") + pl.col("body")
    return frame.with_columns(offset=offset).select(
        dv_id=pl.when(pl.col("offset").is_null()).then(base).otherwise(base + "@" + pl.col("offset").cast(pl.String))
    )["dv_id"]


def map_values(entries: Any, names: Sequence[str]) -> list[Any]:
    """Look up some keys in an Arrow map<string, string> array. Each gives an Arrow array of values, null if absent."""
    length = len(entries)
    if not names or length == 0:
        return [pa.nulls(length, pa.string()) for _ in names]
    if pa.types.is_map(entries.type):
        keys, items = entries.keys, entries.items
    else:  # Some writers omit the MAP annotation.
        keys, items = entries.values.field(0), entries.values.field(1)
    offsets = np.asarray(entries.offsets).astype(np.int64)
    counts = np.diff(offsets)
    if entries.null_count:
        counts = np.where(np.asarray(entries.is_valid()), counts, 0)
    width = int(counts[0])
    result = []
    regular = bool((counts == width).all()) and width > 0
    flat_keys = keys.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    flat_items = items.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    for name in names:
        if regular:
            found = _regular_positions(flat_keys, name, length, width)
            if found is not None:
                result.append(flat_items.take(found))
                continue
        result.append(_scattered(flat_keys, flat_items, name, offsets, length))
    return result


def _regular_positions(keys: Any, name: str, length: int, width: int) -> Any | None:
    """Return the positions of the values of ``name`` if all rows have their keys in the same order, else None."""
    for slot in range(width):
        positions = pa.array(np.arange(length, dtype=np.int64) * width + slot)
        if keys[slot].as_py() == name:
            return positions if pc.all(pc.equal(keys.take(positions), name)).as_py() else None
    return None


def _scattered(keys: Any, items: Any, name: str, offsets: npt.NDArray[np.int64], length: int) -> Any:
    hits = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(keys, name), False)))
    positions = np.full(length, -1, dtype=np.int64)
    positions[np.searchsorted(offsets - offsets[0], hits, side="right") - 1] = hits
    return items.take(pa.array(positions, mask=positions < 0))


def partition_series(entries: Any, names: Sequence[str]) -> list[pl.Series]:
    """Build ``pv:`` columns from an Arrow map array. Empty strings become null ("Partition Value Serialization")."""
    columns = []
    for name, values in zip(names, map_values(entries, names), strict=True):
        series = _text(values).alias(PV_PREFIX + name)
        columns.append(series.set(series == "", None) if bool((series == "").any()) else series)
    return columns


def add_frame(structs: Any, rows: npt.NDArray[np.uint64], partition_names: Sequence[str]) -> pl.DataFrame:
    """Build core columns from Arrow ``add`` structs (fields ``ADD_FIELDS``) and their locators."""
    fields = struct_fields(structs)
    length = len(structs)
    columns = [
        _text(fields["path"]).alias("path"),
        _vector_ids(fields, length).alias("dv_id"),
        _integers(fields["size"]).alias("size"),
        _integers(fields["modificationTime"]).alias("modification_time"),
    ]
    if partition_names:
        columns += partition_series(fields["partitionValues"], partition_names)
    return pl.DataFrame([*columns, pl.Series("row", rows, dtype=pl.UInt64)])


TOMBSTONE_SCHEMA: Final[dict[str, pl.DataType]] = {
    "path": pl.String(), "dv_id": pl.String(), "deletion_timestamp": pl.Int64(), "size": pl.Int64(),
    "row": pl.UInt64(),
}  # fmt: skip


def remove_frame(structs: Any, rows: npt.NDArray[np.uint64]) -> pl.DataFrame:
    """Build tombstone columns from Arrow ``remove`` structs (fields ``REMOVE_FIELDS``) and their locators."""
    fields = struct_fields(structs)
    length = len(structs)

    def integers(name: str) -> pl.Series:
        return _integers(fields[name]) if name in fields else pl.Series(name, [None] * length, dtype=pl.Int64)

    return pl.DataFrame(
        [
            _text(fields["path"]).alias("path"),
            _vector_ids(fields, length).alias("dv_id"),
            integers("deletionTimestamp").alias("deletion_timestamp"),
            integers("size").alias("size"),
            pl.Series("row", rows, dtype=pl.UInt64),
        ]
    )


def canonical_path(path: str, root: str) -> str:
    """Return the canonical spelling of an action's path, so that different spellings of a file compare equal.

    Args:
        path: The path in the log.
        root: URI of the table. Its scheme and authority complete a path without them.

    Example:
        >>> canonical_path("file:/a%20b/x", "file:///t") == canonical_path("/a b/x", "file:///t")
        True
    """
    return decode_log_path(path).identity(root)


def spellings(path: str, root: str) -> set[str]:
    """List other spellings that writers use for the same file: escaped or not, with or without scheme."""
    canonical = canonical_path(path, root)
    forms = {path, canonical}
    if is_absolute_path(path):
        scheme, _, rest = canonical.partition("://")
        authority, slash, tail = rest.partition("/")
        if slash and canonical_path("/x", root) == f"{scheme}://{authority}/x":
            forms.add("/" + tail)
            if scheme == "file":
                forms.add("file:/" + tail)
    return forms | {quote(form, safe="/-._~!$&'()*+,;=:@") for form in forms}


def file_key(path: str, dv_id: str | None, root: str) -> str:
    """Join a ``FileKey`` into one string, with the path in its canonical spelling."""
    if "%" in path or path.startswith("/") or ":" in path:
        path = canonical_path(path, root)
    return path if dv_id is None else f"{path}{KEY_SEPARATOR}{dv_id}"


_PRINTABLE: Final = {f"%{code:02{case}}": chr(code) for code in range(0x20, 0x7F) for case in ("X", "x")}


def unescaped(paths: pl.Series) -> pl.Series:
    """Undo printable ASCII escapes in one pass. This finds candidates but does not prove identity."""
    return paths.str.replace_many(list(_PRINTABLE), list(_PRINTABLE.values()))


def path_hashes(paths: pl.Series) -> npt.NDArray[np.uint64]:
    """Hash paths regardless of escapes. All spellings of a file have one hash, valid only in this process."""
    return (unescaped(paths) if has_escapes(paths) else paths).hash(seed=0).to_numpy()


def has_escapes(paths: pl.Series) -> bool:
    """Return whether any path has escapes."""
    return bool(paths.str.contains("%", literal=True).any())


def compact(frame: pl.DataFrame) -> pl.DataFrame:
    """Copy the strings of a few rows, so that the large buffers that they share with other rows can be freed."""
    return frame.with_columns(
        pl.Series(series.name, series.to_arrow(compat_level=pl.CompatLevel.oldest()), dtype=pl.String)
        for series in frame.get_columns()
        if series.dtype == pl.String
    )


def keys_of(frame: pl.DataFrame, root: str) -> pl.Series:
    """Compute the ``file_key`` of each row. Python loops only over escaped or absolute paths."""
    path = frame["path"]
    odd = path.str.contains_any(["%", ":"]) | path.str.starts_with("/")
    if bool(odd.any()):
        changed = pl.Series([canonical_path(text, root) for text in path.filter(odd)], dtype=pl.String)
        path = path.scatter(np.flatnonzero(odd.to_numpy()), changed)
    if frame["dv_id"].null_count() == frame.height:
        return path.alias("key")
    pair = pl.DataFrame({"path": path, "dv_id": frame["dv_id"]})
    return pair.select(
        key=pl.when(pl.col("dv_id").is_null())
        .then(pl.col("path"))
        .otherwise(pl.concat_str("path", pl.lit(KEY_SEPARATOR), "dv_id", ignore_nulls=True))
    )["key"]


_encoder: Final = msgspec.json.Encoder()


def _rest_of_add(add: AddFile, partition_names: frozenset[str]) -> str | None:
    """Return the fields without a column as the JSON of an ``add`` without statistics, or None if there are none."""
    plain = (
        add.tags is None
        and add.deletion_vector is None
        and add.base_row_id is None
        and add.default_row_commit_version is None
        and add.clustering_provider is None
    )
    if plain and partition_names.issuperset(add.partition_values):
        return None
    return _encoder.encode(add.replace(stats=None)).decode()


def adds_to_frame(adds: Sequence[AddFile], partition_names: Sequence[str], first_row: int) -> pl.DataFrame:
    """Convert actions to core columns, ``stats`` (JSON text) and ``rest``. Locators count up from ``first_row``."""
    known = frozenset(partition_names)
    columns: dict[str, Any] = {
        "path": [add.path for add in adds],
        "dv_id": [add.deletion_vector.unique_id if add.deletion_vector else None for add in adds],
        "size": [add.size for add in adds],
        "modification_time": [add.modification_time for add in adds],
    }
    columns |= {PV_PREFIX + name: [add.partition_values.get(name) or None for add in adds] for name in partition_names}
    columns["row"] = range(first_row, first_row + len(adds))
    columns["stats"] = [add.stats for add in adds]
    columns["rest"] = [_rest_of_add(add, known) for add in adds]
    schema = core_schema(partition_names) | {"stats": pl.String(), "rest": pl.String()}
    return pl.DataFrame(columns, schema=schema)


def adds_from_frame(frame: pl.DataFrame, partition_names: Sequence[str]) -> list[AddFile]:
    """Convert rows back to actions, the inverse of ``adds_to_frame``, with ``data_change`` set to True."""
    adds = []
    for row in frame.iter_rows(named=True):
        if row["rest"] is not None:
            adds.append(msgspec.json.decode(row["rest"], type=AddFile).replace(stats=row["stats"], data_change=True))
            continue
        adds.append(
            AddFile(
                path=row["path"],
                partition_values={name: row[PV_PREFIX + name] for name in partition_names},
                size=row["size"],
                modification_time=row["modification_time"],
                data_change=True,
                stats=row["stats"],
            )
        )
    return adds


def removes_to_frame(removes: Sequence[RemoveFile], first_row: int) -> pl.DataFrame:
    """Convert actions to tombstone columns and ``rest``, the action's JSON without statistics and tags."""
    columns: dict[str, Any] = {
        "path": [remove.path for remove in removes],
        "dv_id": [remove.deletion_vector.unique_id if remove.deletion_vector else None for remove in removes],
        "deletion_timestamp": [remove.deletion_timestamp for remove in removes],
        "size": [remove.size for remove in removes],
        "row": range(first_row, first_row + len(removes)),
        "rest": [_encoder.encode(remove.replace(stats=None, tags=None)).decode() for remove in removes],
    }
    return pl.DataFrame(columns, schema=TOMBSTONE_SCHEMA | {"rest": pl.String()})


def removes_from_frame(rests: Iterable[str]) -> list[RemoveFile]:
    """Decode the actions that ``removes_to_frame`` stored as ``rest``."""
    return [msgspec.json.decode(text, type=RemoveFile) for text in rests]
