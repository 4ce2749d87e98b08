"""Delete files that were staged for a version that was not committed, if this key may delete them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from pydelta.storage.interface import DeleteReport, Store

__all__ = ["discard"]

_LOG: Final = logging.getLogger(__name__)
_LOCK: Final = threading.Lock()
_TOLD: Final[set[str]] = set()
"""Buckets for which the warning was logged."""


def discard(store: Store, paths: Iterable[str]) -> DeleteReport:
    """Delete files that no version names. Files that this key may not delete are left to VACUUM.

    That is logged once per bucket and process, since a key without the right to delete is normal for a writer.

    Args:
        store: Store of the table.
        paths: Paths relative to the table.

    Raises:
        StorageError: An error of the store's ``delete_many``.
    """
    report = store.delete_many(list(paths))
    if report.denied:
        _tell(store)
    return report


def _tell(store: Store) -> None:
    parts = urlsplit(store.root)
    bucket = f"{parts.scheme}://{parts.netloc}"
    with _LOCK:
        if bucket in _TOLD:
            return
        _TOLD.add(bucket)
    _LOG.warning(
        "The key of this process may not delete data files in %s: files that it staged for a version that was not "
        "committed stay until VACUUM deletes them. This warning is logged once.",
        bucket,
        extra={"table": store.root},
    )
