"""Let one process publish at a time. A lease is a numbered file, which put-if-absent lets only one process create.

::

    list --> newest is 7 --still valid----------> wait, list again
                         --released or expired--> create 8; it is mine, unless a list now shows 9
    before each write: renew the lease if half of it has passed, stop if it has expired
    release --> mark 8 as released and keep it, so that no number is used twice; delete older files

A table has three leases, ``manifests``, ``twin`` and ``iceberg``, so that publishers of manifests never wait for a
metastore.

A holder that was paused for longer than its lease (a sleeping machine) may have made one more write, over its
successor's. If it notices that, it records a doubt, and the next holder does everything again.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from pydelta.errors import ObjectNotFoundError, StorageError
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.settings.clock import Deadline, epoch_ms
from pydelta.storage import PutOutcome, Store

__all__ = [
    "ICEBERG",
    "LEASE_DIR",
    "MANIFESTS",
    "TWIN",
    "Lease",
    "LeaseLostError",
    "ManifestsBusyError",
    "acquire",
    "is_doubted",
]

LEASE_DIR: Final = "_pydelta/leases"
MANIFESTS: Final = "manifests"
"""Lease for the manifests and their state."""
TWIN: Final = "twin"
"""Lease for the entry in a metastore."""
ICEBERG: Final = "iceberg"
"""Lease for the Iceberg entry."""
_DURATION_MS: Final = 60_000
_SLACK_MS: Final = 15_000
_POLL_SECONDS: Final = 0.2

T = TypeVar("T")


class ManifestsBusyError(StorageError):
    """Another process publishes or syncs and did not finish in time. Its work is not affected."""

    code = "DELTA_MANIFESTS_BUSY"


class LeaseLostError(StorageError):
    """This process took longer than its lease. Another one may be working now, and will do the rest."""

    code = "DELTA_MANIFESTS_LEASE_LOST"


class _Holder(msgspec.Struct, frozen=True, kw_only=True):
    owner: str
    expires_ms: int


class _Doubt(msgspec.Struct, frozen=True, kw_only=True):
    owner: str
    due_ms: int


def _wall_ms() -> int:
    return epoch_ms()


@dataclass(slots=True)
class Lease:
    """The right to write until the lease expires.

    Args:
        store: The table's store.
        name: ``MANIFESTS``, ``TWIN`` or ``ICEBERG``.
        number: Number of this lease; the next one has a higher number.
        owner: Unique id of the holder.
        expires_ms: Time of expiry by this machine's wall clock.
        is_doubted: Whether the work of a former holder is uncertain. If so, do everything again, then call ``settle``.
    """

    store: Store
    name: str
    number: int
    owner: str
    expires_ms: int
    is_doubted: bool = False
    _doubt: bytes = field(default=b"", repr=False)
    _older: tuple[str, ...] = field(default=(), repr=False)
    _wall: Callable[[], int] = field(default=_wall_ms, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _has_written: bool = field(default=False, repr=False)

    @property
    def path(self) -> str:
        """Path of the lease's file."""
        return _path(self.name, self.number)

    def check(self) -> None:
        """Renew the lease if half of it has passed. Call this before each write.

        Raises:
            LeaseLostError: The lease has expired.
        """
        self._renew()
        self._has_written = True

    def _renew(self) -> None:
        with self._lock:
            now = self._wall()
            if now >= self.expires_ms:
                raise self._lost()
            if self.expires_ms - now >= _DURATION_MS // 2:
                return
            expires = now + _DURATION_MS
            self.store.put(self.path, _encoded(self.owner, expires))
            if self._wall() >= self.expires_ms:  # It expired during the put, so another one may be held.
                raise self._lost()
            self.expires_ms = expires

    def _lost(self) -> LeaseLostError:
        return LeaseLostError(
            f"The work on the {_WORDS[self.name]} took longer than its lease and was stopped.",
            retryable=True,
            hint="Run it again to do the rest.",
            table=self.store.root,
        )

    @contextmanager
    def kept(self, *, every_seconds: float = _DURATION_MS / 4000) -> Iterator[None]:
        """Renew the lease in the background during a long step that cannot call ``check``."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(every_seconds):
                try:
                    self._renew()
                except LeaseLostError:
                    return  # The holder's next check raises it.
                except StorageError:
                    continue  # There is time to try again.

        thread = threading.Thread(target=renew, name="pydelta-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def doubt(self, *, for_ms: int = 0) -> None:
        """Let a later holder do everything again, since this holder's work is uncertain or may still take effect.

        Args:
            for_ms: How long a request may still take effect. The work is not repeated before that.
        """
        due = _Doubt(owner=self.owner, due_ms=self._wall() + for_ms)
        self.store.put(_doubt_path(self.name), msgspec.json.encode(due))

    def settle(self) -> None:
        """Clear the doubt after everything was done again, unless a new one has been recorded since."""
        path = _doubt_path(self.name)
        if self.is_doubted and _found(lambda: self.store.read(path)) == self._doubt:
            self.store.delete_many([path])

    def release(self) -> None:
        """Release the lease to the next process. If that fails, the lease expires by itself."""
        try:
            if self._wall() >= self.expires_ms:
                if self._has_written:
                    self.doubt()
                return  # Leave the expired file to the next holder.
            self.store.put(self.path, _encoded(self.owner, 0))
            if self._older:
                self.store.delete_many(self._older)
        except StorageError:
            return


_WORDS: Final = {MANIFESTS: "manifests", TWIN: "entry in the metastore", ICEBERG: "Iceberg entry"}


def acquire(
    store: Store,
    name: str = MANIFESTS,
    *,
    wait_seconds: float,
    done: Callable[[], bool] = lambda: False,
    wall: Callable[[], int] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease | None:
    """Wait for a lease.

    Args:
        store: The table's store.
        name: ``MANIFESTS``, ``TWIN`` or ``ICEBERG``.
        wait_seconds: Maximum time to wait.
        done: Returns whether another process has done the work in the meantime.
        wall: Clock in epoch milliseconds, or None for this machine's clock.
        sleep: Sleeps for a number of seconds.

    Returns:
        The lease, or None if ``done`` returned True first.

    Raises:
        ManifestsBusyError: Other processes held the lease all the time.
        StorageError: The store failed.
    """
    wall = wall or _wall_ms
    owner = str(uuid.uuid4())
    deadline = Deadline(wait_seconds)
    while True:
        numbers, _ = _listed(store, name)
        newest = max(numbers, default=0)
        holder = _holder(store, _path(name, newest)) if newest else None
        if holder is None or wall() >= holder.expires_ms + _SLACK_MS:
            lease = _created(store, name, newest + 1, owner, wall)
            if lease is not None:
                return lease
            continue  # Another process created it first.
        if done():
            return None
        left = deadline.remaining()
        if left <= 0:
            raise ManifestsBusyError(
                f"Another process has been working on the {_WORDS[name]} for more than {wait_seconds:.0f} s.",
                retryable=True,
                hint="Run it again later; a lease whose holder died runs out within 75 seconds.",
                table=store.root,
            )
        sleep(min(_POLL_SECONDS, left))


def _created(store: Store, name: str, number: int, owner: str, wall: Callable[[], int]) -> Lease | None:
    """Create the lease of a number. Returns None if another process has it, or a later one."""
    path = _path(name, number)
    expires = wall() + _DURATION_MS
    if store.put_if_absent(path, _encoded(owner, expires)) is not PutOutcome.CREATED:
        holder = _holder(store, path)
        if holder is None or holder.owner != owner:  # If we are the owner, only the reply was lost.
            return None
    numbers, is_doubted = _listed(store, name)
    if max(numbers, default=0) != number:  # A later lease exists, and its holder had deleted this number.
        store.delete_many([path])
        return None
    doubt = (_found(lambda: store.read(_doubt_path(name))) or b"") if is_doubted else b""
    older = tuple(_path(name, item) for item in numbers if item < number)
    return Lease(store, name, number, owner, expires, _is_due(doubt, wall()), doubt, older, wall)


def is_doubted(store: Store, name: str, *, now_ms: int | None = None) -> bool:
    """Return whether the work of a former holder has to be done again. Takes one request."""
    return _is_due(_found(lambda: store.read(_doubt_path(name))) or b"", _wall_ms() if now_ms is None else now_ms)


def _is_due(doubt: bytes, now_ms: int) -> bool:
    if not doubt:
        return False
    try:
        return msgspec.json.decode(doubt, type=_Doubt).due_ms <= now_ms
    except MALFORMED_JSON:
        return True


def _listed(store: Store, name: str) -> tuple[list[int], bool]:
    """Return the numbers of the existing lease files, and whether there is a doubt."""
    names = [info.path.rpartition("/")[2] for info in store.list_from(name, prefix=LEASE_DIR)]
    texts = [item.removeprefix(f"{name}-") for item in names if item.startswith(f"{name}-")]
    return [int(text) for text in texts if text.isdigit()], f"{name}.doubt" in names


def _path(name: str, number: int) -> str:
    return f"{LEASE_DIR}/{name}-{number}"


def _doubt_path(name: str) -> str:
    return f"{LEASE_DIR}/{name}.doubt"


def _encoded(owner: str, expires_ms: int) -> bytes:
    return msgspec.json.encode(_Holder(owner=owner, expires_ms=expires_ms))


def _holder(store: Store, path: str) -> _Holder | None:
    try:
        return msgspec.json.decode(store.read(path), type=_Holder)
    except ObjectNotFoundError:
        return None
    except MALFORMED_JSON:  # A crash truncated the file; the lease lasts its full time.
        info = store.head(path)
        return None if info is None else _Holder(owner="", expires_ms=info.modification_time_ms + _DURATION_MS)


def _found(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except ObjectNotFoundError:
        return None
