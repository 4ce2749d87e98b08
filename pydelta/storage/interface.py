"""Define the operations of a store: bytes, listings, and a create that only one writer can win.

A ``Store`` is bound to a root URI (a table's location, or any prefix). Every ``path`` is relative to it, uses ``/`` and
is *not* URL-encoded. Nothing here knows the log's format.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

__all__ = ["DeleteReport", "NearStore", "ObjectInfo", "PutOutcome", "Store"]


class PutOutcome(enum.Enum):
    """The outcome of a put-if-absent. No layer may turn ``UNKNOWN`` into another outcome without proof."""

    CREATED = "created"
    ALREADY_EXISTS = "already exists"
    UNKNOWN = "unknown"
    """The request may have reached the store, but the reply was lost: read the object back and compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """A listed object: ``path`` relative to the store's root, ``size`` in bytes, time in epoch milliseconds."""

    path: str
    size: int
    modification_time_ms: int
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReport:
    """The result of ``delete_many``. A missing path counts as deleted.

    ``failed`` holds paths and reasons. ``retryable`` says whether the same request may succeed later, and ``denied``
    whether the store refused it for lack of permission.
    """

    deleted: int
    failed: tuple[tuple[str, str], ...] = ()
    retryable: bool = False
    denied: bool = False


@runtime_checkable
class Store(Protocol):
    """A store of bytes under one root.

    All methods raise only ``ObjectNotFoundError``, ``StoragePermissionError``, ``StorageFullError``,
    ``StorageReadOnlyError`` or plain ``StorageError`` (with ``retryable``), never a client library's own type.
    """

    @property
    def root(self) -> str:
        """Root URI with a scheme and without a trailing slash (``file:///…``, ``s3a://…``, ``memory://…``)."""

    def list_from(self, start: str, *, prefix: str) -> Iterator[ObjectInfo]:
        """List objects *directly* in directory ``prefix`` whose file name is >= ``start``, in ascending name order.

        Args:
            start: A file name (not a path); the empty string lists all.
            prefix: A directory relative to the root, without a trailing slash (``_delta_log``).

        Yields:
            The objects. A missing directory yields nothing and is not an error.
        """

    def list_all(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List every object below ``prefix``, recursively, in no particular order. Directories are not objects."""

    def read(self, path: str) -> bytes:
        """Read the whole object. Raises ``ObjectNotFoundError``.

        Deciding whether a file may be deleted needs ``whole.read_listed``, since a reply can be cut off without an
        error.
        """

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Read ``length`` bytes from offset ``start``, or fewer at the end of the object."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create the object atomically, only if nothing has that name, even if several writers race.

        A reader sees the whole object or none. A failure leaves no partial object. If this is a single step of the
        operating system, this process or the NameNode, the store has an attribute ``put_if_absent_is_atomic`` that is
        True. Other stores are tested with a race before the first commit.

        Raises:
            StorageError: Nothing was created by this call, and nothing will be. If that is not certain, the outcome is
                ``UNKNOWN``, or the error is ``retryable``.
        """

    def put(self, path: str, data: bytes) -> None:
        """Create or replace the object atomically."""

    def head(self, path: str) -> ObjectInfo | None:
        """Return size and time of the object, or None if it does not exist.

        The time may be cut to whole seconds, unlike that of a listing, since S3 returns no more for a single object. A
        store with exact times has the attribute ``head_has_exact_time`` set to True.
        """

    def delete_many(self, paths: Iterable[str]) -> DeleteReport:
        """Delete objects, in bulk if possible. Missing ones are not an error, and a failure does not stop the rest."""

    def open_writer(self, path: str) -> BinaryIO:
        """Open a writable binary stream. The object appears as a whole at ``close()``.

        ``abort()`` on the returned stream (see ``ObjectWriter``) discards the data.
        """


@runtime_checkable
class NearStore(Protocol):
    """A store whose objects are files of this machine, so that reading a part is as cheap as reading the whole."""

    def local_path(self, path: str) -> str:
        """Return the path of the object, existing or not, in the machine's file system."""
