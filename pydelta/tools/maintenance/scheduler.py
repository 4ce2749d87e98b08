"""Maintain tables in rounds: look at each, decide, start due actions in their lanes, and record how they ended.

::

    tick --> look at every table --> decide --> lane "sync"      publishes
                                            --> lane "vacuum"    deletes, one table after the other
                                            --> lane "optimize"  rewrites, one table after the other
    finished action --> a row of the journal; a failed one is retried after a pause that doubles
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.settings.clock import epoch_ms
from pydelta.settings.maintenance import MaintenancePolicy
from pydelta.tools.maintenance.decide import Action, DailyBudget, decide
from pydelta.tools.maintenance.journal import Journal, Outcome, Row
from pydelta.tools.maintenance.state import ActionKind, MaintenanceState
from pydelta.tools.maintenance.watch import TableWatcher

__all__ = ["ActionDone", "ActionOrder", "Do", "Looked", "Scheduler", "TablePlace"]

_LOG = logging.getLogger(__name__)
_LANES: Final = (
    {ActionKind.SYNC: "sync"}
    | dict.fromkeys(ActionKind.VACUUMS, "vacuum")
    | dict.fromkeys(ActionKind.OPTIMIZES, "optimize")
)
_ERROR_LENGTH: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """A maintained table.

    Args:
        name: Name of the table.
        location: Location of the table.
        registered: Whether it has an entry in a metastore.
    """

    name: str
    location: str
    registered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOrder:
    """An action to run.

    Args:
        place: The table.
        action: The action with its reason.
        policy: Policy under which it runs.
        state: State of the table when it was decided.
    """

    place: TablePlace
    action: Action
    policy: MaintenancePolicy
    state: MaintenanceState


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionDone:
    """The result of an action, as fields of a ``Row``.

    Args:
        outcome: See ``Outcome``.
        facts: Numbers and versions, by field names of ``Row``.
        error: Error message in one line.
        error_code: Code of the error.
        exit_code: Exit code of the equivalent command; see ``pydelta.errors``.
    """

    outcome: str = Outcome.DONE
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    error_code: str | None = None
    exit_code: int = 0


Do: TypeAlias = Callable[[ActionOrder], ActionDone | None]
"""Runs an action and returns its result; None if it was abandoned because the process ends, which leaves no row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The result of a look at a table.

    Args:
        place: The table.
        actions: Due actions, and actions held back with the reason.
        error: Why the table could not be read, in one line.
        exit_code: Exit code of that error.
    """

    place: TablePlace
    actions: tuple[Action, ...] = ()
    error: str | None = None
    exit_code: int = 0


class Scheduler:
    """Maintains tables. Call ``tick`` from one thread only; actions run in other threads.

    Args:
        journal: The journal of actions.
        do: Runs an action; see ``Do``. If it raises, the action has failed.
        options: Storage options.
        defaults: Policy defaults, by short names.
        budget: Daily budget for all tables.
        inventory_of: Returns when the newest inventory of a location was made, epoch milliseconds; None if there is
            none.
        clock: Returns epoch milliseconds.
    """

    def __init__(
        self,
        journal: Journal,
        do: Do,
        *,
        options: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
        budget: DailyBudget | None = None,
        inventory_of: Callable[[str], int | None] = lambda location: None,
    ) -> None:
        self.journal = journal
        self._do = do
        self._options = dict(options or {})
        self._defaults = dict(defaults or {})
        self._budget = budget or DailyBudget()
        self._inventory_of = inventory_of
        self._watchers: dict[str, TableWatcher] = {}
        self._lanes = {lane: ThreadPoolExecutor(1, thread_name_prefix=lane) for lane in sorted(set(_LANES.values()))}
        self._running: dict[tuple[str, str], ActionOrder] = {}
        self._futures: set[Future[None]] = set()
        self._announced: set[str] = set()
        self._lock = threading.Lock()
        self.exit_code = 0

    def tick(
        self,
        places: Sequence[TablePlace],
        *,
        announced: frozenset[str] = frozenset(),
        now_ms: int,
        forget: bool = True,
    ) -> list[Looked]:
        """Look at every table and start due actions. A table that cannot be read does not stop the others.

        Args:
            places: The tables.
            announced: Locations of tables with an announced commit.
            now_ms: The clock, epoch milliseconds.
            forget: ``places`` is complete, so drop what is known of other tables.
        """
        self._announced |= announced
        dropped = self._watchers.keys() - {place.location for place in places}
        for location in dropped if forget else ():
            del self._watchers[location]
            self._announced.discard(location)
        found = []
        for place in places:
            looked, orders = self.look(place, announced=place.location in self._announced, now_ms=now_ms)
            found.append(looked)
            for order in orders:
                self._start(order)
        self.write_journal()
        return found

    def look(self, place: TablePlace, *, announced: bool = False, now_ms: int) -> tuple[Looked, list[ActionOrder]]:
        """Look at a table and decide, without starting anything.

        Args:
            place: The table.
            announced: Whether a commit to it was announced.
            now_ms: The clock, epoch milliseconds.
        """
        try:
            watcher = self._watchers.get(place.location)
            if watcher is None:
                log = DeltaLog.for_table(place.location, options=self._options)
                watcher = TableWatcher(place.name, log, self._defaults, place.registered)
                self._watchers[place.location] = watcher
            known = dataclasses.replace(
                self.journal.known(watcher.log.uri),
                announced=announced and watcher.log.uri != self.journal.log.uri,
            )
            state, policy = watcher.look(known, now_ms=now_ms)
            if policy.vacuum == "inventory":
                state = dataclasses.replace(state, inventory_ms=self._inventory_of(place.location))
            own = DailyBudget(bytes=policy.budget_bytes, requests=policy.budget_requests)
            left = self._left(self._budget, None).within(self._left(own, state.uri))
        except DeltaError as error:
            return Looked(place=place, error=one_line(error), exit_code=error.exit_code), []
        actions = tuple(decide(state, policy, left, now_ms=now_ms))
        due = [
            ActionOrder(place=place, action=action, policy=policy, state=state)
            for action in actions
            if action.held is None
        ]
        return Looked(place=place, actions=actions), due

    def _left(self, limit: DailyBudget, location: str | None) -> DailyBudget:
        """Return how much of a limit is left after the recorded and the running actions."""
        if limit == DailyBudget():
            return limit
        left = self.journal.left(limit, location)
        with self._lock:
            running = [order for order in self._running.values() if location in (None, order.state.uri)]
        for order in running:
            left = left.less(order.action)
        return left

    def _start(self, order: ActionOrder) -> None:
        lane = _LANES[order.action.kind]
        key = (order.state.uri, lane)
        with self._lock:
            if key in self._running:
                return
            self._running[key] = order
            future = self._lanes[lane].submit(self._run, order, key)
            self._futures.add(future)
        if order.action.kind == ActionKind.SYNC:
            self._announced.discard(order.place.location)
        future.add_done_callback(self._forget)

    def _forget(self, future: Future[None]) -> None:
        with self._lock:
            self._futures.discard(future)

    def _run(self, order: ActionOrder, key: tuple[str, str]) -> None:
        done: ActionDone | None = None
        try:
            began, clock = time.monotonic(), epoch_ms()
            try:
                done = self._do(order)
            except DeltaError as error:
                done = ActionDone(
                    outcome=Outcome.FAILED, error=one_line(error), error_code=error.code, exit_code=error.exit_code
                )
            except Exception as error:  # noqa: BLE001 -- one action must not end the lane of others
                _LOG.exception("%s of %s failed", order.action.kind, order.place.name)
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:_ERROR_LENGTH]
                done = ActionDone(outcome=Outcome.FAILED, error=reason, exit_code=1)
            seconds = time.monotonic() - began
            if done is not None:
                self.journal.note(row_of(order, done, at_ms=clock + round(seconds * 1000), seconds=seconds))
        finally:
            with self._lock:
                self._running.pop(key, None)
                self.exit_code = max(self.exit_code, done.exit_code if done is not None else 2)

    def write_journal(self) -> str | None:
        """Write the waiting rows. On failure, returns the error in one line and keeps the rows for the next time."""
        try:
            self.journal.write()
        except (DeltaError, OSError) as error:
            _LOG.warning("The journal of maintenance could not be written: %s", one_line(error))
            return one_line(error)
        return None

    def finish(self) -> str | None:
        """Wait for running actions, then write the journal; see ``write_journal``."""
        while True:
            with self._lock:
                running = set(self._futures)
            if not running:
                return self.write_journal()
            wait(running)

    def close(self) -> None:
        """Stop starting actions. Waiting actions are dropped, and running ones continue to their end."""
        for lane in self._lanes.values():
            lane.shutdown(wait=False, cancel_futures=True)


def row_of(order: ActionOrder, done: ActionDone, *, at_ms: int, seconds: float) -> Row:
    """Build the journal row of a finished action."""
    failure = order.state.failures.get(order.action.kind)
    facts = {"version_before": order.state.version} | {
        name: value for name, value in done.facts.items() if value is not None
    }
    return Row(
        at_ms=at_ms,
        table=order.place.name,
        location=order.state.uri,
        action=order.action.kind,
        reason=order.action.reason,
        outcome=done.outcome,
        attempt=failure.tries + 1 if failure is not None else 1,
        seconds=round(seconds, 3),
        error=done.error,
        error_code=done.error_code,
        **facts,
    )


def one_line(error: Exception) -> str:
    """Format an error in one line."""
    return " ".join(str(error).split())[:_ERROR_LENGTH]
