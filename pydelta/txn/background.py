"""Run work behind a commit: in one thread per process, only the newest per table, all before the process ends.

::

    commit of version 100 --> follow(table, checkpoint of 100) --> thread: checkpoint of 100 …
    commit of version 110 --> waits                                         |
    commit of version 120 --> replaces the work of 110         <-- done ----+--> checkpoint of 120

Failures are logged. The commits stand, and the next commit due for a checkpoint writes it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

__all__ = ["Behind", "behind_commits"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Work:
    what: str
    run: Callable[[], object]


class Behind:
    """A thread and its queue. The interpreter joins the thread at exit, so that no work is lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, _Work] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._futures: set[Future[None]] = set()

    def follow(self, table: str, what: str, run: Callable[[], object]) -> None:
        """Run work soon. It replaces work that is already waiting for the same table.

        Args:
            table: Its URI.
            what: Description of the work, for the log.
            run: Does the work.
        """
        with self._lock:
            is_new = table not in self._waiting
            self._waiting[table] = _Work(what, run)
            if not is_new:
                return
            if self._threads is None:
                self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pydelta-behind")
            try:
                future = self._threads.submit(self._do, table)
            except RuntimeError:  # The interpreter is exiting and starts no more threads.
                future = None
            if future is not None:
                self._futures.add(future)
                future.add_done_callback(self._futures.discard)
                return
        self._do(table)

    def _do(self, table: str) -> None:
        with self._lock:
            work = self._waiting.pop(table)
        started = time.monotonic()
        try:
            work.run()
        except Exception:  # The commit stands, even if the work after it fails.
            _logger.warning("%s failed", work.what, exc_info=True, extra={"table": table})
        else:
            _logger.info("%s took %.1f s", work.what, time.monotonic() - started, extra={"table": table})

    def join(self, seconds: float | None = None) -> bool:
        """Wait until no work is waiting or running. Returns False if ``seconds`` (None for no limit) was not enough."""
        with self._lock:
            futures = set(self._futures)
        return not wait(futures, timeout=seconds).not_done


behind_commits = Behind()
"""The instance of this process."""
