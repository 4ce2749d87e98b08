"""Make the engine's own columns without PySpark's note of the line that made each.

PySpark asks the JVM some eight times for each call of its API, so that an error can point at the user's line. Inside
this engine the line would be one of the engine's, and the questions are up to half of all that a command asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import utils

from pydelta.engines.spark.session.patches import patch

__all__ = ["install", "without_call_sites"]

_ASKS: Final = "is_debugging_enabled"


class _Here(threading.local):
    inside = False


_here = _Here()


@contextmanager
def without_call_sites() -> Iterator[None]:
    """Make columns in this thread without call sites, as long as sessions are enabled."""
    before = _here.inside
    _here.inside = True
    try:
        yield
    finally:
        _here.inside = before


def install() -> None:
    """Put the question whether to note a line through ``without_call_sites``; ``patches.restore_all`` undoes it."""
    if hasattr(utils, _ASKS):  # a version of PySpark without it notes nothing that could be left out
        patch(utils, _ASKS, _asked)


def _asked(original: Callable[[], bool]) -> Callable[[], bool]:
    def is_debugging_enabled() -> bool:
        return not _here.inside and original()

    return is_debugging_enabled
