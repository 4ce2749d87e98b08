"""Texts of partition values, each spelling that a cast of Spark knows and those right beside it."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import polars as pl
import pytest

from pydelta.errors import InvalidArgumentError, LogCorruptedError, SchemaError
from pydelta.protocol.partitions import names_zone, parse_partition_value, typed_frame, zone_of
from pydelta.protocol.schema import ArrayType, StructField, StructType
from pydelta.protocol.types import parse_type

TRIMMED = ["\0", "\x01", "\t", "\n", "\x1f", " "]
KEPT = ["~", "!", "\x80", "\xa0", "\u2003", "_"]
VALUES = [
    ("boolean", "yes", True),
    ("integer", "7", 7),
    ("double", "1.5", 1.5),
    ("double", "NaN", math.nan),
    ("decimal(5,1)", "1.5", Decimal("1.5")),
    ("date", "2024-01-05", dt.date(2024, 1, 5)),
    ("timestamp_ntz", "2024-01-05 01:02", dt.datetime(2024, 1, 5, 1, 2)),
]


def parsed(kind, text, **how):
    return parse_partition_value(text, parse_type(kind), **how)


def is_refused(kind, text):
    try:
        parsed(kind, text)
    except LogCorruptedError:
        return True
    return False


@pytest.mark.parametrize(("kind", "text", "value"), VALUES, ids=[f"{kind} {text}" for kind, text, _ in VALUES])
def test_what_spark_trims_is_trimmed_and_nothing_else(kind, text, value):
    delete, by_java = "\x7f", kind in ("double", "decimal(5,1)")
    assert is_refused(kind, text + delete) == by_java
    for space in TRIMMED if by_java else [*TRIMMED, delete]:
        for spelt in (space + text, text + space, space * 2 + text + space):
            found = parsed(kind, spelt)
            assert found == value or (math.isnan(value) and math.isnan(found)), repr(spelt)
    assert [item for item in KEPT if not is_refused(kind, item + text)] == []
    assert [item for item in KEPT if not is_refused(kind, text + item)] == []


def test_the_words_for_true_and_false():
    words = {True: ["t", "true", "y", "yes", "1"], False: ["f", "false", "n", "no", "0"]}
    for value, spelt in words.items():
        for word in spelt:
            assert [parsed("boolean", text) for text in (word, word.upper(), word.title())] == [value] * 3
    assert all(is_refused("boolean", text) for text in ("on", "off", "tr", "ye", "2", "00", "-1", "truetrue", "nö"))


def test_the_words_for_what_is_no_finite_number():
    for sign in ("", "+", "-"):
        for word in ("inf", "Inf", "INFINITY", "Infinity", "infinity"):
            assert parsed("double", sign + word) == (-math.inf if sign == "-" else math.inf)
    assert all(
        math.isnan(parsed(kind, text)) for kind in ("float", "double") for text in ("nan", "NaN", "NAN", "+NaN", "-NaN")
    )
    assert all(
        is_refused("double", text) for text in ("+nan", "-NAN", "~NaN", "infin", "--inf", "+-inf", "infinite", "∞")
    )


@pytest.mark.parametrize("ending", ["", "f", "F", "d", "D"])
@pytest.mark.parametrize(
    ("text", "value"), [("1.5", 1.5), ("-.5", -0.5), ("+7.", 7.0), ("12e3", 12_000.0), ("1.E-2", 0.01)]
)
def test_the_spellings_of_a_float(text, value, ending):
    assert parsed("double", text + ending) == value


def test_what_is_no_float():
    assert all(
        is_refused("double", text) for text in (".", "", "1.5l", "1.5ff", "e5", "1e", "0x10", "1_0", "1 0") if text
    )


@pytest.mark.parametrize("text", ["1.5x", "1.5 x", "x1.5", ".", "e1", "1e", "0x1", "1_0", "Infinity", "١", "1.5f"])
def test_what_is_no_decimal(text):
    assert is_refused("decimal(5,1)", text)


def test_parts_of_a_date_that_are_left_out_are_the_first_ones():
    days = {
        "2024": (1, 1),
        "2024-03": (3, 1),
        "2024-3-7": (3, 7),
        "+2024-12-31T": (12, 31),
        "2024-12-31 x\ny": (12, 31),
    }
    for text, (month, day) in days.items():
        assert parsed("date", text) == dt.date(2024, month, day), text
        if "x" not in text and "T" not in text:
            assert parsed("timestamp_ntz", text) == dt.datetime(2024, month, day), text
    damaged = (
        "2024-",
        "2024-1-",
        "2024-00-01",
        "2024-01-00",
        "2024-0",
        "24-01-01",
        "2024/01/01",
        "2024-01-01x",
        "20240101",
    )
    assert [text for text in damaged if not is_refused("date", text)] == []
    assert is_refused("date", "2024-01-01\n2024") is True  # the whole text is looked at, not its first line


ZONES = {
    "Z": 0, "UTC": 0, "GMT": 0, "UT": 0, " Z": 0, " UTC": 0, "  Z\t": 0, "+0": 0, "+00": 0, "-00:00": 0, "+1": 3600,
    "+01": 3600, "-01": -3600, "+0130": 5400, "+01:30": 5400, "+1:30": 5400, "-1:5": -3900, "+01:5": 3900,
    "UTC+1": 3600, "UT-02": -7200, "GMT+0130": 5400, " -09:45": -35_100, "+05:59": 21_540, "+17:59": 64_740,
    "+18:00": 64_800, "-18": -64_800, "+1800": 64_800, "-17:01": -61_260, "+01:02:03": 3723, "-1:02:03": -3723,
    "+010203": 3723, "+17:59:59": 64_799, "+00:00:59": 59, "+00:59:00": 3540,
}  # fmt: skip


def test_a_time_with_a_zone_is_in_that_zone_whatever_the_session_s_is():
    for zone, seconds in ZONES.items():
        text = f"2024-07-01 12:30:15.25{zone}"
        expected = dt.datetime(2024, 7, 1, 12, 30, 15, 250_000, tzinfo=dt.UTC) - dt.timedelta(seconds=seconds)
        assert parsed("timestamp", text, time_zone="Asia/Tokyo") == expected, text
        assert names_zone(f" {text}\n"), text


NO_ZONES = [
    "+18:01", "-18:01", "+1801", "+19", "-19:00", "+18:00:01", "+00:60", "+01:99", "+00:00:60", "+000060", "+130",
    "+13000", "+1:5:10", "+01:02:3", "~01", "z", "utc", "Zx", "ZZ", "UTCZ", "+", "UTC+", "++1", "+1~", "~+1", "+01:",
    "Europe/Paris",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
@pytest.mark.parametrize("zone", NO_ZONES)
def test_what_is_no_offset_is_no_time(zone, kind):
    assert is_refused(kind, f"2024-07-01 12:30:15{zone}")
    assert names_zone(f"2024-07-01 12:30:15{zone}") is False


@pytest.mark.parametrize(
    "text", ["2024-07-01", "2024-07-01 12:30", "2024-07-01 12:30:15", "2024-07-01 12:30:15.123456789", "nonsense", ""]
)
def test_what_has_no_zone_names_none(text):
    assert not names_zone(text)


@pytest.mark.parametrize("text", ["2024-07-01 12:30:15Z and more", "x2024-07-01 12:30:15Z", "2024-07-01Z"])
def test_what_is_no_time_names_no_zone(text):
    assert not names_zone(text)


@pytest.mark.parametrize("name", ["", "/etc/localtime", "../UTC", "Europe/../UTC", "Europe/Berlin\n", "a\0b", "UTC/"])
def test_a_name_of_a_file_is_no_zone(name):
    with pytest.raises(InvalidArgumentError, match="no time zone"):
        zone_of(name)


def test_a_zone_beyond_a_day_is_none():
    for name in ("+24:00", "-24:00", "+99:00", "GMT+24"):
        with pytest.raises(InvalidArgumentError, match="no time zone"):
            zone_of(name)
    assert zone_of("UTC+18:00").utcoffset(None) == dt.timedelta(hours=18)


def test_the_error_names_the_type_and_the_value():
    with pytest.raises(SchemaError, match="array<long>") as refused:
        parse_partition_value("[1]", ArrayType(parse_type("long")))
    assert refused.value.condition is not None
    assert (refused.value.condition.name, refused.value.condition.parameters) == (
        "INVALID_PARTITION_COLUMN_DATA_TYPE", {"type": "array<long>"},
    )  # fmt: skip


def test_of_texts_that_are_no_values_the_first_is_named():
    texts = ["7", *(f"x{number * 7919 % 3000}" for number in range(1, 3000))]
    with pytest.raises(LogCorruptedError, match="'x1919'"):
        typed_frame(pl.DataFrame({"p": texts}), StructType((StructField("p", parse_type("integer")),)))


def test_a_column_keeps_the_order_of_its_texts():
    texts = [str(number % 700) for number in range(5_000, 0, -1)]
    schema = StructType((StructField("p", parse_type("integer")),))
    typed = typed_frame(pl.DataFrame({"p": texts}), schema)["p"]
    assert typed.to_list() == [int(text) for text in texts]
