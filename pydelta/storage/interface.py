"""Define what the engine asks of a store: bytes, listings, and one create that only one writer can win.

A ``Store`` is bound to a root URI (a table's location, or any prefix); every ``path`` is relative to it,
uses ``/`` and is *not* URL-encoded. Nothing here knows the log's format.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

__all__ = ["DeleteReport", "NearStore", "ObjectInfo", "PutOutcome", "Store"]


class PutOutcome(enum.Enum):
    """How a put-if-absent ended. No layer may turn ``UNKNOWN`` into either of the others without proof."""

    CREATED = "created"
    ALREADY_EXISTS = "already exists"
    UNKNOWN = "unknown"
    """The request may have reached the store and the reply was lost: read the object back and compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One listed object: ``path`` relative to the store's root, ``size`` in bytes, time in epoch milliseconds."""

    path: str
    size: int
    modification_time_ms: int
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReport:
    """What ``delete_many`` did. A path that was already gone counts as deleted.

    ``failed`` holds paths and reasons; ``retryable`` says whether the same request may succeed later, and ``denied``
    that the store refused for want of permission.
    """

    deleted: int
    failed: tuple[tuple[str, str], ...] = ()
    retryable: bool = False
    denied: bool = False


@runtime_checkable
class Store(Protocol):
    """Bytes under one root.

    Errors, everywhere: ``ObjectNotFoundError``, ``StoragePermissionError``, ``StorageFullError``,
    ``StorageReadOnlyError`` or plain ``StorageError`` (with ``retryable``); never a client library's own type.
    """

    @property
    def root(self) -> str:
        """Root URI without a trailing slash, with scheme (``file:///…``, ``s3a://…``, ``memory://…``)."""

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """List objects *directly* in directory ``prefix`` whose file name is >= ``start``, in ascending name order.

        Args:
            start: A file name (not a path); the empty string lists all.
            prefix: A directory relative to the root, no trailing slash (``_delta_log``).

        Yields:
            Nothing, without error, when the directory does not exist.
        """

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List every object below ``prefix``, recursively, in no particular order. Directories are not objects."""

    def read(self, path: str) -> bytes:
        """Read the whole object. Raises ``ObjectNotFoundError``.

        What decides whether a file may go is read by ``whole.read_listed``: a reply can be cut off without an error.
        """

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Read ``length`` bytes from offset ``start``; fewer only at the end of the object."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create the object only if nothing has that name: atomic and all or nothing, whatever the race.

        A reader sees the whole object or none; a failure of any kind leaves no partial object behind. If this is a
        single step of the operating system, this process or the NameNode, the store has an attribute
        ``put_if_absent_is_atomic`` that is True; the other stores are raced before the first commit.

        Raises:
            StorageError: Nothing was created by this call, and nothing will be. Where that is not certain the answer is
                ``UNKNOWN``, or an error that is ``retryable``.
        """

    def put(self, path: str, data: bytes) -> None:
        """Create or replace the object in one atomic step."""

    def head(self, path: str) -> ObjectInfo | None:
        """Get size and time of the object, or None when there is none.

        The time may be that of a listing cut to whole seconds: S3 tells no more of one object. A store that tells the
        listing's time has an attribute ``head_has_exact_time`` that is True.
        """

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """Delete objects, in bulk where the store can. Missing ones are not an error; one failure stops no other."""

    def open_writer(self, path: str) -> BinaryIO:
        """Open a writable binary stream; the object appears whole at ``close()``.

        ``abort()`` on the returned stream (see ``ObjectWriter``) drops what was written.
        """


@runtime_checkable
class NearStore(Protocol):
    """A store whose objects are files of this machine: a part of one is read as soon as the whole."""

    def local_path(self, path: str) -> str:
        """Return where the object is, or would be, in the machine's file system."""
