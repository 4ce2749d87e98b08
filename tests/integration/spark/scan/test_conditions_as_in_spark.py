"""Conditions and values as text: without a JVM each means what Spark makes of the same text, or it is refused."""

from __future__ import annotations

import pytest
from integration.spark.scan.generated_conditions import SCHEMA, ZONE, Spark, Texts, here, rows, value_here

KEPT = [
    r"s LIKE 'a\%'", r"s = 'a\rb'", r"s = '\u0041'", r"s = '\101'", r"s = 'a\%'", "s = 'it''s'", r"s = r'x\y'",
    "s LIKE '50!%' ESCAPE '!'", r"s = 'a\Zb'", r"s LIKE 'a\_'", 's = "q""q"', "s = 'a' 'b'", r"s = '\U0001F600'",
    "s = 'a\\0b'", "f == '0.1'", "f IS DISTINCT FROM '0.1'", "NOT i = 5 AND b", "NOT b OR i !> 5 AND b",
    "i = 5 /* a /* b */ c */ -- d", "l = 9007199254740993", "x IN (0.0, 1.5, '1.5')", "x <=> 'NaN'", "f >= 16777217",
    "z >= TIMESTAMP_NTZ '2024-01-05'", "t > '2024-01-05T12:00Z'", "t = '2024-03-10 02:30:00'", "d = '2024-1-5'",
    "`1_000` = 1_000", "`1_000` = 1000", "x = '1_000'", "d = '2_024-01-05'", "d <= '2024'", "user = 'a'",
    "date = date '2024-01-05'", "c = 'a'", "b = 'yes'", "b IS NOT UNKNOWN", "`a.b` = 'a'", "a.b = 'a'", "o.s LIKE 'a%'",
    "s LIKE '%'", r"s LIKE '\a'", "i BETWEEN 1 AND 5 AND b", "1 = 1 AND i IS NULL", "n = 1.5", "n = '1.5'", "w = 1.5",
    "f IN (16777217)", "f NOT IN (0.1, NULL)",
]  # fmt: skip


@pytest.fixture
def both(spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    table = rows()
    yield table, Spark(spark, table)
    spark.conf.set("spark.sql.session.timeZone", before)


def compared(both, texts):
    """Which texts come out otherwise in Spark, and how many are taken."""
    table, spark = both
    found = {text: here(text, table, ZONE) for text in texts}
    taken = [text for text, values in found.items() if not isinstance(values, str)]
    theirs = spark.of(taken)
    return [text for text, values in zip(taken, theirs, strict=True) if values != found[text]], len(taken)


def test_a_text_that_once_meant_something_else_means_what_it_does_in_spark(both):
    different, taken = compared(both, KEPT)
    assert different == []
    assert taken >= 36


def test_texts_made_at_random_mean_what_they_do_in_spark_or_are_refused(both):
    made = Texts(2026)
    different, taken = compared(both, [made.one() for _ in range(400)])
    assert different == []
    assert taken >= 130


def test_values_made_at_random_are_those_that_spark_casts_or_are_refused(both):
    made = Texts(35)
    found = [(column, text, value_here(column, text, ZONE)) for column, text in (made.value() for _ in range(300))]
    taken = [item for item in found if not isinstance(item[2], str)]
    theirs = both[1].casts([(SCHEMA.field(column).data_type, text) for column, text, _ in taken])
    assert [item for item, value in zip(taken, theirs, strict=True) if item[2] != (value,)] == []
    assert len(taken) >= 100
