"""Write hidden rows as Iceberg's delete files: one file per partition for all changed vectors.

::

    format version 2    position delete files: locations and positions, one entry per file
    format version 3    Puffin files: a vector per data file, one entry per vector

A delete file is never changed. If the vector of one of its data files changes, or the data file goes, the file is
removed, and the rows of its other data files move into the new one. So each vector of a live Puffin file is live, too:
PyIceberg takes all of a file's. A table that goes over to version 3 keeps its position delete files in this way.
"""

from __future__ import annotations

import bisect
import io
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import ManifestFile
from pyiceberg.typedef import Record

from pydelta.errors import LogCorruptedError
from pydelta.log.vector_files import read_deleted_rows
from pydelta.manifests.iceberg.build import (
    Built,
    Shelf,
    Target,
    partition_order,
    partitions_of,
    write_entries,
)
from pydelta.manifests.iceberg.changes import FileChanges
from pydelta.manifests.iceberg.entries import DELETES, PATH_FIELD, BodyEncoder, Entry, FileFacts
from pydelta.manifests.iceberg.plan import Held, Ranges, plan_manifests
from pydelta.manifests.iceberg.puffin import encode_puffin
from pydelta.manifests.iceberg.reading import read_vectors, read_whole
from pydelta.protocol.actions import AddFile, DeletionVectorDescriptor

__all__ = ["HiddenFile", "all_deletes", "changed_deletes", "encode_positions", "hidden_rows"]

_POS_FIELD: Final = 2147483545
_MOST_POSITIONS: Final = 4_000_000
_MOST_VECTORS: Final = 1000
"""Number of vectors up to which a Puffin file is filled, since they move together when one of them changes."""
_WITH_VECTORS: Final = 3
"""Format version whose hidden rows are vectors."""
_SCHEMA: Final = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_FIELD)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(_POS_FIELD)}),
    ]
)


@dataclass(frozen=True, slots=True)
class HiddenFile:
    """A data file with hidden rows.

    Args:
        location: Location of the data file.
        partition: Its partition.
        vector: The vector that hides its rows.
    """

    location: str
    partition: Record
    vector: DeletionVectorDescriptor


_Rows = tuple[str, npt.NDArray[np.int64]]


def encode_positions(files: Sequence[_Rows]) -> bytes:
    """Write a position delete file.

    Args:
        files: Locations, ascending, and the positions of each, ascending.
    """
    lengths = np.array([len(positions) for _, positions in files])
    index = pa.array(np.repeat(np.arange(len(files), dtype=np.int32), lengths))
    paths = pa.DictionaryArray.from_arrays(index, pa.array([location for location, _ in files]))
    table = pa.table(
        [paths.cast(pa.string()), pa.array(np.concatenate([positions for _, positions in files]))], schema=_SCHEMA
    )
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    return stream.getvalue()


# --- which delete files go ---------------------------------------------------------------------------------------


def changed_deletes(
    target: Target,
    before: Sequence[ManifestFile],
    changes: FileChanges,
    hidden: Sequence[HiddenFile],
    ranges: Ranges | None,
) -> Built:
    """Write the delete files of changed vectors, and the manifests that name them.

    Args:
        target: What is written.
        before: Manifests of delete files of the snapshot before.
        changes: The changed files.
        hidden: Changed files with hidden rows.
        ranges: Partitions of the changed files, or None to search all manifests.
    """
    shelf = Shelf(target, before)
    lost = _lost(target, shelf, sorted(changes.known["location"]), ranges)
    built = _written(target, shelf, lost.entries, hidden, lost.moved)
    built.covered = len(hidden) - lost.uncovered
    return built


@dataclass(slots=True)
class _Lost:
    """What of the snapshot before does not stay.

    Args:
        entries: Entries that are removed, by the positions of their manifests.
        moved: Rows of data files that did not change but lie in a file that is removed, with their partitions.
        uncovered: Number of changed data files whose rows the entries hide.
    """

    entries: dict[int, list[Entry]] = field(default_factory=dict)
    moved: list[tuple[Record, _Rows]] = field(default_factory=list)
    uncovered: int = 0

    def add(self, at: int, entry: Entry, stays: Sequence[_Rows], uncovered: int) -> None:
        """Note an entry that is removed."""
        self.entries.setdefault(at, []).append(entry)
        self.moved += [(entry.partition, rows) for rows in stays]
        self.uncovered += uncovered


def _lost(target: Target, shelf: Shelf, known: Sequence[str], ranges: Ranges | None) -> _Lost:
    """Find the delete files that hide rows of changed data files."""
    found = _Lost()
    searched = list(shelf.searched(ranges)) if known else []
    puffins = _changed_puffins(shelf, searched, known) if target.format_version >= _WITH_VECTORS else frozenset()
    for at in searched:
        entries = shelf.entries(at)
        for entry in entries:
            if entry.blob is None and _may_cover(entry, known):
                rows = _read(target, entry)
                stays = [item for item in rows if not _has(known, item[0])]
                if len(stays) < len(rows):
                    found.add(at, entry, stays, len(rows) - len(stays))
        vectors = [entry for entry in entries if entry.blob is not None and entry.path in puffins]
        stay = [entry for entry in vectors if not _may_cover(entry, known)]
        rows_of = dict(read_vectors(target.log.store, target.writer.path, stay))
        for entry in vectors:
            assert entry.blob is not None, "only vectors were taken"
            location = entry.blob.location
            stays = [(location, rows_of[location])] if location in rows_of else []
            found.add(at, entry, stays, 1 - len(stays))
    return found


def _changed_puffins(shelf: Shelf, searched: Sequence[int], known: Sequence[str]) -> frozenset[str]:
    """Return the Puffin files with a vector of a changed data file. Their vectors may be in several manifests."""
    found = set()
    for at in searched:
        entries = shelf.entries(at)
        shelf.hold(at, entries)
        found |= {entry.path for entry in entries if entry.blob is not None and _may_cover(entry, known)}
    return frozenset(found)


def all_deletes(target: Target, before: Sequence[ManifestFile], hidden: Sequence[HiddenFile]) -> Built:
    """Write the delete files of all vectors, and remove all earlier ones."""
    shelf = Shelf(target, before)
    lost = {at: shelf.entries(at) for at in range(len(before)) if shelf.files(at)}
    return _written(target, shelf, lost, hidden, ())


def _has(ascending: Sequence[str], location: str) -> bool:
    at = bisect.bisect_left(ascending, location)
    return at < len(ascending) and ascending[at] == location


def _may_cover(entry: Entry, known: Sequence[str]) -> bool:
    assert entry.covers is not None
    at = bisect.bisect_left(known, entry.covers[0])
    return at < len(known) and known[at] <= entry.covers[1]


def _read(target: Target, entry: Entry) -> list[_Rows]:
    """Return the data files of a delete file with their positions."""
    data = read_whole(target.log.store, target.writer.path(entry.path), entry.size)
    table = pq.read_table(pa.BufferReader(data)).combine_chunks()
    paths, positions = table["file_path"], table["pos"].to_numpy()
    found = []
    ends = pc.run_end_encode(paths.combine_chunks())
    start = 0
    for location, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
        found.append((location, positions[start:end]))
        start = end
    return found


# --- writing ---------------------------------------------------------------------------------------------------


def _written(
    target: Target,
    shelf: Shelf,
    lost: Mapping[int, Sequence[Entry]],
    hidden: Sequence[HiddenFile],
    moved: Sequence[tuple[Record, _Rows]],
) -> Built:
    new = _delete_files(target, hidden, moved)
    held = [
        Held(
            files=shelf.files(at),
            lost=len(lost.get(at, ())),
            is_current=manifest.partition_spec_id == target.spec.spec_id,
        )
        for at, manifest in enumerate(shelf.manifests)
    ]
    plan = plan_manifests(held, new_files=len(new), max_files=target.max_files)
    built = Built(kept=len(plan.kept), manifests=[shelf.manifests[at] for at in plan.kept])
    added = list(new)
    for at in plan.rewritten:
        gone = {entry.path for entry in lost[at]}
        entries = [entry.kept() for entry in shelf.entries(at) if entry.path not in gone]
        entries += [entry.deleted(target.snapshot_id) for entry in lost[at]]
        if held[at].is_current:
            added += entries
        else:
            built.manifests += write_entries(target, entries, spec_id=shelf.manifests[at].partition_spec_id)
        built.note(removed=lost[at])
    for at in plan.merged:
        added += [entry.kept() for entry in shelf.entries(at)]
    built.manifests += write_entries(target, sorted(added, key=partition_order))
    built.note(added=new)
    return built


def _delete_files(target: Target, hidden: Sequence[HiddenFile], moved: Sequence[tuple[Record, _Rows]]) -> list[Entry]:
    """Write delete files, one for each partition and some millions of rows."""
    partitions: dict[tuple[Any, ...], tuple[Record, list[HiddenFile | _Rows]]] = {}
    items: list[tuple[Record, HiddenFile | _Rows]] = [(item.partition, item) for item in hidden]
    for partition, item in [*items, *moved]:
        partitions.setdefault(tuple(partition._data), (partition, []))[1].append(item)
    spec, schema = target.specs[target.spec.spec_id]
    encoder = BodyEncoder(spec.partition_type(schema))
    put = _put_vectors if target.format_version >= _WITH_VECTORS else _put_positions
    return [
        encoder.added(facts, target.snapshot_id)
        for partition, group in partitions.values()
        for rows in _batches(target, sorted(group, key=_location))
        for facts in put(target, partition, rows)
    ]


def _location(item: HiddenFile | _Rows) -> str:
    return item.location if isinstance(item, HiddenFile) else item[0]


def _batches(target: Target, items: Sequence[HiddenFile | _Rows]) -> Iterator[list[_Rows]]:
    """Yield the rows of data files, as many as one delete file takes. Vectors are read for each batch."""
    most = _MOST_VECTORS if target.format_version >= _WITH_VECTORS else len(items)
    batch: list[HiddenFile | _Rows] = []
    count = 0
    for item in items:
        rows = item.vector.cardinality if isinstance(item, HiddenFile) else len(item[1])
        if batch and (count + rows > _MOST_POSITIONS or len(batch) >= most):
            yield _with_rows(target, batch)
            batch, count = [], 0
        batch.append(item)
        count += rows
    if batch:
        yield _with_rows(target, batch)


def _with_rows(target: Target, items: Sequence[HiddenFile | _Rows]) -> list[_Rows]:
    log = target.log
    vectors = [item.vector for item in items if isinstance(item, HiddenFile)]
    found = iter(read_deleted_rows(vectors, store=log.store, root=log.uri, options=log.options))
    rows: list[_Rows] = []
    for item in items:
        if not isinstance(item, HiddenFile):
            rows.append(item)
            continue
        positions = next(found)
        if len(positions) != item.vector.cardinality:
            raise LogCorruptedError(
                f"The deletion vector of {item.location!r} hides {len(positions)} rows, but the log says "
                f"{item.vector.cardinality}.",
                hint="The vector is damaged. Restore its file from a backup.",
                table=log.uri,
            )
        rows.append((item.location, positions.astype(np.int64)))
    return [item for item in rows if len(item[1])]


def _put_positions(target: Target, partition: Record, rows: Sequence[_Rows]) -> list[FileFacts]:
    data = encode_positions(rows)
    path = target.writer.new_delete_file()
    target.writer.put(path, data)
    positions = [int(value) for _, items in rows for value in (items[0], items[-1])]
    first, last = rows[0][0].encode(), rows[-1][0].encode()
    facts = FileFacts(
        path=target.writer.location(path),
        rows=sum(len(items) for _, items in rows),
        size=len(data),
        partition=partition,
        lower={PATH_FIELD: first, _POS_FIELD: struct.pack("<q", min(positions))},
        upper={PATH_FIELD: last, _POS_FIELD: struct.pack("<q", max(positions))},
        content=DELETES,
    )
    return [facts]


def _put_vectors(target: Target, partition: Record, rows: Sequence[_Rows]) -> list[FileFacts]:
    """Write a Puffin file. Bounds name the data file, since PyIceberg finds vectors only by them."""
    data, places = encode_puffin(rows)
    path = target.writer.new_puffin_file()
    target.writer.put(path, data)
    found = []
    for place, (location, positions) in zip(places, rows, strict=True):
        bound = {PATH_FIELD: location.encode()}
        facts = FileFacts(
            path=target.writer.location(path),
            rows=len(positions),
            size=len(data),
            partition=partition,
            lower=bound,
            upper=bound,
            content=DELETES,
            blob=place,
        )
        found.append(facts)
    return found


def hidden_rows(target: Target, frame: pl.DataFrame, adds: Sequence[AddFile]) -> list[HiddenFile]:
    """Return the files with hidden rows.

    Args:
        target: What is written.
        frame: ``location`` and partition values of files with a vector.
        adds: Their actions, in the same order.
    """
    found = []
    for location, record, add in zip(frame["location"], partitions_of(target, frame), adds, strict=True):
        assert add.deletion_vector is not None
        if add.deletion_vector.cardinality:
            found.append(HiddenFile(location, record, add.deletion_vector))
    return found
