"""Draw values of every simple type with the ones that statistics get wrong, and write them as literals."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

UTC = dt.UTC
_WORDS = (
    "", "a", "b", "a b", "é", "日本", "x/y", "50%", "a=b", "'q'", "z" * 40, "z" * 31 + "\U0001f600",
    "\ud7ff", "\uffff", "~",
)  # fmt: skip
_FLOATS = (0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 1e300, 5e-324)
_DAYS = (dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1969, 12, 31), dt.date(9999, 12, 31), dt.date(1500, 3, 1))
_TIMES = (
    dt.datetime(2024, 5, 31, 12, 0, 0, 123456), dt.datetime(2024, 5, 31, 12, 0, 0, 999999), dt.datetime(1970, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 5, 31, 12, 0, 0, 1000),
)  # fmt: skip
_DECIMALS = ("0", "1.10", "-1.10", "99999999.99", "-99999999.99", "12345678.91")
_BYTES = (b"", b"\x00", b"ab", b"\xff" * 40)
TYPES: dict[str, pa.DataType] = {
    "n": pa.int32(),
    "h": pa.int16(),
    "k": pa.int64(),
    "x": pa.float64(),
    "f": pa.float32(),
    "s": pa.string(),
    "d": pa.date32(),
    "t": pa.timestamp("us", "UTC"),
    "m": pa.decimal128(10, 2),
    "o": pa.bool_(),
    "w": pa.binary(),
    "p": pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())]),
    "l": pa.list_(pa.int64()),
}


_SPARK_TYPES = {
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.int16(): "SMALLINT",
}


def value(rng: random.Random, kind: pa.DataType, *, partition: bool = False) -> Any:
    """A value of a type, often null; few different ones for a partition column."""
    if rng.random() < (0.15 if partition else 0.25):
        return None
    if partition and pa.types.is_string(kind):
        return rng.choice(("a", "b c", "é/%", "x=y:z"))
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return rng.randrange(3) if partition else rng.choice((0, 1, -1, most - 1, -most, rng.randrange(-100, 100)))
    if pa.types.is_floating(kind):
        found = rng.choice(_FLOATS) if not partition else rng.choice((1.5, 2.5))
        return found if kind.bit_width == 64 or abs(found) < 1e30 or math.isinf(found) else 0.5
    if pa.types.is_decimal(kind):
        return Decimal(rng.choice(_DECIMALS[:3] if partition else _DECIMALS))
    if pa.types.is_date(kind):
        return rng.choice(_DAYS[:2] if partition else _DAYS)
    if pa.types.is_timestamp(kind):
        found = rng.choice(_TIMES[:3] if partition else _TIMES)
        return found.replace(tzinfo=UTC) if kind.tz else found
    if pa.types.is_struct(kind):
        return {part.name: value(rng, part.type) for part in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [value(rng, kind.value_type) for _ in range(rng.randrange(3))]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return rng.choice(_BYTES)
    return rng.choice(_WORDS)


def is_simple(kind: pa.DataType) -> bool:
    """Whether conditions compare values of the type."""
    return not pa.types.is_nested(kind)


def duckdb_literal(found: Any, kind: pa.DataType) -> str:
    """A value as a literal of DuckDB."""
    if isinstance(found, bool):
        return str(found).upper()
    if isinstance(found, float):
        return f"'{found!r}'::{'DOUBLE' if kind.bit_width == 64 else 'FLOAT'}"
    if isinstance(found, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in found) + "'::BLOB"
    if isinstance(found, dt.datetime):
        return f"TIMESTAMPTZ '{found:%Y-%m-%d %H:%M:%S.%f}+00'" if found.tzinfo else f"TIMESTAMP '{found}'"
    if isinstance(found, dt.date):
        return f"DATE '{found.isoformat()}'"
    if isinstance(found, str):
        return "'" + found.replace("'", "''") + "'"
    return str(found)


def spark_literal(found: Any, kind: pa.DataType) -> str:
    """A value as a literal of Spark."""
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, bytes):
        return f"X'{found.hex()}'"
    if isinstance(found, dt.datetime):
        return f"TIMESTAMP '{found:%Y-%m-%d %H:%M:%S.%f}Z'" if found.tzinfo else f"TIMESTAMP_NTZ '{found}'"
    if isinstance(found, dt.date):
        return f"DATE '{found.isoformat()}'"
    if isinstance(found, str):
        return "'" + found.replace("\\", "\\\\").replace("'", "\\'") + "'"
    name = _SPARK_TYPES.get(kind) or f"DECIMAL({kind.precision}, {kind.scale})"
    return f"CAST('{found}' AS {name})"


def pyiceberg_literal(found: Any) -> Any:
    """A value as PyIceberg's expressions take it."""
    if isinstance(found, dt.date):  # A datetime is one, too.
        return found.isoformat()
    return found
