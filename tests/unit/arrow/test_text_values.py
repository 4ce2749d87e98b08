"""Texts become values of a table's types exactly, or not at all; beside the parsers of Python's standard library."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydelta.engines.arrow.tasks.text_values import TextRules, typed_array
from pydelta.protocol.types import DecimalType, PrimitiveType

SCALES = st.integers(1, 38).flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))
DIGITS = st.text("0123456789", max_size=40)
NUMBERS = st.builds(
    "{}{}{}{}{}".format, st.sampled_from(["", "+", "-"]), DIGITS, st.sampled_from(["", "."]), DIGITS,
    st.sampled_from(["", "e2", "E-3", "e+40", "e", "e-41", "_1", " "]),
)  # fmt: skip
PLACES = st.builds("{:02d}".format, st.integers(0, 61))
TIMES = st.builds(
    "{}-{}-{}{}{}:{}:{}{}{}".format, st.sampled_from(["2024", "0001", "9999", "24"]), PLACES, PLACES,
    st.sampled_from(["T", " ", "t"]), PLACES, PLACES, PLACES, st.sampled_from(["", ".5", ".123456", ".1234567", "."]),
    st.sampled_from(["", "Z", "+01:00", "-0530", "+19:00", " Z"]),
)  # fmt: skip


def values(texts, name, **rules):
    data_type = PrimitiveType(name) if isinstance(name, str) else name
    problems = []
    array = typed_array(pa.array(texts, pa.string()), data_type, "c", problems, TextRules(**rules))
    found = array.to_pylist()
    assert [problem.row for problem in problems] == [
        place
        for place, (text, value) in enumerate(zip(texts, found, strict=True))
        if text is not None and value is None
    ]
    return found


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("long", {"9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63), "+7": 7, "-007": -7, "-0": 0},
         ["9223372036854775808", "1_000", "1.0", "1e3", "", " 1", "1 ", "٣", "0x1", "--1"]),
        ("byte", {"127": 127, "-128": -128}, ["128", "-129"]),
        ("boolean", {"true": True, "FALSE": False}, ["1", "t", "yes", ""]),
        ("date", {"2024-02-29": dt.date(2024, 2, 29), "0001-01-01": dt.date(1, 1, 1), "9999-12-31": dt.date.max},
         ["2023-02-29", "01/05/2024", "2024-1-5", "0000-01-01", "10000-01-01", "2024-01-05T00:00", "2_024-01-05"]),
        ("double", {"1.5": 1.5, "-.5": -0.5, "1.": 1.0, "1e-3": 0.001, "Infinity": np.inf, "-Inf": -np.inf},
         ["1e400", "nan", "inf", "0x10", "1d", "1_0", "1,5", ""]),
        ("float", {"0.1": float(np.float32("0.1")), "16777216": 16777216.0}, ["3.5e38"]),
        ("timestamp_ntz", {"2024-01-01 10:30": dt.datetime(2024, 1, 1, 10, 30)},
         ["2024-01-01T10:30:00Z", "2024-01-01"]),
        ("string", {"00123": "00123", "": ""}, []),
    ],
)  # fmt: skip
def test_a_text_is_a_value_or_is_refused(name, taken, refused):
    assert values([*taken, None, *refused], name) == [*taken.values(), None, *[None] * len(refused)]


def test_binary_is_base64_or_the_text_itself():
    assert values(["YQ==", "YQ", "é"], "binary", base64=True) == [b"a", None, None]
    assert values(["YQ==", "é"], "binary") == [b"YQ==", "é".encode()]


def test_a_time_without_a_zone_is_refused_unless_a_zone_is_given():
    times = ["2024-03-31T02:30:00", "2024-10-27 02:30:00", "2024-07-01T00:00:00Z"]
    utc = [dt.datetime(2024, 3, 31, 1, 30), dt.datetime(2024, 10, 27, 0, 30), dt.datetime(2024, 7, 1)]
    utc = [time.replace(tzinfo=dt.UTC) for time in utc]
    assert values(times, "timestamp") == [None, None, utc[2]]
    assert values(times, "timestamp", zone="Europe/Berlin") == utc
    assert values(times[1:2], "timestamp", zone="+02:00") == utc[1:2]


def expected_decimal(text, precision, scale):
    if text.strip() != text or "_" in text or not any(char.isdigit() for char in text):
        return None
    with localcontext() as context:
        context.prec = 1000
        try:
            exact = Fraction(Decimal(text))
        except ArithmeticError:
            return None
    shifted = exact * 10**scale
    return exact if shifted.denominator == 1 and abs(shifted) < 10**precision else None


@given(st.lists(NUMBERS, min_size=1, max_size=20), SCALES)
def test_a_decimal_is_what_the_text_says_or_refused(texts, size):
    found = values(texts, DecimalType(*size))
    assert [None if value is None else Fraction(value) for value in found] == [
        expected_decimal(text, *size) for text in texts
    ]


def expected_time(text):
    tail = re.fullmatch(r"(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:?[0-9]{2})", text[19:])
    if tail is None or text.endswith("19:00") or text[4] != "-" or text[10] not in "T ":
        return None
    try:
        time = dt.datetime.fromisoformat(text.replace(" ", "T"))
        return None if time.tzinfo is None else (time.replace(tzinfo=None), time.utcoffset())
    except ValueError:
        return None


@given(st.lists(TIMES, min_size=1, max_size=20))
def test_a_time_is_what_the_text_says_or_refused(texts):
    problems = []
    found = typed_array(pa.array(texts), PrimitiveType("timestamp"), "c", problems, TextRules()).cast(pa.int64())
    epoch = dt.datetime(1970, 1, 1)
    wanted = [expected_time(text) for text in texts]
    assert found.to_pylist() == [
        None if time is None else (time[0] - epoch - time[1]) // dt.timedelta(microseconds=1) for time in wanted
    ]
