"""Get the size and time of a commit's file, as every reader of the log sees them."""

from __future__ import annotations

from pydelta.protocol.paths import LOG_DIR, commit_file
from pydelta.storage import ObjectInfo, Store

__all__ = ["commit_info"]


def commit_info(store: Store, version: int) -> ObjectInfo | None:
    """Get the file of a commit; None where there is none.

    Readers take a version's time from a listing. S3 tells that of one object as an HTTP date, in whole seconds, while
    the listing of some services (MinIO) has milliseconds: a time of whole seconds is therefore looked up in a listing
    as well, or the writer would date its commit up to a second before everybody else does. Stores whose ``head`` tells
    the listing's own time are asked once.
    """
    name = commit_file(version)
    found = store.head(f"{LOG_DIR}/{name}")
    exact = getattr(store, "head_has_exact_time", False)
    if found is None or exact or found.modification_time_ms % 1000:
        return found
    listed = next(iter(store.list_from(name, prefix=LOG_DIR)), None)
    return listed if listed is not None and listed.path == found.path else found
