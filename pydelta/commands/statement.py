"""Run a DELETE, UPDATE or MERGE again when another writer changed or rearranged rows that it had read.

::

    other changes are announced --> wait for them briefly
    attempt --> committed ------------------------------------------------------------> its result
        `-----> a winner conflicts over rows, and retries are left --------------------> announce it, run again
                                  `-> anything else -----------------------------------> the conflict is raised

Each attempt is a separate transaction over the newest version, so it commits the statement's effect on that version,
as if the statement had been sent later. The statement's inputs stay the same: its clock and zone, and the source of a
MERGE as first read. See ADR 0011 and 0030.

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
"""Announcements older than this are not waited for, because their process may have died."""
_LOOK_AGAIN_MS: Final = 50
FOLDER: Final = "_pydelta/changing"
_STALE_MS: Final = 15 * 60_000
_OVER_ROWS: Final = (ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)


def runs_again(lost: DeltaConcurrentModificationException, *, retry_on: str, retries: int, most: int) -> bool:
    """Return whether a statement that lost is run again. Pure.

    Args:
        lost: The conflict.
        retry_on: ``REARRANGED`` or ``ANY``.
        retries: How often it was already run again.
        most: The maximum of retries.

    Returns:
        Always False after a conflict over the table's definition or over an application's versions.
    """
    if retries >= most or not isinstance(lost, _OVER_ROWS):
        return False
    return retry_on == ANY or lost.winner_only_rearranged


class Statement:
    """One statement of a user, over all of its attempts.

    Args:
        log: The table.
        engine: Notified when the statement is run again.
    """

    def __init__(self, log: DeltaLog, engine: Engine) -> None:
        self._log = log
        self._engine = engine
        self._first: Snapshot | None = None
        self._lost: DeltaConcurrentModificationException | None = None
        self.retries = 0

    @property
    def metrics(self) -> Mapping[str, int | str]:
        """Metrics for the history; empty for a statement that was run once."""
        if self._lost is None:
            return {}
        reason = f"version {self._lost.winning_version}: {self._lost.winning_operation or 'another writer'}"
        return {"numRetries": self.retries, "retryReason": reason}

    def begins_on(self, snapshot: Snapshot) -> None:
        """Note the version that an attempt reads.

        Raises:
            DeltaConcurrentModificationException: The conflict of the attempt before. The table's definition has changed
                since the first attempt, for which the user wrote the statement.
        """
        if self._first is None:
            self._first = snapshot
        elif self._lost is not None and not _same_definition(self._first, snapshot):
            raise self._lost

    def run(self, attempt: Callable[[], _R], *, is_fixed: Callable[[], bool] = lambda: True) -> _R:
        """Run attempts until one succeeds or fails for good.

        Args:
            attempt: Begins a new transaction on each call.
            is_fixed: Returns whether the statement's other inputs do not depend on the table. Data read from the table
                before a winner changed it must not be written after that winner.

        Raises:
            DeltaConcurrentModificationException: The conflict cannot be retried, or no retries are left.
        """
        settings = self._log.settings
        if settings.change_max_retries:
            give_way(
                self._log.store,
                most_ms=settings.change_give_way_ms,
                younger_than_ms=_YOUNG_MS,
                look_again_ms=_LOOK_AGAIN_MS,
            )
        announce_again: Callable[[], None] | None = None
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
                    if announce_again is None:
                        announce_again = until_done.enter_context(announced(self._log.store))
                    else:
                        announce_again()
                    self.retries, self._lost = self.retries + 1, lost
                    self._engine.bind_again()


def _same_definition(first: Snapshot, now: Snapshot) -> bool:
    """Return whether two snapshots have one definition, ignoring the values that identity columns have handed out."""
    if first.metadata is None or now.metadata is None or first.protocol != now.protocol:
        return False
    return first.metadata == now.metadata or only_marks_moved(first.metadata, now.metadata)


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
