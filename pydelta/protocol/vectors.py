"""Read and make descriptors of deletion vectors: their files, ranges and deleted rows.

::

    descriptor --vector_path--> file, or None: kept in the log
               --stored_range--> the bytes to read of it --deleted_rows--> positions

    positions --inline_vector--> descriptor
    positions of many files --pack_vectors--> descriptors and the bytes of one file

Protocol: "Deletion Vector Descriptor Schema", "Deletion Vector File Storage Format".
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from pydelta.errors import LogCorruptedError
from pydelta.protocol.actions import DeletionVectorDescriptor
from pydelta.protocol.roaring import Positions, ascending, decode_bitmap, encode_bitmap

__all__ = ["deleted_rows", "inline_vector", "pack_vectors", "stored_range", "vector_path"]

DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_FEW: Final = 100_000  # so many are counted, to say how many there are
_FILLER: Final = "#"
_UUID_LENGTH: Final = 20


def vector_path(vector: DeletionVectorDescriptor) -> str | None:
    """Tell where the vector lies, spelt as paths in the log are: escaped, relative to the table or absolute.

    Returns:
        None for a vector that is kept in the log itself.

    Raises:
        LogCorruptedError: The descriptor names no file that can be.
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
    """Tell which bytes of its file hold the vector: offset and length, its size and its checksum included.

    Returns:
        None for a vector that is kept in the log itself.
    """
    if vector.storage_type == "i":
        return None
    return vector.offset or 0, vector.size_in_bytes + _AROUND_BYTES


def deleted_rows(vector: DeletionVectorDescriptor, stored: bytes | None = None) -> Positions:
    """Return the positions of the rows that the vector deletes, from 0 and ascending.

    Args:
        vector: The descriptor.
        stored: The bytes of ``stored_range``; None for a vector that is kept in the log itself.

    Raises:
        LogCorruptedError: Size, checksum, bitmap or number of rows are not what they should be. Never a guess: a
            position too few brings back a deleted row, and one too many loses a live one.
        ValueError: ``stored`` is missing, or given for a vector that needs none.
    """
    if (stored is None) != (vector.storage_type == "i"):
        raise ValueError("give the bytes of stored_range, and only for a vector that lies in a file")
    bitmap = _inline(vector) if stored is None else _unwrapped(vector, stored)
    rows = decode_bitmap(bitmap, most=max(vector.cardinality, _FEW))
    if len(rows) != vector.cardinality:
        raise _damaged(vector, f"it holds {len(rows)} rows, but the log says {vector.cardinality}")
    return rows


def inline_vector(rows: Positions) -> DeletionVectorDescriptor:
    """Make the descriptor that holds the rows itself."""
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
        vectors: Deleted rows of each data file.
        file_id: Names the file.
        folder: Directory under the table's root, without a slash; empty for the root.

    Returns:
        The file's bytes, and a descriptor for each vector; ``vector_path`` of any of them is the file's place.
    """
    place = folder + _encoded(file_id.bytes)
    parts, at, described = [b"\x01"], 1, []
    for given in vectors:
        rows = ascending(given)
        data = encode_bitmap(rows)
        parts += [struct.pack(">i", len(data)), data, struct.pack(">I", zlib.crc32(data))]
        described.append(
            DeletionVectorDescriptor(
                storage_type="u", path_or_inline_dv=place, offset=at, size_in_bytes=len(data),
                cardinality=len(rows),
            )
        )  # fmt: skip
        at += len(data) + _AROUND_BYTES
    return b"".join(parts), described


_AROUND_BYTES: Final = 8  # the size before the bitmap and the checksum behind it


def _inline(vector: DeletionVectorDescriptor) -> bytes:
    try:
        data = _decoded(vector.path_or_inline_dv)
    except ValueError as error:
        raise _damaged(vector, str(error)) from error
    if not 0 <= len(data) - vector.size_in_bytes < 4:  # filled up to whole groups of four
        raise _damaged(vector, f"its text decodes to {len(data)} bytes, but the log says {vector.size_in_bytes}")
    return data[: vector.size_in_bytes]


def _unwrapped(vector: DeletionVectorDescriptor, stored: bytes) -> bytes:
    if len(stored) != vector.size_in_bytes + _AROUND_BYTES:
        raise _damaged(vector, f"its file gives {len(stored)} bytes for it")
    (size,), (checksum,) = struct.unpack(">i", stored[:4]), struct.unpack(">I", stored[-4:])
    if size != vector.size_in_bytes:
        raise _damaged(vector, f"its file says {size} bytes, and the log {vector.size_in_bytes}")
    if zlib.crc32(stored[4:-4]) != checksum:
        raise _damaged(vector, "its checksum does not match")
    return stored[4:-4]


def _damaged(vector: DeletionVectorDescriptor, why: str) -> LogCorruptedError:
    return LogCorruptedError(
        f"The deletion vector {vector.unique_id!r} is damaged: {why}.",
        hint="Without it, deleted rows would come back: restore its file, or the commit that holds it, from a backup.",
    )


def _encoded(data: bytes) -> str:
    """Z85, filled up with zeros to whole groups of four bytes."""
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
    """Z85: five digits of base 85, most significant first, stand for four bytes.

    One to three missing bytes at the end are zeros, as the protocol's writers have it, or, as some Rust writers have
    it, as many ``#`` at the front of the last group; that many would be no number of four bytes.
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
