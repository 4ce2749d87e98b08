"""Change settings of a session for one job of ours, and restore the user's afterwards.

``spark.sql.parquet.filterPushdown`` is off while rows that match are looked for: on its way to Parquet a constant
passes through Java's old calendar and text classes, and comes out as another one where these have none such (the days
of October 1582 that were left out, text that is not UTF-8) or tell apart what SQL does not (the zeros of both signs).
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
    """Let Spark alone decide which rows a filter keeps; files have been chosen by then.

    Args:
        spark: The session. Jobs of other threads in it may see the setting meanwhile, which only costs them time.
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
