"""Conditions and values as text: without a JVM each means what Spark makes of the same text, or it is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from unit.predicate.generated_texts import SCHEMA, ZONE, Texts, bits, digits, here, kept, rows, shown, value_here

from pydelta.engines.spark.types import to_spark_schema
from pydelta.protocol.types import DataType


class SparkAnswers:
    """What Spark makes of texts, over the same rows and in ``ZONE``, without a job.

    Args:
        spark: A session.
        table: The rows.
    """

    def __init__(self, spark: Any, table: Any) -> None:
        zones = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        self._frame = spark.createDataFrame(table, to_spark_schema(SCHEMA))
        spark.conf.set("spark.sql.session.timeZone", zones)

    def columns(self, made: list[Any]) -> list[list[Any]]:
        """The values of columns that were made of texts, a list a column."""
        named = [column.alias(f"c{number}") for number, column in enumerate(made)]
        found = self._frame.select(*named).collect()
        return [[row[number] for row in found] for number in range(len(made))]

    def of(self, texts: list[str]) -> list[list[Any] | str]:
        """The values of each condition in each row, or why Spark refuses it."""

        def made(text: str) -> Any:
            return F.expr(text)

        return self.each(texts, made)

    def casts(self, values: list[tuple[DataType, str]]) -> list[str | None]:
        """Values of a type that texts are cast to, as texts; why Spark refuses them."""

        def made(value: tuple[DataType, str]) -> Any:
            data_type, text = value
            name = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}.get(str(data_type))
            cast = F.expr(text).cast(name or str(data_type))
            ways = {
                "date": F.unix_date,
                "timestamp": F.unix_micros,
                "binary": lambda c: F.lower(F.hex(c)),
                "float": lambda c: c.cast("double"),
            }
            return ways.get(str(data_type), lambda c: c)(cast)

        answers = []
        for column in self.each(values, made):
            value = column if isinstance(column, str) else column[0]
            if isinstance(value, float):
                value = bits(value)
            elif isinstance(value, bool):
                value = str(value).lower()
            elif isinstance(value, Decimal):
                value = digits(value)
            elif isinstance(value, dt.datetime):
                value = (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
            answers.append(None if value is None else str(value))
        return answers

    def each(self, items: list[Any], made: Any) -> list[list[Any] | str]:
        """As ``of``, of columns that are made of whatever is given."""
        try:
            return list(self.columns([made(item) for item in items]))
        except (PySparkException, Py4JError) as error:
            if len(items) == 1:
                return [str(error).partition("\n")[0] or type(error).__name__]
        half = len(items) // 2
        return [*self.each(items[:half], made), *self.each(items[half:], made)]


@pytest.fixture
def both(spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    table = rows()
    yield table, SparkAnswers(spark, table)
    spark.conf.set("spark.sql.session.timeZone", before)


def compared(both, texts):
    """Which texts come out otherwise in Spark, and how many are taken."""
    table, spark = both
    found = {text: here(text, table, ZONE) for text in texts}
    taken = [text for text, values in found.items() if not isinstance(values, str)]
    theirs = spark.of(taken)
    return [text for text, values in zip(taken, theirs, strict=True) if values != found[text]], len(taken)


def test_texts_that_are_kept_have_the_answers_of_spark(both):
    answers = {text: answer for text, answer in kept() if answer != "refused"}
    theirs = both[1].of(list(answers))
    assert {text: shown(values) for text, values in zip(answers, theirs, strict=True)} == answers


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
