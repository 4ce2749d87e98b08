"""Delete what was staged for a version that never came to be, as far as the store lets this key."""

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
"""Buckets of which it was said."""


def discard(store: Store, paths: Iterable[str]) -> DeleteReport:
    """Delete files that no version names; those that this key may not delete are left to VACUUM.

    That is said once per bucket and process: a key that only writes is a right one for who writes.

    Args:
        store: The table's.
        paths: Relative to the table.

    Raises:
        StorageError: What the store's ``delete_many`` raises.
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
        "The key of this process may not delete data files in %s: what it staged for a version that was not committed "
        "stays until VACUUM deletes it. This is said once.",
        bucket,
        extra={"table": store.root},
    )
