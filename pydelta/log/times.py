"""Convert times of the log, which may exceed Python's calendar."""

from __future__ import annotations

import datetime as dt
from typing import Final

from pydelta.errors import InvalidArgumentError

__all__ = ["epoch_ms_of", "utc_time"]

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


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


def epoch_ms_of(moment: str | dt.datetime, zone: dt.tzinfo | None) -> int:
    """Convert a time that a user gave to epoch milliseconds.

    Args:
        moment: ISO 8601 text, or a datetime.
        zone: Zone of a time that names none; None refuses such times.

    Raises:
        InvalidArgumentError: It is not a time, or it has no zone.

    Example:
        >>> epoch_ms_of("2024-05-31T12:00:00+02:00", None)
        1717149600000
    """
    try:
        found = dt.datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        known = isinstance(found, dt.datetime)
    except ValueError:
        known = False
    if not known:
        raise InvalidArgumentError(
            f"{moment!r} is not a time.",
            hint="Write it as 2024-05-31, 2024-05-31T12:00:00 or 2024-05-31T12:00:00+02:00.",
        )
    if found.tzinfo is None:
        if zone is None:
            raise InvalidArgumentError(
                f"The time {moment!s} has no zone.",
                hint="Write it with a zone, such as 2024-05-31T12:00:00Z, or give the time zone.",
            )
        found = found.replace(tzinfo=zone)
    return (found - _EPOCH) // dt.timedelta(milliseconds=1)
