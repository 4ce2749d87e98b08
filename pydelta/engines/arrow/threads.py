"""Run parts of a command's row work on threads of this process, all of them or none.

The threads are reused by all commands, one per core, and each holds a row group or two.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from pydelta.engines.arrow.expressions import NotHere
from pydelta.engines.arrow.tasks.write_files import FileRecord, WriteTask
from pydelta.storage import NearStore, Store
from pydelta.storage.discarding import discard
from pydelta.storage.readers import read_all

__all__ = ["cores", "for_threads", "read_files", "row_group_limit", "run_groups"]

_USUAL_MEMORY = 8 * 1024**3

_G = TypeVar("_G")
_R = TypeVar("_R")


def run_groups(
    run: Callable[[_G], list[FileRecord]], groups: Sequence[_G], stop: threading.Event, store: Store
) -> list[FileRecord]:
    """Run every group. If one fails, remove the files of the others and raise its error.

    Args:
        run: Function that writes the files of a group. If it fails, it leaves no files.
        groups: The groups to write, at least one.
        stop: Event that is set when one has failed, so that the others may stop.
        store: Store of the files.
    """
    if len(groups) == 1:
        return run(groups[0])

    def stopping(group: _G) -> list[FileRecord]:
        try:
            return run(group)
        except BaseException:
            stop.set()
            raise

    futures = [_threads().submit(stopping, group) for group in groups]
    records: list[FileRecord] = []
    errors: list[BaseException] = []
    for future in futures:
        try:
            records += future.result()
        except BaseException as error:  # noqa: BLE001 - raised below, once every thread has ended
            stop.set()
            errors.append(error)
    if errors:
        for future in futures:  # After an interrupt, a thread may still be running.
            if not future.cancelled() and future.exception() is None:
                records += [record for record in future.result() if record not in records]
        discard(store, [record.path for record in records])
        raise next((error for error in errors if not isinstance(error, NotHere)), errors[0])
    return records


def read_files(read: Callable[[int], _R], count: int, store: Store) -> list[_R]:
    """Call ``read`` for each number of a file, in parallel. Returns the results in order.

    A near store answers at once, so more threads than processors would only take memory.
    """
    if isinstance(store, NearStore):
        return read_all(read, range(count), at_most=cores())
    return read_all(read, range(count))


def for_threads(task: WriteTask, groups: int) -> WriteTask:
    """Return a task for the threads of a process: with small row groups, and with all processors in use.

    Args:
        task: The task as an executor runs it.
        groups: Number of threads that run it. Fewer than there are processors encode columns side by side.
    """
    return replace(task, row_group_bytes=task.row_group_bytes // 2, encoders=max(1, cores() // max(groups, 1)))


def cores() -> int:
    """Count the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def row_group_limit() -> int:
    """Return the largest row group, in bytes, that a thread may read: together they take a quarter of the memory."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no such function.
        memory = _USUAL_MEMORY
    return memory // 4 // cores()


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads that all commands share, one per core. Each holds a row group or two."""
    return ThreadPoolExecutor(cores(), thread_name_prefix="pydelta-arrow")


os.register_at_fork(after_in_child=_threads.cache_clear)  # A child process does not inherit its parent's threads.
