"""Let maintenance, and changes that begin, give way to a change that they were in the way of.

::

    change that is run again --> puts ``_pydelta/changing/<uuid>``, each time anew, and deletes it when it is done
    change that begins ------------------> something young there: waits, up to a short bound, then goes on
    OPTIMIZE, before it reads the table --> something there: waits, up to a bound, then goes on
    auto-compaction ----------------------> something there: leaves it to the next one

A commit over the same files costs a change that is under way all of its work; who waits before it reads loses nothing
that was done. Without that, changes that take long would lose to short ones for ever. Nothing depends on the
announcement: it may be late, lost, or be left behind by a process that died, whose announcement is deleted when it is
old.
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
    """Tell others of the table that a change is run again; a store that refuses is passed over.

    Yields:
        What says so once more, each time that it is run again.
    """
    path = f"{FOLDER}/{uuid.uuid4()}"

    def say() -> None:
        try:
            store.put(path, b"{}")
        except DeltaError as error:
            _logger.info("a change could not be announced: %s", error.message)

    say()
    try:
        yield say
    finally:
        with contextlib.suppress(DeltaError):
            store.delete_many([path])


def changes_under_way(store: Store, *, now_ms: int, younger_than_ms: int = _STALE_MS) -> int:
    """Count the announced changes of a table with one listing; what is a quarter of an hour old is deleted.

    Args:
        store: The table's.
        now_ms: Epoch milliseconds.
        younger_than_ms: Others are not counted.
    """
    try:
        found = list(store.list_from("", prefix=FOLDER))
        ages = {item.path: now_ms - item.modification_time_ms for item in found}
        stale = [path for path, age in ages.items() if age > _STALE_MS]
        if stale:
            store.delete_many(stale)
    except DeltaError as error:  # who may not list that folder need not wait
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
        store: The table's.
        most_ms: No longer than this; 0 does not even look.
        younger_than_ms: Announcements that are older than this are not waited for.
        look_again_ms: How long to wait between two looks.
        sleep: Takes seconds.
        clock: Epoch milliseconds.

    Returns:
        Milliseconds that were waited.
    """
    began = clock()
    waited = 0
    while waited < most_ms and changes_under_way(store, now_ms=clock(), younger_than_ms=younger_than_ms):
        sleep(min(look_again_ms, most_ms - waited) / 1000)
        waited = max(clock() - began, waited + 1)
    return waited
