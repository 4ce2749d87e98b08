"""Encode and decode the entries of Iceberg manifests: Avro records of one data file or delete file each.

An entry is a short head (status, snapshot, sequence numbers), a body that never changes, and with format version 3 a
tail (first row id, deletion vector). So an entry that another manifest takes over is copied, not encoded again. The
fields are in the order of Iceberg's specification ("Manifests").
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.resolver import construct_reader, construct_writer
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType

if TYPE_CHECKING:
    from pyiceberg.types import StructType

__all__ = [
    "ADDED",
    "DATA",
    "DELETED",
    "DELETES",
    "EXISTING",
    "PATH_FIELD",
    "Blob",
    "BodyEncoder",
    "Entry",
    "FileFacts",
    "decode_block",
    "head",
    "partition_reader",
    "tail",
]

EXISTING: Final = 0
ADDED: Final = 1
DELETED: Final = 2
DATA: Final = 0
"""Content of an entry that is a data file."""
DELETES: Final = 1
"""Content of an entry that is a position delete file, or a deletion vector."""
PATH_FIELD: Final = 2147483546
"""Field id of ``file_path`` in position delete files."""
_NULL: Final = b"\x00"
_CACHED: Final = 50_000
_PARQUET: Final = b"\x0ePARQUET"
_PUFFIN: Final = b"\x0cPUFFIN"
_WITH_TAIL: Final = 3
"""Format version whose entries have a tail."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A deletion vector in a Puffin file.

    Args:
        location: Location of the data file whose rows it hides.
        offset: Where it begins in the Puffin file.
        size: Its bytes.
    """

    location: str
    offset: int
    size: int


@dataclass(slots=True)
class Entry:
    """An entry of a manifest.

    Args:
        status: ``EXISTING``, ``ADDED`` or ``DELETED``.
        snapshot_id: Snapshot that added the file, or that deleted it.
        sequence: Data sequence number; None for one that the file inherits from the snapshot that adds it.
        file_sequence: File sequence number, likewise.
        content: ``DATA`` or ``DELETES``.
        path: Location of the file.
        rows: Number of rows of the file.
        size: Bytes of the file.
        partition: Values by the partition spec.
        body: The encoded file.
        covers: First and last location of a data file that a delete file has positions of; None for data files.
        first_row_id: Id of the first row of a data file, or None before one is assigned.
        blob: The deletion vector, if the entry is one.
    """

    status: int
    snapshot_id: int
    sequence: int | None
    file_sequence: int | None
    content: int
    path: str
    rows: int
    size: int
    partition: Record
    body: bytes
    covers: tuple[str, str] | None = None
    first_row_id: int | None = None
    blob: Blob | None = None

    def kept(self) -> Entry:
        """Return the entry as another manifest takes it over."""
        return self._with(EXISTING, self.snapshot_id)

    def deleted(self, snapshot_id: int) -> Entry:
        """Return the entry of a snapshot that removes the file."""
        return self._with(DELETED, snapshot_id)

    def _with(self, status: int, snapshot_id: int) -> Entry:
        return Entry(
            status, snapshot_id, self.sequence, self.file_sequence, self.content, self.path, self.rows, self.size,
            self.partition, self.body, self.covers, self.first_row_id, self.blob,
        )  # fmt: skip


@dataclass(slots=True)
class FileFacts:
    """What a manifest says of a new file.

    Args:
        path: Location of the file.
        rows: Number of rows.
        size: Bytes.
        partition: Values by the partition spec.
        value_counts: Field id -> number of values, with nulls.
        null_counts: Field id -> number of nulls.
        lower: Field id -> lower bound in Iceberg's single-value form.
        upper: Field id -> upper bound.
        content: ``DATA`` or ``DELETES``.
        blob: The deletion vector, if the file is a Puffin file.
    """

    path: str
    rows: int
    size: int
    partition: Record
    value_counts: Mapping[int, int] | None = None
    null_counts: Mapping[int, int] | None = None
    lower: Mapping[int, bytes] | None = None
    upper: Mapping[int, bytes] | None = None
    content: int = DATA
    blob: Blob | None = None


# --- encoding --------------------------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    """Encode a number as Avro does: zig-zag, seven bits per byte."""
    number = (number << 1) ^ (number >> 63)
    if number < 0x80:
        return _BYTES[number]
    found = bytearray()
    while number & ~0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


_BYTES: Final = [bytes([number]) for number in range(0x80)]


class BodyEncoder:
    """Encode the files of one partition spec.

    Args:
        partition_type: Type of the partition values.
    """

    def __init__(self, partition_type: StructType) -> None:
        self._writer = construct_writer(partition_type)
        self._has_floats = any(isinstance(part.field_type, FloatType | DoubleType) for part in partition_type.fields)
        self._partitions: dict[tuple[Any, ...], bytes] = {}
        self._numbers: dict[int, bytes] = {}
        self._same: dict[tuple[tuple[int, int], ...], bytes] = {}
        self._heads: dict[tuple[int, int], bytes] = {}

    def encode(self, file: FileFacts) -> bytes:
        """Return the body of the file's entry."""
        path = file.path.encode()
        number = self._number
        return b"".join(
            (
                number(file.content), number(len(path)), path, _PARQUET if file.blob is None else _PUFFIN,
                self.partition(file.partition),
                _varint(file.rows), _varint(file.size),
                _NULL,  # column sizes
                self._counts(file.value_counts), self._counts(file.null_counts),
                _NULL,  # counts of NaN
                self._bounds(file.lower), self._bounds(file.upper),
                _NULL, _NULL, _NULL, _NULL,  # key metadata, split offsets, equality ids, sort order
            )
        )  # fmt: skip

    def partition(self, values: Record) -> bytes:
        """Return encoded partition values. Equal ones are encoded once."""
        key = tuple(values._data)
        found = self._partitions.get(key)
        # 1, 1.0 and True, as well as 0.0 and -0.0, are equal keys, but one column has values of one type.
        if found is None or self._has_floats:
            stream = io.BytesIO()
            self._writer.write(BinaryEncoder(stream), values)
            found = self._partitions[key] = stream.getvalue()
        return found

    def _number(self, value: int) -> bytes:
        found = self._numbers.get(value)
        if found is None:
            found = _varint(value)
            if len(self._numbers) < _CACHED:
                self._numbers[value] = found
        return found

    def _counts(self, counts: Mapping[int, int] | None) -> bytes:
        if not counts:
            return _NULL
        key = tuple(counts.items())
        found = self._same.get(key)
        if found is None:
            number = self._number
            parts = [b"\x02", number(len(counts))]
            for field, count in key:
                parts += (number(field), number(count))
            found = b"".join((*parts, _NULL))
            if len(self._same) < _CACHED:
                self._same[key] = found
        return found

    def _bounds(self, bounds: Mapping[int, bytes] | None) -> bytes:
        if not bounds:
            return _NULL
        parts = [b"\x02", self._number(len(bounds))]
        heads = self._heads
        for field, value in bounds.items():
            key = (field, len(value))
            if key not in heads:
                heads[key] = _varint(field) + _varint(len(value))
            parts.append(heads[key])
            parts.append(value)
        parts.append(_NULL)
        return b"".join(parts)

    def added(self, file: FileFacts, snapshot_id: int) -> Entry:
        """Return the entry of a file that a snapshot adds. It inherits the snapshot's sequence number."""
        covers = None
        if file.content == DELETES:
            assert file.lower is not None and file.upper is not None
            covers = file.lower[PATH_FIELD].decode(), file.upper[PATH_FIELD].decode()
        return Entry(
            ADDED, snapshot_id, None, None, file.content, file.path, file.rows, file.size, file.partition,
            self.encode(file), covers, blob=file.blob,
        )  # fmt: skip


_common = functools.lru_cache(1024)(_varint)
"""Encodes ids and numbers that many entries have."""


def head(entry: Entry) -> bytes:
    """Encode what precedes the body."""
    sequence, file_sequence = entry.sequence, entry.file_sequence
    return b"".join(
        (
            _BYTES[entry.status << 1], b"\x02", _common(entry.snapshot_id),
            _NULL if sequence is None else b"\x02" + _common(sequence),
            _NULL if file_sequence is None else b"\x02" + _common(file_sequence),
        )
    )  # fmt: skip


def tail(entry: Entry) -> bytes:
    """Encode what follows the body in format version 3."""
    first, blob = entry.first_row_id, entry.blob
    start = _NULL if first is None else b"\x02" + _varint(first)
    if blob is None:
        return start + _NO_BLOB
    location = blob.location.encode()
    size = _common(blob.size)
    return b"".join((start, b"\x02", _common(len(location)), location, b"\x02", _varint(blob.offset), b"\x02", size))


_NO_BLOB: Final = 3 * _NULL


# --- decoding --------------------------------------------------------------------------------------------------


def decode_block(
    data: bytes, count: int, read_partition: Callable[[BinaryDecoder], Record], *, format_version: int
) -> list[Entry]:
    """Decode a block of entries, those of deleted files too. Inherited numbers are None.

    Args:
        data: The block's bytes, not compressed.
        count: Number of entries.
        read_partition: See ``partition_reader``.
        format_version: Version of the manifest's format.
    """
    decoder = new_decoder(data)
    read_int, tell = decoder.read_int, decoder.tell
    found = []
    for _ in range(count):
        status = read_int()
        snapshot_id = read_int() if read_int() else -1
        sequence = read_int() if read_int() else None
        file_sequence = read_int() if read_int() else None
        start = tell()
        content, path = read_int(), decoder.read_utf8()
        decoder.skip_utf8()
        partition, rows, size = read_partition(decoder), read_int(), read_int()
        for _counts in range(4):
            if read_int():
                _skip_counts(decoder)
        lower, upper = (_read_bounds(decoder) if read_int() else {} for _bounds in range(2))
        _skip_rest(decoder)
        covers = (lower[PATH_FIELD].decode(), upper[PATH_FIELD].decode()) if content == DELETES else None
        body = data[start : tell()]
        first_row_id, blob = _read_tail(decoder) if format_version >= _WITH_TAIL else (None, None)
        found.append(
            Entry(
                status, snapshot_id, sequence, file_sequence, content, path, rows, size, partition, body, covers,
                first_row_id, blob,
            )
        )  # fmt: skip
    return found


def _read_tail(decoder: BinaryDecoder) -> tuple[int | None, Blob | None]:
    """Return the first row id and the deletion vector. A referenced data file alone is of a position delete file."""
    read_int = decoder.read_int
    first = read_int() if read_int() else None
    location = decoder.read_utf8() if read_int() else None
    offset, size = (read_int() if read_int() else None for _ in range(2))
    if location is None or offset is None or size is None:
        return first, None
    return first, Blob(location, offset, size)


def partition_reader(partition_type: StructType) -> Callable[[BinaryDecoder], Record]:
    """Return a function that reads partition values."""
    reader = construct_reader(partition_type, {-1: Record})
    return reader.read


def _block_count(decoder: BinaryDecoder) -> int:
    """Return the number of items in the next block of an array, 0 at its end."""
    count = decoder.read_int()
    if count < 0:  # The size of the block in bytes follows.
        decoder.skip_int()
    return abs(count)


def _skip_counts(decoder: BinaryDecoder) -> None:
    while count := _block_count(decoder):
        decoder.read_ints(2 * count)


def _read_bounds(decoder: BinaryDecoder) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while count := _block_count(decoder):
        decoder.read_int_bytes_dict(count, found)
    return found


def _skip_rest(decoder: BinaryDecoder) -> None:
    """Skip key metadata, split offsets, equality ids and the sort order."""
    if decoder.read_int():
        decoder.skip_bytes()
    for _ in range(2):
        if decoder.read_int():
            while count := _block_count(decoder):
                decoder.read_ints(count)
    if decoder.read_int():
        decoder.skip_int()
