"""Read the log and the files of a run's table directly: by name and action by action, not through a snapshot.

During a run, ``LogWatcher`` follows the log, so that content is seen before it is overwritten or deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow.parquet as pq

from pydelta.errors import DeltaError, ObjectNotFoundError, StorageError, first_line
from pydelta.log import DeltaLog
from pydelta.log.vector_files import read_deleted_rows
from pydelta.protocol.actions import AddFile, CommitInfo, RemoveFile, decode_commit
from pydelta.protocol.paths import LOG_DIR, commit_file, decode_log_path
from pydelta.protocol.vectors import vector_path
from pydelta.storage import Store
from pydelta.tools.certify.history import Commit, LostFile, Row
from pydelta.tools.certify.local_worker import op_of, tuples_of

import pyarrow as pa  # isort: skip

__all__ = ["Collected", "LogWatcher", "collect"]

_PAUSE_SECONDS: Final = 0.2
_AHEAD: Final = 20
"""How many versions after a hole are looked for."""
_Key = tuple[str, str | None]


@dataclass(slots=True)
class _Seen:
    """Content read so far: bytes of commits as first seen, and rows of files by path and deletion vector."""

    commits: dict[int, bytes] = field(default_factory=dict)
    rows: dict[_Key, tuple[Row, ...] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The log as found; see ``History``."""

    commits: tuple[Commit, ...]
    lost: tuple[LostFile, ...]
    unreadable: tuple[tuple[int, str], ...]
    live: tuple[str, ...]


class LogWatcher:
    """Follows a log in a thread until it is stopped.

    Args:
        store: Store of the table.
        options: Options of the store.
    """

    def __init__(self, store: Store, options: Mapping[str, str]) -> None:
        self._store, self._options = store, options
        self._seen = _Seen()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        """Start following."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after everything that exists has been seen once."""
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        version = 0
        while not self._stop.is_set():
            try:
                data = self._store.read(f"{LOG_DIR}/{commit_file(version)}")
            except StorageError:
                self._stop.wait(_PAUSE_SECONDS)
                continue
            self._note(version, data)
            version += 1

    def _note(self, version: int, data: bytes) -> None:
        self._seen.commits[version] = data
        try:
            for action in decode_commit(data, source=commit_file(version)):
                if isinstance(action, AddFile):
                    self.rows_of(action)
        except DeltaError:  # ``collect`` reports unreadable commits.
            return

    def rows_of(self, file: AddFile | RemoveFile) -> tuple[Row, ...] | None:
        """Read the live rows of a file. Returns None if it or its deletion vector is missing or damaged."""
        key = (file.path, file.deletion_vector.unique_id if file.deletion_vector else None)
        if self._seen.rows.get(key) is None:
            self._seen.rows[key] = self._read(file)
        return self._seen.rows[key]

    def _read(self, file: AddFile | RemoveFile) -> tuple[Row, ...] | None:
        try:
            table = pq.read_table(pa.BufferReader(self._store.read(decode_log_path(file.path).text)))
            if file.deletion_vector is not None:
                root = self._store.root
                (gone,) = read_deleted_rows([file.deletion_vector], store=self._store, root=root, options=self._options)
                keep = np.ones(table.num_rows, dtype=np.bool_)
                keep[gone.astype(np.int64)] = False
                table = table.filter(pa.array(keep))
        except (DeltaError, pa.ArrowException, OSError):
            return None
        return tuples_of(table)

    def first(self, version: int) -> bytes | None:
        """Return the bytes of a commit as first seen."""
        return self._seen.commits.get(version)


def collect(store: Store, watcher: LogWatcher, told: int) -> Collected:
    """Read the whole log after all writers have ended.

    Args:
        store: Store of the table.
        watcher: A stopped watcher.
        told: The newest version that was acknowledged to a process.
    """
    commits, unreadable = [], []
    lives: dict[_Key, list[tuple[AddFile, int, int | None]]] = {}
    times, stamps = _times(store)
    for version, data in _log(store, told):
        try:
            actions = decode_commit(data, source=commit_file(version))
        except DeltaError as error:
            unreadable.append((version, first_line(error)))
            continue
        added: list[Row] = []
        removed: list[Row] = []
        for action in actions:
            if isinstance(action, AddFile):
                lives.setdefault(_key(action), []).append((action, version, None))
                added += watcher.rows_of(action) or ()
            elif isinstance(action, RemoveFile):
                life = lives.get(_key(action))
                if life and life[-1][2] is None:
                    life[-1] = (life[-1][0], life[-1][1], version)
                    removed += watcher.rows_of(action) or ()
        op, operation = _named(data, version)
        first = watcher.first(version)
        rewritten = first is not None and first != data
        commits.append(
            Commit(
                version=version,
                op=op,
                operation=operation,
                time_ms=times.get(version, 0),
                stamp_ms=stamps.get(version),
                added=tuple(added),
                removed=tuple(removed),
                rewritten=rewritten,
                first_op=_named(first, version)[0] if rewritten and first is not None else None,
            )
        )
    found = [life for several in lives.values() for life in several]
    return Collected(
        commits=tuple(commits),
        lost=tuple(_lost(store, found)),
        unreadable=tuple(unreadable),
        live=tuple(sorted(add.path for add, _, until in found if until is None)),
    )


def _key(file: AddFile | RemoveFile) -> _Key:
    return file.path, file.deletion_vector.unique_id if file.deletion_vector else None


def _log(store: Store, told: int) -> Iterator[tuple[int, bytes]]:
    """Yield the commits by name. Listings are not trusted, and holes are skipped."""
    version, last = 0, told
    while version <= last + _AHEAD:
        try:
            yield version, store.read(f"{LOG_DIR}/{commit_file(version)}")
            last = max(last, version)
        except ObjectNotFoundError:
            pass
        version += 1


def _named(data: bytes | None, version: int) -> tuple[str | None, str]:
    """Return the operation id that a commit names, and the name of the operation."""
    try:
        for action in decode_commit(data or b"", source=commit_file(version)):
            if isinstance(action, CommitInfo):
                return op_of(action), action.operation or ""
    except DeltaError:
        pass
    return None, ""


def _times(store: Store) -> tuple[dict[int, int], dict[int, int]]:
    """Return times and in-commit timestamps of versions in the engine's history. Both are empty if it is unreadable."""
    try:
        records = DeltaLog(store).history()
    except DeltaError:  # Damage to the log is reported elsewhere.
        return {}, {}
    stamps = {
        record.version: stamp
        for record in records
        if record.commit_info is not None and (stamp := record.commit_info.in_commit_timestamp) is not None
    }
    return {record.version: record.timestamp_ms for record in records}, stamps


def _lost(store: Store, lives: list[tuple[AddFile, int, int | None]]) -> Iterator[LostFile]:
    """Yield files that the log names but the store lacks, requesting each file by name."""
    there: dict[str, bool] = {}
    for add, since, until in lives:
        paths = [add.path]
        if add.deletion_vector is not None and (vector := vector_path(add.deletion_vector)) is not None:
            paths.append(vector)
        for path in paths:
            if path not in there:
                there[path] = store.head(decode_log_path(path).text) is not None
            if not there[path]:
                yield LostFile(path=path, since=since, until=until)
