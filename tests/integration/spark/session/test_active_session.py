"""A statement has the settings of its session, whichever session is active in the calling thread, or none."""

from __future__ import annotations

import threading

import pytest
from pyspark.sql import SparkSession

import pydelta
from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import ConstraintViolatedError
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark
ZONES = ("America/New_York", "Asia/Kolkata")
MOMENTS = (
    "VALUES (1, TIMESTAMP '2024-01-01 00:00:00Z'), (2, TIMESTAMP '2024-01-01 05:00:00Z'), "
    "(3, TIMESTAMP '2023-12-31 18:30:00Z')"
)
NEW_YEAR = {"America/New_York": 2, "Asia/Kolkata": 3}
STATEMENTS = {
    "delete": "DELETE FROM {t} WHERE at = TIMESTAMP '2024-01-01 00:00:00'",
    "update": "UPDATE {t} SET id = -id WHERE at = TIMESTAMP '2024-01-01 00:00:00'",
    "merge": "MERGE INTO {t} AS t USING (SELECT TIMESTAMP '2024-01-01 00:00:00' AS at) AS s ON t.at = s.at "
    "WHEN MATCHED THEN DELETE",
    "insert": "INSERT INTO {t} REPLACE WHERE at = TIMESTAMP '2024-01-01 00:00:00' "
    "SELECT 9, TIMESTAMP '2024-01-01 00:00:00'",
}
LEFT = {
    "delete": lambda ids, new: ids - {new},
    "update": lambda ids, new: ids - {new} | {-new},
    "merge": lambda ids, new: ids - {new},
    "insert": lambda ids, new: ids - {new} | {9},
}


def in_a_thread(work):
    """Run something in a thread that no session is active in; returns what it returns."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def here(work):
    return work()


@pytest.fixture
def sessions(spark):
    """Two sessions with zones of their own, of which the first is active."""
    found = []
    for zone in ZONES:
        session = spark.newSession()
        session.conf.set("spark.sql.session.timeZone", zone)
        found.append(pydelta.enable(session))
    return dict(zip(ZONES, found, strict=True))


@pytest.mark.parametrize("place", [here, in_a_thread])
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_moment_in_a_statement_is_in_the_zone_of_its_session(sessions, tmp_path, name, zone, place):
    session, table = sessions[zone], f"delta.`{tmp_path}/t`"

    def work():
        session.sql(f"CREATE TABLE {table} USING delta AS SELECT * FROM {MOMENTS} AS v(id, at)")
        session.sql(STATEMENTS[name].format(t=table))
        shown = session.sql(f"SELECT id FROM {table} WHERE at >= TIMESTAMP '2024-01-01 00:00:00'").collect()
        return {row.id for row in session.sql(f"SELECT id FROM {table}").collect()}, len(shown)

    left, shown = place(work)
    new = NEW_YEAR[zone]
    assert left == LEFT[name]({1, 2, 3}, new)
    later = {"America/New_York": {2}, "Asia/Kolkata": {1, 2, 3}}[zone]
    assert shown == len(LEFT[name](later, new)), "a query, too"


IN_PYTHON = {
    "delete": lambda table: table.delete("at = TIMESTAMP '2024-01-01 00:00:00'"),
    "update": lambda table: table.update("at = TIMESTAMP '2024-01-01 00:00:00'", {"id": "-id"}),
    "merge": lambda table: (
        table.alias("t")
        .merge(table.toDF().limit(1).alias("s"), "t.at = TIMESTAMP '2024-01-01 00:00:00'")
        .whenMatchedDelete()
        .execute()
    ),
}


@pytest.mark.parametrize("place", [here, in_a_thread])
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("name", [*IN_PYTHON, "replaceWhere"])
def test_a_moment_in_a_condition_is_in_the_zone_of_the_table_s_session(sessions, tmp_path, name, zone, place):
    session, path = sessions[zone], str(tmp_path / "t")

    def work():
        session.sql(f"CREATE TABLE delta.`{path}` USING delta AS SELECT * FROM {MOMENTS} AS v(id, at)")
        if name in IN_PYTHON:
            IN_PYTHON[name](DeltaTable.forPath(session, path))
        else:
            rows = session.sql("SELECT 9 AS id, TIMESTAMP '2024-01-01 00:00:00' AS at")
            condition = "at = TIMESTAMP '2024-01-01 00:00:00'"
            rows.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(path)
        return {row.id for row in session.read.format("delta").load(path).collect()}

    assert place(work) == LEFT["insert" if name == "replaceWhere" else name]({1, 2, 3}, NEW_YEAR[zone])


@pytest.mark.parametrize("place", [here, in_a_thread])
@pytest.mark.parametrize("zone", ZONES)
def test_a_moment_in_a_rule_is_in_the_zone_of_the_session_that_writes(sessions, tmp_path, zone, place):
    session, path = sessions[zone], str(tmp_path / "t")
    early = "GENERATED ALWAYS AS (at < TIMESTAMP '2024-01-01 00:00:00')"
    session.sql(f"CREATE TABLE delta.`{path}` (id INT, at TIMESTAMP, early BOOLEAN {early}) USING delta")
    session.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT old CHECK (at < TIMESTAMP '2024-01-01 00:00:00')")

    def work():
        frame = session.range(1).selectExpr("1 AS id", "timestamp_seconds(1704078000) AS at")  # 03:00 UTC.
        try:
            frame.write.format("delta").mode("append").save(path)
        except ConstraintViolatedError:
            return None
        return [row.early for row in session.read.format("delta").load(path).collect()]

    assert place(work) == ([True] if zone == "America/New_York" else None)


def test_the_session_that_was_active_is_active_again(spark, sessions, tmp_path):
    table = f"delta.`{tmp_path}/t`"
    before = Jvm.of(spark).view.org.apache.spark.sql.SparkSession.getActiveSession().get()
    sessions["Asia/Kolkata"].sql(f"CREATE TABLE {table} USING delta AS SELECT 1 AS id")
    sessions["Asia/Kolkata"].sql(f"DELETE FROM {table}")
    with pytest.raises(Exception, match="nowhere"):
        sessions["Asia/Kolkata"].sql("SELECT nowhere")
    assert Jvm.of(spark).view.org.apache.spark.sql.SparkSession.getActiveSession().get().equals(before)
    assert SparkSession.getActiveSession() is not None


@pytest.mark.parametrize("place", [here, in_a_thread])
def test_a_name_is_found_on_the_path_of_the_session(spark, tmp_path, place):
    if not Jvm.of(spark).has_paths:
        pytest.skip("this Spark has no SET PATH, which came with 4.3")
    spark.sql("CREATE DATABASE walked")
    for database in ("walked", "default"):
        spark.sql(f"CREATE TABLE {database}.on_the_path USING delta AS SELECT '{database}' AS b")
    spark.conf.set("spark.sql.path.enabled", "true")
    try:
        spark.sql("SET PATH = spark_catalog.walked, system.session, system.builtin")

        def work():
            spark.sql("INSERT INTO on_the_path VALUES ('new')")
            assert {row.b for row in spark.table("on_the_path").collect()} == {"walked", "new"}
            spark.sql("UPDATE on_the_path SET b = upper(b)")
            return sorted(row.b for row in spark.sql("SELECT b FROM on_the_path").collect())

        assert place(work) == ["NEW", "WALKED"]
        assert spark.table("default.on_the_path").collect() == [("default",)]
    finally:
        Jvm.of(spark).state.catalogManager().clearSessionPath()
        spark.conf.unset("spark.sql.path.enabled")
        spark.sql("DROP TABLE default.on_the_path")
        spark.sql("DROP DATABASE walked CASCADE")
