"""Run a process that ends with whoever started it, and hand on its lines as they come."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

__all__ = ["Ended", "Process"]

_PATIENCE_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: its exit code, negative for a signal, and the last line of its standard output."""

    code: int
    last: str


class Process:
    """A process in a group of its own, which ends if this object's program does.

    Args:
        command: The command line.
        environment: Its environment.
        leash: The program that ends the group when its standard input is closed.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], leash: str = "held") -> None:
        self._process = subprocess.Popen(
            [leash, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )

    def follow(self, tell: Callable[[str], None]) -> Ended:
        """Wait for the end.

        Args:
            tell: Is called with each line of both outputs, by this thread.
        """
        lines: queue.Queue[tuple[bool, str] | None] = queue.Queue()

        def read(source: IO[bytes], *, is_answer: bool) -> None:
            for line in source:
                lines.put((is_answer, line.decode(errors="replace").rstrip()))
            lines.put(None)

        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for source, is_answer in ((self._process.stdout, True), (self._process.stderr, False)):
            threading.Thread(target=read, args=(source,), kwargs={"is_answer": is_answer}, daemon=True).start()
        last, left = "", 2
        while left:
            item = lines.get()
            if item is None:
                left -= 1
                continue
            is_answer, line = item
            if line:
                tell(line)
            if is_answer and line:
                last = line
        return Ended(self._process.wait(), last)

    def end(self) -> None:
        """End the whole group: it gets ten seconds for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_PATIENCE_SECONDS)
