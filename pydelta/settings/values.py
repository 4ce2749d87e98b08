"""Parse the values of properties and settings: intervals, sizes, numbers, choices. Each error names the setting."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition

__all__ = [
    "DAY_MS",
    "choice",
    "parse_bool",
    "parse_bytes",
    "parse_columns",
    "parse_duration_ms",
    "parse_integer",
    "parse_interval_ms",
    "parse_on_or_auto",
    "parse_positive_int",
    "parse_ratio",
    "parse_text",
]

DAY_MS: Final = 86_400_000
_UNITS_MS: Final = {
    "microsecond": 0.001,
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": DAY_MS,
    "week": 7 * DAY_MS,
}
_LONGEST_MS: Final = (1 << 63) // 1_000  # A calendar interval has 64-bit microseconds.
_INTERVAL_PART: Final = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s+([a-z]+)\s*")


def parse_interval_ms(text: str, *, name: str = "interval") -> int:
    """Parse a calendar interval without months or years into milliseconds.

    Raises:
        InvalidArgumentError: The text is not an interval, is negative, or names months or years.

    Example:
        >>> parse_interval_ms("interval 1 week 12 hours") // 3_600_000
        180
    """
    body = text.strip().lower().removeprefix("interval").strip()
    position, total = 0, 0.0
    while position < len(body):
        match = _INTERVAL_PART.match(body, position)
        unit = match.group(2).removesuffix("s") if match else ""
        if match is None or unit not in _UNITS_MS:
            break
        total += float(match.group(1)) * _UNITS_MS[unit]
        position = match.end()
    if position < len(body) or not body or not 0 <= total <= _LONGEST_MS:
        raise InvalidArgumentError(
            f"{name} is {text!r}, which is not an interval of fixed length.",
            hint='Write it as "interval 30 days": a number and one of '
            f"{', '.join(_UNITS_MS)}; months and years have no fixed length.",
            condition=Condition.of("DELTA_INVALID_INTERVAL", interval=text),
        )
    return int(total)


def parse_text(text: str, *, name: str) -> str:
    """Return any text unchanged."""
    return text


def parse_bool(text: str, *, name: str) -> bool:
    """Parse ``true`` or ``false``, ignoring case."""
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise InvalidArgumentError(
            f"{name} is {text!r}.",
            hint="Set it to true or false.",
            condition=Condition.of("DELTA_INVALID_PROPERTY_VALUE", property=name, value=text),
        )
    return value == "true"


def _whole(text: str) -> int | None:
    """Return a whole number, or None. Python's own spellings, such as 1_000, are not allowed."""
    return int(text) if re.fullmatch(r"\s*[+-]?[0-9]+\s*", text) else None


def parse_positive_int(text: str, *, name: str) -> int:
    """Parse a whole number above zero."""
    value = _whole(text)
    if value is None or value <= 0:
        raise InvalidArgumentError(
            f"{name} is {text!r}.",
            hint="Set it to a whole number above zero.",
            condition=Condition.of("DELTA_INVALID_PROPERTY_VALUE", property=name, value=text),
        )
    return value


def parse_integer(text: str, *, name: str, least: int | None = None) -> int:
    """Parse a whole number that is not below ``least``."""
    value = _whole(text)
    if value is None or (least is not None and value < least):
        raise InvalidArgumentError(
            f"{name} is {text!r}.",
            hint="Set it to a whole number" + ("." if least is None else f" from {least} on."),
            condition=Condition.of("DELTA_INVALID_PROPERTY_VALUE", property=name, value=text),
        )
    return value


_SHORT_UNITS: Final = {"ms": "millisecond", "s": "second", "m": "minute", "min": "minute", "h": "hour"}
_SHORT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)")


def parse_duration_ms(text: str, *, name: str) -> int:
    """Parse ``10s``, ``500ms``, ``2min`` or an interval into milliseconds, more than 0."""
    match = _SHORT.fullmatch(text.strip().lower())
    try:
        value = parse_interval_ms(f"{match[1]} {_SHORT_UNITS[match[2]]}" if match else text, name=name)
    except InvalidArgumentError:
        value = 0
    if value <= 0:
        raise InvalidArgumentError(
            f"{name} is {text!r}.",
            hint="Set it to a time such as 10s, 500ms or 2min.",
            condition=Condition.of("DELTA_INVALID_PROPERTY_VALUE", property=name, value=text),
        )
    return value


_SIZE: Final = re.compile(r"\s*(\d+)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)


def parse_bytes(text: str, *, name: str) -> int:
    """Parse ``134217728``, ``128mb`` or ``1g`` into bytes (powers of 1024)."""
    match = _SIZE.fullmatch(text)
    if match is None or int(match.group(1)) == 0:
        raise InvalidArgumentError(
            f"{name} is {text!r}.",
            hint="Set it to a size such as 134217728, 128mb or 1g.",
            condition=Condition.of("DELTA_INVALID_PROPERTY_VALUE", property=name, value=text),
        )
    power: int = " kmgt".index(match.group(2).lower() or " ")
    return int(match.group(1)) << (10 * power)


def choice(*allowed: str) -> Callable[..., str]:
    """Return a parser that accepts one of these words, ignoring case."""

    def parse(text: str, *, name: str) -> str:
        for value in allowed:
            if text.strip().lower() == value.lower():
                return value
        raise InvalidArgumentError(
            f"{name} is {text!r}.",
            hint=f"Set it to one of: {', '.join(allowed)}.",
            condition=Condition.of("DELTA_INVALID_ISOLATION_LEVEL", isolationLevel=text)
            if name == "delta.isolationLevel"
            else Condition.of("DELTA_INVALID_PROPERTY_VALUE", property=name, value=text),
        )

    return parse


def parse_columns(text: str, *, name: str) -> tuple[str, ...]:
    """Parse column names separated by commas. Backticks quote."""
    parts = re.findall(r"((?:`(?:[^`]|``)*`|[^,`])+)", text)
    columns = tuple(part.strip() for part in parts if part.strip())
    if not columns:
        raise InvalidArgumentError(f"{name} is empty.", hint="Name at least one column, or unset the property.")
    return columns


def parse_ratio(text: str, *, name: str) -> float:
    """Parse a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InvalidArgumentError(
            f"{name} is {text!r}.",
            hint="Set it to a number from 0 to 1.",
            condition=Condition.of("DELTA_INVALID_PROPERTY_VALUE", property=name, value=text),
        )
    return value


def parse_on_or_auto(text: str, *, name: str) -> bool:
    """Parse ``true`` or ``false``. ``auto`` and ``legacy``, which other engines know, count as true."""
    return text.strip().lower() in ("auto", "legacy") or parse_bool(text, name=name)
