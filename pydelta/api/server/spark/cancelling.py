"""Cancel the jobs of a statement whose client has interrupted it, also those that begin afterwards.

::

    a client interrupts --> Spark marks the JVM's thread, and cancels the jobs that are running
    statement plans, in Python: nothing notices --> its job begins, which nobody cancels any more
    here: a thread looks at the marks of the statements that are running, and cancels what they have begun
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
"""Seconds between two looks."""


@dataclass(slots=True)
class _Statement:
    tag: str
    thread: Any
    is_interrupted: bool = False


class Cancelling:
    """Watches the statements that are running. Safe to use from several threads.

    Args:
        context: Spark's, which runs the jobs.
        jvm: Of any of its sessions.
    """

    def __init__(self, context: SparkContext, jvm: Jvm) -> None:
        self._context = context
        self._jvm = jvm
        self._condition = threading.Condition()
        self._running: dict[str, _Statement] = {}
        self._watcher: threading.Thread | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch a statement in the thread that Spark called: its jobs are cancelled once that is interrupted."""
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
        """Cancel the jobs of each statement that is interrupted, or was when this looked before."""
        with self._condition:
            running = list(self._running.values())
        for statement in running:
            # a call that throws takes the mark off the thread; the statement stays interrupted
            statement.is_interrupted = statement.is_interrupted or bool(statement.thread.isInterrupted())
            if statement.is_interrupted and not self._has_ended:
                self._context.cancelJobsWithTag(statement.tag)

    @property
    def _has_ended(self) -> bool:
        """Whether Spark was stopped, and with it every job."""
        return self._context._jsc is None

    def _watch(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._running)
                self._condition.wait(_EVERY)  # most statements have ended by then
            try:
                self.look()
            except (Py4JError, OSError):  # Spark's process has ended, and with it every statement
                with self._condition:
                    self._watcher = None
                return
