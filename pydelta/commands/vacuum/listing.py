"""List a store's files in batches of columns, sift them, and find other tables among their folders.

::

    known keys -> bounds -> one listing per range, each in a thread -> batches -> Sieve: needed files stay

A file to delete may belong to another table if a folder above it has a log. A flat listing shows that. Without one,
each folder is checked, or the location is listed after all if that takes fewer requests.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import polars as pl

from pydelta.commands.vacuum.plan import (
    DOOMED_SCHEMA,
    LISTED_SCHEMA,
    KeptFiles,
    Names,
    PathIndex,
    PathSample,
    compact,
    directories_above,
    doomed_files,
    nested_tables,
    outside,
)
from pydelta.protocol.paths import LOG_DIR
from pydelta.storage import ListPage, Store, pages_of
from pydelta.storage.pages import PAGE_KEYS, PagedStore

__all__ = [
    "KeyRange",
    "ListedBatch",
    "Sieve",
    "Sifted",
    "key_bounds",
    "key_ranges",
    "left_empty",
    "list_batches",
    "tables_among",
]

_BATCH_ROWS: Final = 50_000
_KEYS_A_RANGE: Final = 2_000
_FEW: Final = 64
_HIGHEST: Final = "\U0010ffff"

KeyRange: TypeAlias = tuple[str, str]
"""An exclusive lower and an inclusive upper key, empty for no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedBatch:
    """Some files, the directories on the way with their times, and the number of requests."""

    files: pl.DataFrame
    directories: tuple[tuple[str, int], ...] = ()
    requests: int = 0


def key_bounds(known: pl.Series, *, count: int, ranges: int) -> list[str]:
    """Choose keys that divide a table's keys into ranges of similar size, from the keys in the log.

    Args:
        known: Some of the keys.
        count: Number of all keys.
        ranges: Maximum number of ranges.

    Returns:
        At most ``ranges - 1`` keys, ascending, and none for a small table.
    """
    wanted = min(ranges, count // _KEYS_A_RANGE, len(known))
    if wanted < 2:
        return []
    ordered = known.sort()
    return list(dict.fromkeys(ordered[len(ordered) * number // wanted] for number in range(1, wanted)))


def key_ranges(known: PathSample, *, ranges: int, folders: Sequence[str] | None = None) -> list[KeyRange]:
    """Choose ranges of keys to list in parallel.

    Args:
        known: Keys that the log knows.
        ranges: Maximum number of ranges, but at least one per folder.
        folders: Folders to list, or None for everything.
    """
    paths = known.paths
    if folders is None:
        bounds = key_bounds(paths, count=known.count, ranges=ranges)
        return list(zip(["", *bounds], [*bounds, ""], strict=True))
    found: list[KeyRange] = []
    for folder in sorted(set(folders)):
        inside = paths.filter(paths.str.starts_with(folder + "/"))
        count = known.count * len(inside) // max(1, len(paths))
        bounds = key_bounds(inside, count=count, ranges=ranges // len(folders))
        found += zip([folder + "/", *bounds], [*bounds, f"{folder}/{_HIGHEST}"], strict=True)
    return found


def list_batches(
    store: Store, *, ranges: Sequence[KeyRange] = (("", ""),), enter: Callable[[str], bool] | None = None
) -> Iterator[ListedBatch]:
    """List everything below a store's root, or some key ranges if the store supports them.

    Args:
        store: Any store.
        ranges: Pairs of an exclusive lower and an inclusive upper key, empty for no bound. Each is listed by its own
            thread.
        enter: Function that returns whether a walk goes into a directory.

    Raises:
        StorageError: A listing failed. The batches until then are incomplete.
    """
    if not getattr(store, "has_key_ranges", False):
        yield from _batches(pages_of(store, enter=enter))
        return
    if len(ranges) <= 1:
        for after, before in ranges:
            yield from _batches(pages_of(store, after=after, before=before, enter=enter))
        return
    found: queue.Queue[ListedBatch | BaseException | None] = queue.Queue(maxsize=2 * len(ranges))
    stop = threading.Event()

    def put(item: ListedBatch | BaseException | None) -> bool:
        while not stop.is_set():
            try:
                found.put(item, timeout=0.2)
            except queue.Full:
                continue
            return True
        return False

    def run(after: str, before: str) -> None:
        try:
            for batch in _batches(pages_of(store, after=after, before=before, enter=enter)):
                if not put(batch):
                    return
            put(None)
        except BaseException as error:  # noqa: BLE001 -- raised again by the consumer
            put(error)

    threads = [threading.Thread(target=run, args=bound, daemon=True) for bound in ranges]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            item = found.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        stop.set()


def _batches(pages: Iterator[ListPage]) -> Iterator[ListedBatch]:
    paths: list[str] = []
    sizes: list[int] = []
    times: list[int] = []
    directories: list[tuple[str, int]] = []
    requests = 0

    def batch() -> ListedBatch:
        frame = pl.DataFrame({"path": paths, "size": sizes, "modification_time": times}, schema=LISTED_SCHEMA)
        return ListedBatch(files=frame, directories=tuple(directories), requests=requests)

    for page in pages:
        requests += 1
        paths += page.paths
        sizes += page.sizes
        times += page.times_ms
        directories += zip(page.directories, page.directory_times_ms, strict=True)
        if len(paths) + len(directories) >= _BATCH_ROWS:
            yield batch()
            paths, sizes, times, directories, requests = [], [], [], [], 0
    if requests:
        yield batch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """The content of a sieve after all batches.

    Args:
        doomed: Files that may be deleted, with the columns of ``DOOMED_SCHEMA``.
        directories: Directories of the table that were found, on a file system or above a file.
        empty: Directories of a file system in which nothing stays and nothing has happened since the cut-off, the
            deepest first.
    """

    doomed: pl.DataFrame
    directories: frozenset[str]
    empty: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Sieve:
    """Selects listed files that nothing needs. Memory holds only those, and hashes of young files.

    Args:
        names: Directory names of the table.
        needed: Paths that must stay.
        cutoff_ms: Cut-off in epoch milliseconds.
        requests, listed, doomed_rows, doomed_bytes: Totals until now.
    """

    names: Names
    needed: KeptFiles
    cutoff_ms: int
    requests: int = 0
    listed: int = 0
    doomed_rows: int = 0
    doomed_bytes: int = 0
    _likely: list[pl.DataFrame] = field(default_factory=list)
    _young: PathIndex = field(default_factory=PathIndex)
    _visible: set[str] = field(default_factory=set)
    _held: set[str] = field(default_factory=set)
    _walked: dict[str, int] = field(default_factory=dict)
    _nested: set[str] = field(default_factory=set)

    def take(self, batch: ListedBatch) -> None:
        """Add one more batch."""
        files = batch.files
        likely = doomed_files(files, self.needed, cutoff_ms=self.cutoff_ms, names=self.names)
        young = files.filter(pl.col("modification_time") >= self.cutoff_ms)["path"]
        self._young.add(young.filter(~self.needed.may_hold(young)))  # An inventory may hold an older row of the file.
        self.requests += batch.requests
        self.listed += files.height
        self.doomed_rows += likely.height
        self.doomed_bytes += int(likely["size"].sum() or 0)
        if likely.height:
            self._likely.append(compact(likely))
        self._nested |= nested_tables(files["path"])
        self._visible |= self._shown(directories_above(files["path"]) - self._visible)
        if batch.directories:
            self._walked.update(batch.directories)
            self._nested |= nested_tables(pl.Series([path for path, _ in batch.directories], dtype=pl.String))
        if self._walked:
            stays = files.join(likely.select("path"), on="path", how="anti")
            self._held |= directories_above(stays["path"])

    def _shown(self, directories: set[str]) -> set[str]:
        frame = pl.DataFrame({"path": sorted(directories)}, schema={"path": pl.String})
        return set(frame.filter(~self.names.is_hidden(pl.col("path") + "/x"))["path"])

    def result(self) -> Sifted:
        """Return the files that may be deleted, without other tables' files and directory markers."""
        likely = pl.concat(self._likely) if self._likely else pl.DataFrame(schema=DOOMED_SCHEMA)
        doomed = outside(likely.filter(~self._young.may_hold(likely["path"])), self._nested)
        markers = pl.col("path").is_in(pl.Series(sorted(self._visible), dtype=pl.String).implode())
        doomed = doomed.filter(~((pl.col("size") == 0) & markers)).unique("path", keep="any", maintain_order=True)
        shown = pl.DataFrame({"path": sorted(self._shown(set(self._walked)))}, schema={"path": pl.String})
        own = outside(shown, self._nested)["path"].to_list()
        empty = [path for path in own if path not in self._held and self._walked[path] < self.cutoff_ms]
        empty = [path for path in empty if path not in self._nested]
        empty.sort(key=lambda path: (-path.count("/"), path))
        return Sifted(doomed=doomed, directories=frozenset(self._visible.union(own)), empty=tuple(empty))


# --- other tables, and folders that will be empty --------------------------------------------------------------


def tables_among(store: Store, folders: AbstractSet[str], *, files: int, workers: int) -> tuple[frozenset[str], int]:
    """Find the folders that hold a ``_delta_log``, possibly others than those given, and count the requests.

    Args:
        store: Store of the table.
        folders: Folders below its root.
        files: Approximate number of files below the root.
        workers: Number of parallel requests.

    Raises:
        StorageError: The store failed.
    """
    if not folders:
        return frozenset(), 0
    if getattr(store, "has_key_ranges", False) and len(folders) > max(_FEW, files // PAGE_KEYS):
        found: set[str] = set()
        requests = 0
        for batch in list_batches(store):
            found |= nested_tables(batch.files["path"])
            requests += batch.requests
        return frozenset(found), requests

    def has_log(folder: str) -> bool:
        return next(iter(store.list_from("", prefix=f"{folder}/{LOG_DIR}")), None) is not None

    ordered = sorted(folders)
    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(ordered)))) as pool:
        logs = list(pool.map(has_log, ordered))
    return frozenset(folder for folder, log in zip(ordered, logs, strict=True) if log), len(ordered)


def left_empty(store: PagedStore, folders: Sequence[str], *, gone: pl.Series, cutoff_ms: int) -> list[str]:
    """Find the folders that will be empty and in which nothing has happened since the cut-off, the deepest first.

    Args:
        store: A file system.
        folders: Folders that a list shows as empty. Only they and those above them are checked.
        gone: Files that will be deleted.
        cutoff_ms: Cut-off in epoch milliseconds.
    """
    wanted = set(folders)
    entered = wanted | directories_above(pl.Series(sorted(wanted), dtype=pl.String))
    times: dict[str, int] = {}
    there: set[str] = set()

    def enter(folder: str) -> bool:
        there.add(folder)
        return folder in entered

    stays: set[str] = set()
    for page in store.list_pages(enter=enter):
        times.update(zip(page.directories, page.directory_times_ms, strict=True))
        paths = pl.Series(page.paths, dtype=pl.String)
        stays |= directories_above(paths.filter(~paths.is_in(gone.implode())))
    empty = {folder for folder in wanted & times.keys() if times[folder] < cutoff_ms and folder not in stays}
    for folder in sorted(there - empty, key=len, reverse=True):
        empty -= directories_above(pl.Series([folder], dtype=pl.String))
    return sorted(empty, key=lambda path: (-path.count("/"), path))
