"""Let one process at a time publish: a lease is a numbered file that put-if-absent lets one process create.

::

    list --> the newest is 7 --still running--------> wait, list again
                             --released or ran out--> create 8; mine, unless a list shows 9 by now
    before each write: renew it when it is half through, stop when it ran out
    release --> 8 says that it is over and stays, so that no number is used twice; older files go

A table has two, so that nobody who publishes manifests waits for a metastore: ``manifests`` and ``twin``.

A holder that was stopped for longer than its lease lasts (a machine that slept) may have written one thing more, over
what its successor wrote. Whoever finds that of itself leaves a doubt, and the next holder does everything again.
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

__all__ = ["LEASE_DIR", "MANIFESTS", "TWIN", "Lease", "LeaseLostError", "ManifestsBusyError", "acquire", "is_doubted"]

LEASE_DIR: Final = "_pydelta/leases"
MANIFESTS: Final = "manifests"
"""Over the manifests and their state."""
TWIN: Final = "twin"
"""Over the entry in a metastore."""
_DURATION_MS: Final = 60_000
_SLACK_MS: Final = 15_000
_POLL_SECONDS: Final = 0.2

T = TypeVar("T")


class ManifestsBusyError(StorageError):
    """Another process publishes or syncs and did not end in time; what it does stays right."""

    code = "DELTA_MANIFESTS_BUSY"


class LeaseLostError(StorageError):
    """This process took longer than its lease; another one may be at work by now, and will do all that is missing."""

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
    """The right to write until it runs out.

    Args:
        store: The table's store.
        name: What it is over: ``MANIFESTS`` or ``TWIN``.
        number: Of this lease; the next one has a higher one.
        owner: Something that nobody else has.
        expires_ms: By this machine's wall clock.
        is_doubted: What a former holder did is not certain: do everything again, then call ``settle``.
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
        """The lease's file."""
        return _path(self.name, self.number)

    def check(self) -> None:
        """Renew a lease that is half through; call it before each write.

        Raises:
            LeaseLostError: It ran out.
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
            if self._wall() >= self.expires_ms:  # it ran out meanwhile, and somebody may have come between
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
        """Renew it in the background while something takes long that cannot call ``check``."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(every_seconds):
                try:
                    self._renew()
                except LeaseLostError:
                    return  # whoever holds it finds that out at the next check
                except StorageError:
                    continue  # there is time left to try again

        thread = threading.Thread(target=renew, name="pydelta-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def doubt(self, *, for_ms: int = 0) -> None:
        """Let a later holder do everything again: what was done here is not certain, or may yet take effect.

        Args:
            for_ms: How long something may take effect yet; until then it would be too early.
        """
        due = _Doubt(owner=self.owner, due_ms=self._wall() + for_ms)
        self.store.put(_doubt_path(self.name), msgspec.json.encode(due))

    def settle(self) -> None:
        """Say that everything was done again, so that nothing is in doubt, except what has come up since then."""
        path = _doubt_path(self.name)
        if self.is_doubted and _found(lambda: self.store.read(path)) == self._doubt:
            self.store.delete_many([path])

    def release(self) -> None:
        """Let the next one in. Failing to is harmless: the lease runs out."""
        try:
            if self._wall() >= self.expires_ms:
                if self._has_written:
                    self.doubt()
                return  # its file is somebody else's to pass by
            self.store.put(self.path, _encoded(self.owner, 0))
            if self._older:
                self.store.delete_many(self._older)
        except StorageError:
            return


_WORDS: Final = {MANIFESTS: "manifests", TWIN: "entry in the metastore"}


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
        name: What it is over.
        wait_seconds: How long at most.
        done: Whether another process has meanwhile done what is wanted.
        wall: Epoch milliseconds; None for this machine's clock.
        sleep: Pauses.

    Returns:
        The lease; None when ``done`` said so first.

    Raises:
        ManifestsBusyError: It was held by others all the time.
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
            continue  # somebody was faster
        if done():
            return None
        left = deadline.remaining()
        if left <= 0:
            raise ManifestsBusyError(
                f"Another process has been at work on the {_WORDS[name]} for more than {wait_seconds:.0f} s.",
                retryable=True,
                hint="Run it again later; a lease whose holder died runs out within 75 seconds.",
                table=store.root,
            )
        sleep(min(_POLL_SECONDS, left))


def _created(store: Store, name: str, number: int, owner: str, wall: Callable[[], int]) -> Lease | None:
    """The lease of a number; None when somebody else has it, or a later one."""
    path = _path(name, number)
    expires = wall() + _DURATION_MS
    if store.put_if_absent(path, _encoded(owner, expires)) is not PutOutcome.CREATED:
        holder = _holder(store, path)
        if holder is None or holder.owner != owner:  # else the reply to our own create was lost
            return None
    numbers, is_doubted = _listed(store, name)
    if max(numbers, default=0) != number:  # this looked before that one was made, and the one between them is gone
        store.delete_many([path])
        return None
    doubt = (_found(lambda: store.read(_doubt_path(name))) or b"") if is_doubted else b""
    older = tuple(_path(name, item) for item in numbers if item < number)
    return Lease(store, name, number, owner, expires, _is_due(doubt, wall()), doubt, older, wall)


def is_doubted(store: Store, name: str, *, now_ms: int | None = None) -> bool:
    """Tell whether what a former holder did has to be done again. One request."""
    return _is_due(_found(lambda: store.read(_doubt_path(name))) or b"", _wall_ms() if now_ms is None else now_ms)


def _is_due(doubt: bytes, now_ms: int) -> bool:
    if not doubt:
        return False
    try:
        return msgspec.json.decode(doubt, type=_Doubt).due_ms <= now_ms
    except MALFORMED_JSON:
        return True


def _listed(store: Store, name: str) -> tuple[list[int], bool]:
    """Numbers of the lease files there are, and whether there is a doubt."""
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
    except MALFORMED_JSON:  # cut off by a crash: it holds for as long as a whole one
        info = store.head(path)
        return None if info is None else _Holder(owner="", expires_ms=info.modification_time_ms + _DURATION_MS)


def _found(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except ObjectNotFoundError:
        return None
