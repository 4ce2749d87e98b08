"""Delete files in bulk: a thousand per request, several requests at once, rate-limited, retried on request.

Before files are deleted, new commits are checked: files that have become live again (by a RESTORE) stay.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from pydelta.commands.vacuum.needed import files_of_commits
from pydelta.commands.vacuum.paths import PlainPaths
from pydelta.commands.vacuum.plan import PathIndex
from pydelta.errors import StorageError, StoragePermissionError
from pydelta.log import DeltaLog
from pydelta.storage.backoff import Backoff

__all__ = ["Deletion", "Doomed", "VacuumOptions", "delete_files", "not_deleted"]

_KEYS: Final = 1000
_LOOK_AGAIN_S: Final = 1.0
_BACKOFF: Final = Backoff(first_ms=200, longest_ms=20_000, jitter=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumOptions:
    """Parallelism, limits and retries of a VACUUM.

    Args:
        list_workers: Number of parallel listings, and of key ranges on an object store.
        delete_workers: Number of parallel bulk deletions.
        deletes_per_second: Maximum number of files deleted per second by all workers, or None for no limit.
        attempts: Number of times that a deletion is sent if the store asks to repeat it.
        sleep: Function that waits, replaced in tests.
    """

    list_workers: int = 16
    delete_workers: int = 8
    deletes_per_second: float | None = None
    attempts: int = 6
    sleep: Callable[[float], None] = time.sleep


@dataclass(slots=True, kw_only=True)
class Deletion:
    """The state of a deletion. Checksum files next to data files are not counted.

    Args:
        files: Number of deleted files.
        bytes: Size of the deleted files.
        spared: Number of files kept because a commit made them live again.
        requests: Number of requests sent to the store.
        failed: Paths that were not deleted, with the reason.
        denied: Whether the store refused for lack of permission.
        untouched: Number of files that were not tried after that.
    """

    files: int = 0
    bytes: int = 0
    spared: int = 0
    requests: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    denied: bool = False
    untouched: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """The files to delete.

    Args:
        files: Columns ``path`` and ``size``.
        uncounted: Files that are also deleted but not counted.
        version: Version of the table at which nothing needed them.
    """

    files: pl.DataFrame
    uncounted: pl.DataFrame
    version: int


def delete_files(
    log: DeltaLog,
    doomed: Doomed,
    options: VacuumOptions,
    *,
    on_deleted: Callable[[Deletion], None],
    state: Deletion,
) -> None:
    """Delete files of a table.

    A request that the store refuses for lack of permission ends the run, unless it deleted some of its files. Other
    failures do not stop the deletion.

    Args:
        log: The table.
        doomed: The files.
        options: Parallelism, limits and retries.
        on_deleted: Function that is called after each request, by one thread at a time.
        state: Counters, which are valid even if this raises an error.
    """
    work = _Work(
        log=log,
        options=options,
        watch=_Watch(log, doomed.version),
        pace=_Pace(options),
        state=state,
        on_deleted=on_deleted,
    )
    parts = [
        doomed.files.select("path", "size", counted=pl.lit(value=True)),
        doomed.uncounted.select("path", "size", counted=pl.lit(value=False)),
    ]
    chunks = list(pl.concat(parts).iter_slices(_KEYS))
    with ThreadPoolExecutor(max_workers=max(1, min(options.delete_workers, len(chunks)))) as pool:
        try:
            for future in [pool.submit(work.delete_or_stop, chunk) for chunk in chunks if chunk.height]:
                future.result()
        except BaseException:
            work.stop.set()  # The pool finishes running requests and starts no new ones.
            raise


def not_deleted(state: Deletion, message: str) -> StorageError:
    """Return the error of a deletion that left files, by why it left them."""
    if state.denied:
        return StoragePermissionError(
            message, hint="Run it with a key that may delete data files; in the stack: AS_USER=vacuum."
        )
    return StorageError(message, retryable=True, hint="Run it again: it deletes what is left.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The state that all threads of a deletion share."""

    log: DeltaLog
    options: VacuumOptions
    watch: _Watch
    pace: _Pace
    state: Deletion
    on_deleted: Callable[[Deletion], None]
    lock: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)

    def delete_or_stop(self, chunk: pl.DataFrame) -> None:
        try:
            self._delete(chunk)
        except BaseException:
            self.stop.set()  # Set it here, since the next chunk may begin before the caller handles the error.
            raise

    def _delete(self, chunk: pl.DataFrame) -> None:
        state = self.state
        if self.stop.is_set():
            with self.lock:
                state.untouched += int(chunk["counted"].sum())
            return
        left = self.watch.without_live(chunk)
        spared = int(chunk["counted"].sum()) - int(left["counted"].sum())
        paths = left["path"].to_list()
        requests, attempt, denied = 0, 0, False
        failed: tuple[tuple[str, str], ...] = ()
        while paths:
            self.pace.wait(len(paths))
            report = self.log.store.delete_many(paths)
            requests += 1
            attempt += 1
            failed, denied = report.failed, report.denied
            if not failed or not report.retryable or attempt >= self.options.attempts:
                break
            paths = [path for path, _ in failed]
            self.options.sleep(_BACKOFF.seconds(attempt))
        gone = left.filter(~pl.col("path").is_in(pl.Series([path for path, _ in failed], dtype=pl.String).implode()))
        if denied and left.height and not gone.height:
            self.stop.set()
        with self.lock:
            state.requests += requests
            state.failed += failed
            state.denied = state.denied or denied
            counted = gone.filter(pl.col("counted"))
            state.files += counted.height
            state.bytes += int(counted["size"].sum() or 0)
            state.spared += spared
            self.on_deleted(state)


class _Pace:
    """Limits the files that all threads together delete per second."""

    def __init__(self, options: VacuumOptions) -> None:
        self._rate = options.deletes_per_second
        self._sleep = options.sleep
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def wait(self, files: int) -> None:
        """Wait until these files may be deleted."""
        if not self._rate:
            return
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._free_at)
            self._free_at = begin + files / self._rate
        if begin > now:
            self._sleep(begin - now)


class _Watch:
    """The files that have become live since a version, updated from time to time."""

    def __init__(self, log: DeltaLog, version: int) -> None:
        self._log = log
        self._version = version
        self._places = PlainPaths(log.uri)
        self._live = PathIndex()
        self._looked_at = float("-inf")
        self._lock = threading.Lock()

    def without_live(self, chunk: pl.DataFrame) -> pl.DataFrame:
        """Return the files that no commit since then has added."""
        with self._lock:
            if time.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
                newest = self._log.update().version
                since = range(self._version + 1, newest + 1)
                for commit in files_of_commits(self._log, since, adds=True, all_of_them=True):
                    added = commit.files.filter(pl.col("kind") != "remove")
                    for paths in self._places.of_files(added):
                        self._live.add(paths)
                self._version = newest
                self._looked_at = time.monotonic()
            live = self._live
        return chunk.filter(~live.may_hold(chunk["path"])) if live else chunk
