"""Answer what only some requests ask: sums of columns, rows of a table, runs of engines, lineage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from pydelta.errors import TableNotFoundError, UnsafeOperationError
from pydelta.log import Snapshot
from pydelta.settings.clock import Deadline
from pydelta.tools.ui.catalog.engines import WatchedEngine, ask_engine
from pydelta.tools.ui.catalog.facts import EngineState, LineageState, ShownRows, TableSums
from pydelta.tools.ui.catalog.lineage import read_lineage
from pydelta.tools.ui.catalog.preview import (
    DEFAULT_ROWS,
    MOST_ROWS,
    PREVIEW_PROPERTY,
    PreviewLimits,
    is_denied,
    read_rows,
)
from pydelta.tools.ui.catalog.statistics import sum_columns
from pydelta.tools.ui.collect import Reader
from pydelta.tools.ui.lanes import ReadJob, ReadJobs, ReadLane
from pydelta.tools.ui.sources import Sources
from pydelta.tools.ui.values import ShownTable

__all__ = ["Questions"]

_KEPT: Final = 64
"""Answers about this many tables are kept, of each kind."""
_SUM_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 300.0


class _Options(Protocol):
    """The part of ``Watched`` that this module needs."""

    @property
    def sources(self) -> Sources: ...

    @property
    def engines(self) -> Sequence[WatchedEngine]: ...

    @property
    def lineage(self) -> str | None: ...

    @property
    def preview(self) -> bool: ...

    @property
    def fresh(self) -> float: ...

    @property
    def patience(self) -> float: ...


class Questions:
    """Reads what is asked for, with the deadlines of other reads. Safe to use from several threads.

    Args:
        options: The options of the page.
        jobs: Runs the reads.
        clock: Monotonic clock in seconds.
        reader_of: Returns the reader of a table that is shown.
    """

    def __init__(
        self,
        options: _Options,
        jobs: ReadJobs,
        clock: Callable[[], float],
        reader_of: Callable[[ShownTable], Reader],
    ) -> None:
        self._options = options
        self._jobs = jobs
        self._clock = clock
        self._reader_of = reader_of
        self._engines = [
            ReadJob(run=lambda item=item: ask_engine(item, seconds=options.patience), lane=ReadLane())  # type: ignore[misc]
            for item in options.engines
        ]
        place = options.lineage or ""
        self._lineage = ReadJob(
            run=lambda: read_lineage(place, options.sources.options), lane=jobs.lane(f"lineage+{place}")
        )
        self._kept: dict[str, dict[Any, ReadJob]] = {"sums": {}, "rows": {}}
        self._lock = threading.Lock()

    def may_show_rows(self, table: ShownTable) -> bool:
        """Return whether rows of a table, and bounds of its columns, may be shown."""
        return self._options.preview and not is_denied(table.properties)

    def sums(self, table: ShownTable) -> TableSums:
        """Sum up the statistics of a table's columns, or say that this is under way.

        Raises:
            DeltaError: The log cannot be read, or the table is no longer shown.
        """
        reader, shows = self._reader_of(table), self.may_show_rows(table)

        def run() -> TableSums:
            return sum_columns(_read(table, reader.snapshot), Deadline(_SUM_SECONDS), shows_values=shows)

        job = self._job("sums", (table.place.uri, table.table_id, shows), run, table)
        version = _read(table, reader.snapshot).version
        # What could not be summed up in time is not tried again with each commit.
        waits = job.result is not None and not job.result.columns and self._clock() - job.began < _AGAIN_SECONDS
        if job.result is None or (job.result.version != version and not waits):
            self._settle(job)
        if job.result is None:
            said = job.trouble.what if job.trouble else "The statistics are being summed up. Load the page again."
            return TableSums(version=version, limited=said)
        found: TableSums = job.result
        return found

    def rows(self, table: ShownTable, rows: int) -> ShownRows:
        """Read a few rows of a table.

        Raises:
            UnsafeOperationError: A setting denies it.
            DeltaError: The rows cannot be read here.
            TimeoutError: The store does not answer in time.
        """
        if not self._options.preview:
            raise UnsafeOperationError("This page shows no rows.", hint="Start pydelta ui without --no-preview.")
        if is_denied(table.properties):
            raise UnsafeOperationError(
                f"The table {table.place.name} does not allow a preview.",
                hint=f"Its property {PREVIEW_PROPERTY} denies it; query it with an engine.",
            )
        reader = self._reader_of(table)
        # There are two sizes, so that not every number of rows is another read.
        limits = PreviewLimits(rows=DEFAULT_ROWS if rows <= DEFAULT_ROWS else MOST_ROWS, seconds=self._options.patience)

        def run() -> ShownRows | Exception:
            try:
                return read_rows(reader.log, _read(table, reader.snapshot), limits)
            except Exception as error:  # noqa: BLE001 -- raised again in the thread of the request
                return error.with_traceback(None)  # The frames hold what was read.

        job = self._job("rows", (table.place.uri, table.table_id, limits.rows), run, table)
        version = _read(table, reader.snapshot).version
        if not isinstance(job.result, ShownRows) or job.result.version != version:
            self._settle(job)
        if isinstance(job.result, Exception):
            raise job.result
        if job.result is None:
            raise TimeoutError
        found: ShownRows = job.result
        return replace(found, rows=found.rows[:rows])

    def engines(self) -> list[EngineState]:
        """Ask the engines for their runs."""
        self._settle(*self._engines)
        return [_state(engine.name, job) for engine, job in zip(self._options.engines, self._engines, strict=True)]

    def lineage(self) -> LineageState:
        """Read the events of lineage, if a folder of them is configured."""
        if not self._options.lineage:
            return LineageState()
        self._settle(self._lineage)
        if self._lineage.result is None:
            return LineageState(location=self._options.lineage, trouble=self._lineage.trouble)
        found: LineageState = self._lineage.result
        return found

    def _settle(self, *jobs: ReadJob) -> None:
        """Wait until what is older than the page allows has been read again, or patience ends."""
        deadline = Deadline(self._options.patience, clock=self._clock)
        self._jobs.settle(jobs, self._clock() - self._options.fresh, deadline)

    def _job(self, kind: str, key: Any, run: Callable[[], Any], table: ShownTable) -> ReadJob:
        """Return the job of a question, with those of the last tables. Rows have lanes apart from those of logs."""
        lane = self._jobs.lane(f"{kind}+{table.place.uri}")
        with self._lock:
            kept = self._kept[kind]
            job = kept.pop(key, None) or ReadJob(run=run, lane=lane)
            kept[key] = job
            while len(kept) > _KEPT:
                kept.pop(next(iter(kept)))
            return job


def _state(name: str, job: ReadJob) -> EngineState:
    if job.trouble is not None:
        return EngineState(name=name, ok=False, said=job.trouble.what, next=job.trouble.next)
    return job.result or EngineState(name=name)


def _read(table: ShownTable, snapshot: Snapshot | None) -> Snapshot:
    if snapshot is None:
        raise TableNotFoundError(
            f"The table {table.place.name} has not been read.", hint="Look at its problems on its page."
        )
    return snapshot
