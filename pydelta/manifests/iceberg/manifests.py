"""Encode and decode Iceberg's Avro files: manifests and manifest lists. Pure.

Headers, schemas and manifest lists are PyIceberg's; entries are written in blocks of many by ``entries``, which is
several times as fast.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFile, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.conversions import to_bytes
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
    construct_partition_summaries,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, IcebergType, NestedField, StructType

from pydelta.manifests.iceberg.entries import (
    ADDED,
    DATA,
    DELETED,
    EXISTING,
    Entry,
    decode_block,
    head,
    partition_reader,
    tail,
)

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    from pydelta.manifests.iceberg.entry import FormatVersion

__all__ = ["BytesInput", "decode_list", "decode_manifest", "encode_list", "encode_manifest", "with_row_ids"]

_BLOCK_ENTRIES: Final = 1000
_CODEC: Final = "deflate"
_LEVEL: Final = 4
_NEWEST: Final = 3
"""Format version whose fields manifests have in memory. Those that an older version lacks are null."""
_FIRST_ROW_ID: Final = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[_NEWEST].fields].index("first_row_id")
_SYNC_BYTES: Final = 16
_UNASSIGNED: Final = -1


class _Buffer(io.BytesIO):
    """A stream whose bytes can be read after it was closed."""

    def close(self) -> None:
        """Keep the bytes."""


class _Output(OutputFile):
    """Bytes in memory that PyIceberg writes to."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.buffer = _Buffer()

    def __len__(self) -> int:
        return self.buffer.getbuffer().nbytes

    def exists(self) -> bool:
        """Return False: the file is new."""
        return False

    def to_input_file(self) -> InputFile:
        """Return what was written."""
        return BytesInput(self.location, self.buffer.getvalue())

    def create(self, overwrite: bool = False) -> OutputStream:
        """Return the stream."""
        del overwrite
        return self.buffer


class BytesInput(InputFile):
    """Bytes in memory that PyIceberg reads from."""

    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        """Return True: the bytes are here."""
        return True

    def open(self, seekable: bool = True) -> InputStream:
        """Return a stream over the bytes."""
        del seekable
        return io.BytesIO(self._data)


# --- manifests -------------------------------------------------------------------------------------------------


def encode_manifest(
    location: str,
    entries: Sequence[Entry],
    *,
    spec: PartitionSpec,
    schema: Schema,
    snapshot_id: int,
    format_version: FormatVersion = 2,
) -> tuple[bytes, ManifestFile]:
    """Write a manifest.

    Args:
        location: Location that the manifest will have.
        entries: At least one entry, all of one spec and one kind of content.
        spec: Partition spec of the entries.
        schema: Schema of the table.
        snapshot_id: Snapshot that adds the manifest.
        format_version: Version of Iceberg's format.

    Returns:
        The file's bytes, and the manifest as a manifest list names it, with its sequence number unassigned.
    """
    output = _Output(location)
    partition_type = spec.partition_type(schema)
    is_deletes = entries[0].content != DATA
    meta = {
        "schema": schema.model_dump_json(),
        "partition-spec": "[" + ",".join(field.model_dump_json() for field in spec.fields) + "]",
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(format_version),
        "content": "deletes" if is_deletes else "data",
        "avro.codec": _CODEC,
    }
    file_schema = manifest_entry_schema_with_data_file(
        format_version=format_version,
        data_file=data_file_with_partition(
            format_version=format_version, partition_type=_plainly_named(partition_type)
        ),
    )
    with AvroOutputFile[Any](
        output_file=output, file_schema=file_schema, schema_name="manifest_entry", metadata=meta
    ) as file:
        for start in range(0, len(entries), _BLOCK_ENTRIES):
            block = entries[start : start + _BLOCK_ENTRIES]
            parts: list[bytes] = []
            for entry in block:
                parts += (head(entry), entry.body, tail(entry) if format_version >= _NEWEST else b"")
            content = _deflated(b"".join(parts))
            file.encoder.write_int(len(block))
            file.encoder.write_int(len(content))
            file.encoder.write(content)
            file.encoder.write(file.sync_bytes)
    return output.buffer.getvalue(), _described(location, len(output), entries, spec, schema, snapshot_id)


def _deflated(data: bytes) -> bytes:
    """Encode a block compressed as Avro's ``deflate`` does, at a level that takes a third of the default's time."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def _plainly_named(partition_type: StructType) -> StructType:
    """Return the type with names that Avro allows. Readers go by field ids; DuckDB ends the process at other names.

    PyIceberg keeps letters beyond ASCII.
    """
    fields, taken = [], set[str]()
    for part in partition_type.fields:
        name = re.sub(r"[^A-Za-z0-9_]", lambda found: f"_x{ord(found[0]):X}", part.name)
        name = f"_{name}" if name[:1].isdigit() or not name else name
        name = f"{name}_{part.field_id}" if name in taken else name
        taken.add(name)
        fields.append(NestedField(part.field_id, name, part.field_type, required=part.required))
    return StructType(*fields)


def _described(
    location: str, length: int, entries: Sequence[Entry], spec: PartitionSpec, schema: Schema, snapshot_id: int
) -> ManifestFile:
    files, rows = [0, 0, 0], [0, 0, 0]
    partitions: dict[tuple[Any, ...], Record] = {}
    for entry in entries:
        files[entry.status] += 1
        rows[entry.status] += entry.rows
        partitions[tuple(entry.partition._data)] = entry.partition
    summaries = construct_partition_summaries(spec, schema, list(partitions.values()))
    types = [part.field_type for part in spec.partition_type(schema).fields]
    sequences = [entry.sequence for entry in entries if entry.sequence is not None and entry.status != DELETED]
    return ManifestFile.from_args(
        _NEWEST,
        manifest_path=location,
        manifest_length=length,
        partition_spec_id=spec.spec_id,
        content=ManifestContent.DATA if entries[0].content == DATA else ManifestContent.DELETES,
        sequence_number=_UNASSIGNED,
        min_sequence_number=min(sequences, default=_UNASSIGNED),
        added_snapshot_id=snapshot_id,
        added_files_count=files[ADDED],
        existing_files_count=files[EXISTING],
        deleted_files_count=files[DELETED],
        added_rows_count=rows[ADDED],
        existing_rows_count=rows[EXISTING],
        deleted_rows_count=rows[DELETED],
        partitions=[_widened(part, kind) for part, kind in zip(summaries, types, strict=True)],
        key_metadata=None,
    )


def _widened(summary: PartitionFieldSummary, kind: IcebergType) -> PartitionFieldSummary:
    """Let bounds of zero cover both zeros, which Python takes for one value and other engines for two."""
    if isinstance(kind, FloatType | DoubleType):
        low, high = to_bytes(kind, 0.0), to_bytes(kind, -0.0)
        if summary.lower_bound == low:
            summary[2] = high
        if summary.upper_bound == high:
            summary[3] = low
    return summary


def decode_manifest(
    data: bytes, manifest: ManifestFile, *, spec: PartitionSpec, schema: Schema, naming: Sequence[bytes] = ()
) -> list[Entry]:
    """Read the live entries of a manifest, with the numbers that they inherit from the list.

    Args:
        data: The manifest's bytes.
        manifest: The manifest as the list names it.
        spec: Partition spec of the manifest.
        schema: A schema that has the spec's columns.
        naming: Locations. A manifest that has none of them gives no entry, without being decoded.
    """
    decoder = new_decoder(data)
    header = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    codec = KNOWN_CODECS[header.meta.get("avro.codec", "null")]
    read_partition = partition_reader(spec.partition_type(schema))
    blocks: list[tuple[bytes, int]] = []
    while decoder.tell() < len(data):
        count, content = decoder.read_int(), decoder.read_bytes()
        if decoder.read(_SYNC_BYTES) != header.sync:
            raise ValueError("a block does not end with the marker of its file")
        blocks.append((codec.decompress(content) if codec is not None else content, count))
    if naming and not any(location in block for block, _ in blocks for location in naming):
        return []
    version = int(header.meta.get("format-version", "2"))
    read = (
        entry for block, count in blocks for entry in decode_block(block, count, read_partition, format_version=version)
    )
    found = [entry for entry in read if entry.status != DELETED]
    next_row_id = _first_row_id(manifest)
    for entry in found:
        if next_row_id is not None and entry.first_row_id is None and entry.content == DATA:
            entry.first_row_id = next_row_id
            next_row_id += entry.rows
        if entry.snapshot_id < 0:
            entry.snapshot_id = manifest.added_snapshot_id or 0
        if entry.sequence is None:
            entry.sequence = manifest.sequence_number
        if entry.file_sequence is None:
            entry.file_sequence = manifest.sequence_number
    return found


def _first_row_id(manifest: ManifestFile) -> int | None:
    """Return the first row id. PyIceberg has no attribute for it, and its own records may lack it."""
    found: int | None = manifest[_FIRST_ROW_ID] if len(manifest) > _FIRST_ROW_ID else None
    return found


# --- manifest lists --------------------------------------------------------------------------------------------


def with_row_ids(manifests: Sequence[ManifestFile], next_row_id: int) -> tuple[list[ManifestFile], int]:
    """Give each manifest of data files that has none its first row id, as format version 3 needs.

    Args:
        manifests: Manifests of a new snapshot, in the order of its list.
        next_row_id: The next id of the table.

    Returns:
        The manifests, and the next id after them. Files that already have ids use some of them up, too.
    """
    found = []
    for manifest in manifests:
        if manifest.content == ManifestContent.DATA and _first_row_id(manifest) is None:
            manifest = ManifestFile(*manifest._data)
            manifest[_FIRST_ROW_ID] = next_row_id
            next_row_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        found.append(manifest)
    return found, next_row_id


def encode_list(
    manifests: Sequence[ManifestFile],
    *,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    first_row_id: int | None = None,
    format_version: FormatVersion = 2,
) -> bytes:
    """Write the manifest list of a snapshot. Manifests that the snapshot adds get its sequence number."""
    output = _Output("list")
    meta = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        "format-version": str(format_version),
        "avro.codec": _CODEC,
    }
    if first_row_id is not None:
        meta["first-row-id"] = str(first_row_id)
    with AvroOutputFile[ManifestFile](
        output_file=output,
        file_schema=MANIFEST_LIST_FILE_SCHEMAS[format_version],
        record_schema=MANIFEST_LIST_FILE_SCHEMAS[_NEWEST],
        schema_name="manifest_file",
        metadata=meta,
    ) as file:
        if manifests:
            file.write_block([_with_sequence(item, sequence_number) for item in manifests])
    return output.buffer.getvalue()


def _with_sequence(manifest: ManifestFile, sequence_number: int) -> ManifestFile:
    found = ManifestFile(*manifest._data)
    if found.sequence_number == _UNASSIGNED:
        found.sequence_number = sequence_number
    if found.min_sequence_number == _UNASSIGNED:
        found.min_sequence_number = sequence_number
    return found


def decode_list(data: bytes) -> list[ManifestFile]:
    """Read a manifest list of any format version."""
    with AvroFile[ManifestFile](
        BytesInput("list", data),
        MANIFEST_LIST_FILE_SCHEMAS[_NEWEST],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as file:
        return list(file)
