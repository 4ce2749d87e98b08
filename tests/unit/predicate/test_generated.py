"""Conditions over partitions that follow from conditions over what these are computed from: never too narrow."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydelta.predicate import And, Column, Compare, In, IsNull, Literal, Or, TextTest, Unknown, partition_mask
from pydelta.predicate.generated import generated_partitions
from pydelta.protocol.schema import to_polars_dtype
from pydelta.protocol.types import PrimitiveType, StructField, StructType

ZONES = [ZoneInfo(name) for name in ("UTC", "Pacific/Kiritimati", "Etc/GMT+12", "Europe/Berlin")]


def table(base, *generated):
    """A schema with a column ``c`` and generated partition columns (type, expression) p0, p1 …"""
    fields = [
        StructField(f"p{number}", PrimitiveType(kind), True, {"delta.generationExpression": text})
        for number, (kind, text) in enumerate(generated)
    ]
    return StructType((StructField("c", PrimitiveType(base)), *fields))


def kept(schema, condition, *values):
    """Which of some partitions (rows of values) the derived conditions keep."""
    names = [field.name for field in schema.fields[1:]]
    derived = generated_partitions(schema, names).derive([condition] if not isinstance(condition, list) else condition)
    types = {field.name: to_polars_dtype(field.data_type) for field in schema.fields[1:]}
    frame = pl.DataFrame(list(values), schema=types, orient="row")
    mask = [True] * frame.height
    for expr in derived:
        found = partition_mask(expr, frame).fill_null(False).to_list()
        mask = [old and new for old, new in zip(mask, found, strict=True)]
    return mask


def compare(op, value):
    return Compare(op, Column(("C",)), Literal(value, "x"))


DAYS = [(dt.date(2024, 3, day),) for day in range(1, 8)]


@pytest.mark.parametrize("text", ["CAST(c AS DATE)", "cast( `c`  as date )", "to_date(c)", "DATE(C)"])
def test_a_day_of_a_time_without_zone_is_exact_and_one_of_an_instant_is_that_of_any_zone(text):
    noon = dt.datetime(2024, 3, 4, 12)
    plain = table("timestamp_ntz", ("date", text))
    assert kept(plain, compare(">=", noon), *DAYS) == [False] * 3 + [True] * 4
    assert kept(plain, compare("<", noon), *DAYS) == [True] * 4 + [False] * 3
    assert kept(plain, compare("=", noon), *DAYS) == [False] * 3 + [True] + [False] * 3
    instant = table("timestamp", ("date", text))
    at_noon = noon.replace(tzinfo=dt.UTC)
    assert kept(instant, compare("=", at_noon), *DAYS) == [False] * 2 + [True] * 3 + [False] * 2
    assert (
        kept(instant, [compare(">=", at_noon), compare("<", at_noon)], *DAYS) == [False] * 2 + [True] * 3 + [False] * 2
    )


def test_year_month_and_day_together():
    schema = table("date", ("integer", "YEAR(c)"), ("integer", "MONTH(c)"), ("long", "DAY(c)"))
    rows = [(2023, 12, 31), (2024, 1, 1), (2024, 3, 4), (2024, 3, 5), (2024, 3, 6), (2024, 4, 1), (2025, 1, 1)]
    day = dt.date(2024, 3, 5)
    assert kept(schema, compare(">", day), *rows) == [False, False, False, True, True, True, True]
    assert kept(schema, compare("<=", day), *rows) == [True, True, True, True, False, False, False]
    assert kept(schema, compare("=", day), *rows) == [False, False, False, True, False, False, False]
    either = Or(compare("=", day), compare("=", dt.date(2025, 1, 1)))
    assert kept(schema, either, *rows) == [False, False, False, True, False, False, True]
    listed = In(Column(("c",)), (day, dt.date(2023, 12, 31), None))
    assert kept(schema, listed, *rows) == [True, False, False, True, False, False, False]


def test_a_month_without_a_year_is_known_within_one_year():
    schema = table("date", ("integer", "month(c)"))
    rows = [(month,) for month in range(1, 13)]
    between = And(compare(">=", dt.date(2024, 3, 5)), compare("<", dt.date(2024, 5, 1)))
    assert kept(schema, [between.left, between.right], *rows) == [month in (3, 4, 5) for (month,) in rows]
    assert all(kept(schema, compare(">=", dt.date(2024, 3, 5)), *rows))
    far = [compare(">=", dt.date(2024, 3, 5)), compare("<", dt.date(2025, 3, 1))]
    assert all(kept(schema, far, *rows))


@pytest.mark.parametrize(
    ("form", "values", "expected"),
    [
        ("yyyy", ["2023", "2024", "2025"], [False, True, True]),
        ("yyyy-MM", ["2024-02", "2024-03", "2024-04"], [False, True, True]),
        ("yyyyMMdd", ["20240304", "20240305", "20250101"], [False, True, True]),
        ("yyyy-MM-dd-HH", ["2024-03-05-09", "2024-03-05-10", "+10000-01-01-00"], [False, True, True]),
        ("dd.MM.yyyy", ["04.03.2024", "05.03.2024"], [True, True]),
    ],
)
def test_formatted_times(form, values, expected):
    schema = table("timestamp_ntz", ("string", f"date_format(c, '{form}')"))
    moment = dt.datetime(2024, 3, 5, 10, 30)
    assert kept(schema, compare(">=", moment), *[(value,) for value in values]) == expected


def test_truncated_times():
    months = table("date", ("date", "trunc(c, 'MM')"))
    rows = [(dt.date(2024, month, 1),) for month in (2, 3, 4)]
    assert kept(months, compare(">=", dt.date(2024, 3, 5)), *rows) == [False, True, True]
    hours = table("timestamp", ("timestamp", "date_trunc('HOUR', c)"))
    rows = [(dt.datetime(2024, 3, day, tzinfo=dt.UTC),) for day in (1, 5, 9)]
    assert kept(hours, compare("=", dt.datetime(2024, 3, 5, 3, tzinfo=dt.UTC)), *rows) == [False, True, False]


def test_prefixes_of_texts_and_the_column_itself():
    schema = table("string", ("string", "substring(c, 1, 2)"))
    rows = [("aa",), ("ab",), ("ac",), ("b",), (None,)]
    assert kept(schema, compare("=", "abc"), *rows) == [False, True, False, False, True]
    assert kept(schema, compare(">", "ab"), *rows) == [False, True, True, True, True]
    assert kept(schema, TextTest("starts", Column(("c",)), "abc"), *rows) == [False, True, False, False, True]
    assert kept(schema, TextTest("starts", Column(("c",)), "a"), *rows) == [True, True, True, False, True]
    assert kept(schema, IsNull(Column(("c",))), *rows) == [False] * 4 + [True]
    same = table("integer", ("integer", "c"))
    assert kept(same, compare("<", 3), (1,), (3,), (5,), (None,)) == [True, True, False, True]


@pytest.mark.parametrize(
    ("base", "kind", "text"),
    [
        ("string", "date", "CAST(c AS DATE)"),
        ("timestamp", "string", "CAST(c AS DATE)"),
        ("date", "integer", "month(c) + 1"),
        ("date", "integer", "year(missing)"),
        ("double", "double", "c"),
        ("date", "integer", "hour(c)"),
        ("string", "string", "substring(c, 2, 2)"),
    ],
)
def test_nothing_follows_from_an_expression_that_is_not_understood(base, kind, text):
    assert not generated_partitions(table(base, (kind, text)), ["p0"]).rules


def test_nothing_follows_from_conditions_that_say_nothing():
    found = generated_partitions(table("date", ("integer", "year(c)")), ["p0"])
    other = compare("=", dt.datetime(2024, 1, 1))
    mixed = Or(compare("=", dt.date(2024, 1, 1)), Unknown("f(c)"))
    for condition in (other, mixed, Unknown("g(c)"), Compare("=", Column(("d",)), Literal(dt.date(2024, 1, 1)))):
        assert found.derive([condition]) == ()


MOMENTS = st.datetimes(dt.datetime(2023, 12, 20), dt.datetime(2024, 3, 10))


@settings(max_examples=60, deadline=None)
@given(st.lists(MOMENTS, min_size=1, max_size=8), MOMENTS, st.sampled_from(["=", "<", "<=", ">", ">="]), st.data())
def test_no_row_that_satisfies_a_condition_is_in_a_partition_that_is_ruled_out(rows, bound, op, data):
    zone = data.draw(st.sampled_from(ZONES))
    schema = table(
        "timestamp",
        ("date", "cast(c as date)"),
        ("integer", "year(c)"),
        ("integer", "month(c)"),
        ("integer", "day(c)"),
        ("integer", "hour(c)"),
        ("string", "date_format(c, 'yyyy-MM-dd-HH')"),
        ("timestamp", "date_trunc('DAY', c)"),
        ("date", "trunc(c, 'week')"),
    )
    rows = [row.replace(tzinfo=dt.UTC) for row in [*rows, bound]]
    instant = bound.replace(tzinfo=dt.UTC)
    holds = {"=": "__eq__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[op]

    def partition(row):
        local = row.astimezone(zone)
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
        monday = (midnight.replace(tzinfo=None) - dt.timedelta(days=local.weekday())).date()
        text = local.strftime("%Y-%m-%d-%H")
        day = midnight.astimezone(dt.UTC)
        return (local.date(), local.year, local.month, local.day, local.hour, text, day, monday)

    mask = kept(schema, compare(op, instant), *map(partition, rows))
    assert all(keep for keep, row in zip(mask, rows, strict=True) if getattr(row, holds)(instant))
