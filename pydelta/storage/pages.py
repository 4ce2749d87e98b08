"""List everything below a store's root in pages, which have columns instead of an object per file.

Object stores return a thousand keys per request and can start at any key, so that ranges of keys are listed in
parallel. File systems are walked, and also report their directories.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from pydelta.storage.interface import ObjectInfo, Store

__all__ = [
    "PAGE_KEYS",
    "UNFINISHED_PATH",
    "UNFINISHED_PREFIX",
    "ListPage",
    "PagedStore",
    "is_unfinished",
    "paged",
    "pages_of",
    "unfinished",
]

UNFINISHED_PREFIX: Final = ".pydelta-tmp-"
"""Prefix of the names under which file systems hold what is being written. A killed process leaves such a file."""
UNFINISHED_PATH: Final = rf"(^|/){re.escape(UNFINISHED_PREFIX)}[^/]*$"
"""Pattern of their paths. Its group is what stands before the name."""
PAGE_KEYS: Final = 1000
"""Number of keys in one reply of an object store."""


@dataclass(slots=True, kw_only=True)
class ListPage:
    """One page of a listing. ``paths`` are relative to the root, ``times_ms`` are in epoch milliseconds.

    ``directories`` and ``directory_times_ms`` are those found by walking a file system; empty for an object store.
    """

    paths: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    directory_times_ms: list[int] = field(default_factory=list)

    def add(self, info: ObjectInfo) -> None:
        """Add a file."""
        self.paths.append(info.path)
        self.sizes.append(info.size)
        self.times_ms.append(info.modification_time_ms)


class PagedStore(Protocol):
    """Optional operations of a store beyond ``Store``."""

    @property
    def has_directories(self) -> bool:
        """Whether directories exist by themselves, and stay when they are empty."""

    @property
    def has_key_ranges(self) -> bool:
        """Whether ``after`` and ``before`` save requests, so that ranges can be listed in parallel."""

    def list_pages(
        self, *, after: str = "", before: str = "", enter: Callable[[str], bool] | None = None
    ) -> Iterator[ListPage]:
        """List files below the root, one page per request. Unlike the other listings, pages show unfinished files.

        Args:
            after: Only paths after this one, in the order of their UTF-8 bytes, or empty for no bound.
            before: Only paths up to and including this one, or empty for no bound.
            enter: Returns whether to walk into a directory. Object stores do not call it.
        """

    def remove_directories(self, paths: list[str]) -> list[str]:
        """Remove empty directories in the given order, and return the removed ones.

        A store without directories removes none.
        """


def paged(store: Store) -> PagedStore | None:
    """Return the store if it supports pages, otherwise None."""
    return cast(PagedStore, store) if getattr(store, "list_pages", None) is not None else None


def is_unfinished(path: str) -> bool:
    """Return whether a path is one under which a file is written before it gets its name."""
    return path.rpartition("/")[2].startswith(UNFINISHED_PREFIX)


def unfinished(store: Store, prefix: str) -> Iterator[ObjectInfo]:
    """List the unfinished files directly in a directory: those of writers that are at work or were killed.

    Only stores with ``list_unfinished`` have any. In the others, a write appears at once.
    """
    listed = getattr(store, "list_unfinished", None)
    return iter(()) if listed is None else listed(prefix)


def pages_of(
    store: Store, *, after: str = "", before: str = "", enter: Callable[[str], bool] | None = None
) -> Iterator[ListPage]:
    """List any store in pages. One without page support is listed in full by each call, so ranges save nothing."""
    own = paged(store)
    if own is not None:
        yield from own.list_pages(after=after, before=before, enter=enter)
        return
    page = ListPage()
    for info in store.list_all():
        if in_range(info.path, after, before):
            page.add(info)
            if len(page.paths) >= PAGE_KEYS:
                yield page
                page = ListPage()
    yield page


def in_range(path: str, after: str, before: str) -> bool:
    """Return whether a path is in a range of keys, as in ``list_pages``. Python orders strings as UTF-8 does."""
    return (not after or path > after) and (not before or path <= before)
