"""Make maintenance and new changes back off while a conflicting change retries.

::

    change that is run again --> writes ``_pydelta/changing/<uuid>`` on each retry, and deletes it when it is done
    change that begins ------------------> a recent announcement: waits, up to a short bound
    OPTIMIZE, before it reads the table --> an announcement: waits, up to a bound
    auto-compaction ----------------------> an announcement: leaves the work to the next one

A commit over the same files costs a running change all of its work, while one that waits before it reads loses none.
Without the wait, long changes would always lose to short ones. Nothing depends on the announcement: it may be late,
lost, or left by a process that died; others delete it when it is old.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Final

from pydelta.errors import DeltaError
from pydelta.settings.clock import epoch_ms
from pydelta.storage.interface import Store

__all__ = ["FOLDER", "announced", "changes_under_way", "give_way"]

_logger: Final = logging.getLogger(__name__)

FOLDER: Final = "_pydelta/changing"
_STALE_MS: Final = 15 * 60_000


@contextlib.contextmanager
def announced(store: Store) -> Iterator[Callable[[], None]]:
    """Announce to other writers that a change is run again; a failure to announce is ignored.

    Yields:
        A function that announces it again, for each further retry.
    """
    path = f"{FOLDER}/{uuid.uuid4()}"

    def announce() -> None:
        try:
            store.put(path, b"{}")
        except DeltaError as error:
            _logger.info("a change could not be announced: %s", error.message)

    announce()
    try:
        yield announce
    finally:
        with contextlib.suppress(DeltaError):
            store.delete_many([path])


def changes_under_way(store: Store, *, now_ms: int, younger_than_ms: int = _STALE_MS) -> int:
    """Count the announced changes of a table with one listing; delete those older than a quarter of an hour.

    Args:
        store: The table's store.
        now_ms: Epoch milliseconds.
        younger_than_ms: Older announcements are not counted.
    """
    try:
        found = list(store.list_from("", prefix=FOLDER))
        ages = {item.path: now_ms - item.modification_time_ms for item in found}
        stale = [path for path, age in ages.items() if age > _STALE_MS]
        if stale:
            store.delete_many(stale)
    except DeltaError as error:  # A user who may not list that folder does not wait.
        _logger.info("announced changes could not be listed: %s", error.message)
        return 0
    return sum(age <= younger_than_ms for age in ages.values())


def give_way(
    store: Store,
    *,
    most_ms: int,
    younger_than_ms: int = _STALE_MS,
    look_again_ms: int = 500,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], int] = epoch_ms,
) -> int:
    """Wait while changes of a table are announced.

    Args:
        store: The table's store.
        most_ms: The longest wait; 0 does not even list.
        younger_than_ms: Older announcements are ignored.
        look_again_ms: The wait between two listings.
        sleep: Sleeps for seconds.
        clock: Returns epoch milliseconds.

    Returns:
        Milliseconds waited.
    """
    began = clock()
    waited = 0
    while waited < most_ms and changes_under_way(store, now_ms=clock(), younger_than_ms=younger_than_ms):
        sleep(min(look_again_ms, most_ms - waited) / 1000)
        waited = max(clock() - began, waited + 1)
    return waited
