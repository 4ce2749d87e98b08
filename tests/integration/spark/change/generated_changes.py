"""Generate rows of every simple type with the values that go wrong, and conditions over them, as SQL."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Asia/Kathmandu", "Pacific/Apia")
EPOCH = dt.datetime(1970, 1, 1)
INSTANTS = [
    "0001-01-01 00:00:00", "0001-01-02 03:04:05.678901", "1582-10-04 12:00:00", "1582-10-10 12:00:00",
    "1582-10-15 00:00:00", "1883-11-18 17:00:00", "1899-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999",
    "1970-01-01 00:00:00", "2024-03-31 01:30:00", "2024-11-03 05:30:00", "9999-12-31 11:59:59.999999",
]  # fmt: skip
DAYS = ["0001-01-01", "1582-10-04", "1582-10-10", "1582-10-15", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31"]
TEXTS = ["", " ", "a", "A", "ab", "b", "é", "e\u0301", "ß", "\uffff", "\U0001f600", "\U00010000", "a%b", "null", "NaN"]
BYTES = [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00", b"ab"]
FLOATS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, -1.5, 1e-30]
DOUBLES = [*FLOATS, 0.1, 1.7976931348623157e308, 5e-324, 9007199254740993.0]
MONEY = ["0.00", "0.01", "-0.01", "99999999.99", "-99999999.99", "1.50"]
WIDE = ["0", "1", "-1", "9" * 38, "-" + "9" * 38]


def _days(text):
    return (dt.date.fromisoformat(text) - EPOCH.date()).days


def _micros(text):
    return (dt.datetime.fromisoformat(text) - EPOCH) // dt.timedelta(microseconds=1)


def _whole(bits):
    high = 1 << bits - 1
    return [0, 1, -1, 7, 10, high - 1, -high]


TYPES = {
    "ok": (pa.bool_(), [True, False], lambda v: str(v).lower()),
    "y": (pa.int8(), _whole(8), lambda v: f"CAST({v} AS TINYINT)"),
    "h": (pa.int16(), _whole(16), lambda v: f"CAST({v} AS SMALLINT)"),
    "i": (pa.int32(), _whole(32), str),
    "l": (pa.int64(), _whole(64), lambda v: f"CAST('{v}' AS BIGINT)"),
    "f": (pa.float32(), FLOATS, lambda v: f"CAST('{v!r}' AS FLOAT)"),
    "d": (pa.float64(), DOUBLES, lambda v: f"CAST('{v!r}' AS DOUBLE)"),
    "m": (pa.decimal128(10, 2), MONEY, lambda v: f"CAST('{v}' AS DECIMAL(10,2))"),
    "w": (pa.decimal128(38, 0), WIDE, lambda v: f"CAST('{v}' AS DECIMAL(38,0))"),
    "s": (pa.string(), TEXTS, lambda v: f"'{v}'"),
    "b": (pa.binary(), BYTES, lambda v: f"X'{v.hex()}'"),
    "day": (pa.date32(), DAYS, lambda v: f"DATE'{v}'"),
    "t": (pa.timestamp("us", "UTC"), INSTANTS, lambda v: f"TIMESTAMP'{v}Z'"),
    "n": (pa.timestamp("us"), INSTANTS, lambda v: f"TIMESTAMP_NTZ'{v}'"),
}
"""Column -> its type in Arrow, its values, and how one is written in SQL."""

NUMBERS = ("y", "h", "i", "l", "f", "d", "m", "w")


def _stored(name, value):
    kind = TYPES[name][0]
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_date(kind):
        return _days(value)
    return _micros(value) if pa.types.is_timestamp(kind) else value


@st.composite
def tables(draw, *, rows=24, without=()):
    """An Arrow table: ``id``, a column of each type, a struct with a text and a number, and ``p`` to partition by."""
    names = [name for name in TYPES if name not in without]
    columns = {"id": pa.array(range(rows), pa.int64())}
    for name in names:
        kind, values, _ = TYPES[name]
        chosen = draw(st.lists(st.sampled_from([None, *values]), min_size=rows, max_size=rows))
        array = [_stored(name, value) for value in chosen]
        if pa.types.is_date(kind):
            columns[name] = pa.array(array, pa.int32()).cast(kind)
        elif pa.types.is_timestamp(kind):
            columns[name] = pa.array(array, pa.int64()).cast(kind)
        else:
            columns[name] = pa.array(array, kind)
    inner = st.one_of(
        st.none(),
        st.fixed_dictionaries({"a": st.sampled_from([None, *TEXTS]), "x": st.sampled_from([None, *DOUBLES])}),
    )
    structs = draw(st.lists(inner, min_size=rows, max_size=rows))
    columns["st"] = pa.array(structs, pa.struct([("a", pa.string()), ("x", pa.float64())]))
    parts = draw(st.lists(st.sampled_from([None, "u", "v w", "é/="]), min_size=rows, max_size=rows))
    columns["p"] = pa.array(parts, pa.string())
    return pa.table(columns)


def _literal(name):
    return st.sampled_from(TYPES[name][1]).map(TYPES[name][2])


def _compared(name):
    operators = st.sampled_from(["=", "<=>", "<", "<=", ">", ">=", "<>"])
    value = st.one_of(_literal(name), _literal(name), _literal(name), st.just("NULL"), st.just(name))
    plain = st.tuples(operators, value).map(lambda pair: f"{name} {pair[0]} {pair[1]}")
    flipped = st.tuples(operators, value).map(lambda pair: f"{pair[1]} {pair[0]} {name}")
    few = st.lists(st.one_of(_literal(name), st.just("NULL")), min_size=1, max_size=4)
    listed = st.tuples(st.sampled_from(["IN", "NOT IN"]), few).map(
        lambda pair: f"{name} {pair[0]} ({', '.join(pair[1])})"
    )
    many = st.just(f"{name} IN ({', '.join(TYPES[name][2](value) for value in TYPES[name][1] * 2)})")
    between = st.tuples(_literal(name), _literal(name)).map(lambda pair: f"{name} BETWEEN {pair[0]} AND {pair[1]}")
    null = st.sampled_from([f"{name} IS NULL", f"{name} IS NOT NULL"])
    filled = _literal(name).map(lambda value: f"coalesce({name}, {value}) = {value}")
    case = _literal(name).map(lambda value: f"CASE WHEN {name} < {value} THEN id > 3 WHEN ok THEN true END")
    return st.one_of(plain, flipped, listed, many, between, null, filled, case)


def _special(names):
    """Conditions of one type alone, and over several columns."""
    found = [
        "ok", "NOT ok", "isnan(d)", "isnan(f)", "NOT isnan(d)", "d = f", "f < d", "i = l", "y < h", "h >= l", "m < w",
        "m = i", "i % 10 = 3", "l % 7 = -1", "y % 2 = 1", "d * 2 > 1", "d + f < 0.5D", "-d = 0", "i < 1.5",
        "d / 2 = 0.25D",
        "l > 0.5", "f = 0.1", "d = 0.1", "m > 0.005", "y = 300", "l < 1e3",
        "s LIKE 'a%'", "s LIKE '%b'", "s LIKE '%a%'", "s LIKE 'a'", "s LIKE 'a_'", "s LIKE 'a%b'", "s NOT LIKE 'a%'",
        "startswith(s, 'a')", "endswith(s, 'b')", "contains(s, '\u0301')", "s || 'x' = 'ax'", "concat(s, p) = 'au'",
        "s < p", "p = 'u'", "p IS NULL OR id > 3", "p IN ('v w', 'é/=') AND d > 0", "p <=> s",
        "st.a = 'a'", "st.x > 0", "st.x IS NULL", "st.a LIKE 'é%'", "isnan(st.x)", "st IS NULL", "st.x = d",
        "upper(s) = 'A'", "length(s) > 1", "CAST(i AS STRING) = '7'", "year(day) = 1582", "CAST(t AS DATE) = day",
        "t < current_timestamp()", "day < current_date()", "n < localtimestamp()", "if(ok, id, -id) > 3",
        "t = '1970-01-01 00:00:00'", "day = '2024-02-29'", "t > DATE'1900-01-01'", "n = t", "s = 7", "b = 'ab'",
        "s = 'A' COLLATE UTF8_LCASE", "s COLLATE UNICODE_CI = 'a'", "s IN ('A' COLLATE UTF8_LCASE, 'b')",
        "id BETWEEN 3 AND 9", "id NOT BETWEEN 3 AND 9 AND d > 0", "d BETWEEN -1.5D AND f",
    ]  # fmt: skip
    gone = set(TYPES) - set(names)
    return [text for text in found if not ({"n"} & gone and ("n " in text or text.startswith("n")))]


def conditions(*, without=()):
    """Conditions over the columns of ``tables``; most of them are within what is computed exactly, some are not."""
    names = [name for name in TYPES if name not in without]
    atoms = st.one_of(*[_compared(name) for name in names], st.sampled_from(_special(names)))
    joined = st.tuples(atoms, st.sampled_from(["AND", "OR"]), atoms)
    both = joined.map(lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})")
    return st.one_of(atoms, atoms, both, both.map(lambda text: f"NOT ({text})"))
