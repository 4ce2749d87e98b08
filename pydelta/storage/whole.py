"""Read all bytes of a listed object, since a reply may end early without an error.

A truncated commit or manifest can still be parsed, and the files in its missing lines would be taken for unneeded.
"""

from __future__ import annotations

from typing import Final

from pydelta.errors import StorageError
from pydelta.storage.interface import ObjectInfo, Store

__all__ = ["ensure_whole", "read_listed"]

_ATTEMPTS: Final = 3


def ensure_whole(length: int, info: ObjectInfo) -> None:
    """Refuse a read of fewer bytes than the object has. More bytes are fine: it may have grown since the listing.

    Raises:
        StorageError: The read ended early.
    """
    if length < info.size:
        raise StorageError(
            f"{info.path} was only read in part: {length} of {info.size} bytes.",
            retryable=True,
            hint="The connection, or a proxy in between, cuts replies: run it again.",
        )


def read_listed(store: Store, info: ObjectInfo) -> bytes:
    """Read the whole object. If it was replaced since the listing, it may be shorter.

    Args:
        store: Store of the object.
        info: The object as it was listed.

    Raises:
        ObjectNotFoundError: The object is gone.
        StorageError: The object could not be read to its end.
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
