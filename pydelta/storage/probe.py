"""Test whether put-if-absent holds: several S3 look-alikes let two writers create one object; a race shows it.

A store in, a result out; at a process's first commit to a bucket ``ensure_safe`` refuses one that failed.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydelta.errors import ObjectNotFoundError, StorageError, UnsafeStoreError
from pydelta.storage.interface import PutOutcome, Store

__all__ = ["ProbeResult", "ensure_safe", "probe_put_if_absent"]

_SAFE_BUCKETS: set[str] = set()
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a race showed.

    Args:
        writers: How many raced.
        created: How many were told that they created the object; one is right.
        unknown: How many were told nothing certain.
        kept: Whether what is stored is what the winner wrote, or, where none is known, one of the unknown.
        latecomer_refused: Whether a create after the race left the object alone and did not claim to have made it.
    """

    writers: int
    created: int
    unknown: int
    kept: bool
    latecomer_refused: bool = True

    @property
    def safe(self) -> bool:
        """One winner at most, its bytes are there, and they stay."""
        one_winner = self.created == 1 or (self.created == 0 and self.unknown > 0)
        return self.kept and one_winner and self.latecomer_refused


def probe_put_if_absent(store: Store, *, writers: int = 8) -> ProbeResult:
    """Race ``writers`` threads to create one object under ``_pydelta/``, which is removed afterwards.

    Raises:
        StorageError: The store could not be written to at all, or none of the writers got a certain reply and nothing
            is there: that says nothing of a race.
    """
    path = f"_pydelta/probe-{uuid.uuid4()}"
    barrier = threading.Barrier(writers)

    def attempt(number: int) -> tuple[int, PutOutcome]:
        barrier.wait(timeout=60)
        return number, store.put_if_absent(path, b"writer %d" % number)

    try:
        with ThreadPoolExecutor(max_workers=writers) as pool:
            outcomes = dict(pool.map(attempt, range(writers)))
        try:
            stored = store.read(path)
        except ObjectNotFoundError:
            if PutOutcome.UNKNOWN not in outcomes.values() or PutOutcome.CREATED in outcomes.values():
                raise
            raise StorageError(
                f"{store.root}: none of {writers} requests to create an object got a certain reply, and there is none.",
                retryable=True,
                hint="Run it again; if it stays so, see what the store's own log says.",
            ) from None
        late = store.put_if_absent(path, b"latecomer")
        latecomer_refused = late is not PutOutcome.CREATED and store.read(path) == stored
    finally:
        store.delete_many([path])
    counts = Counter(outcomes.values())
    claimed = PutOutcome.CREATED if counts[PutOutcome.CREATED] else PutOutcome.UNKNOWN
    possible = {b"writer %d" % number for number, outcome in outcomes.items() if outcome is claimed}
    return ProbeResult(
        writers=writers,
        created=counts[PutOutcome.CREATED],
        unknown=counts[PutOutcome.UNKNOWN],
        kept=stored in possible,
        latecomer_refused=latecomer_refused,
    )


def ensure_safe(store: Store) -> None:
    """Refuse a store that does not keep put-if-absent; each bucket is raced once per process.

    Raises:
        UnsafeStoreError: Two writers created the same object.
        StorageError: The store could not be written to at all.
    """
    parts = urlsplit(store.root)
    bucket = f"{parts.scheme}://{parts.netloc}"
    identity: str = getattr(store, "identity", bucket)
    with _LOCK:
        if identity in _SAFE_BUCKETS:
            return
    result = probe_put_if_absent(store)
    if not result.safe:
        raise UnsafeStoreError(
            f"{bucket} does not keep put-if-absent: of {result.writers} writers that raced to create one object "
            f"{result.created} were told that they had, and the first one's bytes "
            f"{'stayed' if result.kept and result.latecomer_refused else 'did not stay'}. "
            "Two transactions could overwrite each other there.",
            hint="Use a store that honours If-None-Match on PUT (AWS S3, MinIO), or register a log store of your own "
            "for the scheme (spark.pydelta.logStore.<scheme>).",
        )
    with _LOCK:
        _SAFE_BUCKETS.add(identity)
