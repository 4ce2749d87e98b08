"""Manifests that are written here are read by PyIceberg, and the other way round."""

from __future__ import annotations

import dataclasses
import io
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
    write_manifest,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from pydelta.errors import StorageError
from pydelta.manifests.iceberg.entries import ADDED, DELETES, PATH_FIELD, Blob, BodyEncoder, FileFacts
from pydelta.manifests.iceberg.manifests import (
    decode_list,
    decode_manifest,
    encode_list,
    encode_manifest,
    with_row_ids,
)
from pydelta.manifests.iceberg.reading import read_list, read_manifest
from pydelta.storage.memory import MemoryStore

KINDS = {
    "k": (LongType(), st.integers(-(2**63), 2**63 - 1)),
    "s": (StringType(), st.text(max_size=5)),
    "d": (DateType(), st.integers(-(10**6), 10**6)),
    "t": (TimestamptzType(), st.integers(-(2**53), 2**53)),
    "m": (DecimalType(10, 2), st.integers(-(10**9), 10**9).map(lambda value: Decimal(value).scaleb(-2))),
    "b": (BooleanType(), st.booleans()),
    "w": (BinaryType(), st.binary(max_size=4)),
    "x": (DoubleType(), st.floats(allow_nan=False, width=32)),  # PyIceberg reads partition values of doubles as floats.
    "f": (FloatType(), st.floats(allow_nan=False, width=32)),
}
SCHEMA = Schema(*(NestedField(at, name, kind) for at, (name, (kind, _)) in enumerate(KINDS.items(), start=1)))
SPEC = PartitionSpec(
    *(PartitionField(at, 1000 + at, IdentityTransform(), name) for at, name in enumerate(KINDS, start=1)), spec_id=3
)
PARTITIONS = st.tuples(*(st.none() | values for _, values in KINDS.values()))
NUMBERS = st.integers(0, 2**62)
ROWS = st.integers(0, 2**58)
"""Numbers whose sum over some files is one of 64 bits."""
COUNTS = st.none() | st.dictionaries(st.integers(1, 2**31 - 1), NUMBERS, max_size=4)
BOUNDS = st.none() | st.dictionaries(st.integers(1, 2**31 - 1), st.binary(max_size=70), max_size=4)
FILES = st.builds(
    lambda path, rows, size, partition, **rest: FileFacts(path, rows, size, Record(*partition), **rest),
    st.text(min_size=1, max_size=80),
    ROWS,
    NUMBERS,
    PARTITIONS,
    value_counts=COUNTS,
    null_counts=COUNTS,
    lower=BOUNDS,
    upper=BOUNDS,
)


class Bytes(InputFile, OutputFile):
    """A file in memory."""

    def __init__(self, data=b""):
        self.buffer = io.BytesIO(data)
        super().__init__("memory")

    def __len__(self):
        return len(self.buffer.getvalue())

    def exists(self):
        return True

    def open(self, seekable=True):
        return io.BytesIO(self.buffer.getvalue())

    def create(self, overwrite=False):
        self.buffer = type("Kept", (io.BytesIO,), {"close": lambda self: None})()
        return self.buffer

    def to_input_file(self):
        return self


class One:
    """A FileIO with one file."""

    def __init__(self, data):
        self.data = data

    def new_input(self, location):
        return Bytes(self.data)


def test_the_order_of_the_fields_is_pyiceberg_s():
    assert [field.name for field in DATA_FILE_TYPE[2].fields] == [
        "content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes", "column_sizes",
        "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds", "key_metadata",
        "split_offsets", "equality_ids", "sort_order_id",
    ]  # fmt: skip
    assert [field.name for field in DATA_FILE_TYPE[3].fields] == [
        *(field.name for field in DATA_FILE_TYPE[2].fields),
        "first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes",
    ]  # fmt: skip


@given(st.lists(FILES, min_size=1, max_size=5))
def test_pyiceberg_reads_what_is_written(files):
    encoder = BodyEncoder(SPEC.partition_type(SCHEMA))
    entries = [encoder.added(file, 77) for file in files]
    data, manifest = encode_manifest("memory", entries, spec=SPEC, schema=SCHEMA, snapshot_id=77)
    (listed,) = decode_list(encode_list([manifest], snapshot_id=77, parent_id=None, sequence_number=5))
    assert (listed.added_files_count, listed.added_rows_count) == (len(files), sum(file.rows for file in files))
    assert (listed.sequence_number, listed.min_sequence_number) == (5, 5)
    found = listed.fetch_manifest_entry(One(data))
    for entry, file in zip(found, files, strict=True):
        shown = entry.data_file
        assert (entry.status, entry.snapshot_id, entry.sequence_number) == (ManifestEntryStatus.ADDED, 77, 5)
        assert (shown.file_path, shown.record_count, shown.file_size_in_bytes) == (file.path, file.rows, file.size)
        assert list(shown.partition._data) == list(file.partition._data)
        assert dict(shown.value_counts or {}) == (file.value_counts or {})
        assert dict(shown.null_value_counts or {}) == (file.null_counts or {})
        assert dict(shown.lower_bounds or {}) == (file.lower or {})
        assert dict(shown.upper_bounds or {}) == (file.upper or {})
    ours = decode_manifest(data, listed, spec=SPEC, schema=SCHEMA)
    assert [entry.body for entry in ours] == [entry.body for entry in entries]
    again, _ = encode_manifest("memory", [e.kept() for e in ours], spec=SPEC, schema=SCHEMA, snapshot_id=78)
    kept = decode_manifest(again, listed, spec=SPEC, schema=SCHEMA)
    assert [(e.path, e.snapshot_id, e.sequence, e.body) for e in kept] == [(e.path, 77, 5, e.body) for e in ours]


@given(st.lists(FILES, min_size=1, max_size=3))
def test_what_pyiceberg_writes_is_read(files):
    target = Bytes()
    with write_manifest(2, SPEC, SCHEMA, target, 9, "deflate") as writer:
        for file in files:
            stored = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=file.path,
                file_format=FileFormat.PARQUET,
                partition=file.partition,
                record_count=file.rows,
                file_size_in_bytes=file.size,
                column_sizes={1: 2},
                value_counts=file.value_counts,
                null_value_counts=file.null_counts,
                nan_value_counts={3: 4},
                lower_bounds=file.lower,
                upper_bounds=file.upper,
                key_metadata=b"key",
                split_offsets=[4, 8],
                equality_ids=None,
                sort_order_id=0,
            )
            writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, sequence_number=-1, data_file=stored))
    manifest = writer.to_manifest_file()
    manifest.sequence_number = 4
    found = decode_manifest(target.buffer.getvalue(), manifest, spec=SPEC, schema=SCHEMA)
    assert [(e.status, e.snapshot_id, e.sequence, e.path, e.rows, e.size) for e in found] == [
        (ADDED, 9, 4, file.path, file.rows, file.size) for file in files
    ]
    assert [list(e.partition._data) for e in found] == [list(file.partition._data) for file in files]


@given(st.lists(st.tuples(FILES, st.none() | NUMBERS), min_size=1, max_size=5), ROWS)
def test_rows_of_version_3_have_ids(files, next_row_id):
    encoder = BodyEncoder(SPEC.partition_type(SCHEMA))
    entries = [encoder.added(file, 77) for file, _ in files]
    for entry, (_, first) in zip(entries, files, strict=True):
        entry.first_row_id = first
    data, manifest = encode_manifest("m", entries, spec=SPEC, schema=SCHEMA, snapshot_id=77, format_version=3)
    numbered, after = with_row_ids([manifest, manifest], next_row_id)
    assert after == next_row_id + 2 * sum(entry.rows for entry in entries)
    assert with_row_ids(numbered, after) == (numbered, after), "ids stay"
    written = encode_list(
        numbered, snapshot_id=77, parent_id=1, sequence_number=5, first_row_id=next_row_id, format_version=3
    )
    listed = decode_list(written)
    for start, item in zip((next_row_id, next_row_id + sum(e.rows for e in entries)), listed, strict=True):
        for (_, first), found in zip(files, decode_manifest(data, item, spec=SPEC, schema=SCHEMA), strict=True):
            assert found.first_row_id == (start if first is None else first)
            start += found.rows if first is None else 0
    (without,) = decode_list(encode_list([manifest], snapshot_id=77, parent_id=None, sequence_number=5))
    assert [e.first_row_id for e in decode_manifest(data, without, spec=SPEC, schema=SCHEMA)] == [
        first for _, first in files
    ]
    assert [entry.data_file.file_path for entry in listed[0].fetch_manifest_entry(One(data))] == [
        entry.path for entry in entries
    ]


@given(FILES, st.text(min_size=1, max_size=30), NUMBERS, NUMBERS)
def test_a_vector_s_entry_has_its_place(file, location, offset, size):
    file = dataclasses.replace(file, content=DELETES, blob=Blob(location, offset, size))
    file.lower = file.upper = {PATH_FIELD: location.encode()}
    entry = BodyEncoder(SPEC.partition_type(SCHEMA)).added(file, 77)
    data, manifest = encode_manifest("m", [entry], spec=SPEC, schema=SCHEMA, snapshot_id=77, format_version=3)
    assert manifest.content == ManifestContent.DELETES
    (found,) = decode_manifest(data, manifest, spec=SPEC, schema=SCHEMA)
    assert (found.blob, found.covers, found.body) == (file.blob, (location, location), entry.body)
    kind = data_file_with_partition(SPEC.partition_type(SCHEMA), 3)
    read_types = {-1: ManifestEntry, 2: DataFile, 102: Record}
    with AvroFile(Bytes(data), manifest_entry_schema_with_data_file(3, kind), read_types=read_types) as records:
        (shown,) = (record.data_file for record in records)
    names = [part.name for part in DATA_FILE_TYPE[3].fields]
    values = dict(zip(names, shown._data, strict=True))
    assert values["file_format"] == "PUFFIN"
    assert (values["record_count"], values["file_size_in_bytes"]) == (file.rows, file.size)
    assert [values[name] for name in names[-4:]] == [None, location, offset, size]


def test_many_entries_are_in_several_blocks():
    spec = PartitionSpec(spec_id=0)
    encoder = BodyEncoder(spec.partition_type(SCHEMA))
    entries = [encoder.added(FileFacts(f"file-{at}", at, at, Record()), 1) for at in range(2500)]
    entries[7] = entries[7].deleted(1)
    entries[7].sequence = entries[7].file_sequence = 1
    data, manifest = encode_manifest("memory", entries, spec=spec, schema=SCHEMA, snapshot_id=1)
    (listed,) = decode_list(encode_list([manifest], snapshot_id=1, parent_id=None, sequence_number=1))
    assert (listed.added_files_count, listed.deleted_files_count) == (2499, 1)
    assert len(listed.fetch_manifest_entry(One(data), discard_deleted=False)) == 2500
    assert [entry.rows for entry in decode_manifest(data, listed, spec=spec, schema=SCHEMA)] == [
        at for at in range(2500) if at != 7
    ]


def test_a_delete_file_s_range_is_read_back():
    spec = PartitionSpec(spec_id=0)
    encoder = BodyEncoder(spec.partition_type(SCHEMA))
    facts = FileFacts("d", 3, 9, Record(), lower={PATH_FIELD: b"a"}, upper={PATH_FIELD: b"z"}, content=DELETES)
    data, manifest = encode_manifest("memory", [encoder.added(facts, 1)], spec=spec, schema=SCHEMA, snapshot_id=1)
    (entry,) = decode_manifest(data, manifest, spec=spec, schema=SCHEMA)
    assert entry.covers == ("a", "z")


@pytest.mark.parametrize("part", [0, 0.2, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_not_taken_for_whole(part):
    store = MemoryStore("memory://cutmanifests/t")
    spec = PartitionSpec(spec_id=0)
    encoder = BodyEncoder(spec.partition_type(SCHEMA))
    entries = [encoder.added(FileFacts(f"file-{at}", at, at, Record()), 1) for at in range(1500)]
    data, manifest = encode_manifest("memory", entries, spec=spec, schema=SCHEMA, snapshot_id=1)
    listed = encode_list([manifest], snapshot_id=1, parent_id=None, sequence_number=1)
    store.put("m", data[: math.floor(len(data) * part)])
    store.put("l", listed[: math.floor(len(listed) * part)])
    with pytest.raises(StorageError, match="read only in part"):
        read_manifest(store, "m", manifest, {0: (spec, SCHEMA)})
    if part < 0.99:  # What may be missing behind the last block is its marker.
        with pytest.raises(StorageError, match="read only in part"):
            read_list(store, "l", {"total-data-files": "1500", "total-delete-files": "0"})
