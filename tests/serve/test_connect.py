"""Spark Connect from end to end: a remote PySpark session, in a process without a JVM, against ``pydelta serve``."""

from __future__ import annotations

import pytest
from live_server import sleeping

from pydelta.log import DeltaLog


def version(live, name):
    return DeltaLog.for_table(str(live.warehouse / name)).update().version


def test_a_statement_runs_once_however_often_its_rows_are_fetched(live):
    told = live.remote(
        """
        def run(text, **given):
            frame = spark.sql(text, **given)
            frame.schema
            first, second = frame.collect(), frame.collect()
            assert first == second
            newest = spark.sql("DESCRIBE HISTORY once").first()[0]
            tell([newest, frame.columns[:2], [list(map(str, row)) for row in first]])

        run("CREATE TABLE once (id BIGINT, name STRING) USING delta")
        run("INSERT INTO once VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
        run("DELETE FROM once WHERE id = 1")
        run("UPDATE once SET name = 'z' WHERE id = :id", args={"id": 2})
        run("MERGE INTO once AS t USING (SELECT ? AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE", args=[3])
        run("EXECUTE IMMEDIATE 'DELETE FROM once WHERE id = 4'")
        run("BEGIN INSERT INTO once VALUES (7, 'q'); SELECT count(*) AS n FROM once; END")
        run("EXPLAIN DELETE FROM once")
        run("SELECT id, name FROM once ORDER BY id")
        run("SELECT count(*) AS n FROM once VERSION AS OF 1")
        """
    )
    assert [row[:2] for row in told[:7]] == [
        [0, []], [1, []], [2, ["num_affected_rows"]], [3, ["num_affected_rows"]],
        [4, ["num_affected_rows", "num_updated_rows"]], [5, ["num_affected_rows"]], [6, ["n"]],
    ]  # fmt: skip
    assert [row[2] for row in told[2:7]] == [[["1"]], [["1"]], [["1", "0", "1", "0"]], [["1"]], [["2"]]]
    assert told[7][0] == 6
    assert told[7][2][0][0].startswith("== Physical Plan ==\nExecute Delta DELETE")
    assert told[8] == [6, ["id", "name"], [["2", "z"], ["7", "q"]]]
    assert told[9] == [6, ["n"], [["4"]]]
    assert version(live, "once") == 6


def test_explain_of_a_text_that_is_executed_runs_nothing(live):
    told = live.remote(
        """
        from pyspark.errors import PySparkException
        spark.sql("CREATE TABLE explained (id BIGINT) USING delta")
        for text in ("DELETE FROM explained", "OPTIMIZE explained", "INSERT INTO explained VALUES (1)"):
            try:
                spark.sql(f"EXPLAIN EXECUTE IMMEDIATE '{text}'").collect()
                tell("explained")
            except PySparkException as error:
                tell(error.getCondition())
        tell(spark.sql("EXPLAIN EXECUTE IMMEDIATE 'SELECT * FROM explained'").first()[0])
        """
    )
    assert told[:3] == ["UNSUPPORTED_FEATURE"] * 3 or all(item != "explained" for item in told[:3])
    assert "FileScan parquet" in told[3]
    assert version(live, "explained") == 0


def test_errors_are_spark_s_own_kinds_with_condition_and_state(live):
    told = live.remote(
        """
        from pyspark.errors import PySparkException
        spark.sql("CREATE TABLE wrong_remote (id BIGINT) USING delta")
        for text in (
            "SELECT * FROM not_there",
            "SELECT nope FROM wrong_remote",
            "DELETE FROM wrong_remote WHERE nope = 1",
            "SELECT * FROM wrong_remote VERSION AS OF 9",
            "SELEC 1",
        ):
            try:
                spark.sql(text).collect()
                tell("no error")
            except PySparkException as error:
                said = str(error)
                bad = [w for w in ("py4j", "Traceback", "Undeclared") if w in said]
                tell([type(error).__name__, error.getCondition(), error.getSqlState(), bad])
        """
    )
    assert told == [
        ["AnalysisException", "TABLE_OR_VIEW_NOT_FOUND", "42P01", []],
        ["AnalysisException", "UNRESOLVED_COLUMN.WITH_SUGGESTION", "42703", []],
        ["AnalysisException", "UNRESOLVED_COLUMN.WITH_SUGGESTION", "42703", []],
        ["AnalysisException", "DELTA_VERSION_NOT_FOUND", "22003", []],
        ["ParseException", "PARSE_SYNTAX_ERROR", "42601", []],
    ]


def test_sessions_users_and_paths(live):
    one = live.remote(
        """
        spark.sql("CREATE TABLE shared (id BIGINT) USING delta")
        spark.sql("CREATE TEMPORARY VIEW mine AS SELECT * FROM shared")
        spark.sql("INSERT INTO shared VALUES (1), (2)")
        tell([row.id for row in spark.sql("SELECT * FROM mine ORDER BY id").collect()])
        frame = spark.sql("SELECT * FROM shared")
        spark.sql("DELETE FROM shared WHERE id = 1")
        tell(spark.sql("SELECT * FROM mine").count())
        location = spark.sql("DESCRIBE DETAIL shared").first()["location"]
        tell(sorted(row.id for row in spark.read.format("delta").load(location).collect()))
        tell(spark.sql("SELECT * FROM shared").where("id > 1").count())
        """
    )
    assert one == [[1, 2], 1, [2], 1]
    two = live.remote(
        """
        from pyspark.errors import AnalysisException
        try:
            spark.sql("SELECT * FROM mine").collect()
        except AnalysisException as error:
            tell(error.getCondition())
        spark.sql("DELETE FROM shared WHERE id = 2")
        tell([row.userName for row in spark.sql("DESCRIBE HISTORY shared").collect()])
        """,
        user="dora",
    )
    assert two == ["TABLE_OR_VIEW_NOT_FOUND", ["dora", "bob", "bob", "bob"]]


def interrupted(live, table, begins):
    """An INSERT that would take an hour, interrupted once it is there to be: how it ended, and the rows it left."""
    return live.remote(
        f"""
        import threading, time
        spark.sql("CREATE TABLE {table} (id BIGINT) USING delta")
        asks = "SELECT java_method('java.lang.System', 'getProperty', '{table}') = 'begun'"
        gone = []
        def work():
            try:
                spark.sql("INSERT INTO {table} {sleeping(table)}").collect()
            except Exception as error:
                gone.append(str(error)[:200])
        thread = threading.Thread(target=work)
        thread.start()
        while {begins} and not spark.sql(asks).first()[0]:
            time.sleep(0.2)
        while not spark.interruptAll():
            time.sleep(0.02)
        thread.join()
        tell("OPERATION_CANCELED" in gone[0])
        tell(spark.sql("SELECT count(*) FROM {table}").first()[0])
        """
    )


@pytest.mark.parametrize("begins", [False, True])
def test_a_statement_is_interrupted_once_before_or_while_its_job_runs(live, begins):
    table = f"interrupted_{begins}".lower()
    assert interrupted(live, table, begins) == [True, 0]
    assert version(live, table) == 0
