"""Write and read segments of a record index: sorted hashes of keys, and the files that hold them.

::

    magic | blocks of hashes (uint64, ascending) and file numbers (uint32) | head | footer (JSON) | tail
    head = covered files (Parquet: path, size) + the first hash of each block + the CRC-32 of each block
    tail = length of the footer, its digest, magic

A lookup reads the end of the object, which says the rest, and then only the blocks that may hold its hashes. A segment
is immutable, and so are data files: what it says about a file never becomes wrong. All numbers are little-endian.
"""

from __future__ import annotations

import functools
import hashlib
import io
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.storage.interface import ObjectInfo, Store
from pydelta.storage.readers import read_all

__all__ = [
    "FILES_SCHEMA",
    "BadSegmentError",
    "Hashes",
    "IndexedColumn",
    "Numbers",
    "Segment",
    "SegmentContents",
    "open_segment",
    "write_segment",
]

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.uint32]

FILES_SCHEMA: Final[dict[str, pl.DataType]] = {"path": pl.String(), "size": pl.Int64()}
"""Covered files: the path as in the log, and the size in bytes."""

_FILES: Final = pa.schema({"path": pa.string(), "size": pa.int64()})
_MAGIC: Final = b"PDRECIX1"
_TAIL: Final = struct.Struct("<I16s8s")
_DIGEST_BYTES: Final = 16
_BLOCK_ENTRIES: Final = 4096
_ENTRY_BYTES: Final = 12
_PER_BLOCK_BYTES: Final = 12
_END_BYTES: Final = 512 * 1024
"""How much of an object's end the first request reads."""
_RUN_BLOCKS: Final = 256
"""At most this many blocks are read by one request: 12 MiB."""


class BadSegmentError(Exception):
    """Raised for an object that is not a whole, undamaged segment of this format."""


class IndexedColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the key.

    Args:
        name: Its name in data files, which a rename of the column does not change.
        kind: Its type as far as the hash depends on it.
    """

    name: str
    kind: str


_Size = Annotated[int, msgspec.Meta(ge=0)]


class _Footer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    hash: str
    table_id: str
    key: tuple[IndexedColumn, ...]
    size: _Size
    entries: _Size
    files_bytes: _Size
    head_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """An open segment.

    Args:
        store: Store of the table.
        path: Path of the object.
        size: Its size in bytes.
        key: Columns of the key.
        table_id: Id of the table in its metadata.
        files: Covered files, by number: ``FILES_SCHEMA``.
        num_entries: Number of pairs of a hash and a file.
        fences: First hash of each block.
        sums: CRC-32 of each block.
    """

    store: Store
    path: str
    size: int
    key: tuple[IndexedColumn, ...]
    table_id: str
    files: pl.DataFrame
    num_entries: int
    fences: Hashes
    sums: Numbers

    def blocks_for(self, wanted: Hashes) -> npt.NDArray[np.int64]:
        """Return the numbers of the blocks that may hold one of these hashes, ascending. No request.

        Args:
            wanted: Ascending hashes.
        """
        # Equal hashes may begin in the block before the one that begins with them.
        first = np.maximum(np.searchsorted(self.fences, wanted, side="left") - 1, 0)
        last = np.searchsorted(self.fences, wanted, side="right") - 1
        within = last >= 0
        marks = np.zeros(len(self.fences) + 1, dtype=np.int64)
        np.add.at(marks, first[within], 1)
        np.add.at(marks, last[within] + 1, -1)
        return np.flatnonzero(np.cumsum(marks[:-1]) > 0)

    def bytes_of(self, blocks: npt.NDArray[np.int64]) -> int:
        """Return how many bytes blocks have, or a few more."""
        return len(blocks) * _BLOCK_ENTRIES * _ENTRY_BYTES

    def find(self, wanted: Hashes) -> npt.NDArray[np.bool_]:
        """Return for each covered file whether it holds one of the hashes.

        Args:
            wanted: Ascending hashes, without repetitions.

        Raises:
            BadSegmentError: A block is damaged.
            StorageError: The store failed.
        """
        found = np.zeros(self.files.height, dtype=np.bool_)
        for hashes, numbers in self._read(self.blocks_for(wanted)):
            at = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
            found[numbers[wanted[at] == hashes]] = True
        return found

    def between(self, low: int, high: int | None) -> tuple[Hashes, Numbers]:
        """Return the entries from a hash up to another, which is not included; None for no upper limit."""
        first = max(int(np.searchsorted(self.fences, np.uint64(low), side="left")) - 1, 0)
        after = len(self.fences) if high is None else int(np.searchsorted(self.fences, np.uint64(high), side="left"))
        parts = self._read(np.arange(first, after, dtype=np.int64))
        hashes = np.concatenate([np.empty(0, np.uint64), *(part for part, _ in parts)])
        numbers = np.concatenate([np.empty(0, np.uint32), *(part for _, part in parts)])
        start = int(np.searchsorted(hashes, np.uint64(low), side="left"))
        end = len(hashes) if high is None else int(np.searchsorted(hashes, np.uint64(high), side="left"))
        return hashes[start:end], numbers[start:end]

    def _read(self, blocks: npt.NDArray[np.int64]) -> list[tuple[Hashes, Numbers]]:
        """Read blocks, those beside each other by one request."""
        if not len(blocks):
            return []
        ends = np.flatnonzero(np.diff(blocks) > 1) + 1
        runs = [
            (int(part[start]), int(part[min(start + _RUN_BLOCKS, len(part)) - 1]))
            for part in np.split(blocks, ends)
            for start in range(0, len(part), _RUN_BLOCKS)
        ]
        return [block for found in read_all(self._run, runs) for block in found]

    def _run(self, run: tuple[int, int]) -> list[tuple[Hashes, Numbers]]:
        first, last = run
        start = first * _BLOCK_ENTRIES
        left = min((last + 1) * _BLOCK_ENTRIES, self.num_entries) - start
        data = self.store.read_range(self.path, len(_MAGIC) + start * _ENTRY_BYTES, left * _ENTRY_BYTES)
        if len(data) != left * _ENTRY_BYTES:
            raise BadSegmentError(f"{self.path}: blocks are missing")
        found, at = [], 0
        for number in range(first, last + 1):
            count = min(_BLOCK_ENTRIES, left)
            block = memoryview(data)[at : at + count * _ENTRY_BYTES]
            if zlib.crc32(block) != self.sums[number]:
                raise BadSegmentError(f"{self.path}: block {number} is damaged")
            hashes = np.frombuffer(block, "<u8", count)
            numbers = np.frombuffer(block, "<u4", count, offset=count * hashes.itemsize)
            if int(numbers.max()) >= self.files.height:
                raise BadSegmentError(f"{self.path}: block {number} names a file that is not covered")
            found.append((hashes, numbers))
            at, left = at + len(block), left - count
        return found


def open_segment(store: Store, info: ObjectInfo, *, hash_name: str | None) -> Segment:
    """Open a segment with one or two requests.

    Args:
        store: Store of the table.
        info: The object as listed.
        hash_name: Name and version of the hash that the caller computes; None for a caller that computes none.

    Raises:
        BadSegmentError: It is damaged, or has another format or hash.
        ObjectNotFoundError, StorageError: It is gone, or the store failed.
    """
    start = max(info.size - _END_BYTES, 0)
    end = store.read_range(info.path, start, info.size - start)
    footer, footer_bytes = _footer(info, end)
    num_blocks = -(-footer.entries // _BLOCK_ENTRIES)
    head_at = len(_MAGIC) + footer.entries * _ENTRY_BYTES
    head_bytes = footer.files_bytes + num_blocks * _PER_BLOCK_BYTES
    if hash_name not in (None, footer.hash):
        raise BadSegmentError(f"{info.path}: its hash is {footer.hash!r}")
    if footer.size != info.size or head_at + head_bytes + footer_bytes + _TAIL.size != info.size:
        raise BadSegmentError(f"{info.path}: its sizes do not add up")
    if head_at < start:
        end = store.read_range(info.path, head_at, start - head_at) + end
        start = head_at
    head = memoryview(end)[head_at - start : head_at - start + head_bytes]
    if _digest(head).hex() != footer.head_digest:
        raise BadSegmentError(f"{info.path}: its list of files is damaged")
    fences_at = footer.files_bytes
    return Segment(
        store=store,
        path=info.path,
        size=info.size,
        key=footer.key,
        table_id=footer.table_id,
        files=_decoded_files(info.path, bytes(head[:fences_at])),
        num_entries=footer.entries,
        fences=np.frombuffer(head, "<u8", num_blocks, offset=fences_at).astype(np.uint64),
        sums=np.frombuffer(head, "<u4", num_blocks, offset=fences_at + num_blocks * 8).astype(np.uint32),
    )


def _footer(info: ObjectInfo, end: bytes) -> tuple[_Footer, int]:
    """Decode the footer of an object from its last bytes. Also returns its length."""
    if len(end) < _TAIL.size:
        raise BadSegmentError(f"{info.path}: it is too short")
    length, digest, magic = _TAIL.unpack(end[-_TAIL.size :])
    text = end[max(len(end) - _TAIL.size - length, 0) : -_TAIL.size]
    if magic != _MAGIC or len(text) != length or _digest(text) != digest:
        raise BadSegmentError(f"{info.path}: it does not end as a segment does")
    try:
        return msgspec.json.decode(text, type=_Footer), length
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadSegmentError(f"{info.path}: {error}") from error


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _encoded_files(files: pl.DataFrame) -> bytes:
    stream = io.BytesIO()
    table = files.select(list(FILES_SCHEMA)).to_arrow().cast(_FILES)
    pq.write_table(table, stream, compression="zstd", use_dictionary=False, write_statistics=False, store_schema=False)
    return stream.getvalue()


def _decoded_files(path: str, data: bytes) -> pl.DataFrame:
    try:
        found = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:  # Thrift's errors come as OSError.
        raise BadSegmentError(f"{path}: its list of files cannot be read") from error
    if found.schema != _FILES:
        raise BadSegmentError(f"{path}: its list of files has other columns")
    return pl.DataFrame(pl.from_arrow(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContents:
    """What is written besides the entries.

    Args:
        key: Columns of the key.
        hash_name: Name and version of the hash.
        table_id: Id of the table.
        files: Covered files, by number: ``FILES_SCHEMA``.
    """

    key: Sequence[IndexedColumn]
    hash_name: str
    table_id: str
    files: pl.DataFrame


def write_segment(
    store: Store, path: str, contents: SegmentContents, entries: Iterable[tuple[Hashes, Numbers]]
) -> ObjectInfo:
    """Write a segment. It appears as a whole, or not at all.

    Args:
        store: Store of the table.
        path: A path that nothing else has.
        contents: What is written besides the entries.
        entries: Pairs of ascending hashes and numbers of files, in parts that ascend too.

    Returns:
        The object. Its time is not known.

    Raises:
        StorageError: The store refused.
    """
    stream = store.open_writer(path)
    try:
        stream.write(_MAGIC)
        fences, sums, written = [], [], 0
        for hashes, numbers in _blocks(entries):
            block = hashes.astype("<u8").tobytes() + numbers.astype("<u4").tobytes()
            stream.write(block)
            fences.append(int(hashes[0]))
            sums.append(zlib.crc32(block))
            written += len(hashes)
        files = _encoded_files(contents.files)
        head = files + np.array(fences, "<u8").tobytes() + np.array(sums, "<u4").tobytes()
        seal = functools.partial(
            _Footer,
            hash=contents.hash_name,
            table_id=contents.table_id,
            key=tuple(contents.key),
            entries=written,
            files_bytes=len(files),
            head_digest=_digest(head).hex(),
        )
        before = len(_MAGIC) + written * _ENTRY_BYTES + len(head) + _TAIL.size
        footer = _sized(before, seal)
        stream.write(head + footer + _TAIL.pack(len(footer), _digest(footer), _MAGIC))
        stream.close()
    except BaseException:
        stream.abort()  # type: ignore[attr-defined] # See ``Store.open_writer``.
        raise
    return ObjectInfo(path=path, size=before + len(footer), modification_time_ms=0)


def _sized(before: int, seal: functools.partial[_Footer]) -> bytes:
    """Encode a footer that has the size of the whole object, which depends on the footer's own length."""
    size = before
    while True:
        footer = msgspec.json.encode(seal(size=size))
        if before + len(footer) == size:
            return footer
        size = before + len(footer)


def _blocks(entries: Iterable[tuple[Hashes, Numbers]]) -> Iterable[tuple[Hashes, Numbers]]:
    """Divide entries into blocks of ``_BLOCK_ENTRIES``; the last may have fewer."""
    hashes, numbers = np.empty(0, np.uint64), np.empty(0, np.uint32)
    for more_hashes, more_numbers in entries:
        hashes, numbers = np.concatenate([hashes, more_hashes]), np.concatenate([numbers, more_numbers])
        whole = len(hashes) // _BLOCK_ENTRIES * _BLOCK_ENTRIES
        for start in range(0, whole, _BLOCK_ENTRIES):
            yield hashes[start : start + _BLOCK_ENTRIES], numbers[start : start + _BLOCK_ENTRIES]
        hashes, numbers = hashes[whole:], numbers[whole:]
    if len(hashes):
        yield hashes, numbers
