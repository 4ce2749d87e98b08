"""Track whether a thread works inside the engine, so that SQL which it parses does not count as a client's statements.

A callback from the JVM runs in a new Python thread, so work that begins in Python also marks the JVM's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["inside", "inside_with_jvm", "is_inside", "is_jvm_inside", "watch_parsers"]

_MARK: Final = "pydelta.inside"


class _Here(threading.local):
    depth = 0


_here = _Here()
_watched: set[str] = set()


@contextmanager
def inside() -> Iterator[None]:
    """Mark this thread within the block."""
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1


def is_inside() -> bool:
    """Return whether this thread is in such a block."""
    return _here.depth > 0


def watch_parsers(spark: SparkSession) -> None:
    """Enable ``inside_with_jvm``, because a session of the application has a parser of ours."""
    _watched.add(str(spark.sparkContext.applicationId))


@contextmanager
def inside_with_jvm(spark: SparkSession) -> Iterator[None]:
    """Mark this thread and its JVM thread. Does nothing if there is no parser of ours."""
    context = spark.sparkContext
    if not _watched or is_inside() or context.applicationId not in _watched:
        yield
        return
    context.setLocalProperty(_MARK, "true")
    try:
        with inside():
            yield
    finally:
        context.setLocalProperty(_MARK, None)  # type: ignore[arg-type]


def is_jvm_inside(spark: SparkSession) -> bool:
    """Return whether the calling JVM thread is in such a block."""
    return spark.sparkContext.getLocalProperty(_MARK) is not None
