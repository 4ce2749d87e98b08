"""Build the engine's columns without recording a call site for each.

For each API call, PySpark asks the JVM about eight times, so that an error can point to the user's line. Inside this
engine the line would be the engine's own, and these are up to half of a command's calls.
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
    """Build columns in this thread without call sites, while sessions are enabled."""
    before = _here.inside
    _here.inside = True
    try:
        yield
    finally:
        _here.inside = before


def install() -> None:
    """Patch PySpark's check so that ``without_call_sites`` can turn it off. ``patches.restore_all`` undoes it."""
    if hasattr(utils, _ASKS):  # PySpark versions without the check record nothing.
        patch(utils, _ASKS, _asked)


def _asked(original: Callable[[], bool]) -> Callable[[], bool]:
    def is_debugging_enabled() -> bool:
        return not _here.inside and original()

    return is_debugging_enabled
