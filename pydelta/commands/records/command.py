"""Make, refresh and drop a table's record index.

::

    live files that no segment covers --key columns, file by file--> sorted hashes --> new segments
    an erasure has begun since        --> the new segments are deleted, and it starts again
    many segments, or many dead files --> merged into one, without the entries of files that are not live

A refresh does not touch the log, so it conflicts with no writer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import polars as pl

from pydelta.commands.records.index import (
    drop_all_segments,
    drop_segments,
    list_segments,
    merge_segments,
    new_segment_path,
)
from pydelta.commands.records.segments import (
    FILES_SCHEMA,
    BadSegmentError,
    Hashes,
    IndexedColumn,
    Numbers,
    Segment,
    SegmentContents,
    open_segment,
    write_segment,
)
from pydelta.commands.run import Context, Task, existing_table
from pydelta.errors import (
    DeltaConcurrentModificationException,
    InvalidArgumentError,
    ObjectNotFoundError,
)
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import AddFile
from pydelta.protocol.schema import physical_name
from pydelta.storage.interface import ObjectInfo, Store

__all__ = ["DropRecordIndex", "IndexRecords", "KeyReader", "RecordIndexResult"]

_LOG: Final = logging.getLogger(__name__)
_MOST_SEGMENTS: Final = 16
_SEGMENT_ENTRIES: Final = 4_000_000
"""A segment is written once it has this many entries, so that memory does not grow with the table: about 200 MB."""
_TOGETHER_BYTES: Final = 256 * 1024 * 1024
_TOGETHER_FILES: Final = 256
_SLICE_FILES: Final = 8192
_ATTEMPTS: Final = 3
_ERASURES: Final = "ERASE"
"""Operations of an erasure begin with this word."""


class _DroppedError(Exception):
    """Raised if a segment disappears that was just written."""


class KeyReader(Protocol):
    """Reads the keys of data files, as an engine does."""

    key: tuple[IndexedColumn, ...]
    hash_name: str

    def read(self, files: Sequence[AddFile]) -> list[Hashes | None]:
        """Return the distinct hashes of each file's keys, hidden rows included; None for one that only Spark reads.

        Raises:
            StorageError: A file is missing or damaged, or the store failed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordIndexResult:
    """The state of a record index after a refresh.

    Args:
        columns: Its columns.
        version: Version of the table whose files it covers.
        num_indexed_files: Files that were read.
        num_covered_files: Live files that it covers.
        num_skipped_files: Live files that only Spark can read. A MERGE reads them each time.
        num_segments: Objects that it consists of.
        num_bytes: Their size.
    """

    columns: tuple[str, ...]
    version: int
    num_indexed_files: int
    num_covered_files: int
    num_skipped_files: int
    num_segments: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class IndexRecords(Task[RecordIndexResult]):
    """Make a record index, or cover the live files that it does not cover yet.

    Args:
        columns: Names of the key columns; none for those of the index that exists.
        begin: Binds names of columns to a snapshot.

    Raises:
        TableNotFoundError: There is no table.
        BindError, InvalidArgumentError, UnsupportedFeatureError: The columns cannot be a key, the table has an index on
            others, or there is none to refresh.
        DeltaConcurrentModificationException: Another process dropped the index each time.
        StorageError: A file is missing or damaged, or the store refused. Run it again: it covers what is left.
    """

    columns: Sequence[str]
    begin: Callable[[Snapshot, Sequence[str]], KeyReader] = field(repr=False)

    def perform(self, context: Context) -> RecordIndexResult:
        """See ``Task.perform``."""
        log = context.log
        for _ in range(_ATTEMPTS):
            snapshot = existing_table(log.update())
            assert snapshot.metadata is not None
            reader = self.begin(snapshot, self.columns or _columns_of_index(log.store, snapshot))
            done: RecordIndexResult | None = None
            with suppress(_DroppedError):
                done = _Refresh(log, snapshot, reader).run()
            if _erased_since(log, snapshot.version):
                drop_segments(log.store)  # One of them may have hashes of erased keys.
            elif done is not None:
                return done
        raise DeltaConcurrentModificationException(
            "The record index was dropped while it was written, by an erasure or another process.",
            hint="Run it again once that is done.",
            table=log.uri,
        )


@dataclass(frozen=True, slots=True)
class DropRecordIndex(Task[int]):
    """Delete a table's record index. Returns the number of objects that it had."""

    def perform(self, context: Context) -> int:
        """See ``Task.perform``."""
        existing_table(context.log.update())
        hint = "The index is only used where it is right, so it can stay. Run it again to delete the rest."
        return drop_all_segments(context.log.store, context.log.uri, hint)


def _columns_of_index(store: Store, snapshot: Snapshot) -> list[str]:
    """Return the columns of the index that exists, by their current names.

    Raises:
        InvalidArgumentError: There is none, or one of its columns was dropped.
    """
    assert snapshot.metadata is not None
    names = {_name_in_files(snapshot, name): name for name in snapshot.schema.names}
    for segment in _segments(store):
        if segment.table_id == snapshot.metadata.id and all(column.name in names for column in segment.key):
            return [names[column.name] for column in segment.key]
    raise InvalidArgumentError(
        "The table has no record index that could be refreshed.",
        hint="Name the key columns: index_records(['id']), or pydelta index TABLE --columns id.",
        table=snapshot.table_uri,
    )


def _name_in_files(snapshot: Snapshot, name: str) -> str:
    field_ = snapshot.schema.field(name)
    assert field_ is not None, "the name is the schema's own"
    return field_.name if snapshot.column_mapping_mode == "none" else physical_name(field_)


def _segments(store: Store, hash_name: str | None = None, broken: list[str] | None = None) -> Iterator[Segment]:
    """Open the segments of a table. Damaged ones are noted in ``broken``; one that is gone is passed over."""
    for info in list_segments(store):
        try:
            yield open_segment(store, info, hash_name=hash_name)
        except BadSegmentError as error:
            _LOG.warning("A segment of the record index is replaced: %s", error, extra={"table": store.root})
            if broken is not None:
                broken.append(info.path)
        except ObjectNotFoundError:
            continue


def _erased_since(log: DeltaLog, version: int) -> bool:
    """Return whether an erasure has committed something after a version."""
    newest = log.update().version
    if newest <= version:
        return False
    records = [record for record in log.history(limit=newest - version + 1) if record.version > version]
    if len(records) < newest - version:  # Commits are only deleted that early by an erasure.
        return True
    operations = [record.commit_info.operation if record.commit_info is not None else None for record in records]
    return any((operation or "").startswith(_ERASURES) for operation in operations)


class _Refresh:
    """One refresh of an index.

    Args:
        log: The table.
        snapshot: The version whose files are covered.
        reader: Reads the keys.
    """

    def __init__(self, log: DeltaLog, snapshot: Snapshot, reader: KeyReader) -> None:
        assert snapshot.metadata is not None
        self._store, self._snapshot, self._reader = log.store, snapshot, reader
        self._table_id = snapshot.metadata.id
        self._live = snapshot.files.core.select("path", pl.col("size").cast(pl.Int64))
        self._skipped = 0

    def run(self) -> RecordIndexResult:
        """Cover the live files, and merge segments if that is due."""
        useless: list[str] = []
        segments = []
        for segment in _segments(self._store, self._reader.hash_name, useless):
            if segment.table_id == self._table_id and segment.key == self._reader.key:
                segments.append(segment)
                continue
            self._refuse_other(segment)
            useless.append(segment.path)
        covered = _covered(segments)
        todo = self._snapshot.files.core.join(covered, on=list(FILES_SCHEMA), how="anti", maintain_order="left")
        read = todo.height
        segments += [self._opened(info) for info in self._written(todo)]
        if not segments:  # It says what the key is.
            segments.append(self._opened(self._write([], [])))
        segments, merged = self._merged(segments)
        report = self._store.delete_many([*useless, *merged])
        if report.failed:
            _LOG.info("%d segments of the record index stay: %s", len(report.failed), report.failed[0][1])
        covered = _covered(segments).join(self._live, on=list(FILES_SCHEMA), how="semi")
        names = {_name_in_files(self._snapshot, name): name for name in self._snapshot.schema.names}
        return RecordIndexResult(
            columns=tuple(names[column.name] for column in self._reader.key),
            version=self._snapshot.version,
            num_indexed_files=read - self._skipped,
            num_covered_files=covered.height,
            num_skipped_files=self._skipped,
            num_segments=len(segments),
            num_bytes=sum(segment.size for segment in segments),
        )

    def _refuse_other(self, segment: Segment) -> None:
        """Refuse to replace an index on other columns, unless it can no longer be of use."""
        names = {_name_in_files(self._snapshot, name): name for name in self._snapshot.schema.names}
        columns = [names.get(column.name) for column in segment.key]
        same = [column.name for column in segment.key] == [column.name for column in self._reader.key]
        if segment.table_id == self._table_id and None not in columns and not same:
            raise InvalidArgumentError(
                f"The table already has a record index on {', '.join(map(str, columns))}.",
                hint="A table has one. Drop it first: drop_record_index(), or pydelta index TABLE --drop.",
                table=self._snapshot.table_uri,
            )

    def _written(self, todo: pl.DataFrame) -> Iterator[ObjectInfo]:
        """Write segments for files, each once it has enough entries."""
        files: list[AddFile] = []
        found: list[Hashes] = []
        slices = (self._snapshot.files.adds(part) for part in todo.iter_slices(_SLICE_FILES))
        for adds in (group for part in slices for group in _together(part)):
            for add, hashes in zip(adds, self._reader.read(adds), strict=True):
                if hashes is None:
                    self._skipped += 1
                    continue
                files.append(add)
                found.append(hashes)
            if sum(map(len, found)) >= _SEGMENT_ENTRIES:
                yield self._write(files, found)
                files, found = [], []
        if files:
            yield self._write(files, found)

    def _write(self, files: Sequence[AddFile], found: Sequence[Hashes]) -> ObjectInfo:
        hashes = np.concatenate([np.empty(0, np.uint64), *found])
        numbers = np.repeat(np.arange(len(found), dtype=np.uint32), np.array([len(part) for part in found], np.int64))
        order = np.argsort(hashes, kind="stable")
        contents = SegmentContents(
            key=self._reader.key,
            hash_name=self._reader.hash_name,
            table_id=self._table_id,
            files=pl.DataFrame(
                {"path": [add.path for add in files], "size": [add.size for add in files]}, schema=FILES_SCHEMA
            ),
        )
        entries: tuple[Hashes, Numbers] = (hashes[order], numbers[order])
        return write_segment(self._store, new_segment_path(), contents, [entries])

    def _opened(self, info: ObjectInfo) -> Segment:
        try:
            return open_segment(self._store, info, hash_name=self._reader.hash_name)
        except ObjectNotFoundError as error:
            raise _DroppedError from error

    def _merged(self, segments: Sequence[Segment]) -> tuple[list[Segment], list[str]]:
        """Merge segments if they are many or mostly of dead files. Returns those in use, and paths of the others."""
        chosen = self._to_merge(segments)
        if not chosen:
            return list(segments), []
        try:
            one = merge_segments(self._store, chosen, self._live, self._reader.hash_name)
        except (BadSegmentError, ObjectNotFoundError) as error:  # Another process merged them, or one is damaged.
            _LOG.warning("Segments of the record index were not merged: %s", error, extra={"table": self._store.root})
            return list(segments), []
        gone = {segment.path for segment in chosen}
        return [*(item for item in segments if item.path not in gone), one], sorted(gone)

    def _to_merge(self, segments: Sequence[Segment]) -> list[Segment]:
        """Choose segments that are mostly of dead files, and if there are many, all but the much larger ones."""
        names = list(FILES_SCHEMA)
        chosen = [
            segment
            for segment in segments
            if 2 * segment.files.join(self._live, on=names, how="semi").height < segment.files.height
        ]
        if len(segments) > _MOST_SEGMENTS:
            by_size = sorted(segments, key=lambda segment: segment.num_entries)
            chosen, total = [], 0
            for segment in by_size:  # Each entry is thereby merged a logarithmic number of times.
                if len(chosen) > 1 and segment.num_entries > total:
                    break
                chosen.append(segment)
                total += segment.num_entries
        return chosen


def _covered(segments: Sequence[Segment]) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=FILES_SCHEMA), *(segment.files for segment in segments)]).unique()


def _together(files: Sequence[AddFile]) -> Iterator[list[AddFile]]:
    """Divide files into groups that are read at once."""
    group: list[AddFile] = []
    size = 0
    for add in files:
        if group and (size + add.size > _TOGETHER_BYTES or len(group) == _TOGETHER_FILES):
            yield group
            group, size = [], 0
        group.append(add)
        size += add.size
    if group:
        yield group
