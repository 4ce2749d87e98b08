"""Write the manifests of an Iceberg snapshot: those of the partitions that changed, or all of them.

::

    commits --changes--> files to search for --shelf--> manifests that name them --plan--> written again, merged, kept
    new files --entries_of--> entries with bounds ----------------------------------------^
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from pydelta.log import DeltaLog, Snapshot
from pydelta.log.footers import count_rows
from pydelta.manifests.contents import locations
from pydelta.manifests.iceberg.bounds import FileMetrics, file_metrics
from pydelta.manifests.iceberg.changes import FileChanges
from pydelta.manifests.iceberg.entries import ADDED, EXISTING, BodyEncoder, Entry, FileFacts
from pydelta.manifests.iceberg.entry import FormatVersion
from pydelta.manifests.iceberg.manifests import encode_manifest
from pydelta.manifests.iceberg.partitions import partition_records
from pydelta.manifests.iceberg.plan import MAX_FILES, Held, Ranges, chunks, homes, plan_manifests
from pydelta.manifests.iceberg.reading import live_files, read_manifest
from pydelta.manifests.iceberg.schema import EntrySchema
from pydelta.manifests.iceberg.writing import FileWriter

__all__ = [
    "Built",
    "Shelf",
    "Sums",
    "Target",
    "all_data",
    "changed_data",
    "is_data",
    "partition_key",
    "partition_order",
    "partitions_of",
    "ranges_of",
    "write_entries",
]

_HELD_ENTRIES: Final = 100_000
_CHUNKS_PER_READ: Final = 8
_FEW: Final = 50
"""Number of files up to which manifests are searched for their locations before they are decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a sync writes.

    Args:
        log: Log of the table.
        snapshot: Snapshot of the Delta version.
        entry: The entry's schema.
        spec: Partition spec of new files.
        specs: Every spec that the entry has had, with a schema that has its columns, by id.
        schemes: Scheme of a location -> scheme that readers use.
        snapshot_id: Id of the new Iceberg snapshot.
        writer: Writes files.
        format_version: Version of Iceberg's format.
        max_files: Number of files that a manifest is filled up to.
    """

    log: DeltaLog
    snapshot: Snapshot
    entry: EntrySchema
    spec: PartitionSpec
    specs: Mapping[int, tuple[PartitionSpec, Schema]]
    schemes: Mapping[str, str]
    snapshot_id: int
    writer: FileWriter
    format_version: FormatVersion
    max_files: int = MAX_FILES

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns of partition values in a frame of files."""
        return tuple(self.snapshot.files.spec.keys)


@dataclass(slots=True)
class Sums:
    """Numbers of files, rows and bytes. A deletion vector counts as a file with its own bytes."""

    files: int = 0
    rows: int = 0
    size: int = 0
    vectors: int = 0

    def add(self, entries: Iterable[Entry]) -> None:
        """Count entries."""
        for entry in entries:
            self.files += 1
            self.rows += entry.rows
            self.size += entry.size if entry.blob is None else entry.blob.size
            self.vectors += entry.blob is not None


@dataclass(slots=True)
class Built:
    """The manifests of one kind of content in a new snapshot.

    Args:
        manifests: Manifests to name in the list.
        kept: How many of them are named again as they are.
        added: Files that the snapshot adds.
        removed: Files that it removes.
        partitions: Partitions that changed.
        covered: Change of the number of data files with hidden rows, for delete files.
    """

    manifests: list[ManifestFile] = field(default_factory=list)
    kept: int = 0
    added: Sums = field(default_factory=Sums)
    removed: Sums = field(default_factory=Sums)
    partitions: set[tuple[Any, ...]] = field(default_factory=set)
    covered: int = 0

    def note(self, *, added: Sequence[Entry] = (), removed: Sequence[Entry] = ()) -> None:
        """Count files that the snapshot adds or removes."""
        self.added.add(added)
        self.removed.add(removed)
        self.partitions |= set(map(partition_key, [*added, *removed]))

    @property
    def written(self) -> int:
        """Number of manifests that were written."""
        return len(self.manifests) - self.kept

    @property
    def files(self) -> int:
        """Number of live files."""
        return sum(map(live_files, self.manifests))

    @property
    def rows(self) -> int:
        """Number of rows of live files."""
        return sum((item.added_rows_count or 0) + (item.existing_rows_count or 0) for item in self.manifests)


def partition_key(entry: Entry) -> tuple[Any, ...]:
    """Return the partition of an entry as a key."""
    return tuple(entry.partition._data)


def partition_order(entry: Entry) -> tuple[Any, ...]:
    """Return a key that sorts entries by partition, nulls first."""
    return (*((value is not None, value) for value in entry.partition._data), entry.path)


# --- reading the snapshot before -------------------------------------------------------------------------------


class Shelf:
    """The manifests of the snapshot before, read when they are asked for.

    Args:
        target: What is written.
        manifests: Manifests of one kind of content.
    """

    def __init__(self, target: Target, manifests: Sequence[ManifestFile]) -> None:
        self._target = target
        self.manifests = tuple(manifests)
        self._entries: dict[int, list[Entry]] = {}

    def entries(self, at: int, *, naming: Sequence[bytes] = ()) -> list[Entry]:
        """Return the live entries of a manifest; none if it has none of some locations."""
        found = self._entries.get(at)
        if found is not None:
            return found
        manifest = self.manifests[at]
        path = self._target.writer.path(manifest.manifest_path)
        return read_manifest(self._target.log.store, path, manifest, self._target.specs, naming=naming)

    def hold(self, at: int, entries: list[Entry]) -> None:
        """Keep entries that are needed again, up to a number."""
        if sum(map(len, self._entries.values())) + len(entries) <= _HELD_ENTRIES:
            self._entries[at] = entries

    def files(self, at: int) -> int:
        """Return the number of live files of a manifest."""
        return live_files(self.manifests[at])

    def searched(self, ranges: Ranges | None) -> Iterator[int]:
        """Yield the manifests that may hold files of some partitions, the newest first; with None, all of them."""
        order = sorted(range(len(self.manifests)), key=lambda at: -self.manifests[at].sequence_number)
        for at in order:
            if self.files(at) and (ranges is None or ranges.may_meet(self._bounds(at))):
                yield at

    def _bounds(self, at: int) -> list[tuple[bool, Any, Any]]:
        manifest = self.manifests[at]
        spec, schema = self._target.specs[manifest.partition_spec_id]
        if spec.spec_id != self._target.spec.spec_id:
            return []
        types: list[Any] = [part.field_type for part in spec.partition_type(schema).fields]
        return [
            (
                part.contains_null,
                None if part.lower_bound is None else from_bytes(kind, part.lower_bound),
                None if part.upper_bound is None else from_bytes(kind, part.upper_bound),
            )
            for part, kind in zip(manifest.partitions or (), types, strict=True)
        ]


def ranges_of(target: Target, known: pl.DataFrame) -> Ranges:
    """Return the partitions of files, to choose the manifests that may name them."""
    distinct = known.select(target.keys).unique() if target.keys else known
    return Ranges([record._data for record in partitions_of(target, distinct)])


def partitions_of(target: Target, frame: pl.DataFrame) -> list[Record]:
    """Return the partition of each file of a frame, by its columns of partition values."""
    return partition_records(frame.select(target.keys) if target.keys else frame, target.spec, target.entry)


# --- new entries -----------------------------------------------------------------------------------------------


def entries_of(target: Target, frame: pl.DataFrame) -> list[Entry]:
    """Return the entries of new data files, in order.

    Args:
        target: What is written.
        frame: Columns ``path``, ``location``, ``size``, ``stats`` and the partition values.

    Raises:
        StorageError: A file without statistics cannot be read to count its rows.
    """
    if frame.is_empty():
        return []
    partitioned = {part.source_id for part in target.spec.fields}
    metrics = file_metrics(frame["stats"], target.entry, without=partitioned)
    rows = list(metrics.record_counts)
    missing = [at for at, count in enumerate(rows) if count is None]
    if missing:
        files = list(frame[missing].select("path", "size").iter_rows())
        log = target.log
        counted = count_rows(files, store=log.store, root=log.uri, options=log.options)
        for at, count in zip(missing, counted, strict=True):
            rows[at] = count
    encoder = BodyEncoder(_partition_type(target))
    records = partitions_of(target, frame)
    _count_partition_values(target.spec, records, rows, metrics)
    facts = zip(
        frame["location"].to_list(), rows, frame["size"].to_list(), records, metrics.value_counts,
        metrics.null_counts, metrics.lower, metrics.upper, strict=True,
    )  # fmt: skip
    return [encoder.added(FileFacts(*item), target.snapshot_id) for item in facts]


def _count_partition_values(
    spec: PartitionSpec, records: Sequence[Record], rows: Sequence[int | None], metrics: FileMetrics
) -> None:
    """Count the nulls of partition columns: all rows of a file, or none.

    Iceberg's library takes a null partition value for the least one. Without these counts Trino and Presto would show
    it for ``<``, ``<=`` and ``<>``, because they leave conditions on partition columns to that library.
    """
    for at, part in enumerate(spec.fields):
        for record, count, values, nulls in zip(records, rows, metrics.value_counts, metrics.null_counts, strict=True):
            if count is not None:
                values[part.source_id] = count
                nulls[part.source_id] = count if record[at] is None else 0


def _partition_type(target: Target) -> Any:
    spec, schema = target.specs[target.spec.spec_id]
    return spec.partition_type(schema)


def write_entries(target: Target, entries: Sequence[Entry], *, spec_id: int | None = None) -> list[ManifestFile]:
    """Write entries, all of one spec, into as many manifests as needed. Those of removed files go into the last.

    After a change of the partition columns, removed files are left out: DuckDB ends the process if a snapshot has
    manifests of several specs.
    """
    spec, schema = target.specs[target.spec.spec_id if spec_id is None else spec_id]
    live = [entry for entry in entries if entry.status in (ADDED, EXISTING)]
    gone = [entry for entry in entries if entry.status not in (ADDED, EXISTING)]
    gone = gone if spec.spec_id == target.spec.spec_id else []
    parts = [live[start:end] for start, end in chunks(len(live), max_files=target.max_files)]
    if gone:
        parts = [*parts[:-1], [*(parts[-1] if parts else []), *gone]]
    found = []
    for part in parts:
        path = target.writer.new_manifest()
        data, manifest = encode_manifest(
            target.writer.location(path),
            part,
            spec=spec,
            schema=schema,
            snapshot_id=target.snapshot_id,
            format_version=target.format_version,
        )
        target.writer.put(path, data)
        found.append(manifest)
    return found


# --- changed files ---------------------------------------------------------------------------------------------


def changed_data(target: Target, before: Sequence[ManifestFile], changes: FileChanges) -> Built:
    """Write the manifests of data files that changed.

    Args:
        target: What is written.
        before: Manifests of data files of the snapshot before.
        changes: The changed files.
    """
    shelf = Shelf(target, before)
    live = changes.live
    known = set(changes.known["location"])
    sizes = dict(zip(live["location"], live["size"], strict=True)) if known else {}
    lost: dict[int, _Lost] = {}
    staying: set[str] = set()
    left = len(known)
    naming = [location.encode() for location in known] if len(known) <= _FEW else ()
    for at in shelf.searched(ranges_of(target, changes.known) if changes.whole else None) if known else ():
        entries = shelf.entries(at, naming=naming)
        hits = [entry for entry in entries if entry.path in known]
        is_current = before[at].partition_spec_id == target.spec.spec_id
        stays = {entry.path for entry in hits if is_current and sizes.get(entry.path) == entry.size}
        staying |= stays
        if len(hits) > len(stays):
            gone = [entry for entry in hits if entry.path not in stays]
            lost[at] = _Lost({entry.path for entry in gone}, frozenset(map(partition_key, gone)))
            shelf.hold(at, entries)
        left -= len(hits)
        if not left:
            break
    new = live.filter(~pl.col("location").is_in(list(staying))) if staying else live
    return _written(target, shelf, lost, new.sort(*target.keys, "location"))


@dataclass(frozen=True, slots=True)
class _Lost:
    """The files that a manifest loses, and their partitions."""

    paths: set[str]
    partitions: frozenset[tuple[Any, ...]]


def _written(target: Target, shelf: Shelf, lost: Mapping[int, _Lost], new: pl.DataFrame) -> Built:
    """Write manifests that lose or gain files. One manifest's entries are in memory at a time."""
    held = [
        Held(
            files=shelf.files(at),
            lost=len(lost[at].paths) if at in lost else 0,
            is_current=manifest.partition_spec_id == target.spec.spec_id,
        )
        for at, manifest in enumerate(shelf.manifests)
    ]
    new = new.with_columns(home=_homes(target, [(at, gone) for at, gone in lost.items() if held[at].is_current], new))
    rest = new.filter(pl.col("home").is_null())
    plan = plan_manifests(held, new_files=rest.height, max_files=target.max_files)
    built = Built(kept=len(plan.kept), manifests=[shelf.manifests[at] for at in plan.kept])
    for at in plan.rewritten:
        entries, paths = shelf.entries(at), lost[at].paths
        gone = [entry for entry in entries if entry.path in paths]
        added = entries_of(target, new.filter(pl.col("home") == at))
        live = [*(entry.kept() for entry in entries if entry.path not in paths), *added]
        live.sort(key=partition_order)
        deleted = [entry.deleted(target.snapshot_id) for entry in gone]
        built.manifests += write_entries(target, [*live, *deleted], spec_id=shelf.manifests[at].partition_spec_id)
        built.note(added=added, removed=gone)
    others = [entry.kept() for at in plan.merged for entry in shelf.entries(at)]
    for low, high in chunks(rest.height, max_files=target.max_files) or [(0, 0)]:
        added = entries_of(target, rest[low:high])
        written = sorted([*added, *others], key=partition_order) if others else added
        built.manifests += write_entries(target, written)
        built.note(added=added)
        others = []
    return built


def _homes(target: Target, lost: Sequence[tuple[int, _Lost]], new: pl.DataFrame) -> pl.Series:
    """Return the manifest for each new file, null for a new manifest. None gets more files than a new one would."""
    keys = [tuple(record._data) for record in partitions_of(target, new)] if lost else [()] * new.height
    found = homes([(at, gone.partitions) for at, gone in lost], keys) if lost else [None] * new.height
    crowded = {at for at, count in Counter(found).items() if count > target.max_files}
    return pl.Series([None if at in crowded else at for at in found], dtype=pl.Int64)


# --- all files -------------------------------------------------------------------------------------------------


def all_data(target: Target, before: Sequence[ManifestFile]) -> Built:
    """Write the manifests of all data files. Those that the snapshot before has keep their sequence numbers.

    Args:
        target: What is written.
        before: Manifests of data files of the snapshot before; none to start a table.
    """
    shelf = Shelf(target, before)
    core = target.snapshot.files.core.select("path", "size", "row", *target.keys)
    core = core.sort(*target.keys, "row") if target.keys else core
    built = Built()
    if before:
        core = core.join(_before(target, shelf, core, built), on="row", how="left", maintain_order="left")
    ranges = chunks(core.height, max_files=target.max_files)
    for first in range(0, len(ranges), _CHUNKS_PER_READ):
        part = ranges[first : first + _CHUNKS_PER_READ]
        start, end = part[0][0], part[-1][1]
        frame = target.snapshot.files.with_stats(core[start:end])
        frame = frame.with_columns(location=locations(frame["path"], target.snapshot.table_uri, target.schemes))
        for low, high in part:
            files = frame[low - start : high - start]
            entries = entries_of(target, files)
            if before:
                _inherit(entries, files)
            built.manifests += write_entries(target, entries)
            built.note(added=[entry for entry in entries if entry.status == ADDED])
    return built


_NUMBERS: Final = ("snapshot_id", "sequence", "file_sequence", "first_row_id")


def _before(target: Target, shelf: Shelf, core: pl.DataFrame, built: Built) -> pl.DataFrame:
    """Return the snapshot and sequence numbers of files that stay, by ``row``, and write the entries of the others."""
    rows = pl.DataFrame([locations(core["path"], target.snapshot.table_uri, target.schemes).alias("path"), core["row"]])
    schema = {"path": pl.String(), **dict.fromkeys(_NUMBERS, pl.Int64())}
    found = [pl.DataFrame(schema={"row": pl.UInt64(), **dict.fromkeys(_NUMBERS, pl.Int64())})]
    for at, manifest in enumerate(shelf.manifests):
        entries = shelf.entries(at) if shelf.files(at) else []
        facts = [
            (entry.path, entry.snapshot_id, entry.sequence, entry.file_sequence, entry.first_row_id)
            for entry in entries
        ]
        frame = pl.DataFrame(facts, schema=schema, orient="row").with_row_index("at")
        stay = frame.join(rows, on="path") if manifest.partition_spec_id == target.spec.spec_id else frame.clear()
        if stay.height:
            found.append(stay.select("row", *_NUMBERS))
        staying = set(stay["at"])
        gone = [entry for number, entry in enumerate(entries) if number not in staying]
        deleted = [entry.deleted(target.snapshot_id) for entry in gone]
        built.manifests += write_entries(target, deleted, spec_id=manifest.partition_spec_id)
        built.note(removed=gone)
    return pl.concat(found)


def _inherit(entries: Sequence[Entry], files: pl.DataFrame) -> None:
    """Give entries the numbers that the snapshot before has for their files."""
    for entry, numbers in zip(entries, files.select(_NUMBERS).rows(), strict=True):
        if numbers[0] is not None:
            entry.status = EXISTING
            entry.snapshot_id, entry.sequence, entry.file_sequence, entry.first_row_id = numbers


def is_data(manifest: ManifestFile) -> bool:
    """Return whether a manifest names data files."""
    return manifest.content == ManifestContent.DATA
