"""Change session settings for one job of the engine, and restore the user's values afterwards.

``spark.sql.parquet.filterPushdown`` is off in searches for matching rows. On the way to Parquet, a constant passes
through Java's legacy calendar and string classes. These change values that they cannot represent (the omitted days of
October 1582, text that is not UTF-8) or distinguish values that SQL does not (zeros of both signs).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["exact_filters"]

_PUSHDOWN: Final = "spark.sql.parquet.filterPushdown"

_lock = threading.Lock()
_users: dict[str, tuple[int, str | None]] = {}


@contextmanager
def exact_filters(spark: SparkSession) -> Iterator[None]:
    """Make Spark alone decide which rows a filter keeps. Files are already selected.

    Args:
        spark: The session. Jobs of other threads may see the changed setting, which only makes them slower.
    """
    key = str(spark._jsparkSession.sessionUUID())
    conf = spark._jsparkSession.sessionState().conf()
    with _lock:
        own = spark.conf.get(_PUSHDOWN) if conf.settings().containsKey(_PUSHDOWN) else None
        count, before = _users.get(key, (0, own))
        _users[key] = count + 1, before
        spark.conf.set(_PUSHDOWN, "false")
    try:
        yield
    finally:
        with _lock:
            count, before = _users.pop(key)
            if count > 1:
                _users[key] = count - 1, before
            elif before is None:
                spark.conf.unset(_PUSHDOWN)
            else:
                spark.conf.set(_PUSHDOWN, before)
