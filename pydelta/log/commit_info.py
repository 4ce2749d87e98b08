"""Find the size and time of a commit's file as every reader of the log sees them."""

from __future__ import annotations

from pydelta.protocol.paths import LOG_DIR, commit_file
from pydelta.storage import ObjectInfo, Store

__all__ = ["commit_info"]


def commit_info(store: Store, version: int) -> ObjectInfo | None:
    """Return the file of a commit, or None if it does not exist.

    Readers take a version's time from a listing. S3's HEAD returns whole seconds, but some services (MinIO) list
    milliseconds. So a time in whole seconds is looked up in a listing too; otherwise the writer would date its commit
    up to a second earlier than all readers. Stores whose ``head`` returns the listed time are asked only once.
    """
    name = commit_file(version)
    found = store.head(f"{LOG_DIR}/{name}")
    exact = getattr(store, "head_has_exact_time", False)
    if found is None or exact or found.modification_time_ms % 1000:
        return found
    listed = next(iter(store.list_from(name, prefix=LOG_DIR)), None)
    return listed if listed is not None and listed.path == found.path else found
