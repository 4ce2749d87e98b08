"""Read and build deletion vector descriptors: their files, byte ranges and hidden rows.

::

    descriptor --vector_path--> file, or None: stored in the log
               --stored_range--> bytes to read from it --deleted_rows--> positions

    positions --inline_vector--> descriptor
    positions of many files --pack_vectors--> descriptors and the bytes of one file

    unique ids of many vectors, as a column --vector_files--> their files

Protocol: "Deletion Vector Descriptor Schema", "Deletion Vector File Storage Format".
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import polars as pl

from pydelta.errors import LogCorruptedError
from pydelta.protocol.actions import DeletionVectorDescriptor
from pydelta.protocol.roaring import Positions, ascending, decode_bitmap, encode_bitmap

__all__ = [
    "deleted_rows",
    "inline_vector",
    "pack_vectors",
    "rows_of_stored",
    "stored_range",
    "stored_vector",
    "vector_files",
    "vector_path",
]

DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
# Up to this many rows are decoded even if the log states fewer, so that the error can give the real number.
_FEW: Final = 100_000
_FILLER: Final = "#"
_UUID_LENGTH: Final = 20


def vector_path(vector: DeletionVectorDescriptor) -> str | None:
    """Return the vector's file, spelled as a path in the log: escaped, relative to the table or absolute.

    Returns:
        None for a vector that is stored in the log itself.

    Raises:
        LogCorruptedError: The descriptor does not name a valid file.
    """
    text = vector.path_or_inline_dv
    if vector.storage_type == "i":
        return None
    if vector.storage_type == "p":
        return text
    if vector.storage_type != "u":
        raise _invalid(vector)
    folder = text[:-_UUID_LENGTH]
    try:
        name = f"deletion_vector_{uuid.UUID(bytes=_decoded(text[-_UUID_LENGTH:]))}.bin"
    except ValueError as error:
        raise _invalid(vector) from error
    return f"{quote(folder)}/{name}" if folder else name


def stored_range(vector: DeletionVectorDescriptor) -> tuple[int, int] | None:
    """Return the offset and length of the vector in its file, including its size field and checksum.

    Returns:
        None for a vector that is stored in the log itself.
    """
    if vector.storage_type == "i":
        return None
    return vector.offset or 0, vector.size_in_bytes + _AROUND_BYTES


def deleted_rows(vector: DeletionVectorDescriptor, stored: bytes | None = None) -> Positions:
    """Return the positions of the rows that the vector hides, from 0 and ascending.

    Args:
        vector: The descriptor.
        stored: The bytes of ``stored_range``; None for a vector that is stored in the log itself.

    Raises:
        LogCorruptedError: Size, checksum, bitmap or number of rows are wrong. Nothing is guessed: a missing position
            would bring back a deleted row, an extra one would lose a live row.
        ValueError: ``stored`` is missing, or given for an inline vector.
    """
    if (stored is None) != (vector.storage_type == "i"):
        raise ValueError("give the bytes of stored_range, and only for a vector that lies in a file")
    bitmap = _inline(vector) if stored is None else _unwrapped(vector, stored)
    rows = decode_bitmap(bitmap, most=max(vector.cardinality, _FEW))
    if len(rows) != vector.cardinality:
        raise _damaged(vector, f"it holds {len(rows)} rows, but the log says {vector.cardinality}")
    return rows


def inline_vector(rows: Positions) -> DeletionVectorDescriptor:
    """Build a descriptor that stores the rows inline."""
    rows = ascending(rows)
    data = encode_bitmap(rows)
    return DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv=_encoded(data), size_in_bytes=len(data), cardinality=len(rows)
    )


def pack_vectors(
    vectors: Sequence[Positions], *, file_id: uuid.UUID, folder: str = ""
) -> tuple[bytes, list[DeletionVectorDescriptor]]:
    """Pack many vectors into one file.

    Args:
        vectors: Hidden rows of each data file.
        file_id: Determines the file's name.
        folder: Directory under the table's root, without a slash; empty for the root.

    Returns:
        The file's bytes, and a descriptor for each vector. ``vector_path`` of any of them is the file's path.
    """
    place = folder + _encoded(file_id.bytes)
    parts, at, described = [b"\x01"], 1, []
    for given in vectors:
        rows = ascending(given)
        data = stored_vector(rows)
        parts.append(data)
        described.append(
            DeletionVectorDescriptor(
                storage_type="u", path_or_inline_dv=place, offset=at, size_in_bytes=len(data) - _AROUND_BYTES,
                cardinality=len(rows),
            )
        )  # fmt: skip
        at += len(data)
    return b"".join(parts), described


def stored_vector(rows: npt.ArrayLike) -> bytes:
    """Encode rows as a file stores a vector: the bitmap's size, the bitmap, its checksum. Puffin files do so, too."""
    data = encode_bitmap(rows)
    return b"".join((struct.pack(">i", len(data)), data, struct.pack(">I", zlib.crc32(data))))


def rows_of_stored(stored: bytes, *, cardinality: int) -> Positions:
    """Return the rows of a vector as a file stores it.

    Raises:
        LogCorruptedError: Size, checksum, bitmap or number of rows are wrong.
    """
    size = len(stored) - _AROUND_BYTES
    vector = DeletionVectorDescriptor(
        storage_type="p", path_or_inline_dv="", offset=0, size_in_bytes=size, cardinality=cardinality
    )
    return deleted_rows(vector, stored)


_AROUND_BYTES: Final = 8  # This is the size before the bitmap plus the checksum after it.


def _inline(vector: DeletionVectorDescriptor) -> bytes:
    try:
        data = _decoded(vector.path_or_inline_dv)
    except ValueError as error:
        raise _damaged(vector, str(error)) from error
    if not 0 <= len(data) - vector.size_in_bytes < 4:  # The text is padded to whole groups of four bytes.
        raise _damaged(vector, f"its text decodes to {len(data)} bytes, but the log says {vector.size_in_bytes}")
    return data[: vector.size_in_bytes]


def _unwrapped(vector: DeletionVectorDescriptor, stored: bytes) -> bytes:
    if len(stored) != vector.size_in_bytes + _AROUND_BYTES:
        raise _damaged(vector, f"its file gives {len(stored)} bytes for it")
    (size,), (checksum,) = struct.unpack(">i", stored[:4]), struct.unpack(">I", stored[-4:])
    if size != vector.size_in_bytes:
        raise _damaged(vector, f"its file says {size} bytes, but the log says {vector.size_in_bytes}")
    if zlib.crc32(stored[4:-4]) != checksum:
        raise _damaged(vector, "its checksum does not match")
    return stored[4:-4]


def _damaged(vector: DeletionVectorDescriptor, why: str) -> LogCorruptedError:
    return LogCorruptedError(
        f"The deletion vector {vector.unique_id!r} is damaged: {why}.",
        hint="Without it, deleted rows would come back: restore its file, or the commit that holds it, from a backup.",
    )


def _encoded(data: bytes) -> str:
    """Encode bytes as Z85, padded with zeros to whole groups of four bytes."""
    data += bytes(-len(data) % 4)
    text: list[str] = []
    for (number,) in struct.iter_unpack(">I", data):
        digits = []
        for _ in range(5):
            number, digit = divmod(number, 85)
            digits.append(DIGITS[digit])
        text += reversed(digits)
    return "".join(text)


def _decoded(text: str) -> bytes:
    """Decode Z85: five base-85 digits, most significant first, for each four bytes.

    A last group of fewer than four bytes is padded with zeros, as the protocol's writers do, or with leading ``#``
    characters, as some Rust writers do. Those would exceed four bytes as a number, so the two cannot be confused.
    """
    data = b""
    for start in range(0, len(text), 5):
        group = text[start : start + 5]
        digits = group.lstrip(_FILLER) if start + 5 == len(text) else group
        width = 4 - (len(group) - len(digits))
        number = 0
        for char in digits:
            digit = DIGITS.find(char)
            if digit < 0:
                raise ValueError(f"{group!r} is not Z85 text")
            number = number * 85 + digit
        if len(group) != 5 or width < 1 or number >= 1 << 8 * width:
            raise ValueError(f"{group!r} is not Z85 text")
        data += number.to_bytes(width, "big")
    return data


def _invalid(vector: DeletionVectorDescriptor) -> LogCorruptedError:
    return LogCorruptedError(
        f"A deletion vector of type {vector.storage_type!r} does not name a file: {vector.path_or_inline_dv!r}.",
        hint="Restore the commit that wrote it from a backup of _delta_log.",
    )


_DIGIT_VALUES: Final[npt.NDArray[np.uint64]] = np.full(256, 1 << 40, dtype=np.uint64)
_DIGIT_VALUES[np.frombuffer(DIGITS.encode(), dtype=np.uint8)] = np.arange(len(DIGITS), dtype=np.uint64)
_NONE: Final = pl.DataFrame(schema={"id": pl.String, "path": pl.String})
_POWERS: Final = np.array([85**4, 85**3, 85**2, 85, 1], dtype=np.uint64)


def vector_files(ids: pl.Series, *, offsets: bool = True) -> pl.DataFrame:
    """Return the ``id`` and file ``path`` of each vector. Paths are relative and decoded, or absolute as in the log.

    An id may end in ``@offset``, but its text may also end so by chance. Then both readings are returned, one of which
    names a file that does not exist.

    Args:
        ids: ``FileKey.dv_id`` strings. Nulls and inline vectors are ignored.
        offsets: Whether ids may end in an offset.

    Example:
        >>> vector_files(pl.Series(["uab^-aqEH.-t@S}K{vb[*k^", None]))["path"].to_list()
        ['ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin']
    """
    if ids.null_count() == len(ids):
        return _NONE
    frame = pl.DataFrame({"id": ids.drop_nulls().unique()}, schema={"id": pl.String})
    bodies = frame.with_columns(kind=pl.col("id").str.slice(0, 1), body=pl.col("id").str.slice(1))
    if offsets:
        bodies = pl.concat([bodies, bodies.with_columns(body=pl.col("body").str.replace(r"@\d+$", ""))]).unique()
    absolute = bodies.filter(pl.col("kind") == "p").select("id", path="body")
    relative = bodies.filter((pl.col("kind") == "u") & (pl.col("body").str.len_bytes() >= _UUID_LENGTH))
    return pl.concat([absolute, _decoded_ids(relative)])


def _decoded_ids(vectors: pl.DataFrame) -> pl.DataFrame:
    """Convert ``id`` and ``body`` to ``id`` and ``path`` for bodies that end in a UUID."""
    text = pl.col("body").str.tail(_UUID_LENGTH)
    vectors = vectors.filter(text.str.len_bytes() == _UUID_LENGTH)
    if vectors.is_empty():
        return _NONE
    raw = np.frombuffer("".join(vectors.select(text)["body"].to_list()).encode(), dtype=np.uint8)
    numbers = _DIGIT_VALUES[raw].reshape(-1, 4, 5) @ _POWERS
    good = (numbers < (1 << 32)).all(axis=1)
    folder = pl.col("body").str.head(-_UUID_LENGTH)
    prefix = pl.when(folder == "").then(pl.lit("")).otherwise(folder + "/")
    name = "deletion_vector_" + _hex(numbers[good].astype(">u4")) + ".bin"
    return vectors.filter(pl.Series(good)).select("id", path=prefix + pl.lit(name))


def _hex(numbers: npt.NDArray[Any]) -> pl.Series:
    """Format rows of 16 bytes as UUIDs."""
    data = numbers.tobytes()
    plain = pl.Series([data[at : at + 16] for at in range(0, len(data), 16)], dtype=pl.Binary).bin.encode("hex")
    return pl.DataFrame({"x": plain}).select(
        pl.concat_str(*(pl.col("x").str.slice(start, length) for start, length in _PARTS), separator="-")
    )["x"]


_PARTS: Final = ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))
