"""A deletion vector's descriptor in, the file that it lies in out."""

from __future__ import annotations

import uuid
from typing import Final
from urllib.parse import quote

from pydelta.errors import LogCorruptedError
from pydelta.protocol.actions import DeletionVectorDescriptor

__all__ = ["vector_path"]

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_LENGTH: Final = 20


def vector_path(vector: DeletionVectorDescriptor) -> str | None:
    """Where the vector lies, spelt as paths in the log are: escaped, relative to the table or absolute.

    Returns:
        None for a vector that is kept in the log itself.

    Raises:
        LogCorruptedError: The descriptor names no file that can be.

    Protocol: "Deletion Vector Descriptor Schema", "Derived Fields".
    """
    text = vector.path_or_inline_dv
    if vector.storage_type == "i":
        return None
    if vector.storage_type == "p":
        return text
    if vector.storage_type != "u" or len(text) < _UUID_LENGTH:
        raise _invalid(vector)
    folder = text[:-_UUID_LENGTH]
    name = f"deletion_vector_{uuid.UUID(bytes=_decoded(vector, text[-_UUID_LENGTH:]))}.bin"
    return f"{quote(folder)}/{name}" if folder else name


def _decoded(vector: DeletionVectorDescriptor, text: str) -> bytes:
    """Z85: five digits of base 85, most significant first, stand for four bytes."""
    data = b""
    for start in range(0, len(text), 5):
        number = 0
        for char in text[start : start + 5]:
            digit = _DIGITS.find(char)
            if digit < 0:
                raise _invalid(vector)
            number = number * 85 + digit
        if number >= 1 << 32:
            raise _invalid(vector)
        data += number.to_bytes(4, "big")
    return data


def _invalid(vector: DeletionVectorDescriptor) -> LogCorruptedError:
    return LogCorruptedError(
        f"A deletion vector of storage type {vector.storage_type!r} names no file: {vector.path_or_inline_dv!r}.",
        hint="Restore the commit that wrote it from a backup of _delta_log.",
    )
