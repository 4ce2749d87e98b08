"""Folders in, those that are Delta tables of their own out: a list of files need not tell, nor does the log.

A file that is about to go may be another table's, if a folder above it has a log. A flat listing shows that; where
there was none each folder is asked for, or the place is listed after all if that takes fewer requests.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pydelta.commands.vacuum_listing import list_batches
from pydelta.commands.vacuum_plan import nested_tables
from pydelta.protocol.paths import LOG_DIR
from pydelta.storage import Store
from pydelta.storage.pages import PAGE_KEYS

__all__ = ["tables_among"]

_FEW: Final = 64


def tables_among(store: Store, folders: AbstractSet[str], *, files: int, workers: int) -> tuple[frozenset[str], int]:
    """The folders that hold a ``_delta_log``, others than those given perhaps, and how many requests that took.

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
