"""Tell whether this thread is at work inside the engine: what it parses meanwhile is not a client's statement."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["inside", "is_inside"]


class _Here(threading.local):
    depth = 0


_here = _Here()


@contextmanager
def inside() -> Iterator[None]:
    """Mark this thread for the block. py4j answers a call back from the JVM in the thread whose call it belongs to."""
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1


def is_inside() -> bool:
    """Tell whether this thread is in such a block."""
    return _here.depth > 0
