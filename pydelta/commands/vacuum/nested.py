"""Tell whether folders are Delta tables of their own, or empty, where neither a list of files nor the log shows it.

A file that is about to go may be another table's, if a folder above it has a log. A flat listing shows that; where
there was none each folder is asked for, or the place is listed after all if that takes fewer requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import polars as pl

from pydelta.commands.vacuum.listing import list_batches
from pydelta.commands.vacuum.plan import directories_above, nested_tables
from pydelta.protocol.paths import LOG_DIR
from pydelta.storage import Store
from pydelta.storage.pages import PAGE_KEYS, PagedStore

__all__ = ["left_empty", "tables_among"]

_FEW: Final = 64


def tables_among(store: Store, folders: AbstractSet[str], *, files: int, workers: int) -> tuple[frozenset[str], int]:
    """Find the folders that hold a ``_delta_log``, perhaps others than those given; count the requests that took.

    Args:
        store: Of the table.
        folders: Below its root.
        files: About how many files there are below the root.
        workers: Requests under way at once.

    Raises:
        StorageError: It cannot be found out.
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
    """Find the folders that will be empty, and in which nothing has happened since the cut-off; the deepest first.

    Args:
        store: A file system.
        folders: That a list says to be empty; only they and those above them are looked at.
        gone: Files that are about to be deleted.
        cutoff_ms: Epoch milliseconds.
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
