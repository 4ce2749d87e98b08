"""Measure how long it takes from a commit until a query of Trino sees it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

__all__ = ["Waiting", "seen_after", "watch"]

_PAUSE_SECONDS: Final = 0.1


def watch(is_visible: Callable[[], bool], is_written: threading.Event, clock: Callable[[], float]) -> float | None:
    """Ask again and again; when the answer that saw it came, or None if one asked after the writer had ended did not.

    Args:
        is_visible: Asks once.
        is_written: Set when the writer has ended, its sync included.
        clock: Epoch seconds.
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
    """Write while readers look, each in a thread of its own; the seconds until each saw it.

    Args:
        write: Commits and syncs; when the store had the commit, in epoch seconds.
        readers: Ask once each.
        clock: Epoch seconds.
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
    """Look for something in the background until it is there, for something that others do in their own time.

    Args:
        is_visible: Asks once; what it raises of ``errors`` is a no.
        errors: What a reader raises while there is nothing yet.
        pause: Seconds between two questions.
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
        """Wait for it; when it was seen, in epoch seconds, or None if it was not within so many seconds from here."""
        self._thread.join(patience)
        self._stop.set()
        return self._seen
