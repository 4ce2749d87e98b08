"""Let no failing write to standard output end a command whose work is done.

::

    with sparing_output() as output:       a pipe that nobody reads, a disk that is full
        …                                  the first write that fails is said on standard error, later ones are dropped
    output.lost                            whether that happened

A command that has committed and then ends with an error because of its report is run again by scripts, which doubles
its rows.
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
    """What became of standard output: why a write failed, or None."""

    lost: OSError | ValueError | None = None

    @property
    def is_incomplete(self) -> bool:
        """Whether a reader who is there has got less than everything: one who closed the pipe wanted no more."""
        return self.lost is not None and getattr(self.lost, "errno", None) != errno.EPIPE


class _Sparing:
    """A stream whose writes do not fail."""

    def __init__(self, stream: IO[str], output: Output, *, says: bool) -> None:
        self._stream, self._output, self._says = stream, output, says
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
        with suppress(OSError, ValueError):  # what is still in the buffer is written when the process ends
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        if self._says:
            self._output.lost = error
            why = error.strerror if isinstance(error, OSError) else str(error)
            sys.stderr.write(f"Standard output could not be written ({why}); what follows is not shown.\n")


@contextmanager
def sparing_output() -> Iterator[Output]:
    """Keep the block from failing because of standard output or standard error; both are flushed at its end."""
    output = Output()
    _keep_closed()
    before = sys.stdout, sys.stderr
    nowhere = open(os.devnull, "w")  # noqa: SIM115 - a stream that was closed before the process began is None
    sys.stderr = _Sparing(before[1] or nowhere, output, says=False)
    sys.stdout = _Sparing(before[0] or nowhere, output, says=True)
    try:
        yield output
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
        nowhere.close()


def _keep_closed() -> None:
    """Open the null device where a standard stream is closed: the next file would get its number, and what it says."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
