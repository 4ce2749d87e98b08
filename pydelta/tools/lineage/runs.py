"""Follow the runs of jobs, and send their events to OPENLINEAGE_URL without ever blocking or failing a job."""

from __future__ import annotations

import functools
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.settings.clock import epoch_ms
from pydelta.tools.lineage.events import Run, Tables, input_of, place_of_input, run_event
from pydelta.tools.lineage.folder import folder_of, into_folder
from pydelta.tools.outbox import Outbox, checked_endpoint
from pydelta.txn.commit import engine_info

__all__ = ["URL", "Emitter", "JobRun", "current_run", "emitter", "job_run", "note_input", "note_table"]

_LOG = logging.getLogger(__name__)
URL: Final = "OPENLINEAGE_URL"
_LAST_SECONDS: Final = 2.0


class Emitter:
    """Sends events to one endpoint.

    Args:
        outbox: Sends the events.
        namespace: Namespace of jobs.
    """

    def __init__(self, outbox: Outbox, namespace: str) -> None:
        self.outbox = outbox
        self.namespace = namespace

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Emitter | None:
        """Return the emitter that the environment configures with OpenLineage's variables; None if it configures none.

        Raises:
            InvalidArgumentError: OPENLINEAGE_URL is neither an HTTP address nor that of a folder.
        """
        url = env.get(URL, "").strip()
        if not url or env.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
            return None
        namespace = env.get("OPENLINEAGE_NAMESPACE") or "default"
        if url.lower().startswith("file:"):
            return cls(Outbox(url, deliver=into_folder(folder_of(url, name=URL))), namespace)
        checked_endpoint(url, name=URL)
        path = (env.get("OPENLINEAGE_ENDPOINT") or "api/v1/lineage").strip("/")
        key = env.get("OPENLINEAGE_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return cls(Outbox(f"{url.rstrip('/')}/{path}", headers=headers), namespace)

    def run(self, job: str, kind: str = "JOB") -> Run:
        """Create a run of a job. Sends nothing yet."""
        return Run(id=str(uuid.uuid4()), namespace=self.namespace, job=job, engine=engine_info(), kind=kind)

    def send(self, kind: str, run: Run, tables: Tables, *, at_ms: int, error: str | None = None) -> None:
        """Queue an event. Events that cannot be sent are dropped and counted."""
        self.outbox.put(run_event(kind, run, tables, at_ms=at_ms, error=error))


_NAMES: Final = (URL, "OPENLINEAGE_DISABLED", "OPENLINEAGE_ENDPOINT", "OPENLINEAGE_API_KEY", "OPENLINEAGE_NAMESPACE")


def emitter() -> Emitter | None:
    """Return the process's emitter; None if the environment configures none or an invalid one, which is logged once."""
    return _emitter_of(tuple((name, os.environ[name]) for name in _NAMES if name in os.environ))


@functools.lru_cache(maxsize=16)
def _emitter_of(env: tuple[tuple[str, str], ...]) -> Emitter | None:
    try:
        return Emitter.of(dict(env))
    except InvalidArgumentError as error:
        _LOG.warning("No lineage events are sent: %s", error)
        return None


@dataclass(slots=True)
class JobRun:
    """A running job, with what it has read and written so far. Safe to use from several threads."""

    run: Run
    to: Emitter
    _inputs: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    _outputs: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, dataset: Mapping[str, Any]) -> None:
        """Record an input. A table that is read again is recorded with its newest version."""
        with self._lock:
            self._inputs[dataset["namespace"], dataset["name"]] = dataset

    def wrote(self, dataset: Mapping[str, Any], at_ms: int) -> None:
        """Record an output, and send it."""
        with self._lock:
            self._outputs[dataset["namespace"], dataset["name"]] = _added(
                self._outputs.get((dataset["namespace"], dataset["name"])), dataset
            )
        self.to.send("RUNNING", self.run, self.tables(), at_ms=at_ms)

    def tables(self) -> Tables:
        """Return the inputs and outputs so far."""
        with self._lock:
            return Tables(inputs=list(self._inputs.values()), outputs=list(self._outputs.values()))


def _added(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge two outputs of the same table: the newer state, with the rows of all commits."""
    if before is None:
        return now
    old, new = (item["outputFacets"]["outputStatistics"] for item in (before, now))
    sums = {name: old[name] + new[name] for name in ("rowCount", "size", "fileCount") if name in old and name in new}
    others = {name: value for name, value in new.items() if name != "rowCount"}
    return {**now, "outputFacets": {"outputStatistics": others | sums}}


_current: list[JobRun] = []
"""The job of this process, if any. There is only one at a time, because each job is a process."""


def current_run() -> JobRun | None:
    """Return the job running in this process."""
    return _current[-1] if _current else None


def note_input(*locations: str) -> None:
    """Record that the running job reads files at locations. Commits do not show this."""
    running = current_run()
    if running is not None:
        for location in locations:
            running.read(place_of_input(location))


def note_table(log: DeltaLog) -> None:
    """Record that the running job reads a table. Commits do not show this.

    Raises:
        DeltaError: The table cannot be read.
    """
    running = current_run()
    if running is not None:
        running.read(input_of(log.update(), running.run.engine))


@contextmanager
def job_run(job: str, failure: Callable[[], str | None]) -> Iterator[None]:
    """Report a job's run: its start, the tables that its commits write, and its end.

    Args:
        job: Name of the job.
        failure: Called at the end; returns why the job failed, in one line, or None if it did not.
    """
    to = emitter()
    if to is None:
        yield
        return
    running = JobRun(run=to.run(job), to=to)
    to.send("START", running.run, Tables(), at_ms=epoch_ms())
    _current.append(running)
    error: str | None = None
    try:
        yield
        error = failure()
    except BaseException as raised:
        error = " ".join(f"{type(raised).__name__}: {raised}".split())
        raise
    finally:
        _current.remove(running)
        kind = "COMPLETE" if error is None else "FAIL"
        to.send(kind, running.run, running.tables(), at_ms=epoch_ms(), error=error)
        to.outbox.flush(_LAST_SECONDS)
