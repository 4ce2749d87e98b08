"""Keep what the page shows. Threads per store read it outside of requests, with deadlines and a short cache.

::

    request --needs what was read since t--> older jobs are started, each in the lane of its store
            <--results when all jobs are done or patience ends, with their times and the late ones--
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pydelta.commands.vacuum.inventory import Inventory
from pydelta.errors import TableNotFoundError
from pydelta.settings.clock import Deadline, epoch_ms
from pydelta.tools.alerts.webhook import WebhookState
from pydelta.tools.ui.alerting import refused_by_table, webhook_troubles
from pydelta.tools.ui.catalog.engines import WatchedEngine, ask_application
from pydelta.tools.ui.catalog.questions import Questions
from pydelta.tools.ui.collect import Reader, measure_garbage, read_detail
from pydelta.tools.ui.commits import Detail
from pydelta.tools.ui.disks import Disk, DiskState, disk_line, measure_disk
from pydelta.tools.ui.formats import duration
from pydelta.tools.ui.lanes import ReadJob, ReadJobs, ReadLane
from pydelta.tools.ui.schedules import FailedAction, ReadSchedules, ScheduleState, read_schedules
from pydelta.tools.ui.services import APPLICATION, Service, ask
from pydelta.tools.ui.sources import Catalog, FoundTables, Sources, find_places
from pydelta.tools.ui.streams import read_stream, with_backlog
from pydelta.tools.ui.values import GarbageState, ServiceState, ShownPlace, ShownTable, StreamState, Trouble

__all__ = ["Overview", "Watch", "Watched"]

_DETAILS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The tables to watch, and the options.

    Args:
        sources: Where to find tables.
        catalog: The metastore's catalog; None without a metastore.
        checkpoints: Checkpoints of streaming queries.
        services: Services to check.
        schedules: Status files of ``jobs/schedule.py`` and ``jobs/maintain.py``.
        fresh: Seconds during which a result is shown again without looking at the log.
        patience: Seconds that a request waits for running reads.
        commits: Number of commits to look back.
        garbage: Seconds that listing one table for garbage may take; None turns it off.
        garbage_every: Seconds during which the garbage found is shown.
        inventory: A list of files to use instead of listings.
        engines: Engines to ask for their runs and their cluster.
        lineage: A folder with events of OpenLineage.
        preview: Whether rows of tables, and bounds of their columns, may be shown.
        disks: Disks to measure.
        refusals: Files of ``jobs/maintain.py`` with the number of refused commits.
    """

    sources: Sources
    catalog: Catalog | None = None
    checkpoints: Sequence[str] = ()
    services: Sequence[Service] = ()
    schedules: Sequence[str] = ()
    fresh: float = 5.0
    patience: float = 5.0
    commits: int = 100
    garbage: float | None = None
    garbage_every: float = 3600.0
    inventory: Inventory | None = None
    engines: Sequence[WatchedEngine] = ()
    lineage: str | None = None
    preview: bool = True
    disks: Sequence[Disk] = ()
    refusals: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything at one moment. Tables with problems come first.

    Args:
        now_ms: The time, epoch milliseconds.
        tables, streams, services, schedules, disks: What is watched. The services have a line for each of the last two.
        failed_actions: Actions of maintenance whose last try failed.
        refused: Refused commits by the name of a table and the error's code; None if they are not counted.
        webhook: How alerts are posted; None if they are not.
        troubles: Problems of the page as a whole.
    """

    now_ms: int
    tables: tuple[ShownTable, ...]
    streams: tuple[StreamState, ...]
    services: tuple[ServiceState, ...]
    troubles: tuple[Trouble, ...]
    schedules: tuple[ScheduleState, ...] = ()
    failed_actions: tuple[FailedAction, ...] = ()
    disks: tuple[DiskState, ...] = ()
    refused: Mapping[str, Mapping[str, int]] | None = None
    webhook: WebhookState | None = None

    def table(self, name: str) -> ShownTable | None:
        """Return the table with a name or location, if it is shown."""
        return next((table for table in self.tables if name in (table.place.name, table.place.uri)), None)


@dataclass(slots=True, eq=False)
class _TableJob(ReadJob):
    """The repeated read of a table."""

    reader: Reader | None = None


class Watch:
    """Reads what is watched when a request needs it. Safe to use from several threads.

    Args:
        watched: The tables to watch, and the options.
        clock: Monotonic clock in seconds.
    """

    def __init__(self, watched: Watched, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.watched = watched
        self._clock = clock
        self._jobs = ReadJobs(clock)
        self._find = ReadJob(run=self._find_places, lane=ReadLane())
        self._tables: dict[str, _TableJob] = {}
        self._garbage: dict[str, ReadJob] = {}
        options = watched.sources.options
        self._streams = [
            ReadJob(run=lambda place=place: read_stream(place, options), lane=self._jobs.lane(place))  # type: ignore[misc]
            for place in watched.checkpoints
        ]
        self._services = [
            ReadJob(run=lambda item=item: self._ask(item), lane=ReadLane())  # type: ignore[misc]
            for item in watched.services
        ]
        self._disks = [
            ReadJob(run=lambda item=item: measure_disk(item, seconds=watched.patience), lane=ReadLane())  # type: ignore[misc]
            for item in watched.disks
        ]
        self.webhook: Callable[[], WebhookState | None] = lambda: None
        self._met = {item.name for item in watched.services if not item.optional}
        self.questions = Questions(watched, self._jobs, clock, self._reader_of)
        self._details: OrderedDict[tuple[str, str | None, int, bool], Detail] = OrderedDict()
        self._lock = threading.Lock()

    def overview(self, *, waits: bool = True) -> Overview:
        """Return everything, as fresh as requested, or what is available when patience ends.

        Args:
            waits: If False, returns at once what is available and starts reading the rest.
        """
        watched, now = self.watched, self._clock()
        patience = watched.patience if waits else 0.0
        deadline, since = Deadline(patience, clock=self._clock), now - watched.fresh
        # This starts the jobs without waiting.
        self._jobs.settle([*self._streams, *self._services, *self._disks], since, Deadline(0.0))
        self._jobs.settle([self._find], since, Deadline(patience / 2, clock=self._clock))
        found: FoundTables = self._find.result or FoundTables(places=())
        tables = self._jobs_of(found.places)
        # Looking up an unknown host name may take long, so services that never answered are not waited for.
        met = [job for item, job in zip(watched.services, self._services, strict=True) if item.name in self._met]
        self._jobs.settle([*tables, *self._streams, *met, *self._disks], since, deadline)
        self._start_garbage(found.places, now)
        states = [self._state(place, job) for place, job in zip(found.places, tables, strict=True)]
        states.sort(key=lambda state: (-state.weight, state.place.name))
        troubles = [*found.troubles, *([self._find.trouble] if self._find.trouble else [])]
        if self._is_late(self._find) or (self._find.result is None and not troubles):
            troubles.append(
                self._late("Tables are being looked for", "the metastore, or the store of a folder,", self._find)
            )
        streams = [
            job.result or StreamState(location=place, trouble=self._late(f"{place} is being read", "its store", job))
            for place, job in zip(watched.checkpoints, self._streams, strict=True)
        ]
        webhook = self.webhook()
        schedules = read_schedules(watched.schedules, now_ms=epoch_ms())
        return Overview(
            now_ms=epoch_ms(),
            tables=tuple(states),
            streams=tuple(with_backlog(streams, states)),
            services=tuple(self._asked_services(schedules)),
            troubles=(*troubles, *webhook_troubles(webhook)),
            schedules=schedules.states,
            failed_actions=schedules.failed_actions,
            disks=tuple(job.result for job in self._disks if job.result is not None and not self._is_late(job)),
            refused=refused_by_table(watched.refusals, found.places),
            webhook=webhook,
        )

    def detail(self, table: ShownTable, version: int) -> Detail:
        """Explain one commit of a table.

        Raises:
            VersionNotFoundError: The log has no such commit.
            DeltaError: The commit cannot be read, or the table no longer exists.
            TimeoutError: The store does not answer in time.
        """
        shows_values = self.questions.may_show_rows(table)
        key = (table.place.uri, table.table_id, version, shows_values)
        with self._lock:
            if key in self._details:
                self._details.move_to_end(key)
                return self._details[key]
        answer: queue.SimpleQueue[Detail | Exception] = queue.SimpleQueue()
        reader = self._reader_of(table)

        def read() -> None:
            try:
                answer.put(read_detail(reader.log, version, shows_values=shows_values))
            except Exception as error:  # noqa: BLE001 -- raised again in the thread of the request
                answer.put(error)

        self._jobs.lane(table.place.uri).put(read)
        try:
            found = answer.get(timeout=self.watched.patience)
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(found, Exception):
            raise found
        with self._lock:
            self._details[key] = found
            while len(self._details) > _DETAILS:
                self._details.popitem(last=False)
        return found

    def _ask(self, service: Service) -> ServiceState:
        seconds, now = self.watched.patience, epoch_ms()
        if urlsplit(service.address).scheme == APPLICATION:
            return ask_application(service, self.watched.engines, seconds=seconds, now_ms=now)
        return ask(service, seconds=seconds, now_ms=now)

    def _reader_of(self, table: ShownTable) -> Reader:
        """Return the reader of a table.

        Raises:
            TableNotFoundError: It is no longer shown.
        """
        job = self._tables.get(table.place.uri)
        if job is None or job.reader is None:
            raise TableNotFoundError(f"{table.place.name} is no longer shown.", hint="Go back to the tables.")
        return job.reader

    def _find_places(self) -> FoundTables:
        before: FoundTables | None = self._find.result
        return find_places(self.watched.sources, self.watched.catalog, before.places if before else ())

    def _jobs_of(self, places: Sequence[ShownPlace]) -> list[_TableJob]:
        """Return the job of each table, and forget those of tables that were dropped."""
        with self._lock:
            current = {}
            for place in places:
                job = self._tables.get(place.uri)
                if job is None or job.reader is None or job.reader.place != place:
                    job = self._table_job(place)
                current[place.uri] = job
            self._tables = current
            return list(current.values())

    def _table_job(self, place: ShownPlace) -> _TableJob:
        watched = self.watched
        reader = Reader(place, options=watched.sources.options, commits=watched.commits)
        twin_of = watched.catalog.twin if watched.catalog is not None else None
        return _TableJob(run=lambda: reader.read(twin_of), lane=self._jobs.lane(place.uri), reader=reader)

    def _start_garbage(self, places: Sequence[ShownPlace], now: float) -> None:
        """Start listing tables for garbage if that is enabled. No request waits for it."""
        watched, seconds = self.watched, self.watched.garbage
        if seconds is None:
            return
        with self._jobs.done:
            for place in places:
                reader = self._tables[place.uri].reader if place.uri in self._tables else None
                if reader is None:
                    continue
                job = self._garbage.setdefault(
                    place.uri,
                    ReadJob(
                        run=lambda reader=reader: measure_garbage(  # type: ignore[misc]
                            reader.log, seconds=seconds, inventory=watched.inventory
                        ),
                        lane=self._jobs.lanes.setdefault(f"garbage of {place.uri.split('/')[2:3]}", ReadLane()),
                    ),
                )
                if job.asked is None and job.began < now - watched.garbage_every:
                    self._jobs.start(job)

    def _state(self, place: ShownPlace, job: ReadJob) -> ShownTable:
        state: ShownTable = job.result or ShownTable(place=place, read_ms=epoch_ms())
        added = [job.trouble] if job.trouble else []
        if self._is_late(job) or (job.result is None and job.trouble is None):
            added.append(self._late(f"The log of {place.name} is being read", "its store", job))
        measured = self._garbage.get(place.uri)
        if measured is not None and measured.trouble is not None:
            added.append(dataclasses.replace(measured.trouble, weight=1))
        if measured is not None and isinstance(measured.result, GarbageState):
            state = dataclasses.replace(state, garbage=measured.result)
        troubles = sorted([*state.troubles, *added], key=lambda trouble: -trouble.weight)
        return dataclasses.replace(state, troubles=tuple(troubles))

    def _is_late(self, job: ReadJob) -> bool:
        """Return whether a job has been running longer than a request waits."""
        return job.asked is not None and self._clock() - job.asked >= self.watched.patience

    def _late(self, what: str, who: str, job: ReadJob) -> Trouble:
        """Describe a slow read. After the patience of a request it counts as an error."""
        since = job.asked
        seconds = self._clock() - since if since is not None else 0.0
        if not self._is_late(job):
            return Trouble(what=f"{what}.", next="Load the page again in a moment.")
        return Trouble(
            what=f"{what}, and {who} has not answered for {duration(seconds)}; older numbers are shown, if any.",
            next="Look whether it runs and is reached from here; for a store: pydelta doctor with its address.",
            weight=2,
        )

    def _asked_services(self, schedules: ReadSchedules) -> Iterable[ServiceState]:
        for service, job in zip(self.watched.services, self._services, strict=True):
            if service.name not in self._met:
                if job.result is None or not job.result.there:
                    yield ServiceState(name=service.name, ok=None, said="not started", idle=True, checked_ms=epoch_ms())
                    continue
                self._met.add(service.name)
            yield job.result or ServiceState(
                name=service.name, ok=None, said="is being asked", link=service.link, checked_ms=epoch_ms()
            )
        yield from schedules.lines
        for disk, job in zip(self.watched.disks, self._disks, strict=True):
            if self._is_late(job):
                yield disk_line(DiskState(name=disk.name, problem="it does not answer"), checked_ms=epoch_ms())
            elif job.result is not None:
                yield disk_line(job.result, checked_ms=epoch_ms())
