"""Delete files in bulk: a thousand per request, several requests at once, rate-limited, retried on request.

Before files are deleted the newest commits are looked at: what has become live meanwhile (a RESTORE) stays.
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
from pydelta.log import DeltaLog
from pydelta.storage.backoff import Backoff

__all__ = ["Deletion", "Doomed", "VacuumOptions", "delete_files"]

_KEYS: Final = 1000
_LOOK_AGAIN_S: Final = 1.0
_BACKOFF: Final = Backoff(first_ms=200, longest_ms=20_000, jitter=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumOptions:
    """How to go about it.

    Args:
        list_workers: Listings under way at once; as many key ranges are listed on an object store.
        delete_workers: Bulk deletions under way at once.
        deletes_per_second: Files deleted in a second at most, all workers together; None for no limit.
        attempts: How often a deletion that the store asks to repeat is sent.
        sleep: Waits; replaced in tests.
    """

    list_workers: int = 16
    delete_workers: int = 8
    deletes_per_second: float | None = None
    attempts: int = 6
    sleep: Callable[[float], None] = time.sleep


@dataclass(slots=True, kw_only=True)
class Deletion:
    """How a deletion went. Checksum files beside data files are not counted.

    Args:
        files: Deleted.
        bytes: Their size.
        spared: Left alone since a commit made them live meanwhile.
        requests: Sent to the store.
        failed: Paths that are still there, and why.
        denied: The store refused for want of permission.
        untouched: Files that were not tried any more after that.
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
        uncounted: Files that go as well and are not counted.
        version: Of the table when they were found to be needed by nothing.
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

    A request that the store refuses for want of permission ends the run, unless others of it succeeded; any other
    failure stops no other file.

    Args:
        log: The table.
        doomed: The files.
        options: How.
        on_deleted: Called after each request, by one thread at a time.
        state: What to count in, so that it is known even if this raises.
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
            work.stop.set()  # the pool waits for what is under way, and begins nothing more
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A deletion under way: what all of its threads share."""

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
            self.stop.set()  # here, since the next chunk may begin before the caller knows
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
        """Wait for one's turn."""
        if not self._rate:
            return
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._free_at)
            self._free_at = begin + files / self._rate
        if begin > now:
            self._sleep(begin - now)


class _Watch:
    """What has become live since a version, looked at again now and then."""

    def __init__(self, log: DeltaLog, version: int) -> None:
        self._log = log
        self._version = version
        self._places = PlainPaths(log.uri)
        self._live = pl.Series([], dtype=pl.String)
        self._looked_at = float("-inf")
        self._lock = threading.Lock()

    def without_live(self, chunk: pl.DataFrame) -> pl.DataFrame:
        """The files that no commit since then has added."""
        with self._lock:
            if time.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
                newest = self._log.update().version
                since = range(self._version + 1, newest + 1)
                for commit in files_of_commits(self._log, since, adds=True, all_of_them=True):
                    added = commit.files.filter(pl.col("kind") != "remove")
                    self._live = pl.concat([self._live, *self._places.of_files(added)])
                self._version = newest
                self._looked_at = time.monotonic()
            live = self._live
        return chunk.filter(~pl.col("path").is_in(live.implode())) if len(live) else chunk
