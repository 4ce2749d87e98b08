"""Measure the time from a commit until a Trino query sees it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

__all__ = ["Waiting", "seen_after", "watch"]

_PAUSE_SECONDS: Final = 0.1


def watch(is_visible: Callable[[], bool], is_written: threading.Event, clock: Callable[[], float]) -> float | None:
    """Poll until an answer shows the commit. Returns the time of that answer, or None if the last poll fails too.

    Args:
        is_visible: Polls once.
        is_written: Set when the writer has ended, including its sync. The last poll begins after that.
        clock: Returns epoch seconds.
    """
    while True:
        was_written = is_written.is_set()
        if is_visible():
            return clock()
        if was_written:
            return None
        is_written.wait(_PAUSE_SECONDS)


def seen_after(
    write: Callable[[], float], readers: Sequence[Callable[[], bool]], clock: Callable[[], float] = time.time
) -> list[float | None]:
    """Write while readers poll, each in its own thread. Returns the seconds until each saw the commit.

    Args:
        write: Commits and syncs. Returns when the store had the commit, in epoch seconds.
        readers: Each polls once.
        clock: Returns epoch seconds.
    """
    is_written = threading.Event()
    with ThreadPoolExecutor(len(readers)) as pool:
        watching = [pool.submit(watch, reader, is_written, clock) for reader in readers]
        try:
            committed = write()
        finally:
            is_written.set()
        found = [future.result() for future in watching]
    return [None if moment is None else moment - committed for moment in found]


class Waiting:
    """Polls in the background until something is visible that others make at their own pace.

    Args:
        is_visible: Polls once. Raising one of ``errors`` counts as a no.
        errors: Errors that a reader raises before there is anything to see.
        pause: Seconds between two polls.
    """

    def __init__(self, is_visible: Callable[[], bool], errors: tuple[type[Exception], ...], pause: float) -> None:
        self._is_visible = is_visible
        self._errors = errors
        self._pause = pause
        self._stop = threading.Event()
        self._seen: float | None = None
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.is_set():
            try:
                if self._is_visible():
                    self._seen = time.time()
                    return
            except self._errors:
                pass
            self._stop.wait(self._pause)

    def seen(self, patience: float) -> float | None:
        """Wait until it is seen. Returns the time in epoch seconds, or None if ``patience`` seconds pass first."""
        self._thread.join(patience)
        self._stop.set()
        return self._seen
