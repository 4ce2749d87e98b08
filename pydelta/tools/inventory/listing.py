"""List all keys of a bucket or file system in parallel, splitting ranges while workers are idle.

::

    one range --page--> is a worker idle? --> jump past the common prefix of the page's keys, and half of the rest
                                              --> keys there? they become a new range, whose first page is read

Nothing needs to be known about the keys. A split costs one request, which reads the first page of the new range. If it
finds nothing, the range ends there, and the split is not repeated.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Protocol

import polars as pl

from pydelta.errors import InvalidArgumentError
from pydelta.storage import Store, open_store, pages_of, scheme_of
from pydelta.storage.options import s3_options
from pydelta.storage.pages import PAGE_KEYS
from pydelta.storage.uris import BucketPlace
from pydelta.tools.inventory.s3_keys import KEY_SCHEMA, S3Keys

__all__ = ["KeySource", "StoreKeys", "key_source", "list_keys"]

_HIGHEST: Final = "\U0010ffff"
_PROBES: Final = 3


class KeySource(Protocol):
    """A source of keys. ``ordered`` means that keys ascend and that ``after`` saves requests."""

    requests: int
    ordered: bool

    def pages(self, after: str = "") -> Iterator[pl.DataFrame]:
        """Yield frames of ``KEY_SCHEMA``, one per request, with the keys after the given one."""


@dataclass(slots=True)
class StoreKeys:
    """The files of any store as keys. Directories of a file system are keys of size 0 that end in a slash.

    Args:
        store: The store to list.
        prefix: Prefix of each key: the path from the root of the bucket to the store's root.
    """

    store: Store
    prefix: str = ""
    requests: int = 0
    ordered: bool = False

    def __post_init__(self) -> None:
        self.ordered = bool(getattr(self.store, "has_key_ranges", False))

    def pages(self, after: str = "") -> Iterator[pl.DataFrame]:
        """Yield pages; see ``KeySource.pages``."""
        start = after.removeprefix(self.prefix) if after.startswith(self.prefix) else ""
        if after and not start and after > self.prefix:  # ``after`` is beyond all keys below the prefix.
            yield pl.DataFrame(schema=KEY_SCHEMA)
            return
        for page in pages_of(self.store, after=start):
            self.requests += 1
            paths = page.paths + [f"{path}/" for path in page.directories]
            yield pl.DataFrame(
                {
                    "key": [self.prefix + path for path in paths],
                    "size": page.sizes + [0] * len(page.directories),
                    "modified": page.times_ms + page.directory_times_ms,
                    "etag": None,
                    "storage_class": None,
                },
                schema={**KEY_SCHEMA, "modified": pl.Int64()},
            ).cast({"modified": KEY_SCHEMA["modified"]})


def key_source(place: BucketPlace, options: Mapping[str, str] | None = None) -> KeySource:
    """Choose how to list a location: directly by S3 if possible, otherwise through its store.

    Args:
        place: A bucket, or a directory in it.
        options: Storage options.
    """
    prefix = f"{place.key}/" if place.key else ""
    if scheme_of(place.root).startswith("s3"):
        connection = s3_options(place.bucket, options)
        if S3Keys.usable(connection):
            return S3Keys(connection, prefix)
    return StoreKeys(open_store(place.root.rstrip("/") + "/" + place.key, options), prefix)


@dataclass(slots=True, eq=False)
class _Range:
    """Keys up to and including ``before`` (empty for no end). ``pages`` yields those after its beginning."""

    pages: Iterator[pl.DataFrame]
    before: str = ""


@dataclass(slots=True)
class _Shards:
    source: KeySource
    workers: int
    stop: threading.Event = field(default_factory=threading.Event)
    found: queue.Queue[pl.DataFrame | BaseException | None] = field(default_factory=lambda: queue.Queue(64))
    _ranges: queue.Queue[_Range | None] = field(default_factory=queue.Queue)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _unfinished: int = 0
    _idle: int = 0

    def add(self, item: _Range) -> None:
        with self._lock:
            self._unfinished += 1
        self._ranges.put(item)

    def work(self) -> None:
        """List ranges until none are left and none can be added."""
        try:
            while (item := self._next()) is not None:
                self._list(item)
                with self._lock:
                    self._unfinished -= 1
                    last = self._unfinished == 0
                if last or self.stop.is_set():
                    for _ in range(self.workers):
                        self._ranges.put(None)
        except BaseException as error:  # noqa: BLE001 -- raised again by the consumer
            self._emit(error)
        finally:
            self._emit(None)

    def _next(self) -> _Range | None:
        with self._lock:
            self._idle += 1
        item = self._ranges.get()
        with self._lock:
            self._idle -= 1
        return item

    def _emit(self, item: pl.DataFrame | BaseException | None) -> None:
        while not self.stop.is_set():
            try:
                self.found.put(item, timeout=0.2)
            except queue.Full:
                continue
            return

    def _list(self, item: _Range) -> None:
        for page in item.pages:
            if self.stop.is_set():
                return
            if not self.source.ordered:
                self._emit(page)
                continue
            inside = page.filter(pl.col("key") <= item.before) if item.before else page
            if inside.height:
                self._emit(inside)
            if not inside.height or inside.height < page.height:
                return
            if page.height >= PAGE_KEYS and self._idle > self._ranges.qsize():
                self._cut(item, page)

    def _cut(self, item: _Range, page: pl.DataFrame) -> None:
        """Split the keys beyond a jump off into a new range. If there are none, the range ends before the jump."""
        first, last = str(page["key"][0]), str(page["key"][-1])
        shared = _shared(first, last)
        ends = [position + 1 for position, character in enumerate(shared) if character == "/"]
        at, beyond = "", None
        for end in dict.fromkeys([*ends, len(shared)]):
            at = shared[:end] + _HIGHEST
            if (beyond := self._beyond(item, at)) is not None:
                break
        start = beyond[0] if beyond is not None else last
        position = len(_shared(last, start)) if beyond is not None else len(shared)
        for _ in range(_PROBES):
            further = half_way(last, start, position, item.before)
            if further is None or further <= at:
                break
            if (found := self._beyond(item, further)) is not None:
                at, beyond = further, found
                break
        if beyond is not None:
            before, item.before = item.before, at
            self.add(_Range(beyond[1], before))

    def _beyond(self, item: _Range, jump: str) -> tuple[str, Iterator[pl.DataFrame]] | None:
        """Return the first key of a range after a jump, with the pages from there; None if there is no such key."""
        if item.before and jump >= item.before:
            return None
        pages = self.source.pages(jump)
        page = next(pages, None)
        if page is None or not page.height or (item.before and page["key"][0] > item.before):
            item.before = jump
            return None
        return str(page["key"][0]), chain([page], pages)


def _shared(one: str, other: str) -> str:
    """Return the common prefix of two keys."""
    pairs = zip(one, other, strict=False)
    return one[: next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))]


def half_way(last: str, start: str, position: int, before: str) -> str | None:
    """Return a jump half way between a key and the end of its range, by the character at a position.

    Args:
        last: A key of the range.
        start: A key that equals it up to the position; its character there is the lowest to jump over.
        position: Position of the character.
        before: End of the range.

    Returns:
        A string that is not a key; None if ``start`` has no character at the position.

    Example:
        >>> half_way("t/2019", "t/2019", 2, "t/8") == "t/5" + chr(0x10FFFF)
        True
    """
    if position >= len(start):
        return None
    head, low = last[:position], ord(start[position])
    bounded = before.startswith(head) and len(before) > position
    high = next((ord(top) for top in "9Zz~" if low <= ord(top)), low)
    high = min(high, ord(before[position])) if bounded else high
    jump = head + chr(max(low, (low + high) // 2)) + _HIGHEST
    return jump if not before or jump < before else None


def list_keys(source: KeySource, *, workers: int = 16) -> Iterator[pl.DataFrame]:
    """Yield every key in frames of ``KEY_SCHEMA``, in no particular order.

    Args:
        source: The source to list.
        workers: Number of parallel listings.

    Raises:
        InvalidArgumentError: The number of workers is below 1.
        StorageError: A listing failed, so the keys yielded so far are incomplete.
    """
    if workers < 1:
        raise InvalidArgumentError(f"The number of workers is {workers}.", hint="Give 1 or more.")
    shards = _Shards(source, workers if source.ordered else 1)
    shards.add(_Range(source.pages()))
    threads = [threading.Thread(target=shards.work, daemon=True) for _ in range(shards.workers)]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            found = shards.found.get()
            if found is None:
                running -= 1
            elif isinstance(found, BaseException):
                raise found
            else:
                yield found
    finally:
        shards.stop.set()
        for _ in threads:
            shards._ranges.put(None)
