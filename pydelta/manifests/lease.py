"""One publisher at a time: a lease is a file that put-if-absent lets one process create.

::

    state of generation g --create manifests.lease-(g+1)--> mine: write manifests, then state g+1, then delete the lease
                            exists, still running ---------> wait, look at the state again
                            exists, ran out ---------------> create manifests.lease-(g+2): its holder may have died
                            lease-g still running ---------> wait: who wrote the state has more to do (a metastore)

A holder whose lease ran out writes nothing more; what it left half-written, the next one writes again.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pydelta.errors import ObjectNotFoundError, StorageError
from pydelta.storage import PutOutcome, Store

__all__ = ["Lease", "LeaseLostError", "ManifestsBusyError", "acquire"]

_PREFIX: Final = "_pydelta/manifests.lease-"
_DURATION_MS: Final = 60_000
_SLACK_MS: Final = 15_000
_POLL_SECONDS: Final = 0.2


class ManifestsBusyError(StorageError):
    """Another process publishes the manifests and did not end in time; what it publishes stays right."""

    code = "DELTA_MANIFESTS_BUSY"


class LeaseLostError(StorageError):
    """This process took longer than its lease; another one may publish by now, and will do all that is missing."""

    code = "DELTA_MANIFESTS_LEASE_LOST"


class _Holder(msgspec.Struct, frozen=True, kw_only=True):
    owner: str
    expires_ms: int


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Lease:
    """The right to write manifests until it runs out.

    Args:
        store: The table's store.
        generation: Number of this lease; the state written under it carries the same.
        owner: Something that nobody else has.
        expires_ms: By this machine's wall clock.
    """

    store: Store
    generation: int
    owner: str
    expires_ms: int
    _wall: Callable[[], int] = field(default=_wall_ms, repr=False)

    @property
    def path(self) -> str:
        """The lease's file."""
        return f"{_PREFIX}{self.generation}"

    def check(self) -> None:
        """Renew a lease that is half through; call it before each write.

        Raises:
            LeaseLostError: It ran out.
        """
        left = self.expires_ms - self._wall()
        if left <= 0:
            raise LeaseLostError(
                "Publishing the manifests took longer than the lease, and was stopped.",
                retryable=True,
                hint="Run it again: what is missing is published then.",
                table=self.store.root,
            )
        if left < _DURATION_MS // 2:
            expires = self._wall() + _DURATION_MS
            self.store.put(self.path, _encoded(self.owner, expires))
            self.expires_ms = expires

    @contextmanager
    def kept(self, *, every_seconds: float = _DURATION_MS / 4000) -> Iterator[None]:
        """Renew it in the background while something takes long that cannot call ``check``."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(every_seconds):
                try:
                    self.check()
                except StorageError:
                    return  # whoever holds it finds that out at the next check

        thread = threading.Thread(target=renew, name="pydelta-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def release(self) -> None:
        """Let the next one in. Failing to is harmless: the lease runs out."""
        try:
            self.store.delete_many([self.path, f"{_PREFIX}{self.generation - 1}"])
        except StorageError:
            return


def _encoded(owner: str, expires_ms: int) -> bytes:
    return msgspec.json.encode(_Holder(owner=owner, expires_ms=expires_ms))


def acquire(
    store: Store,
    generation: Callable[[], int],
    *,
    wait_seconds: float,
    done: Callable[[], bool],
    wall: Callable[[], int] = _wall_ms,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease | None:
    """Wait for the lease.

    Args:
        store: The table's store.
        generation: Reads the generation of the newest state, 0 where there is none.
        wait_seconds: How long at most.
        done: Whether another process has meanwhile published what is wanted.
        wall: Epoch milliseconds.
        sleep: Pauses.

    Returns:
        The lease; None when ``done`` said so first.

    Raises:
        ManifestsBusyError: It was held by others all the time.
        StorageError: The store failed.
    """
    owner = str(uuid.uuid4())
    waited = 0.0
    while True:
        number = generation() + 1
        outcome = PutOutcome.ALREADY_EXISTS
        last = _read(store, f"{_PREFIX}{number - 1}") if number > 1 else None
        while last is None or wall() >= last.expires_ms + _SLACK_MS:  # past leases whose holders died
            expires = wall() + _DURATION_MS
            data = _encoded(owner, expires)
            path = f"{_PREFIX}{number}"
            outcome = store.put_if_absent(path, data)
            if outcome is PutOutcome.CREATED:
                break
            holder = _read(store, path)
            if holder is None:  # released in between
                break
            if holder.owner == owner:  # the reply to our own create was lost
                outcome = PutOutcome.CREATED
                break
            if wall() < holder.expires_ms + _SLACK_MS:
                break
            number += 1
        if outcome is PutOutcome.CREATED:
            lease = Lease(store, number, owner, expires, wall)
            if generation() < number:
                return lease
            lease.release()  # the state went past it while this was looking
            continue
        if done():
            return None
        if waited >= wait_seconds:
            raise ManifestsBusyError(
                f"Another process has been publishing the manifests for more than {wait_seconds:.0f} s.",
                retryable=True,
                hint="Run it again later; a lease whose holder died runs out within 75 seconds.",
                table=store.root,
            )
        sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS


def _read(store: Store, path: str) -> _Holder | None:
    try:
        return msgspec.json.decode(store.read(path), type=_Holder)
    except ObjectNotFoundError:
        return None
    except (msgspec.DecodeError, msgspec.ValidationError):  # cut off by a crash: it holds for as long as a whole one
        info = store.head(path)
        return None if info is None else _Holder(owner="", expires_ms=info.modification_time_ms + _DURATION_MS)
