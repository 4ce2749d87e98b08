"""Tell whether a thread is at work inside the engine: what it parses meanwhile is not a client's statement.

A call back from the JVM comes to a thread of Python of its own: work that begins in Python marks the JVM's thread, too.
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
    """Mark this thread for the block."""
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1


def is_inside() -> bool:
    """Tell whether this thread is in such a block."""
    return _here.depth > 0


def watch_parsers(spark: SparkSession) -> None:
    """Let ``inside_with_jvm`` work: some session of the application has a parser of ours."""
    _watched.add(str(spark.sparkContext.applicationId))


@contextmanager
def inside_with_jvm(spark: SparkSession) -> Iterator[None]:
    """Mark this thread and that of the JVM which belongs to it; nothing where no parser is ours."""
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
    """Tell whether the JVM's thread that calls is in such a block."""
    return spark.sparkContext.getLocalProperty(_MARK) is not None
