"""Encode and decode the bitmap bytes of a deletion vector.

::

    magic | number of buckets | key, 32-bit bitmap | key, 32-bit bitmap ...
                                     cookie | key and size of each container | offsets | containers:
                                     an array of 16-bit numbers, 65536 bits, or runs

All numbers are little-endian. The code works on NumPy arrays and never loops over positions.
Protocol: "Deletion Vector Format" (the portable 64-bit extension of Roaring bitmaps).
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pydelta.errors import LogCorruptedError

__all__ = ["MOST_ROWS", "Positions", "ascending", "decode_bitmap", "encode_bitmap"]

Positions: TypeAlias = npt.NDArray[np.uint64]
"""Row positions in a file, from 0, ascending and distinct."""

_MAGIC: Final = 1681511377
_WITH_RUNS: Final = 12347
_WITHOUT_RUNS: Final = 12346
_OFFSETS_FROM: Final = 4
_LARGEST_ARRAY: Final = 4096
_BITMAP_BYTES: Final = 8192
MOST_ROWS: Final = 1 << 27
"""The maximum number of hidden rows per file: a gigabyte of positions."""
_MAX_KEY: Final = (1 << 31) - 1


class _Reader:
    """Consumes bytes from the front and raises when they run out."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise _damaged(f"it ends at byte {len(self._data)}, but {count} bytes are expected from byte {self._at} on")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, layout: str) -> int:
        (value,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return int(value)

    def shorts(self, count: int) -> npt.NDArray[np.uint16]:
        return np.frombuffer(self.take(2 * count), dtype="<u2")

    @property
    def left(self) -> int:
        return len(self._data) - self._at


def _damaged(why: str) -> LogCorruptedError:
    return LogCorruptedError(
        f"A deletion vector is damaged: {why}.",
        hint="Without it, deleted rows would come back: restore its file, or the commit that holds it, from a backup.",
    )


def decode_bitmap(data: bytes, *, most: int = MOST_ROWS) -> Positions:
    """Decode the positions in a bitmap.

    A run of ten bytes can decode to half a megabyte of positions, so claimed sizes are checked before decoding.

    Args:
        data: Bitmap bytes, including the magic number.
        most: The maximum number of positions.

    Raises:
        LogCorruptedError: The bytes are not a valid bitmap, end too early or late, or hold positions out of order.
    """
    reader = _Reader(data)
    magic = reader.number("<i")
    if magic != _MAGIC:
        raise _damaged(f"it begins with {magic} and not with {_MAGIC}")
    parts: list[Positions] = []
    left = min(most, MOST_ROWS)
    keys: list[int] = []
    for _ in range(_count(reader.number("<q"), reader, "buckets")):
        key = reader.number("<I")
        if key > _MAX_KEY or (keys and key <= keys[-1]):
            raise _damaged(f"bucket {key} follows bucket {keys[-1] if keys else 'none'}")
        keys.append(key)
        found = _bucket(reader, left)
        left -= sum(map(len, found))
        parts += [(np.uint64(key) << np.uint64(32)) | part.astype(np.uint64) for part in found]
    if reader.left:
        raise _damaged(f"{reader.left} bytes follow its end")
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


def _count(number: int, reader: _Reader, what: str) -> int:
    if not 0 <= number <= reader.left:  # Each one needs more than one byte.
        raise _damaged(f"it claims {number} {what} in {reader.left} bytes")
    return number


def _bucket(reader: _Reader, most: int) -> list[npt.NDArray[np.int64]]:
    cookie = reader.number("<I")
    with_runs = cookie & 0xFFFF == _WITH_RUNS
    if with_runs:
        count = (cookie >> 16) + 1
        bits = np.frombuffer(reader.take((count + 7) // 8), dtype=np.uint8)
        flags = np.unpackbits(bits, bitorder="little").tolist()
    elif cookie == _WITHOUT_RUNS:
        count = _count(reader.number("<I"), reader, "containers")
        flags = [0] * count
    else:
        raise _damaged(f"{cookie} is not the start of a bitmap")
    header = reader.shorts(2 * count).reshape(count, 2).astype(np.int64)
    if bool((np.diff(header[:, 0]) <= 0).any()):
        raise _damaged("its containers are out of order")
    if int(header[:, 1].sum()) + count > most:
        raise _damaged(f"it claims to hide more rows than the log says, or than a file can have ({MOST_ROWS:,})")
    if not with_runs or count >= _OFFSETS_FROM:
        reader.take(4 * count)  # Skip the offsets: containers are read in sequence.
    found = []
    for (key, size), is_run in zip(header.tolist(), flags[:count], strict=True):
        low = _container(reader, size + 1, runs=bool(is_run))
        if len(low) != size + 1:
            raise _damaged(f"a container holds {len(low)} positions and claims {size + 1}")
        found.append(low | key << 16)
    return found


def _container(reader: _Reader, size: int, *, runs: bool) -> npt.NDArray[np.int64]:
    if runs:
        count = reader.number("<H")
        pairs = reader.shorts(2 * count).reshape(count, 2).astype(np.int64)
        starts, lengths = pairs[:, 0], pairs[:, 1] + 1
        ends = starts + lengths
        if int(lengths.sum()) != size:
            raise _damaged(f"a container holds {int(lengths.sum())} positions and claims {size}")
        if bool((starts[1:] < ends[:-1]).any()) or bool((ends > 1 << 16).any()):
            raise _damaged("the runs of a container overlap")
        before = np.cumsum(lengths) - lengths
        return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    if size > _LARGEST_ARRAY:
        bits = np.frombuffer(reader.take(_BITMAP_BYTES), dtype=np.uint8)
        return np.flatnonzero(np.unpackbits(bits, bitorder="little"))
    array = reader.shorts(size).astype(np.int64)
    if bool((np.diff(array) <= 0).any()):
        raise _damaged("the positions of a container are out of order")
    return array


def ascending(positions: npt.ArrayLike) -> Positions:
    """Sort positions and remove duplicates. Positions already in order are returned after one check."""
    given = np.asarray(positions).astype(np.uint64, copy=False)
    if bool((given[1:] > given[:-1]).all()):
        return given
    given = np.sort(given, kind="stable")  # A stable sort only merges runs that are already in order.
    once: Positions = given[np.append(True, given[1:] != given[:-1])]
    return once


def _runs(keys: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the distinct values of an ascending array and the index where each begins."""
    starts = np.append(0, np.flatnonzero(np.diff(keys)) + 1)
    return keys[starts], starts


def encode_bitmap(positions: npt.ArrayLike) -> bytes:
    """Encode positions, in any order, as a bitmap. Each container takes its smallest form.

    Raises:
        ValueError: A position is negative or needs more than 63 bits.
    """
    given = np.asarray(positions)
    if len(given) and (int(given.min()) < 0 or int(given.max()) >> 32 > _MAX_KEY):
        raise ValueError("positions of rows are from 0 to 2**63 - 1")
    rows = ascending(given)
    if not len(rows):
        return struct.pack("<iq", _MAGIC, 0)
    keys, starts = _runs(rows >> np.uint64(32))
    out = [struct.pack("<iq", _MAGIC, len(keys))]
    for key, bucket in zip(keys.tolist(), np.split(rows, starts[1:]), strict=True):
        out.append(struct.pack("<I", key) + _encoded_bucket(bucket.astype(np.uint32)))
    return b"".join(out)


def _encoded_bucket(values: npt.NDArray[np.uint32]) -> bytes:
    keys, starts = _runs(values >> np.uint32(16))
    lows = [part.astype("<u2") for part in np.split(values, starts[1:])]
    encoded = [_encoded_container(low) for low in lows]
    flags = np.array([is_run for _, is_run in encoded])
    count = len(lows)
    if flags.any():
        cookie = struct.pack("<I", _WITH_RUNS | (count - 1) << 16) + np.packbits(flags, bitorder="little").tobytes()
    else:
        cookie = struct.pack("<II", _WITHOUT_RUNS, count)
    header = np.column_stack([keys, [len(low) - 1 for low in lows]]).astype("<u2").tobytes()
    offsets = b""
    if not flags.any() or count >= _OFFSETS_FROM:
        sizes = np.array([len(data) for data, _ in encoded])
        first = len(cookie) + len(header) + 4 * count
        offsets = (first + np.cumsum(sizes) - sizes).astype("<u4").tobytes()
    return b"".join([cookie, header, offsets, *(data for data, _ in encoded)])


def _encoded_container(low: npt.NDArray[np.uint16]) -> tuple[bytes, bool]:
    """Return a container and whether it is run-encoded."""
    breaks = np.flatnonzero(np.diff(low) != 1) + 1
    firsts, lasts = low[np.append(0, breaks)], low[np.append(breaks, len(low)) - 1]
    if 1 + 2 * len(firsts) < min(len(low), _LARGEST_ARRAY):  # Sizes count 16-bit numbers.
        runs = np.column_stack([firsts, lasts - firsts]).astype("<u2")
        return struct.pack("<H", len(firsts)) + runs.tobytes(), True
    if len(low) > _LARGEST_ARRAY:
        bits = np.zeros(1 << 16, dtype=bool)
        bits[low] = True
        return np.packbits(bits, bitorder="little").tobytes(), False
    return low.tobytes(), False
