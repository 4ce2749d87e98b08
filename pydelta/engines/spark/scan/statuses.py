"""Encode a file table as Hadoop's ``FileStatus`` messages, vectorised, without an object per file.

One record is a four-byte length and a ``FileStatusProto`` message. Integers are written as varints of a fixed width
(continuation bits on zero groups, which protobuf readers accept), so that everything but the path has a fixed
layout and a block of records is one join of three binary columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.errors import LogCorruptedError
from pydelta.protocol.paths import are_absolute, decoded_paths
from pydelta.storage.kinds import kind_of

__all__ = ["encode_statuses", "file_uris"]

_BLOCK: Final = 200_000
_URI_SAFE: Final = "/:@!$&'()*+,;=-._~"
_PERMISSION: Final = b"\x22\x03\x08\xa4\x02"  # field 4: permission 0444
_FIXED: Final = b"\x32\x00\x40\x00\x50\x01\x58\x80\x80\x80\x40"  # group "", access time 0, replication 1, 128 MB blocks


def file_uris(paths: pl.Series, root: str) -> pl.Series:
    """Turn paths as the log spells them into full URIs, decoded once, as Hadoop's ``Path`` reads them.

    Args:
        paths: ``add.path``: relative to the root, or absolute, and URI-encoded.
        root: Root of the table from ``storage.uris.hadoop_uri``.

    Raises:
        LogCorruptedError: A relative path leaves the table's root.

    Protocol: "Add File and Remove File".

    Example:
        >>> file_uris(pl.Series(["a%20b.parquet", "file:///x/y.parquet"]), "file:/t").to_list()
        ['file:/t/a b.parquet', 'file:/x/y.parquet']
    """
    frame = pl.DataFrame({"path": decoded_paths(paths), "absolute": are_absolute(paths)})
    absolute = pl.col("absolute")
    segments = pl.concat_str(pl.lit("/"), pl.col("path"), pl.lit("/"))
    outside = frame.filter(~absolute & segments.str.contains("/../", literal=True))
    if outside.height:
        raise LogCorruptedError(
            f"The log names a data file outside the table: {outside['path'][0]!r}.",
            hint="A relative path must not leave the table's root. The log was not written by a Delta writer; "
            "restore it from a backup.",
        )
    plain = pl.col("path").str.replace(r"^(?i:file):(?://localhost)?/+", "file:/")
    scheme = root.split(":", 1)[0]
    kind = kind_of(scheme)
    if kind.in_spark is not None:  # A store may have several schemes, but the session has only one of them configured.
        plain = plain.str.replace(rf"^(?:{'|'.join(kind.schemes)})://", f"{scheme}://")
    plain = (
        pl.when(pl.col("path").str.starts_with("/")).then(pl.lit(_authority(root)) + pl.col("path")).otherwise(plain)
    )
    return frame.select(pl.when(absolute).then(plain).otherwise(pl.lit(root + "/") + pl.col("path"))).to_series()


def _authority(root: str) -> str:
    scheme, separator, rest = root.partition("://")
    return f"{scheme}://{rest.split('/', 1)[0]}" if separator else root.split(":", 1)[0] + ":"


def encode_uris(uris: pl.Series) -> list[str]:
    """Turn full URIs into URI-encoded text, as ``DataFrame.inputFiles`` and ``_metadata.file_path`` spell them."""
    return [
        quote(uri.replace("file:/", "file:///", 1) if uri.startswith("file:/") else uri, safe=_URI_SAFE) for uri in uris
    ]


def encode_statuses(
    uris: pl.Series, sizes: pl.Series, times_ms: pl.Series, ordinals: pl.Series | None = None
) -> Iterator[memoryview]:
    """Encode blocks of records, each a length (four bytes, big endian) and a ``FileStatusProto``.

    Args:
        uris: Full URIs, decoded.
        sizes: Lengths in bytes.
        times_ms: Modification times, epoch milliseconds.
        ordinals: One number below 2^31 per file, which becomes the status's owner.
    """
    for start in range(0, len(uris), _BLOCK):
        part = slice(start, start + _BLOCK)
        owner = None if ordinals is None else ordinals[part].cast(pl.Int64).to_numpy()
        yield _encode_block(
            uris[part], sizes[part].cast(pl.Int64).to_numpy(), times_ms[part].cast(pl.Int64).to_numpy(), owner
        )


def _encode_block(uris: pl.Series, sizes: Any, times_ms: Any, owners: Any | None) -> memoryview:
    count = len(uris)
    paths = pa.array(uris.to_arrow(), type=pa.large_string()).cast(pa.large_binary())
    lengths = np.asarray(pc.binary_length(paths), dtype=np.int64)
    tail = [
        _field(3, _varint(sizes, 9)),
        _constant(_PERMISSION, count),
        _constant(b"\x2a\x00", count) if owners is None else _owner(owners),
        _field(7, _varint(times_ms, 9)),
        _constant(_FIXED, count),
    ]
    after = np.concatenate(tail, axis=1)
    head_width = 2 + 1 + 5
    total = lengths + head_width + after.shape[1]
    length_bytes = total.astype(">i4").view(np.uint8).reshape(count, 4)
    before = np.concatenate([length_bytes, _constant(b"\x08\x02\x12", count), _varint(lengths, 5)], axis=1)
    joined = pc.binary_join_element_wise(_column(before), paths, _column(after), pa.scalar(b"", pa.large_binary()))
    return memoryview(joined.buffers()[2])[: int(total.sum()) + 4 * count]


def _varint(values: Any, width: int) -> Any:
    """Encode non-negative numbers as varints of ``width`` bytes each, as rows of a matrix."""
    shifts = np.arange(width, dtype=np.int64) * 7
    groups = (values.reshape(-1, 1) >> shifts) & 0x7F
    groups[:, :-1] |= 0x80
    return groups.astype(np.uint8)


def _field(number: int, varints: Any) -> Any:
    return np.concatenate([_constant(bytes([number << 3]), len(varints)), varints], axis=1)


def _owner(ordinals: Any) -> Any:
    digits = (ordinals.reshape(-1, 1) // 10 ** np.arange(9, -1, -1, dtype=np.int64)) % 10 + ord("0")
    return np.concatenate([_constant(b"\x2a\x0a", len(ordinals)), digits.astype(np.uint8)], axis=1)


def _constant(data: bytes, count: int) -> Any:
    return np.tile(np.frombuffer(data, dtype=np.uint8), (count, 1))


def _column(matrix: Any) -> Any:
    """Turn a matrix of bytes into a binary column with one value per row."""
    count, width = matrix.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    data = np.ascontiguousarray(matrix)
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
