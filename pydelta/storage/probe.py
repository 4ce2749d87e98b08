"""Test put-if-absent with a race, since several S3-compatible stores let two writers create one object.

``ensure_safe`` runs the test at a process's first commit to a bucket, and refuses a store that failed.
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
    """The result of a race.

    Args:
        writers: Number of racing writers.
        created: Number of writers whose create succeeded; one is correct.
        unknown: Number of writers without a definite reply.
        kept: Whether the stored bytes are the winner's, or those of a writer without a reply if no winner is known.
        latecomer_refused: Whether a create after the race was refused and left the object unchanged.
    """

    writers: int
    created: int
    unknown: int
    kept: bool
    latecomer_refused: bool = True

    @property
    def safe(self) -> bool:
        """Whether there was at most one winner, and its bytes are stored and stay."""
        one_winner = self.created == 1 or (self.created == 0 and self.unknown > 0)
        return self.kept and one_winner and self.latecomer_refused


def probe_put_if_absent(store: Store, *, writers: int = 8) -> ProbeResult:
    """Race ``writers`` threads to create one object under ``_pydelta/``, which is removed afterwards.

    Raises:
        StorageError: The store could not be written to at all; or no writer got a definite reply and the object does
        not
            exist, so that the race shows nothing.
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
                f"{store.root}: none of {writers} requests to create an object got a definite reply, and the object "
                f"is missing.",
                retryable=True,
                hint="Run it again; if it fails again, check the store's own log.",
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
    """Refuse a store without a safe put-if-absent. Each bucket is tested once per process.

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
            f"{bucket} does not honour put-if-absent: of {result.writers} writers that raced to create one object "
            f"{result.created} were told that they succeeded, and the first one's bytes "
            f"{'stayed' if result.kept and result.latecomer_refused else 'did not stay'}. "
            "Two transactions could overwrite each other there.",
            hint="Use a store that honours If-None-Match on PUT (AWS S3, MinIO), or register a log store of your own "
            "for the scheme (spark.pydelta.logStore.<scheme>).",
        )
    with _LOCK:
        _SAFE_BUCKETS.add(identity)
