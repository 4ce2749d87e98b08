"""Read in threads outside of requests: each read is repeated when it is old, and never runs twice at once."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from pydelta.settings.clock import Deadline
from pydelta.tools.ui.values import Trouble

__all__ = ["NEVER", "ReadJob", "ReadJobs", "ReadLane"]

_LOG = logging.getLogger(__name__)
_WORKERS: Final = 4
NEVER: Final = float("-inf")
"""The start of a read that has not begun."""


class ReadLane:
    """Runs work in a few threads that do not keep the process from ending."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads = 0
        self._unfinished = 0
        self._lock = threading.Lock()

    def put(self, work: Callable[[], None]) -> None:
        """Queue work."""
        self._work.put(work)
        with self._lock:
            self._unfinished += 1
            if self._threads < min(self._unfinished, _WORKERS):
                self._threads += 1
                threading.Thread(target=self._loop, daemon=True, name="pydelta-ui").start()

    def _loop(self) -> None:
        while True:
            self._work.get()()
            with self._lock:
                self._unfinished -= 1


@dataclass(slots=True, eq=False)
class ReadJob:
    """A read that is repeated but never runs twice at once. ``began`` is the start of the read that gave ``result``."""

    run: Callable[[], Any]
    lane: ReadLane
    result: Any = None
    trouble: Trouble | None = None
    began: float = NEVER
    asked: float | None = None


@dataclass(slots=True)
class ReadJobs:
    """Runs reads in the lanes of their stores, and lets requests wait for them."""

    clock: Callable[[], float]
    done: threading.Condition = field(default_factory=threading.Condition)
    lanes: dict[str, ReadLane] = field(default_factory=dict)

    def lane(self, uri: str) -> ReadLane:
        """Return the lane of a store. A store that does not answer only delays its own lane."""
        scheme, _, rest = uri.partition("://")
        with self.done:
            return self.lanes.setdefault(f"{scheme}://{rest.partition('/')[0]}", ReadLane())

    def start(self, job: ReadJob) -> None:
        """Start a job that is not running. The caller holds the lock."""
        job.asked = self.clock()
        job.lane.put(lambda: self._run(job))

    def _run(self, job: ReadJob) -> None:
        began = self.clock()
        result, trouble = job.result, None
        try:
            result = job.run()
        except Exception as error:  # noqa: BLE001 -- a failing table must not end the thread that other tables need
            trouble = Trouble.of(error)
            _LOG.warning("pydelta ui: %s", trouble.what)
        with self.done:
            job.result, job.trouble, job.began, job.asked = result, trouble, began, None
            self.done.notify_all()

    def settle(self, jobs: Iterable[ReadJob], since: float, deadline: Deadline) -> None:
        """Start all jobs older than ``since``, and wait until they are done or the deadline passes."""
        wanted = list(jobs)
        with self.done:
            while True:
                late = [job for job in wanted if job.began < since]
                for job in late:
                    if job.asked is None:
                        self.start(job)
                if not late or not self.done.wait(timeout=min(deadline.remaining(), 3600)):
                    return
