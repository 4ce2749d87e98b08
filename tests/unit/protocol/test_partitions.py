"""Partition values: what the log's text means, and what is no value of its type."""

from __future__ import annotations

import datetime as dt
import time
from decimal import Decimal

import polars as pl
import pytest

from pydelta.errors import InvalidArgumentError, LogCorruptedError, SchemaError
from pydelta.protocol.partitions import (
    hive_escape,
    hive_unescape,
    parse_partition_value,
    partition_dir,
    serialize_partition_value,
    typed_frame,
    zone_of,
)
from pydelta.protocol.schema import ArrayType, DecimalType, PrimitiveType, StructField, StructType
from pydelta.protocol.types import parse_type

_FINE = "12345678901234567890.123456789012345678"


def column(kind, *texts, **how):
    frame = pl.DataFrame({"p": texts}, schema={"p": pl.String})
    return typed_frame(frame, StructType((StructField("p", parse_type(kind)),)), **how)["p"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("byte", "300"), ("byte", "-129"), ("short", "40000"), ("integer", "2147483648"),
        ("long", "9223372036854775808"), ("integer", "1_000"), ("integer", "\u0663"), ("integer", "1.0"),
        ("decimal(5,1)", "1.25"), ("decimal(5,1)", "10000"), ("decimal(5,1)", "NaN"), ("decimal(5,1)", "x"),
        ("boolean", "yes!"), ("date", "2024-13-01"), ("date", "yesterday"), ("timestamp", "noon"),
        ("timestamp_ntz", "2024-01-01 25:00:00"), ("double", "one"), ("byte", "128"), ("short", "32768"),
        ("short", "-32769"), ("integer", "-2147483649"), ("decimal(5,1)", "Infinity"), ("float", "1,5"),
        ("timestamp", "2024-01-01 12:00:00 or so"), ("timestamp", "2024-01-01 12:00:00.12.3"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_value_of_its_type_is_a_damaged_log_and_never_null(kind, text):
    with pytest.raises(LogCorruptedError, match=kind.split("(")[0]):
        parse_partition_value(text, parse_type(kind))
    with pytest.raises(LogCorruptedError):
        column(kind, "1" if kind in ("byte", "long") else None, text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("byte", "-128", -128), ("byte", "127", 127), ("short", "-32768", -32768), ("short", "32767", 32767),
        ("integer", "-2147483648", -(2**31)), ("integer", "2147483647", 2**31 - 1), ("long", str(-(2**63)), -(2**63)),
        ("float", "0.1", 0.10000000149011612), ("float", "-Infinity", float("-inf")), ("boolean", "false", False),
        ("decimal(5,1)", "0010.50", Decimal("10.5")), ("date", "2024-01-05T00:00:00", dt.date(2024, 1, 5)),
        ("timestamp_ntz", "2024-01-05", dt.datetime(2024, 1, 5)),
        ("timestamp_ntz", " 2024-01-05 01:02 ", dt.datetime(2024, 1, 5, 1, 2)),
        ("timestamp_ntz", "2024-01-05T01:02:03+05:00", dt.datetime(2024, 1, 5, 1, 2, 3)),
        ("timestamp_ntz", "2024-01-05 01:02:03.123456789", dt.datetime(2024, 1, 5, 1, 2, 3, 123_456)),
        ("long", "9223372036854775807", 2**63 - 1), ("integer", " 7 ", 7), ("integer", "+7", 7),
        ("decimal(5,1)", "1.500", Decimal("1.5")), ("decimal(5,1)", "9999.9", Decimal("9999.9")),
        ("decimal(5,1)", "0.000", Decimal(0)), ("decimal(3,0)", "1E+2", Decimal(100)),
        ("decimal(38,18)", _FINE, Decimal(_FINE)),
        ("boolean", "TRUE", True), ("double", "1.0E10", 1e10), ("double", "-Infinity", float("-inf")),
        ("date", "2024-1-5", dt.date(2024, 1, 5)), ("date", "2024-01-05 00:00:00", dt.date(2024, 1, 5)),
        ("timestamp_ntz", "2024-01-05 01:02:03.4", dt.datetime(2024, 1, 5, 1, 2, 3, 400_000)),
        ("timestamp_ntz", "2024-01-05T01:02:03", dt.datetime(2024, 1, 5, 1, 2, 3)),
        ("string", " a ", " a "), ("binary", "\u0001\u0002", b"\x01\x02"), ("binary", "\u00e9", b"\xc3\xa9"),
        ("binary", "\U0001f608", b"\xf0\x9f\x98\x88"),
    ],
)  # fmt: skip
def test_a_text_and_its_value_alone_and_in_a_column(kind, text, value):
    alone = parse_partition_value(text, parse_type(kind))
    assert alone == (float(text) if kind == "float" else value)  # Python's floats are doubles
    assert column(kind, text, None, text, "").to_list() == [value, None, value, None]


@pytest.mark.parametrize(
    ("text", "zone", "hour"),
    [
        ("2024-07-01 12:00:00", "UTC", 12), ("2024-07-01 12:00:00", "America/New_York", 16),
        ("2024-07-01 12:00:00", "+02:00", 10), ("2024-07-01 12:00:00", "GMT-3", 15),
        ("2024-07-01T12:00:00Z", "America/New_York", 12), ("2024-07-01T12:00:00.000000Z", "Asia/Tokyo", 12),
        ("2024-07-01T12:00:00+05:00", "America/New_York", 7), ("2024-07-01 12:00", "UTC", 12),
        ("2024-07-01T12:00:00-0300", "America/New_York", 15), ("2024-07-01", "+01:00", -1), ("2024-07-01", "Z", 0),
        ("2024-07-01 12:00:00", "Etc/UTC", 12), ("2024-07-01 12:00:00", "GMT", 12),
        ("2024-07-01 12:30:00", "+05:30", 7), ("2024-07-01 12:30:00", "UTC-0930", 22),
    ],
)  # fmt: skip
def test_a_time_without_a_zone_is_in_the_zone_given(text, zone, hour):
    moment = dt.datetime(2024, 7, 1, tzinfo=dt.UTC) + dt.timedelta(hours=hour)
    alone = parse_partition_value(text, PrimitiveType("timestamp"), time_zone=zone)
    assert (alone, alone.tzinfo) == (moment, dt.UTC)
    assert column("timestamp", text, time_zone=zone).to_list() == [moment]


def test_the_hour_that_the_clocks_leave_out_is_the_one_after():
    skipped = parse_partition_value("2024-03-10 02:30:00", PrimitiveType("timestamp"), time_zone="America/New_York")
    assert skipped == dt.datetime(2024, 3, 10, 7, 30, tzinfo=dt.UTC)


def test_a_zone_that_there_is_not_is_named():
    with pytest.raises(InvalidArgumentError, match="Middle/Earth"):
        parse_partition_value("2024-01-01 00:00:00", PrimitiveType("timestamp"), time_zone="Middle/Earth")


@pytest.mark.parametrize("name", ["Middle/Earth", "+02:00 or so", "2", "Z~"])
def test_what_only_begins_as_a_zone_is_none(name):
    with pytest.raises(InvalidArgumentError, match="no time zone"):
        zone_of(name)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("decimal(5,2)", Decimal("1.50"), "1.50"), ("decimal(8,0)", Decimal("1E+5"), "100000"),
        ("boolean", True, "true"), ("float", 1.5, "1.5"), ("float", float("nan"), "NaN"),
        ("float", float("inf"), "Infinity"), ("double", 1e300, "1e+300"), ("double", -0.0, "-0.0"),
        ("long", None, None), ("decimal(5,2)", None, None), ("timestamp", None, None), ("binary", None, None),
        ("timestamp", dt.datetime(33, 4, 3, tzinfo=dt.UTC), "0033-04-03T00:00:00.000000Z"),
        ("timestamp_ntz", dt.datetime(33, 4, 3, 1), "0033-04-03 01:00:00"),
        ("timestamp_ntz", dt.datetime(2024, 1, 1, 10, 20, 30, 500_000), "2024-01-01 10:20:30.5"),
        ("timestamp", dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2))),
         "2024-01-01T10:00:00.000000Z"),
        ("timestamp_ntz", dt.datetime(2024, 1, 1, 12), "2024-01-01 12:00:00"),
        ("timestamp_ntz", dt.datetime(1, 1, 1, 0, 0, 0, 120), "0001-01-01 00:00:00.00012"),
        ("date", dt.date(33, 4, 3), "0033-04-03"), ("boolean", False, "false"), ("double", float("nan"), "NaN"),
        ("double", float("-inf"), "-Infinity"), ("binary", b"", None), ("binary", b"\xc3\xa9", "\u00e9"),
        ("string", "", None), ("byte", -1, "-1"),
    ],
)  # fmt: skip
def test_a_value_has_one_text(kind, value, text):
    assert serialize_partition_value(value, parse_type(kind)) == text


def test_a_time_without_a_zone_is_written_as_utc_wherever_this_runs(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        written = serialize_partition_value(dt.datetime(2024, 1, 1, 12), PrimitiveType("timestamp"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert written == "2024-01-01T12:00:00.000000Z"


def test_what_has_no_text_is_refused_and_not_written_as_something_else():
    with pytest.raises(InvalidArgumentError, match="X'FFFE' is not UTF-8"):
        serialize_partition_value(b"\xff\xfe", PrimitiveType("binary"))
    for refuse in (serialize_partition_value, parse_partition_value):
        with pytest.raises(SchemaError, match="array<long>"):
            refuse("[1]", ArrayType(PrimitiveType("long")))


def test_a_directory_name_escapes_names_and_values_and_names_null():
    assert partition_dir({"a/b": "x=y", "n": None, "e": ""}) == (
        "a%2Fb=x%3Dy/n=__HIVE_DEFAULT_PARTITION__/e=__HIVE_DEFAULT_PARTITION__"
    )
    assert hive_escape("a b\u00e9{}") == "a b\u00e9%7B}"
    assert hive_unescape("100%zz%2") == "100%zz%2"
    assert hive_unescape("a%2Fb%3dc%25%00") == "a/b=c%\0"


def test_the_characters_of_a_directory_name_that_are_escaped_are_those_that_hive_escapes():
    escaped = [code for code in range(0x180) if hive_escape(chr(code)) != chr(code)]
    marks = [0x22, 0x23, 0x25, 0x27, 0x2A, 0x2F, 0x3A, 0x3D, 0x3F, 0x5B, 0x5C, 0x5D, 0x5E, 0x7B, 0x7F]
    assert escaped == [*range(0x20), *marks]
    assert [hive_escape(chr(code)) for code in escaped] == [f"%{code:02X}" for code in escaped]


def test_a_frame_without_rows_or_partition_columns_keeps_its_shape():
    empty = column("decimal(5,1)")
    assert (len(empty), empty.dtype) == (0, pl.Decimal(5, 1))
    assert typed_frame(pl.DataFrame({"x": ["1"]}), StructType(())).shape == (0, 0)
    mixed = pl.DataFrame({"a": ["x", "", None], "b": ["1", None, "1"], "c": ["y", "y", "z"]})
    kinds = {"a": "string", "b": "long", "c": "string"}
    typed = typed_frame(mixed, StructType(tuple(StructField(name, parse_type(kind)) for name, kind in kinds.items())))
    assert typed.to_dict(as_series=False) == {"a": ["x", None, None], "b": [1, None, 1], "c": ["y", "y", "z"]}
    assert DecimalType(5, 1) == parse_type("decimal(5,1)")
