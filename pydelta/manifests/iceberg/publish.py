"""Publish a table's Iceberg entry at its newest version: atomic, only the changes, never backwards.

::

    newest metadata + log --> nothing to do | build manifests and delete files | all of them
        put vN+1.metadata.json if it is absent --lost--> read the winner, start again
                                               --won---> move version-hint.text forward

A stopped publisher leaves the old state, or the new one behind an older hint, which the next one moves. Files that
nothing refers to are left for ``unreferenced_files``.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataUtil

from pydelta.errors import TableNotFoundError, UnsafeOperationError, VersionNotFoundError
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.columns import adds_from_frame
from pydelta.manifests.contents import locations, with_scheme
from pydelta.manifests.iceberg.bounds import ENTRY_PROPERTIES
from pydelta.manifests.iceberg.build import Built, Target, all_data, changed_data, is_data, ranges_of
from pydelta.manifests.iceberg.changes import FileChanges, file_changes
from pydelta.manifests.iceberg.deletes import all_deletes, changed_deletes, hidden_rows
from pydelta.manifests.iceberg.entry import (
    FormatVersion,
    Found,
    IcebergOptions,
    IcebergPublished,
    find_newest,
    read_hint,
)
from pydelta.manifests.iceberg.format_version import format_version
from pydelta.manifests.iceberg.manifests import encode_list, with_row_ids
from pydelta.manifests.iceberg.metadata import (
    COVERED_PROPERTY,
    FOLDER,
    HINT_PATH,
    ID_PROPERTY,
    LEFT_OUT_PROPERTY,
    MAPPING_PROPERTY,
    TIMESTAMP_PROPERTY,
    VERSION_PROPERTY,
    MetadataChange,
    NewSnapshot,
    current_snapshot,
    encoded,
    forgotten,
    has_row_ids,
    is_ours,
    metadata_path,
    next_metadata,
    next_row_id,
)
from pydelta.manifests.iceberg.partitions import partition_spec
from pydelta.manifests.iceberg.reading import read_list
from pydelta.manifests.iceberg.samples import checked_schema
from pydelta.manifests.iceberg.schema import EntrySchema, PreviousColumns, entry_schema
from pydelta.manifests.iceberg.summary import snapshot_summary
from pydelta.manifests.iceberg.writing import FileWriter
from pydelta.manifests.lease import ICEBERG, Lease, ManifestsBusyError
from pydelta.manifests.publish import holding
from pydelta.protocol.paths import plain_root
from pydelta.protocol.row_tracking import materialized_columns
from pydelta.settings.clock import epoch_ms
from pydelta.storage import PutOutcome, Store

__all__ = ["known_specs", "move_hint", "publish_iceberg", "put_metadata"]

_ATTEMPTS: Final = 5
_CHECKED_FILES: Final = 100_000
"""Number of files up to which the files of a table are loaded to compare counts."""
_UNSUPPORTED: Final = "pydelta.iceberg.unsupported"


def publish_iceberg(
    log: DeltaLog, options: IcebergOptions | None = None, version: int | None = None
) -> IcebergPublished:
    """Bring the Iceberg entry to a version.

    Args:
        log: Log of the table.
        options: The options of publishing.
        version: Version to publish; None for the newest. An entry of a later version stays.

    Raises:
        TableNotFoundError: There is no table.
        VersionNotFoundError: The log cannot rebuild the version.
        UnsupportedFeatureError, SchemaError: Iceberg cannot hold a column, and the error names it. Or the entry is of a
            later format version than the table asks for.
        UnsafeOperationError: Another engine changed the entry.
        ManifestsBusyError, LeaseLostError: Another process publishes; try again.
        StorageError: The store failed. The entry is unchanged, and the next run publishes.
    """
    options = options or IcebergOptions()
    store = log.store
    before, snapshot = find_newest(store), _wanted(log, version)

    def is_done(found: Found | None) -> bool:
        return found is not None and found.hint == found.number and _is_current(log, found, snapshot, options, version)

    if before is not None and is_done(before):
        return _unchanged(log, before, options)
    with holding(log, ICEBERG, wait_seconds=options.wait_seconds, done=lambda: is_done(find_newest(store))) as lease:
        if lease is None:
            found = find_newest(store)
            assert found is not None, "another process published it"
            return _unchanged(log, found, options)
        result = _publish(log, options, version, lease)
        if lease.is_doubted:  # A former holder may have written an older hint; it has just been read and moved.
            lease.settle()
        return result


def _wanted(log: DeltaLog, version: int | None) -> Snapshot:
    snapshot = log.update()
    if snapshot.version < 0:
        raise TableNotFoundError.at(log.uri)
    return snapshot if version in (None, snapshot.version) else log.snapshot(version=version)


def _unchanged(log: DeltaLog, found: Found, options: IcebergOptions) -> IcebergPublished:
    entry = found.entry(_root(log, options) + metadata_path(found.number))
    return IcebergPublished(entry=entry, previous=entry)


def _root(log: DeltaLog, options: IcebergOptions) -> str:
    return with_scheme(plain_root(log.uri), options.schemes)


def _is_current(log: DeltaLog, found: Found, snapshot: Snapshot, options: IcebergOptions, asked: int | None) -> bool:
    """Return whether nothing has to be published. An entry of a later version than the newest one is of a lost log."""
    if options.full or options.adopt:
        return False
    if _why_restart(log, found, snapshot, options) is not None or not is_ours(found.metadata):
        return False
    if json.loads(found.metadata["properties"].get(LEFT_OUT_PROPERTY, "[]")) and not _omits(snapshot, options):
        return False
    version = _version(found.metadata)
    if asked is not None and version > asked:
        return True
    return version == snapshot.version and found.metadata["format-version"] == format_version(
        snapshot, options, found.metadata
    )


def _version(metadata: Mapping[str, Any]) -> int:
    return int(metadata["properties"][VERSION_PROPERTY])


def _why_restart(log: DeltaLog, found: Found, snapshot: Snapshot, options: IcebergOptions) -> str | None:
    """Return why the entry is started again, as a phrase, or None."""
    metadata, properties = found.metadata, found.metadata.get("properties", {})
    assert snapshot.metadata is not None
    if not is_ours(metadata):
        return "another writer had changed it" if options.adopt else None
    if properties[ID_PROPERTY] != snapshot.metadata.id:
        return "another table was published here before"
    if metadata["location"] != _root(log, options) + FOLDER:
        return f"the table was at {metadata['location'].removesuffix('/' + FOLDER)} when it was published"
    return None


def _refuse_drift(log: DeltaLog, found: Found | None, options: IcebergOptions) -> None:
    if found is None or is_ours(found.metadata) or options.adopt:
        return
    raise UnsafeOperationError(
        f"The Iceberg entry was changed by another writer: {metadata_path(found.number)} is not made from the log.",
        hint="Its changes are not in the Delta table. Look at what it wrote, then publish with adopt=True to replace "
        "the entry.",
        table=log.uri,
    )


# --- one publication ---------------------------------------------------------------------------------------------


def _publish(log: DeltaLog, options: IcebergOptions, version: int | None, lease: Lease) -> IcebergPublished:
    store = log.store
    for _ in range(_ATTEMPTS):
        # The entry is read first, so that the table is not older than it.
        before = find_newest(store)
        _refuse_drift(log, before, options)
        snapshot = _wanted(log, version)
        if before is not None and _is_current(log, before, snapshot, options, version):
            move_hint(store, before.number, lease)
            return _unchanged(log, before, options)
        made = _make(log, snapshot, before, options, lease)
        number = before.number + 1 if before is not None else 1
        data = encoded(made.metadata)
        TableMetadataUtil.parse_raw(data.decode())  # It raises if a reader could not read it.
        if put_metadata(store, number, data, lease):
            move_hint(store, number, lease)
            return _result(
                log, options, made, Found(number=number, metadata=made.metadata, data=data, hint=number), before
            )
        options = replace(options, full=False, adopt=False)
    raise ManifestsBusyError(
        f"Other publishers of the Iceberg entry were faster {_ATTEMPTS} times.",
        retryable=True,
        hint="Run it again.",
        table=log.uri,
    )


def put_metadata(store: Store, number: int, data: bytes, lease: Lease) -> bool:
    """Create a metadata file. Returns whether it is this one, not another publisher's."""
    lease.check()
    path = metadata_path(number)
    outcome = store.put_if_absent(path, data)
    # The store may have repeated a request whose reply was lost, so the file can be ours although it exists.
    return outcome is PutOutcome.CREATED or (store.head(path) is not None and store.read(path) == data)


def move_hint(store: Store, number: int, lease: Lease) -> None:
    """Let ``version-hint.text`` name a metadata file, unless it names a later one.

    A publisher that is overtaken between reading the hint and putting it finds the later metadata afterwards.
    """
    hint = read_hint(store)
    while hint is None or hint < number:
        lease.check()
        store.put(HINT_PATH, str(number).encode())
        hint = number
        while store.head(metadata_path(number + 1)) is not None:
            number += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A metadata file with all that it refers to, before it is put."""

    metadata: Mapping[str, Any]
    data: Built
    deletes: Built
    reason: str | None
    puts: int
    left_out: tuple[str, ...]
    int96: tuple[str, ...]


def _result(
    log: DeltaLog, options: IcebergOptions, made: _Made, found: Found, before: Found | None
) -> IcebergPublished:
    root = _root(log, options)
    return IcebergPublished(
        entry=found.entry(root + metadata_path(found.number)),
        previous=before.entry(root + metadata_path(before.number)) if before is not None else None,
        full=made.reason is not None,
        reason=made.reason,
        manifests_written=made.data.written + made.deletes.written,
        manifests_kept=made.data.kept + made.deletes.kept,
        files_added=made.data.added.files,
        files_removed=made.data.removed.files,
        delete_files=made.deletes.added.files,
        puts=made.puts + 2,
        left_out=made.left_out,
        int96=made.int96,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """What the next metadata file goes on from.

    Args:
        metadata: The metadata before, or None to start a table.
        reason: Why all files are written, as a phrase, or None.
        entry: The schema.
        spec: The partition spec.
        specs: Every spec with a schema that has its columns, by id.
        format_version: Version of Iceberg's format.
        int96: Columns of times that files store as INT96.
    """

    metadata: Mapping[str, Any] | None
    reason: str | None
    entry: EntrySchema
    spec: PartitionSpec
    specs: Mapping[int, tuple[PartitionSpec, Schema]]
    format_version: FormatVersion
    int96: tuple[str, ...]


def _basis(log: DeltaLog, snapshot: Snapshot, before: Found | None, options: IcebergOptions) -> _Basis:
    metadata = before.metadata if before is not None else None
    reason = "nothing was published yet" if before is None else _why_restart(log, before, snapshot, options)
    if reason is not None:
        metadata = None
    elif metadata is not None and _version(metadata) > snapshot.version:
        reason = f"version {_version(metadata)} was published, but the table is at {snapshot.version}"
        metadata = forgotten(metadata)
    number = format_version(snapshot, options, metadata)
    entry, int96 = checked_schema(
        lambda only: _schema_of(snapshot, metadata, options, only), log, snapshot, begins=metadata is None
    )
    if metadata is not None and entry.restarts is not None:
        reason, metadata = entry.restarts, forgotten(metadata)
    known = known_specs(metadata)
    spec = partition_spec(entry, snapshot.partition_columns, [item for item, _ in known.values()])
    return _Basis(
        metadata=metadata,
        reason=reason,
        entry=entry,
        spec=spec,
        specs={**known, spec.spec_id: (spec, entry.schema)},
        format_version=number,
        int96=int96,
    )


def _make(log: DeltaLog, snapshot: Snapshot, before: Found | None, options: IcebergOptions, lease: Lease) -> _Made:
    """Write the files of the next metadata file, and return it."""
    basis = _basis(log, snapshot, before, options)
    metadata, entry, spec = basis.metadata, basis.entry, basis.spec
    root = _root(log, options)
    with FileWriter(log.store, root, lease.check) as writer:
        target = Target(
            log=log,
            snapshot=snapshot,
            entry=entry,
            spec=spec,
            specs=basis.specs,
            schemes=options.schemes,
            snapshot_id=_new_id(metadata),
            writer=writer,
            format_version=basis.format_version,
            max_files=options.files_per_manifest,
        )
        data, deletes, reason, data_change = _build(target, metadata, basis.reason, options)
        listed = writer.new_list(target.snapshot_id)
        summary = snapshot_summary(snapshot, metadata, data, deletes, data_change=data_change)
        manifests, row_ids = _with_row_ids(target, metadata, [*data.manifests, *deletes.manifests])
        new = NewSnapshot(
            id=target.snapshot_id,
            manifest_list=writer.location(listed),
            timestamp_ms=snapshot.timestamp_ms,
            summary=summary,
            row_ids=row_ids,
        )
        after = next_metadata(
            metadata,
            _change(target, root + FOLDER, new, keep=options.keep_snapshots),
            now_ms=epoch_ms(),
            previous_location=root + metadata_path(before.number) if before is not None else None,
        )
        newest = current_snapshot(after)
        assert newest is not None, "it was just added"
        writer.put(
            listed,
            encode_list(
                manifests,
                snapshot_id=target.snapshot_id,
                parent_id=newest.get("parent-snapshot-id"),
                sequence_number=newest["sequence-number"],
                first_row_id=newest.get("first-row-id"),
                format_version=basis.format_version,
            ),
        )
        writer.settle()
    return _Made(
        metadata=after,
        data=data,
        deletes=deletes,
        reason=reason,
        puts=writer.puts,
        left_out=entry.left_out,
        int96=basis.int96,
    )


def _change(target: Target, location: str, new: NewSnapshot, *, keep: int) -> MetadataChange:
    return MetadataChange(
        location=location,
        schema=json.loads(target.entry.schema.model_dump_json()),
        last_column_id=target.entry.last_column_id,
        spec=json.loads(target.spec.model_dump_json()),
        properties=_properties(target.snapshot, target.entry),
        snapshot=new,
        keep=keep,
        format_version=target.format_version,
    )


def _with_row_ids(
    target: Target, metadata: Mapping[str, Any] | None, manifests: list[ManifestFile]
) -> tuple[list[ManifestFile], int]:
    """Give manifests their first row ids, if the format has them. Returns them, and how many ids they use up."""
    if not has_row_ids(target.format_version):
        return manifests, 0
    first = next_row_id(metadata)
    numbered, after = with_row_ids(manifests, first)
    return numbered, after - first


def _schema_of(
    snapshot: Snapshot,
    metadata: Mapping[str, Any] | None,
    options: IcebergOptions,
    only_in_files: Sequence[Sequence[str]],
) -> EntrySchema:
    previous = None
    if metadata is not None:
        found = {item["schema-id"]: item for item in metadata["schemas"]}[metadata["current-schema-id"]]
        previous = PreviousColumns(
            schema=Schema.model_validate(found),
            last_column_id=metadata["last-column-id"],
            name_mapping=metadata["properties"].get(MAPPING_PROPERTY),
        )
    return entry_schema(
        snapshot.schema,
        mode=snapshot.column_mapping_mode,
        previous=previous,
        omit=_omits(snapshot, options),
        only_in_files=[*((name,) for name in materialized_columns(snapshot.row_tracking)), *only_in_files],
    )


def _omits(snapshot: Snapshot, options: IcebergOptions) -> bool:
    assert snapshot.metadata is not None
    return options.omit_unsupported or snapshot.metadata.configuration.get(_UNSUPPORTED) == "omit"


def known_specs(metadata: Mapping[str, Any] | None) -> dict[int, tuple[PartitionSpec, Schema]]:
    """Return the specs of an entry, each with a schema that has its columns. One without such a schema is not used."""
    if metadata is None:
        return {}
    schemas = [Schema.model_validate(item) for item in metadata["schemas"]]
    schemas.sort(key=lambda item: (item.schema_id == metadata["current-schema-id"], item.schema_id), reverse=True)
    found = {}
    for item in metadata["partition-specs"]:
        spec = PartitionSpec.model_validate(item)
        sources = {part.source_id for part in spec.fields}
        for schema in schemas:
            if sources <= set(schema.field_ids):
                found[spec.spec_id] = (spec, schema)
                break
        else:
            found[spec.spec_id] = (spec, schemas[0])
    return found


def _new_id(metadata: Mapping[str, Any] | None) -> int:
    used = {item["snapshot-id"] for item in metadata["snapshots"]} if metadata is not None else set()
    while True:
        number = secrets.randbits(62) + 1
        if number not in used:
            return number


def _properties(snapshot: Snapshot, entry: EntrySchema) -> dict[str, str]:
    assert snapshot.metadata is not None
    return {
        ID_PROPERTY: snapshot.metadata.id,
        VERSION_PROPERTY: str(snapshot.version),
        TIMESTAMP_PROPERTY: str(snapshot.timestamp_ms),
        MAPPING_PROPERTY: entry.name_mapping,
        LEFT_OUT_PROPERTY: json.dumps(list(entry.left_out), ensure_ascii=False),
        # Engines that expire snapshots or drop the table leave the data files alone: they are the Delta table's.
        "gc.enabled": "false",
        **ENTRY_PROPERTIES,
    }


# --- what to build ---------------------------------------------------------------------------------------------


def _build(
    target: Target, metadata: Mapping[str, Any] | None, reason: str | None, options: IcebergOptions
) -> tuple[Built, Built, str | None, bool]:
    """Write the manifests. Returns those of data and of deletes, why all were written, and whether rows changed."""
    before = _manifests(target, metadata)
    data, deletes = [item for item in before if is_data(item)], [item for item in before if not is_data(item)]
    if reason is None:
        reason = "it was asked for" if options.full else _why_full(target, metadata)
    if reason is None:
        assert metadata is not None
        found = _changes(target, metadata)
        if isinstance(found, FileChanges):
            built = changed_data(target, data, found)
            hidden = _changed_deletes(target, deletes, found)
            hidden.covered += _covered(metadata)
            reason = _why_wrong(target.snapshot, built, hidden)
            if reason is None:
                return built, hidden, None, found.data_change
        else:
            reason = found
    return all_data(target, data), _all_deletes(target, deletes), reason, True


def _covered(metadata: Mapping[str, Any]) -> int:
    """Return the number of data files with hidden rows of the snapshot before."""
    snapshot = current_snapshot(metadata)
    return int(snapshot["summary"].get(COVERED_PROPERTY, 0)) if snapshot is not None else 0


def _why_wrong(snapshot: Snapshot, data: Built, deletes: Built) -> str | None:
    """Return why the counts are not those of the table, as a phrase, or None if they are."""
    files = snapshot.files
    is_loaded = not files.in_parts and (data.files <= _CHECKED_FILES or files.is_materialized)
    count = files.core.height if is_loaded else snapshot.num_files
    if data.files != count:
        return f"the entry would have {data.files} files, but the table has {count}"
    hidden = files.core.height - files.core["dv_id"].null_count() if is_loaded else deletes.covered
    if deletes.covered != hidden:
        return f"the entry would hide rows of {deletes.covered} files, but the table hides rows of {hidden}"
    return None


def _manifests(target: Target, metadata: Mapping[str, Any] | None) -> list[ManifestFile]:
    snapshot = current_snapshot(metadata) if metadata is not None else None
    if snapshot is None:
        return []
    return read_list(target.log.store, target.writer.path(snapshot["manifest-list"]), snapshot["summary"])


def _why_full(target: Target, metadata: Mapping[str, Any] | None) -> str | None:
    """Return why bounds of unchanged files have to be written again, or None."""
    if metadata is None or current_snapshot(metadata) is None:
        return "nothing was published yet"
    stored = {item["schema-id"]: item for item in metadata["schemas"]}[metadata["current-schema-id"]]
    before, now = Schema.model_validate(stored), target.entry.schema
    for number in sorted(set(before.field_ids) & set(now.field_ids)):
        old, new = before.find_type(number), now.find_type(number)
        if old.is_primitive and str(old) != str(new):
            return f"the type of {now.find_column_name(number)} changed from {old} to {new}"
    return None


def _changes(target: Target, metadata: Mapping[str, Any]) -> FileChanges | str:
    """Return the files that changed since the entry's version, or why they are not known."""
    snapshot, since = target.snapshot, _version(metadata)
    try:
        found = file_changes(
            target.log.changes(since, snapshot.version),
            spec=snapshot.files.spec,
            root=snapshot.table_uri,
            schemes=target.schemes,
        )
        # Values of other partition columns may have the same names and other types.
        return replace(found, whole=found.whole and metadata["default-spec-id"] == target.spec.spec_id)
    except VersionNotFoundError:
        return f"the log no longer reaches back to version {since}"


def _changed_deletes(target: Target, before: Sequence[ManifestFile], changes: FileChanges) -> Built:
    frame = changes.live.filter(pl.col("dv_id").is_not_null())
    adds = adds_from_frame(frame, target.snapshot.files.spec.physical_names)
    ranges = ranges_of(target, changes.known) if changes.whole and changes.known.height else None
    hidden = hidden_rows(target, frame, adds)
    built = changed_deletes(target, before, changes, hidden, ranges)
    built.covered += frame.height - len(hidden)  # A vector may hide nothing.
    return built


def _all_deletes(target: Target, before: Sequence[ManifestFile]) -> Built:
    files = target.snapshot.files
    frame = files.core.filter(pl.col("dv_id").is_not_null())
    frame = frame.with_columns(location=locations(frame["path"], target.snapshot.table_uri, target.schemes))
    built = all_deletes(target, before, hidden_rows(target, frame, files.adds(frame)))
    built.covered = frame.height
    return built
