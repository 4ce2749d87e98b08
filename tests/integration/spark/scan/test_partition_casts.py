"""Texts of partition values mean what Spark's casts make of them, over texts that nobody chose."""

from __future__ import annotations

import datetime as dt
import math
import random

import pyarrow as pa
import pytest

from pydelta.errors import LogCorruptedError
from pydelta.protocol.partitions import parse_partition_value
from pydelta.protocol.types import parse_type

pytestmark = pytest.mark.spark

ZONE = "America/New_York"
PARTS = {
    "boolean": ["t", "TRUE", "y", "Yes", "1", "f", "false", "n", "NO", "0", "on", "2"],
    "tinyint": ["1", "127", "128", "-128", "-129", "007", "1.0", "1e1", "0x1"],
    "bigint": ["9223372036854775807", "9223372036854775808", "-9223372036854775808", "12", "1L", "\u0663", "1_0"],
    "double": ["1", ".5", "5.", "1e3", "1E-2", "inf", "Infinity", "nan", "NaN", "f", "D", "L", "."],
    "decimal(5,1)": ["1.5", "9999.9", "10000", "1e2", "1E-1", "0.0", "5f", ".", "NaN"],
    "date": ["2024", "-01", "-1", "-3", "-31", "-02-30", "2023-02-29", "T", " x", "10000-01-01", "/", "0001-01-01"],
    "timestamp": [
        "2024-07-01",
        "2024-3-1",
        " ",
        "T",
        "12",
        ":30",
        ":5",
        ":15",
        ".25",
        ".123456789",
        "Z",
        " UTC",
        "+01",
    ],
}
BESIDE = ["+", "-", " ", "\t", "\x7f", "\x1f", "\xa0", "~", "x", "0", "9", ":", ".", "\n"]
DAYS = [(dt.date(1, 1, 2) - dt.date(1970, 1, 1)).days, (dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days]
BEYOND = {"date": DAYS, **{kind: [day * 86_400_000_000 for day in DAYS] for kind in ("timestamp", "timestamp_ntz")}}
PARTS["timestamp_ntz"] = PARTS["timestamp"]
WHITE = "".join(map(chr, range(33)))
MORE_ZONES = [
    "GMT",
    " UT",
    "-1:5",
    "+01:5",
    "+130",
    "-12345",
    "UTC+1",
    "+01:30",
    "-0930",
    "+18:00",
    "+18:01",
    "+1",
    "+00:60",
    "-19",
    " Z",
    "z",
]


def text_of(rng, kind):
    parts = PARTS[kind]
    if "timestamp" in kind:
        date, time = (
            rng.choice(parts[:2]),
            rng.choice(
                ["12:30", "1:5", "12:30:15", "12:30:15.25", "00:00:60", "24:00", "7", "1:2:3.", "1:2:3.12345678901"]
            ),
        )
        zone = rng.choice(["", "", *MORE_ZONES, *parts[-3:]])
        text = rng.choice(
            [f"{date}{rng.choice(' T')}{time}{zone}", date, "".join(rng.choices(parts, k=rng.randint(1, 5)))]
        )
    else:
        text = "".join(rng.choices(parts, k=rng.choice([1, 1, 1, 2, 3])))
    for _ in range(rng.choice([0, 0, 1, 2])):
        place = rng.choice([0, len(text), rng.randint(0, len(text))])
        text = text[:place] + rng.choice(BESIDE) + text[place:]
    return text


def here(text, kind):
    try:
        return parse_partition_value(text, parse_type(kind), time_zone=ZONE)
    except LogCorruptedError:
        return None


def number(value):
    """Return a day or a time as Arrow's number, and any other value unchanged."""
    if isinstance(value, dt.datetime):
        return (value - dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)) // dt.timedelta(microseconds=1)
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value


def same(ours, theirs):
    both_nan = isinstance(theirs, float) and math.isnan(theirs) and math.isnan(ours)
    return both_nan or number(ours) == theirs


def numbers(values):
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).to_pylist()
    return (values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_pylist()


@pytest.mark.parametrize("kind", PARTS)
def test_a_text_is_the_value_that_spark_casts_it_to_or_is_refused(spark, kind):
    rng = random.Random(f"casts {kind}")
    texts = sorted({text_of(rng, kind) for _ in range(4_000)})
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    try:
        frame = spark.createDataFrame([(text,) for text in texts], "text STRING")
        table = frame.selectExpr("text", f"try_cast(text AS {kind}) AS value").toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    cast = dict(zip(table["text"].to_pylist(), numbers(table["value"]), strict=True))
    found = {text: here(text, kind) for text in texts}
    wrong = [text for text in texts if found[text] is not None and not same(found[text], cast[text])]
    assert wrong == []
    refused = [text for text in texts if found[text] is None and cast[text] is not None]
    if kind == "decimal(5,1)":  # A value that the type would round is refused on purpose.
        refused = [text for text in refused if text.strip().rstrip("0") == str(cast[text])]
    if "timestamp" in kind:  # A time of the day of the cast is no value that a table keeps.
        refused = [text for text in refused if text.strip("\x7f" + WHITE)[:4].isdigit()]
    if kind in BEYOND:  # Python knows the years 1 to 9999.
        refused = [text for text in refused if BEYOND[kind][0] <= cast[text] < BEYOND[kind][1]]
    assert refused == []
    assert len([text for text in texts if found[text] is not None]) > 5
