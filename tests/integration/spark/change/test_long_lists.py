"""Conditions of many constants: what crosses to the JVM grows with their shape, and not with each constant."""

from __future__ import annotations

import re
import threading
from collections import Counter

import pytest
from py4j.clientserver import ClientServerConnection

from pydelta.tables import DeltaTable

FEW, MANY = 20, 420


def _times(many):
    return ", ".join(f"TIMESTAMP '2024-01-01 00:{number // 60:02}:{number % 60:02}'" for number in range(many))


LISTS = {
    "numbers": lambda many: f"id IN ({', '.join(map(str, range(many)))})",
    "texts": lambda many: f"s IN ({', '.join(repr(str(number)) for number in range(many))})",
    "times": lambda many: f"t IN ({_times(many)})",
    "alternatives": lambda many: " OR ".join(f"id = {number}" for number in range(many)),
    "long names": lambda many: f"spark_catalog.default.long_lists.id IN ({', '.join(map(str, range(many)))})",
}


@pytest.fixture
def calls(monkeypatch):
    """Count what this thread asks of the JVM; threads that another test left running ask for themselves."""
    made = []
    send = ClientServerConnection.send_command
    thread = threading.get_ident()

    def counted(self, command, *given):
        forgotten = command.startswith("m\n")
        if threading.get_ident() == thread and not forgotten:
            made.append(re.sub(r"\d+", "N", command))
        return send(self, command, *given)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    return made


@pytest.fixture
def table(spark):
    spark.sql("CREATE OR REPLACE TABLE long_lists (id BIGINT, s STRING, t TIMESTAMP, k INT) USING delta")
    spark.sql("INSERT INTO long_lists SELECT id, CAST(id AS STRING), TIMESTAMP_SECONDS(id), 0 FROM range(3)")
    yield "long_lists"
    spark.sql("DROP TABLE long_lists")


@pytest.mark.parametrize("kind", LISTS)
def test_a_constant_more_is_no_call_more(spark, table, calls, kind):
    def update(many):
        calls.clear()
        spark.sql(f"UPDATE {table} SET k = k + 1 WHERE {LISTS[kind](many)}")
        return Counter(calls)

    def least(many):
        """Every tenth version brings a checkpoint, with calls of its own."""
        return min(update(many), update(many), key=Counter.total)

    update(FEW)  # the first update also looks up what is looked up once
    many, few = least(MANY), least(FEW)
    assert abs(many.total() - few.total()) < FEW, ((many - few).most_common(9), (few - many).most_common(9))
    found = spark.table(table).where("k > 0").count()
    assert found == (0 if kind == "times" else 3)


def test_a_list_of_times_finds_its_rows_and_a_null_no_more(spark, table):
    spark.sql(f"UPDATE {table} SET t = TIMESTAMP '2024-01-01 00:00:07', k = 1 WHERE id = 1")
    listed = LISTS["times"](MANY).removesuffix(")") + ", NULL)"
    DeltaTable.forName(spark, table).delete(listed)
    assert [row.id for row in spark.table(table).orderBy("id").collect()] == [0, 2]
    DeltaTable.forName(spark, table).delete(f"NOT ({listed})")
    assert spark.table(table).count() == 2
