"""Let maintenance give way to a change that it was in the way of.

::

    change that is run again --> puts ``_pydelta/changing/<uuid>``, deletes it when it is done
    OPTIMIZE, before it reads the table --> something there: waits, up to a bound, then goes on
    auto-compaction ----------------------> something there: leaves it to the next one

A compaction that ends while a change is under way costs the change all of its work; waiting costs the compaction
nothing that was done. Nothing depends on the announcement: it may be late, lost, or be left behind by a process that
died, whose announcement is deleted when it is old.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Final

from pydelta.errors import DeltaError
from pydelta.storage.interface import Store

__all__ = ["FOLDER", "announced", "changes_under_way", "give_way"]

_logger: Final = logging.getLogger(__name__)

FOLDER: Final = "_pydelta/changing"
_STALE_MS: Final = 15 * 60_000
_LOOK_AGAIN_SECONDS: Final = 0.5


@contextlib.contextmanager
def announced(store: Store) -> Iterator[None]:
    """Tell maintenance of the table that a change is run again; a store that refuses is passed over."""
    path = f"{FOLDER}/{uuid.uuid4()}"
    try:
        store.put(path, b"{}")
    except DeltaError as error:
        _logger.info("a change could not be announced: %s", error.message)
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(DeltaError):
            store.delete_many([path])


def changes_under_way(store: Store, *, now_ms: int) -> int:
    """Count the announced changes of a table with one listing; what is old is deleted, and not counted.

    Args:
        store: The table's.
        now_ms: Epoch milliseconds.
    """
    try:
        found = list(store.list_from("", prefix=FOLDER))
        stale = [item.path for item in found if now_ms - item.modification_time_ms > _STALE_MS]
        if stale:
            store.delete_many(stale)
    except DeltaError as error:  # who may not list that folder need not wait
        _logger.info("announced changes could not be listed: %s", error.message)
        return 0
    return len(found) - len(stale)


def give_way(
    store: Store,
    *,
    most_ms: int,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> int:
    """Wait while changes of a table are announced.

    Args:
        store: The table's.
        most_ms: No longer than this; 0 does not even look.
        sleep: Takes seconds.
        clock: Epoch milliseconds.

    Returns:
        Milliseconds that were waited.
    """
    began = clock()
    waited = 0
    while waited < most_ms and changes_under_way(store, now_ms=clock()):
        sleep(min(_LOOK_AGAIN_SECONDS, (most_ms - waited) / 1000))
        waited = max(clock() - began, waited + 1)
    return waited
