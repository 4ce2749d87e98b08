"""Run a DELETE, UPDATE or MERGE again by itself when another writer changed or rearranged rows that it had read.

::

    others are announced --> wait for them a little
    attempt --> committed ------------------------------------------------------------> its result
        `-----> a winner conflicts over rows, and tries are left ----------------------> announce it, run again
                                  `-> anything else -----------------------------------> the conflict is raised

Each attempt is a transaction of its own over the newest version, so what it commits is what the statement does to that
version: isolation is that of a statement which was sent later. What belongs to the statement stays with it: its clock
and zone, the source of a MERGE as it was read first. See ADR 0011 and 0030.

::

    change that is run again --> puts ``_pydelta/changing/<uuid>``, each time again, and deletes it when it is done
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
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from pydelta.commands.engine import Engine
from pydelta.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    DeltaConcurrentModificationException,
    DeltaError,
)
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.identity import only_marks_moved
from pydelta.settings.clock import epoch_ms
from pydelta.storage.interface import Store

__all__ = ["ANY", "FOLDER", "REARRANGED", "Statement", "announced", "changes_under_way", "give_way", "runs_again"]

_logger: Final = logging.getLogger(__name__)
_R = TypeVar("_R")

REARRANGED: Final = "rearranged"
"""Run again if the winner only moved rows to other files."""
ANY: Final = "any"
"""Run again after any conflict over rows."""
_YOUNG_MS: Final = 30_000
"""A change that was not run again for so long is not waited for by others: its process may have died."""
_LOOK_AGAIN_MS: Final = 50
FOLDER: Final = "_pydelta/changing"
_STALE_MS: Final = 15 * 60_000
_OVER_ROWS: Final = (ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)


def runs_again(lost: DeltaConcurrentModificationException, *, retry_on: str, retries: int, most: int) -> bool:
    """Return whether a statement that lost is run again. Pure.

    Args:
        lost: The conflict.
        retry_on: ``REARRANGED`` or ``ANY``.
        retries: How often it was run again already.
        most: How often it may be.

    Returns:
        False after a conflict over the table's definition or over an application's versions, whatever the settings.
    """
    if retries >= most or not isinstance(lost, _OVER_ROWS):
        return False
    return retry_on == ANY or lost.winner_only_rearranged


class Statement:
    """One statement of a user, over all of its attempts.

    Args:
        log: The table.
        engine: Told when the statement is run again.
    """

    def __init__(self, log: DeltaLog, engine: Engine) -> None:
        self._log = log
        self._engine = engine
        self._first: Snapshot | None = None
        self._lost: DeltaConcurrentModificationException | None = None
        self.retries = 0

    @property
    def metrics(self) -> Mapping[str, int | str]:
        """What the history says of it; nothing of a statement that was run once."""
        if self._lost is None:
            return {}
        reason = f"version {self._lost.winning_version}: {self._lost.winning_operation or 'another writer'}"
        return {"numRetries": self.retries, "retryReason": reason}

    def begins_on(self, snapshot: Snapshot) -> None:
        """Note what an attempt reads.

        Raises:
            DeltaConcurrentModificationException: The conflict of the attempt before: the table's definition has changed
                since, and the user wrote the statement for the one before.
        """
        if self._first is None:
            self._first = snapshot
        elif self._lost is not None and not _same_definition(self._first, snapshot):
            raise self._lost

    def run(self, attempt: Callable[[], _R], *, is_fixed: Callable[[], bool] = lambda: True) -> _R:
        """Run attempts until one ends otherwise than by a conflict after which the statement runs again.

        Args:
            attempt: Begins a transaction of its own each time.
            is_fixed: Whether what the statement brings along is no part of the table: what was read of it before a
                winner changed rows must not be written behind that winner.

        Raises:
            DeltaConcurrentModificationException: Another kind of conflict, or one attempt too many.
        """
        settings = self._log.settings
        if settings.change_max_retries:
            give_way(
                self._log.store,
                most_ms=settings.change_give_way_ms,
                younger_than_ms=_YOUNG_MS,
                look_again_ms=_LOOK_AGAIN_MS,
            )
        say_again: Callable[[], None] | None = None
        with contextlib.ExitStack() as until_done:
            while True:
                try:
                    return attempt()
                except DeltaConcurrentModificationException as lost:
                    again = runs_again(
                        lost, retry_on=settings.change_retry_on, retries=self.retries, most=settings.change_max_retries
                    )
                    if not again or lost is self._lost or not is_fixed():
                        raise
                    _logger.info("run again: %s", lost.message, extra={"table": self._log.uri})
                    if say_again is None:
                        say_again = until_done.enter_context(announced(self._log.store))
                    else:
                        say_again()
                    self.retries, self._lost = self.retries + 1, lost
                    self._engine.bind_again()


def _same_definition(first: Snapshot, now: Snapshot) -> bool:
    """Whether two snapshots have one definition; values that an identity column has given out are no part of it."""
    if first.metadata is None or now.metadata is None or first.protocol != now.protocol:
        return False
    return first.metadata == now.metadata or only_marks_moved(first.metadata, now.metadata)


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
