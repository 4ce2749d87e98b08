"""Keep a failing write to standard output from ending a command whose work is done.

::

    with sparing_output() as output:       a pipe without a reader, a full disk
        …                                  the first failure is reported on standard error, later writes are dropped
    output.lost                            whether that happened

Scripts run a command again if it commits and then fails on its report, which doubles its rows.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

__all__ = ["Output", "sparing_output"]


@dataclass(slots=True)
class Output:
    """The state of standard output: why a write failed, or None."""

    lost: OSError | ValueError | None = None

    @property
    def is_incomplete(self) -> bool:
        """Whether a reader received only a part. One that closed the pipe wanted no more."""
        return self.lost is not None and getattr(self.lost, "errno", None) != errno.EPIPE


class _Sparing:
    """A stream whose writes do not fail."""

    def __init__(self, stream: IO[str], output: Output, *, reports: bool) -> None:
        self._stream, self._output, self._reports = stream, output, reports
        self._dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if not self._dead:
            try:
                return self._stream.write(text)
            except (OSError, ValueError) as error:
                self._give_up(error)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        if not self._dead:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._give_up(error)

    def _give_up(self, error: OSError | ValueError) -> None:
        if isinstance(error, UnicodeError):
            raise error
        self._dead = True
        with suppress(OSError, ValueError):  # Python flushes the buffer at exit, which must not fail.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        if self._reports:
            self._output.lost = error
            why = error.strerror if isinstance(error, OSError) else str(error)
            sys.stderr.write(f"Standard output could not be written ({why}); what follows is not shown.\n")


@contextmanager
def sparing_output() -> Iterator[Output]:
    """Run a block that failures of standard output and standard error cannot end; both are flushed at its end."""
    output = Output()
    _keep_closed()
    before = sys.stdout, sys.stderr
    nowhere = open(os.devnull, "w")  # noqa: SIM115 - A stream that was closed at the start is None.
    sys.stderr = _Sparing(before[1] or nowhere, output, reports=False)
    sys.stdout = _Sparing(before[0] or nowhere, output, reports=True)
    try:
        yield output
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
        nowhere.close()


def _keep_closed() -> None:
    """Open the null device for closed standard streams, so that no other file gets their numbers and their output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
