"""Note the processor's seconds of each test, in the file that ``CPU_SECONDS`` names: ``pytest -p selection.record``.

Seconds are those of this process, of the JVM and of Spark's workers, so that they mean the same on a busy machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = _seconds()
    result = yield
    with Path(os.environ["CPU_SECONDS"]).open("a") as file:
        file.write(json.dumps([item.nodeid, round(_seconds() - before, 3)]) + "\n")
    return result


def _seconds() -> float:
    return sum(_of_process(process) for process in _with_descendants(os.getpid()))


def _of_process(process: int) -> float:
    """Of a process and of those that it waited for; 0 when it has just ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS


def _with_descendants(process: int) -> Iterator[int]:
    yield process
    try:
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:
        return
    for thread in threads:
        try:
            children = Path(f"/proc/{process}/task/{thread}/children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _with_descendants(int(child))
