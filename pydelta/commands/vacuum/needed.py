"""Find the files that VACUUM must keep: everything read by a version that was current since the cut-off.

::

    live files of the newest version, tombstones that have not expired, deletion vectors of both
    commits since the cut-off: the files that they removed (live until then), their change data
    published manifests, and shallow clones noted next to the table: the files that their readers read
"""

from __future__ import annotations

import bisect
import enum
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import polars as pl

from pydelta.commands.vacuum.paths import PlainPaths
from pydelta.commands.vacuum.plan import PathIndex, PathSample
from pydelta.errors import DeltaError, ObjectNotFoundError, UnsafeOperationError
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.history import monotonised_times_ms
from pydelta.manifests import named_files
from pydelta.protocol.actions import AddCDCFile, AddFile, RemoveFile
from pydelta.protocol.paths import LOG_DIR, are_absolute, commit_file
from pydelta.storage.whole import read_listed

__all__ = [
    "CommitTimeline",
    "CommittedFiles",
    "Needed",
    "files_of_commits",
    "find_needed",
]

_READERS: Final = 16
_SAMPLE: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTimeline:
    """Commit times of versions, as far as the log has them.

    Args:
        versions: Versions in ascending order.
        times_ms: Times of their commit files, moved forward if a clock went back.
        newest: Newest version of the table at the time of reading.
    """

    versions: tuple[int, ...]
    times_ms: tuple[int, ...]
    newest: int

    @classmethod
    def of(cls, log: DeltaLog, newest: int) -> CommitTimeline:
        """Make the timeline from the log directory's listing, up to a version."""
        times = monotonised_times_ms(sorted(log.held().commits.items()))
        known = {version: at for version, at in times.items() if version <= newest}
        return cls(versions=tuple(known), times_ms=tuple(known.values()), newest=newest)

    def since(self, cutoff_ms: int) -> tuple[int, ...]:
        """Return versions committed at or after a time."""
        return self.versions[bisect.bisect_left(self.times_ms, cutoff_ms) :]

    def before(self, cutoff_ms: int) -> tuple[int, ...]:
        """Return versions committed before a time."""
        return self.versions[: bisect.bisect_left(self.times_ms, cutoff_ms)]

    def is_retained(self, version: int, cutoff_ms: int) -> bool:
        """Return whether a version was the newest one at or after a time, so that all its files must stay."""
        if version == self.newest:
            return True
        if version + 1 not in self.versions:
            return False
        return self.times_ms[self.versions.index(version + 1)] >= cutoff_ms


class _Vector(msgspec.Struct, gc=False):
    kind: str = msgspec.field(name="storageType")
    body: str = msgspec.field(name="pathOrInlineDv")
    size: int = msgspec.field(name="sizeInBytes", default=0)


class _File(msgspec.Struct, gc=False):
    path: str
    size: int | None = None
    vector: _Vector | None = msgspec.field(default=None, name="deletionVector")


class _Line(msgspec.Struct, gc=False):
    remove: _File | None = None
    cdc: _File | None = None


class _LineWithAdd(_Line, gc=False):
    add: _File | None = None


_LINES: Final = msgspec.json.Decoder(_Line, strict=False)
_LINES_WITH_ADDS: Final = msgspec.json.Decoder(_LineWithAdd, strict=False)
_FILES_SCHEMA: Final[dict[str, pl.DataType]] = {
    "kind": pl.String(),
    "path": pl.String(),
    "vector": pl.String(),
    "size": pl.Int64(),
    "vector_size": pl.Int64(),
}


_Row: TypeAlias = tuple[str, str, str | None, int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFiles:
    """The file actions of one commit.

    Args:
        version: Version of the commit.
        files: ``kind`` (``add``, ``remove``, ``cdc``), ``path`` as the log spells it, ``vector`` (id of its deletion
            vector, without an offset), ``size`` and ``vector_size`` (bytes).
    """

    version: int
    files: pl.DataFrame


def files_of_commits(
    log: DeltaLog, versions: Iterable[int], *, adds: bool = False, all_of_them: bool = False
) -> list[CommittedFiles]:
    """Read only the file actions of some commits, several at once.

    Args:
        log: The table.
        versions: Versions of the commits.
        adds: Whether to include the files that they add.
        all_of_them: Whether a missing commit is an error. Otherwise log clean-up may have deleted it.

    Raises:
        ObjectNotFoundError: A commit is missing, and ``all_of_them`` is set.
        LogCorruptedError: A commit is damaged.
        StorageError: A commit could not be read to its end.
    """
    wanted = list(versions)
    if not wanted:
        return []
    listed = {info.path: info for info in log.store.list_from(commit_file(min(wanted)), prefix=LOG_DIR)}

    def read(version: int) -> CommittedFiles | None:
        path = f"{LOG_DIR}/{commit_file(version)}"
        try:
            data = read_listed(log.store, listed[path]) if path in listed else log.store.read(path)
        except ObjectNotFoundError:
            if all_of_them:
                raise
            return None
        try:
            rows = list(_rows((_LINES_WITH_ADDS if adds else _LINES).decode_lines(data)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            rows = list(
                _rows_of_actions(log.actions(version))
            )  # The slower path reads the lines, or raises an error that names the damaged one.
        frame = pl.DataFrame(rows, schema=_FILES_SCHEMA, orient="row")
        return CommittedFiles(version=version, files=frame if adds else frame.filter(pl.col("kind") != "add"))

    with ThreadPoolExecutor(max_workers=_READERS) as pool:  # It starts only the threads that it needs.
        return [found for found in pool.map(read, wanted) if found is not None]


def _rows(lines: Sequence[_Line]) -> Iterable[_Row]:
    for line in lines:
        added = line.add if isinstance(line, _LineWithAdd) else None
        for kind, file in (("add", added), ("remove", line.remove), ("cdc", line.cdc)):
            if file is not None:
                vector = file.vector
                text = vector.kind + vector.body if vector else None
                yield kind, file.path, text, file.size, vector.size if vector else None


def _rows_of_actions(actions: Iterable[object]) -> Iterable[_Row]:
    for action in actions:
        if isinstance(action, AddCDCFile):
            yield "cdc", action.path, None, action.size, None
        elif isinstance(action, (AddFile, RemoveFile)):
            vector = action.deletion_vector
            text = vector.storage_type + vector.path_or_inline_dv if vector else None
            yield action.kind, action.path, text, action.size, vector.size_in_bytes if vector else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """The files that must stay: plain paths under the table's root, stored as hashes to save memory.

    Args:
        live: Files of the newest version.
        others: Files of earlier retained versions, of published manifests and of shallow clones, and files that
            locations outside of the root may mean. See ``PlainPaths.maybe``.
        held_back: Number of files that only published manifests or shallow clones name.
        sample: A sample of all paths in the log, including expired tombstones.
        timeline: The commits that the log holds.
    """

    live: PathIndex
    others: PathIndex
    held_back: int
    sample: PathSample
    timeline: CommitTimeline

    def may_hold(self, paths: pl.Series) -> pl.Series:
        """Return for each path whether it must stay. See ``PathIndex``."""
        return self.live.may_hold(paths) | self.others.may_hold(paths)


def find_needed(log: DeltaLog, snapshot: Snapshot, *, cutoff_ms: int, clones: Sequence[DeltaLog] = ()) -> Needed:
    """Find the files of versions that were current at or after a time, and those of published manifests.

    Args:
        log: The table.
        snapshot: Its newest version.
        cutoff_ms: Cut-off in epoch milliseconds.
        clones: Tables that name files of this one. Files that their versions read stay too.

    Raises:
        LogCorruptedError: A commit is damaged. Its removals are not known, so nothing may be deleted.
        UnsafeOperationError: A clone cannot be read.
        StorageError: The store failed.

    Protocol: "Add File and Remove File" (tombstones), "Add CDC File".
    """
    places = PlainPaths(log.uri)
    timeline = CommitTimeline.of(log, snapshot.version)
    live, others, sample = PathIndex(), PathIndex(), PathSample(_SAMPLE)
    for kind, files in _named_by(log, snapshot, timeline, cutoff_ms):
        paths, maybe = places.of_files(files)
        if kind is not _Named.RETAINED:
            sample.add(paths)
        if kind is _Named.EXPIRED:
            continue
        (live if kind is _Named.LIVE else others).add(paths)
        others.add(maybe)
    named = named_files(log, snapshot, is_retained=lambda version: timeline.is_retained(version, cutoff_ms))
    lines = [places.under(named.locations), *(_named_by_clone(clone, places, cutoff_ms) for clone in clones)]
    extra = pl.concat(lines).unique()
    extra = extra.filter(~(live.may_hold(extra) | others.may_hold(extra)))
    others.add(extra)
    others.add(places.maybe(named.locations))
    return Needed(live=live, others=others, held_back=len(extra), sample=sample, timeline=timeline)


class _Named(enum.Enum):
    """The reason why a log names files."""

    LIVE = enum.auto()
    RETAINED = enum.auto()
    EXPIRED = enum.auto()


def _named_by(
    log: DeltaLog, snapshot: Snapshot, timeline: CommitTimeline, cutoff_ms: int
) -> Iterator[tuple[_Named, pl.DataFrame]]:
    """Iterate over the files and vectors (``path vector``) of live files, tombstones and commits since the cut-off."""
    for batch in snapshot.files.path_batches():
        yield _Named.LIVE, batch.rename({"dv_id": "vector"})
    for batch in snapshot.files.tombstone_batches():
        # A tombstone without a time (null, which no filter passes) has expired, unless its commit is read below.
        retained = batch["deletion_timestamp"] >= cutoff_ms
        files = batch.select("path", vector="dv_id")
        yield _Named.EXPIRED, files
        yield _Named.RETAINED, files.filter(retained)
    commits = files_of_commits(log, timeline.since(cutoff_ms))
    if commits:  # All at once: to look at the paths of one commit takes as long as at those of a hundred.
        yield _Named.RETAINED, pl.concat([commit.files for commit in commits])


def _named_by_clone(clone: DeltaLog, places: PlainPaths, cutoff_ms: int) -> pl.Series:
    """Find the files under a source's root that a shallow clone needs."""
    found = [pl.Series([], dtype=pl.String)]
    try:
        snapshot = clone.update()
        for kind, files in _named_by(clone, snapshot, CommitTimeline.of(clone, snapshot.version), cutoff_ms):
            if kind is not _Named.EXPIRED:
                elsewhere = files.filter(are_absolute(files["path"]))
                found += places.of_files(elsewhere)
    except DeltaError as error:
        raise UnsafeOperationError(
            f"The shallow clone {clone.uri} reads files of this table, but which ones is not known: {error.message}",
            hint="Make it readable from here. If it no longer exists, delete its note in _pydelta/clones.",
        ) from error
    return pl.concat(found)
