"""Compare values with bounds in each order that an engine may use."""

from __future__ import annotations

import datetime as dt
from typing import Any

_EPOCH = dt.datetime(1970, 1, 1)


def orders(value: Any) -> list[Any]:
    """The value as what engines compare: text by code points, bytes and UTF-16 units, times as in a manifest."""
    if isinstance(value, str):
        return [value, value.encode(), value.encode("utf-16-be")]
    if isinstance(value, dt.datetime):
        return [(value.replace(tzinfo=None) - _EPOCH) // dt.timedelta(microseconds=1)]
    if isinstance(value, dt.date):
        return [(value - _EPOCH.date()).days]
    return [value]
