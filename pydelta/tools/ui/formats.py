"""Format numbers, sizes, times and durations for people."""

from __future__ import annotations

from typing import Final

from pydelta.log.times import utc_time

__all__ = ["age", "amount", "duration", "moment", "number", "of"]

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024


def number(value: int | None) -> str:
    """Format a whole number with thousands separators; a dash for None.

    Example:
        >>> number(1234567), number(None)
        ('1,234,567', '–')
    """
    return "–" if value is None else f"{value:,}"


def of(count: int, name: str) -> str:
    """Format a count with its noun.

    Example:
        >>> of(1, "file"), of(1200, "file")
        ('1 file', '1,200 files')
    """
    return f"{number(count)} {name if count == 1 else name + 's'}"


def amount(value: int | None) -> str:
    """Format a number of bytes.

    Example:
        >>> amount(512), amount(1536), amount(None)
        ('512 bytes', '1.5 KiB', '–')
    """
    if value is None:
        return "–"
    size, unit = float(value), 0
    while size >= _STEP and unit < len(_UNITS) - 1:
        size, unit = size / _STEP, unit + 1
    return f"{value} bytes" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def duration(seconds: float | None) -> str:
    """Format a number of seconds in the largest unit that fits.

    Example:
        >>> duration(0.25), duration(90), duration(7200), duration(200000)
        ('0.2 s', '90 s', '2 h', '2 days')
    """
    if seconds is None:
        return "–"
    for most, unit, name in ((10, 1, "s"), (120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < most:
            return f"{seconds:.1f} s" if most == 10 else f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} days"


def moment(time_ms: int | None) -> str:
    """Format a time in UTC, to the second; a dash for None, and plain milliseconds for an impossible time."""
    if time_ms is None:
        return "–"
    found = utc_time(time_ms)
    return f"{time_ms} ms" if found is None else f"{found:%Y-%m-%d %H:%M:%S} UTC"


def age(time_ms: int | None, now_ms: int) -> str:
    """Format how long ago a time was.

    Example:
        >>> age(0, 90_000), age(None, 0)
        ('90 s ago', 'never')
    """
    if time_ms is None:
        return "never"
    seconds = (now_ms - time_ms) / 1000
    return f"{duration(seconds)} ago" if seconds >= 1 else "just now"
