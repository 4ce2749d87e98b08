"""Read many items in parallel on threads that are reused.

A thread that ends leaves memory behind that allocators do not give to other threads for a while. A process that starts
new threads for each batch of a stream would grow by a hundred kilobytes per batch.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

__all__ = ["read_all"]

T = TypeVar("T")
R = TypeVar("R")
_THREADS: Final = 16
_own = threading.local()


def read_all(read: Callable[[T], R], items: Sequence[T], *, at_most: int = _THREADS) -> list[R]:
    """Call ``read`` for each item, up to 16 at a time in this process.

    Args:
        read: Reads one item, mostly waiting for a store. If it calls ``read_all`` itself, those items are read one by
            one.
        items: Any number of items.
        at_most: A lower limit of parallel calls.

    Returns:
        The results of ``read``, in the order of the items. The first error, in that order, is raised.
    """
    if len(items) < 2 or at_most < 2 or getattr(_own, "reads", False):
        return [read(item) for item in items]
    left = deque(enumerate(items))
    found: dict[int, R] = {}
    errors: dict[int, BaseException] = {}

    def work(_: int) -> None:
        with suppress(IndexError):
            while True:
                number, item = left.popleft()
                try:
                    found[number] = read(item)
                except BaseException as error:  # noqa: BLE001 - the first one is raised below
                    errors[number] = error
                    left.clear()

    list(_threads().map(work, range(min(at_most, len(items)))))
    if errors:
        raise errors[min(errors)]
    return [found[number] for number in range(len(items))]


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="pydelta-read", initializer=_begin)


def _begin() -> None:
    _own.reads = True


os.register_at_fork(after_in_child=_threads.cache_clear)  # A child does not inherit the threads.
