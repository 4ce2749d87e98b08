"""Cancel the jobs of a statement whose client has interrupted it, including those that begin later.

::

    a client interrupts --> Spark marks the JVM's thread, and cancels the jobs that are running
    the statement plans in Python and notices nothing --> its next job begins, and Spark does not cancel it
    this module: a thread checks the marks of running statements, and cancels the jobs they have begun
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark import SparkContext

    from pydelta.engines.spark.jvm import Jvm

__all__ = ["Cancelling"]

_EVERY: Final = 0.5
"""Seconds between two checks."""


@dataclass(slots=True)
class _Statement:
    tag: str
    thread: Any
    is_interrupted: bool = False


class Cancelling:
    """Watches the running statements. Safe to use from several threads.

    Args:
        context: The Spark context that runs the jobs.
        jvm: The bindings of any of its sessions.
    """

    def __init__(self, context: SparkContext, jvm: Jvm) -> None:
        self._context = context
        self._jvm = jvm
        self._condition = threading.Condition()
        self._running: dict[str, _Statement] = {}
        self._watcher: threading.Thread | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch a statement in the thread that Spark called: an interrupt cancels its jobs."""
        tag = f"pydelta-{uuid.uuid4()}"
        found = _Statement(tag, self._jvm.view.java.lang.Thread.currentThread())
        self._context.addJobTag(tag)
        with self._condition:
            self._running[tag] = found
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, daemon=True, name="pydelta-cancelling")
                self._watcher.start()
            self._condition.notify_all()
        try:
            yield
        finally:
            with self._condition:
                del self._running[tag]
            if not self._has_ended:
                self._context.removeJobTag(tag)

    def look(self) -> None:
        """Cancel the jobs of each statement that is or was interrupted."""
        with self._condition:
            running = list(self._running.values())
        for statement in running:
            # A call that throws clears the thread's mark, but the statement stays interrupted.
            statement.is_interrupted = statement.is_interrupted or bool(statement.thread.isInterrupted())
            if statement.is_interrupted and not self._has_ended:
                self._context.cancelJobsWithTag(statement.tag)

    @property
    def _has_ended(self) -> bool:
        """Whether Spark was stopped, which ended every job."""
        return self._context._jsc is None

    def _watch(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._running)
                self._condition.wait(_EVERY)  # Most statements have ended by then.
            try:
                self.look()
            except (Py4JError, OSError):  # Spark's process and its statements have ended.
                with self._condition:
                    self._watcher = None
                return
