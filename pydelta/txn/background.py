"""Run work behind a commit: in one thread of the process, of each table the newest, all of it before the process ends.

::

    commit of version 100 --> follow(table, checkpoint of 100) --> thread: checkpoint of 100 …
    commit of version 110 --> waits                                         |
    commit of version 120 --> takes the place of that of 110   <-- done ----+--> checkpoint of 120

Work that fails is logged: the commits stand, and the next one that is due for a checkpoint brings it.
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
    """A thread and what waits for it. The interpreter joins it when it ends, so that nothing given is lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, _Work] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._futures: set[Future[None]] = set()

    def follow(self, table: str, what: str, run: Callable[[], object]) -> None:
        """Do work soon; of a table it takes the place of what waits already.

        Args:
            table: Its URI.
            what: What it is, for the log.
            run: Does it.
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
            except RuntimeError:  # the interpreter is ending, and takes no more threads
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
        except Exception:  # the commit stands, whatever follows it
            _logger.warning("%s failed", work.what, exc_info=True, extra={"table": table})
        else:
            _logger.info("%s took %.1f s", work.what, time.monotonic() - started, extra={"table": table})

    def join(self, seconds: float | None = None) -> bool:
        """Wait until nothing waits or runs; whether that is so within the time, None for as long as it takes."""
        with self._lock:
            futures = set(self._futures)
        return not wait(futures, timeout=seconds).not_done


behind_commits = Behind()
"""The process's own."""
