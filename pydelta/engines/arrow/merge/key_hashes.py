"""Compute hashes of keys that are the same in every process, on every machine and in every version of a library.

Keys that are equal in SQL (``=``) have equal hashes, and so have an ``int`` and a ``bigint`` of one value. A value is a
sequence of words of 64 bits:

::

    boolean, integers, date (days), timestamps (microseconds)   one word, two's complement
    decimal                                                     the unscaled value, two words, the lower first
    string, binary          the first 1,024 bytes, little-endian, filled up with zeros; then the length in bytes

The words of all columns go through XXH64's round for 8 bytes one after the other, then through its avalanche. Changing
anything here needs another ``HASH_NAME``. A null equals nothing, so a key with one has no hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pydelta.commands.records.segments import Hashes
from pydelta.protocol.types import DataType, DecimalType, PrimitiveType

__all__ = ["HASH_NAME", "INTEGERS", "hash_keys", "kind_of"]

HASH_NAME: Final = "pydelta-words-1"
INTEGERS: Final = ("byte", "short", "integer", "long")
"""Types whose values have the same hash in each of them, the narrowest first."""
_ALONE: Final = ("boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
_MOST_BYTES: Final = 1024
_WORD_BYTES: Final = 8

_PRIME_1: Final = np.uint64(0x9E3779B185EBCA87)
_PRIME_2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3: Final = np.uint64(0x165667B19E3779F9)
_PRIME_4: Final = np.uint64(0x85EBCA77C2B2AE63)
_SEED: Final = np.uint64(0x27D4EB2F165667C5)


def kind_of(data_type: DataType) -> str | None:
    """Return the kind of a type: values of one kind can be compared by hashes. None if there are no exact hashes.

    Floating-point numbers have none, because a MERGE does not join by them in this process.
    """
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.scale})"
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in INTEGERS:
        return "integer"
    return name if name in _ALONE else None


def hash_keys(columns: Sequence[pa.Array]) -> Hashes:
    """Hash the rows of key columns, leaving out rows with a null.

    Args:
        columns: Arrays of the same length, at least one, of types with a kind.
    """
    state = np.full(len(columns[0]), _SEED, dtype=np.uint64)
    valid = np.ones(len(columns[0]), dtype=np.bool_)
    for column in columns:
        if column.null_count:
            valid &= np.asarray(column.is_valid())
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            _add_bytes(state, column)
        elif pa.types.is_decimal(kind):
            low, high = _decimal_words(column)
            _add(state, low)
            _add(state, high)
        else:
            _add(state, _word(column))
    state ^= state >> np.uint64(33)
    state *= _PRIME_2
    state ^= state >> np.uint64(29)
    state *= _PRIME_3
    state ^= state >> np.uint64(32)
    return state if valid.all() else state[valid]


def _add(state: Hashes, words: Hashes) -> None:
    """Add a word to each state, in place."""
    mixed = words * _PRIME_2
    mixed = _rotated(mixed, 31)
    mixed *= _PRIME_1
    state ^= mixed
    state[:] = _rotated(state, 27)
    state *= _PRIME_1
    state += _PRIME_4


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _word(column: pa.Array) -> Hashes:
    """Return the values of a column as words. Those of nulls have no meaning."""
    kind = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        assert kind.unit == "us", "files and sources are read in microseconds"
        column = column.cast(pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    assert pa.types.is_signed_integer(column.type), "other types have no kind"
    numbers: npt.NDArray[np.signedinteger[Any]] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64).view(np.uint64)


def _decimal_words(column: pa.Array) -> tuple[Hashes, Hashes]:
    """Return the lower and the upper words of unscaled values."""
    scale = column.type.scale
    column = column.cast(pa.decimal128(38, scale))
    buffer = column.buffers()[1]
    words = np.frombuffer(buffer, "<u8", 2 * len(column), offset=2 * _WORD_BYTES * column.offset).reshape(-1, 2)
    return words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)


def _add_bytes(state: Hashes, column: pa.Array) -> None:
    """Add the words of byte strings, in place: word after word, to those that are long enough."""
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, "<i4", len(column) + 1, offset=4 * column.offset).astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    first, last = (int(offsets[0]), int(offsets[-1])) if len(column) else (0, 0)
    body = np.zeros(last - first + _WORD_BYTES, dtype=np.uint8)
    if last > first:
        body[: last - first] = np.frombuffer(data, np.uint8, last - first, offset=first)
    windows: Hashes = np.ndarray(shape=(len(body) - _WORD_BYTES + 1,), dtype="<u8", buffer=body.data, strides=(1,))
    hashed = np.minimum(lengths, _MOST_BYTES)
    order = np.argsort(-hashed, kind="stable")
    sizes, places = hashed[order], starts[order] - first
    states = state[order]
    for at in range(0, int(sizes[0]) if len(sizes) else 0, _WORD_BYTES):
        count = int(np.searchsorted(-sizes, -at, side="left"))  # Those with more than ``at`` bytes.
        words = windows[places[:count] + at].astype(np.uint64)
        short = int(np.searchsorted(-sizes[:count], -(at + _WORD_BYTES), side="right"))  # The rest ends in this word.
        spare = (_WORD_BYTES - (sizes[short:count] - at)).astype(np.uint64) * np.uint64(8)
        words[short:] &= np.uint64(0xFFFFFFFFFFFFFFFF) >> spare
        _add(states[:count], words)
    state[order] = states
    _add(state, lengths.view(np.uint64))
