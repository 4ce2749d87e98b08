"""List everything below a store's root, page by page: columns instead of one object per file.

Object stores answer a thousand keys a request and can begin anywhere in the order of keys, so that ranges of keys are
listed side by side. File systems are walked, and say which directories there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from pydelta.storage.interface import ObjectInfo, Store

__all__ = ["PAGE_KEYS", "ListPage", "PagedStore", "paged", "pages_of"]

PAGE_KEYS: Final = 1000
"""Keys in one reply of an object store."""


@dataclass(slots=True, kw_only=True)
class ListPage:
    """One reply. ``paths`` are relative to the root, ``sizes`` in bytes, ``times_ms`` epoch milliseconds.

    ``directories`` and ``directory_times_ms`` are those met by a file system's walk; empty for an object store.
    """

    paths: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    directory_times_ms: list[int] = field(default_factory=list)

    def add(self, info: ObjectInfo) -> None:
        """Add one more file."""
        self.paths.append(info.path)
        self.sizes.append(info.size)
        self.times_ms.append(info.modification_time_ms)


class PagedStore(Protocol):
    """What a store may have beyond ``Store``."""

    @property
    def has_directories(self) -> bool:
        """Whether a directory is there by itself, and stays when it is empty."""

    @property
    def has_key_ranges(self) -> bool:
        """Whether ``after`` and ``before`` spare requests, so that ranges can be listed side by side."""

    def list_pages(
        self, *, after: str = "", before: str = "", enter: Callable[[str], bool] | None = None
    ) -> Iterator[ListPage]:
        """List files below the root, one page per request.

        Args:
            after: Only paths after this one, in the order of their UTF-8 bytes; empty for no bound.
            before: Only paths up to and including this one; empty for no bound.
            enter: Whether to walk into a directory; object stores, which have none, do not ask.
        """

    def remove_directories(self, paths: list[str]) -> list[str]:
        """Remove those directories that are empty, in the order given; returns the ones that were removed.

        A store without directories removes none.
        """


def paged(store: Store) -> PagedStore | None:
    """Return the store as one that has pages; None when it has not."""
    return cast(PagedStore, store) if getattr(store, "list_pages", None) is not None else None


def pages_of(
    store: Store, *, after: str = "", before: str = "", enter: Callable[[str], bool] | None = None
) -> Iterator[ListPage]:
    """List any store in pages; one without pages is listed whole by each call, so ranges do not pay there."""
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
    """Whether a path lies in a range of keys; both bounds as in ``list_pages``. Python orders as UTF-8 does."""
    return (not after or path > after) and (not before or path <= before)
