"""Convert times of the log, which may exceed Python's calendar."""

from __future__ import annotations

import datetime as dt

__all__ = ["utc_time"]


def utc_time(epoch_ms: int) -> dt.datetime | None:
    """Convert epoch milliseconds to a UTC datetime. Returns None beyond Python's calendar.

    Example:
        >>> utc_time(1_700_000_000_123), utc_time(2**62)
        (datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=datetime.timezone.utc), None)
    """
    try:
        return dt.datetime.fromtimestamp(epoch_ms // 1000, tz=dt.UTC) + dt.timedelta(milliseconds=epoch_ms % 1000)
    except (OverflowError, ValueError, OSError):
        return None
