"""Convert partition values between Python, the log's text, typed columns and directory names.

Only the standard library is imported at the top because the writer's tasks load this module.
Protocol: "Partition Value Serialization" (the empty string is null for every type).
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from pydelta.errors import InvalidArgumentError, LogCorruptedError, SchemaError
from pydelta.errors.conditions import Condition
from pydelta.protocol.types import DataType, DecimalType, PrimitiveType, StructType

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "HIVE_NULL",
    "hive_escape",
    "hive_unescape",
    "names_zone",
    "parse_partition_value",
    "partition_dir",
    "serialize_partition_value",
    "typed_frame",
]

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(0x20)}
_UTC: Final = dt.UTC
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_ZONE_NAME: Final = re.compile(r"(?=.{1,64}$)[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,3}")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


def hive_escape(text: str) -> str:
    """Escape text for the name of a partition directory as Hive and Spark do.

    Example:
        >>> hive_escape("a/b=50%")
        'a%2Fb%3D50%25'
    """
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def hive_unescape(text: str) -> str:
    """Undo ``hive_escape``. A ``%`` that does not start an escape stays."""
    return re.sub(r"%([0-9A-Fa-f]{2})", lambda match: chr(int(match.group(1), 16)), text)


def partition_dir(values: Mapping[str, str | None]) -> str:
    """Build the directory name, ``a=1/b=x``, from serialized values. Null and empty strings become Hive's null name.

    Example:
        >>> partition_dir({"day": "2024-01-01", "name": None})
        'day=2024-01-01/name=__HIVE_DEFAULT_PARTITION__'
    """
    return "/".join(
        f"{hive_escape(name)}={hive_escape(value) if value else HIVE_NULL}" for name, value in values.items()
    )


def _cannot_partition(data_type: DataType) -> SchemaError:
    return SchemaError(
        f"A column of type {data_type} cannot partition a table.",
        hint="Choose a column of a simple type.",
        condition=Condition.of("INVALID_PARTITION_COLUMN_DATA_TYPE", type=data_type),
    )


def serialize_partition_value(value: Any, data_type: DataType) -> str | None:
    """Serialize a Python value (from Arrow's ``as_py``) for the log. Returns None for null and the empty string.

    Timestamps without a zone count as UTC. They are written as ISO 8601 in UTC, which does not depend on a session's
    time zone. Bytes are written as UTF-8 text, because every reader expects that.

    Raises:
        SchemaError: A column of this type cannot partition a table.
        InvalidArgumentError: The bytes are not UTF-8, so the log cannot represent them.
    """
    if value is None:
        return None
    if isinstance(data_type, DecimalType):
        return format(value, "f")
    if not isinstance(data_type, PrimitiveType):
        raise _cannot_partition(data_type)
    name = data_type.name
    if name == "boolean":
        return "true" if value else "false"
    if name == "binary":
        return _text_of_bytes(bytes(value)) or None
    if name in ("float", "double"):
        return _float_text(value)
    if name == "timestamp":
        aware = value if value.tzinfo else value.replace(tzinfo=_UTC)
        return str(aware.astimezone(_UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")).rjust(27, "0")
    if name == "timestamp_ntz":
        text: str = value.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
        return f"{text}.{value.microsecond:06d}".rstrip("0") if value.microsecond else text
    return str(value) or None  # A date becomes ISO 8601 with a four-digit year.


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"The partition value X'{value.hex().upper()}' is not UTF-8, and the log keeps partition values as text.",
            hint="Partition by hex(…) or base64(…) of the column.",
        ) from error


_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _float_text(value: float) -> str:
    text = repr(float(value))
    return _NOT_FINITE.get(text, text)


_JAVA_SPACE: Final = "".join(map(chr, range(0x21)))
"""Characters that Spark trims from a text before casting it to a float or a decimal, by Java's ``trim``."""
_SPACE: Final = f"{_JAVA_SPACE}\x7f"
"""Characters that it trims before a cast to any other type."""
_FLOAT: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_FLOATS: Final = {
    "nan": "nan",
    **{sign + name: sign + "inf" for sign in ("", "+", "-") for name in ("inf", "infinity")},
}
_SIGNED_NAN: Final = ("+NaN", "-NaN")  # Java reads a sign before NaN in this case only.
_BOOLEANS: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_DAY: Final = r"\+?([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_DATE: Final = re.compile(rf"{_DAY}(?:[T ].*)?)?)?", re.DOTALL)
_TIMESTAMP: Final = re.compile(
    rf"{_DAY}(?:[T ]([0-9]{{1,2}})(?::([0-9]{{1,2}})(?::([0-9]{{1,2}})(?:\.([0-9]*))?([^0-9.].*)?)?)?)?)?)?", re.DOTALL
)
_OFFSETS: Final = tuple(
    re.compile(rf"(?:UTC|UT|GMT)?([+-]){form}")
    for form in (
        "([0-9]{1,2})(?::([0-9]{1,2}))?",
        "([0-9]{1,2}):([0-9]{2}):([0-9]{2})",
        "([0-9]{2})([0-9]{2})([0-9]{2})?",
    )
)
_UTC_NAMES: Final = ("Z", "UTC", "UT", "GMT")
_FARTHEST: Final = dt.timedelta(hours=18)


def names_zone(text: str) -> bool:
    """Return whether a timestamp text includes a time zone."""
    match = _TIMESTAMP.fullmatch(text.strip(_SPACE))
    try:
        return match is not None and match[8] is not None and bool(_offset(match[8]))
    except ValueError:
        return False


def _parse_timestamp(text: str, zone: dt.tzinfo | None) -> dt.datetime:
    match = _TIMESTAMP.fullmatch(text.strip(_SPACE))
    if match is None:
        raise ValueError("not a timestamp")
    *parts, fraction, offset = match.groups()
    year, month, day, hour, minute, second = (int(part or first) for part, first in zip(parts, "111000", strict=True))
    value = dt.datetime(year, month, day, hour, minute, second, int(f"{fraction or '':0<6.6}"))
    stated = None if offset is None else _offset(offset)
    return value if zone is None else value.replace(tzinfo=stated or zone).astimezone(_UTC)


def _offset(text: str) -> dt.tzinfo:
    """Parse an offset as Java's ``ZoneId`` does. Regions have no place in a partition value."""
    plain = text.strip(_SPACE)
    if plain in _UTC_NAMES:
        return _UTC
    match = next(filter(None, (form.fullmatch(plain) for form in _OFFSETS)), None)
    if match is None:
        raise ValueError("not an offset")
    hours, minutes, seconds = (*(int(part or 0) for part in match.groups()[1:]), 0)[:3]
    distance = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if max(minutes, seconds) > 59 or distance > _FARTHEST:
        raise ValueError("not a zone")
    return dt.timezone(distance if match[1] == "+" else -distance)


def _parse_date(text: str) -> dt.date:
    match = _DATE.fullmatch(text.strip(_SPACE))
    if match is None:
        raise ValueError("not a date")
    year, month, day = (int(part or 1) for part in match.groups())
    return dt.date(year, month, day)


def _parse_float(text: str) -> float:
    plain = text.strip(_JAVA_SPACE)
    if plain in _SIGNED_NAN:
        return math.nan
    match = _FLOAT.fullmatch(plain)
    return float(match[1] if match else _FLOATS[plain.lower()])


def parse_partition_value(text: str | None, data_type: DataType, *, time_zone: str = "UTC") -> Any:
    """Parse a partition value from the log. Returns None for null and the empty string.

    Args:
        text: The text in ``partitionValues``.
        data_type: The type of the partition column.
        time_zone: Zone of timestamps without one.

    Raises:
        LogCorruptedError: The text is not a value of the type.
        SchemaError: A column of this type cannot partition a table.
        InvalidArgumentError: The time zone does not exist.
    """
    if not isinstance(data_type, (DecimalType, PrimitiveType)):
        raise _cannot_partition(data_type)
    if text is None or text == "":
        return None
    zone = zone_of(time_zone) if data_type == PrimitiveType("timestamp") else None
    try:
        if isinstance(data_type, DecimalType):
            return _fitting_decimal(text, data_type)
        name = data_type.name
        if name in _BITS:
            return _fitting_integer(text, _BITS[name])
        if name in ("float", "double"):
            return _parse_float(text)
        if name == "boolean":
            return _BOOLEANS[text.strip(_SPACE).lower()]
        if name == "date":
            return _parse_date(text)
        if name in ("timestamp", "timestamp_ntz"):
            return _parse_timestamp(text, zone)
        if name == "binary":
            return text.encode()
    except (ValueError, KeyError, TypeError, InvalidOperation, OverflowError) as error:
        raise LogCorruptedError(
            f"The partition value {text!r} in the log is not a valid {data_type}.",
            condition=Condition.of("DELTA_FAILED_CAST_PARTITION_VALUE", value=text, dataType=data_type),
        ) from error
    return text


def _fitting_integer(text: str, bits: int) -> int:
    plain = text.strip(_SPACE)
    if _INTEGER.fullmatch(plain) is None:  # int() would also accept underscores and non-ASCII digits.
        raise ValueError("not a whole number")
    value = int(plain)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError("beyond the type")
    return value


def _fitting_decimal(text: str, data_type: DecimalType) -> Decimal:
    """Parse a decimal. Rejects a value that the type would round, since its reader would look in another partition."""
    plain = text.strip(_JAVA_SPACE)
    if _DECIMAL.fullmatch(plain) is None:
        raise ValueError("not a number")
    value = Decimal(plain)
    digits = "".join(map(str, value.as_tuple().digits))
    kept = digits.rstrip("0")
    exponent = int(value.as_tuple().exponent) + len(digits) - len(kept)
    if kept and (-exponent > data_type.scale or len(kept) + exponent > data_type.precision - data_type.scale):
        raise ValueError("beyond the type")
    return value


def zone_of(name: str) -> dt.tzinfo:
    """Return a time zone by name or offset.

    Raises:
        InvalidArgumentError: The time zone does not exist.
    """
    match = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", name)
    if name == "Z":
        return _UTC
    try:
        if match:
            sign, hours, minutes = match.groups()
            delta = dt.timedelta(hours=int(hours), minutes=int(minutes or 0))
            return dt.timezone(delta if sign == "+" else -delta)
        if _ZONE_NAME.fullmatch(name) is None:  # ZoneInfo looks the name up as a file and as a module.
            raise ValueError("not a name")
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidArgumentError(
            f"There is no time zone {name!r}.", hint="Name it as in Europe/Berlin, or by its offset: +01:00."
        ) from error


def typed_frame(frame: pl.DataFrame, schema: StructType, *, time_zone: str = "UTC") -> pl.DataFrame:
    """Convert text columns to the fields' types, column by column. Each distinct text is parsed once.

    Args:
        frame: String columns named like the fields of ``schema``.
        schema: The partition columns, flat.
        time_zone: Zone of timestamps without one.

    Raises:
        LogCorruptedError: A text is not a value of its type.
        SchemaError: A field has a type that cannot partition a table.
    """
    import polars as pl

    from pydelta.protocol.schema import to_polars_dtype

    columns = []
    for field in schema.fields:
        texts = frame.get_column(field.name)
        dtype = to_polars_dtype(field.data_type)
        if dtype == pl.String():
            columns.append(texts.replace("", None).alias(field.name))
            continue
        distinct = texts.unique(maintain_order=True)
        values = [parse_partition_value(text, field.data_type, time_zone=time_zone) for text in distinct]
        lookup = pl.DataFrame({"text": distinct, "value": pl.Series(values, dtype=dtype)})
        joined = texts.to_frame("text").join(lookup, on="text", how="left", maintain_order="left")
        columns.append(joined.get_column("value").alias(field.name))
    return pl.DataFrame(columns)
