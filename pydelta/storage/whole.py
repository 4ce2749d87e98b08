"""Read all bytes of a listed object: a reply that ends early is not the end of the object.

A commit whose last lines are missing parses, and so does a manifest: what they name would be taken for unneeded.
"""

from __future__ import annotations

from typing import Final

from pydelta.errors import StorageError
from pydelta.storage.interface import ObjectInfo, Store

__all__ = ["ensure_whole", "read_listed"]

_ATTEMPTS: Final = 3


def ensure_whole(length: int, info: ObjectInfo) -> None:
    """Refuse a read of fewer bytes than the object has. More are not an error: it may have grown since it was listed.

    Raises:
        StorageError: It ended early.
    """
    if length < info.size:
        raise StorageError(
            f"{info.path} was read in part: {length} of {info.size} bytes.",
            retryable=True,
            hint="The connection, or a proxy in between, cuts replies: run it again.",
        )


def read_listed(store: Store, info: ObjectInfo) -> bytes:
    """Read the whole object. One that was replaced since it was listed may be shorter by now.

    Args:
        store: Where it is.
        info: As it was listed.

    Raises:
        ObjectNotFoundError: It is gone.
        StorageError: It could not be read to its end.
    """
    for _ in range(_ATTEMPTS):
        data = store.read(info.path)
        if len(data) >= info.size:
            return data
        now = store.head(info.path)
        if now is not None and now.size < info.size:
            info = now
            if len(data) >= info.size:
                return data
    ensure_whole(len(data), info)
    return data
