"""Programs on this machine at the stack's SQL server: JDBC's protocol by PyHive, Spark Connect by a remote PySpark."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pyhive import hive

TABLE = "stack_tests." + os.environ["SERVED_TABLE"]
THRIFT, CONNECT = int(os.environ["THRIFT_PORT"]), int(os.environ["CONNECT_PORT"])

MERGE = f"""
from pyspark.sql import SparkSession, functions as F
from pydelta.tables import DeltaTable

spark = SparkSession.builder.remote("sc://127.0.0.1:{CONNECT}/;user_id=grace").getOrCreate()
news = spark.range(90, 110).select(
    "id", F.lit("merged").alias("name"), (F.col("id") / 4).cast("decimal(9,2)").alias("amount"),
    F.expr("date_add(DATE'2024-01-01', CAST(id % 3 AS INT))").alias("day"),
)
target = DeltaTable.forName(spark, "{TABLE}").alias("t")
target.merge(news.alias("n"), "t.id = n.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
print(spark.table("{TABLE}").where("name = 'merged'").count(), spark.table("{TABLE}").count())
"""


@pytest.fixture
def run():
    connection = hive.connect("127.0.0.1", port=THRIFT, username="ada")

    def rows(text):
        cursor = connection.cursor()
        cursor.execute(text)
        return cursor.fetchall() if cursor.description else []

    yield rows
    connection.close()


def test_a_table_is_made_over_jdbc_s_protocol(run):
    run(f"DROP TABLE IF EXISTS {TABLE}")
    run(
        f"CREATE TABLE {TABLE} (id BIGINT, name STRING, amount DECIMAL(9,2), day DATE) USING delta PARTITIONED BY (day)"
    )
    run(
        f"INSERT INTO {TABLE} SELECT id, 'first', CAST(id / 4 AS DECIMAL(9,2)), "
        "date_add(DATE'2024-01-01', CAST(id % 3 AS INT)) FROM range(100)"
    )
    assert run(f"SELECT count(*), sum(id), sum(amount) FROM {TABLE}")[0][:2] == (100, 4950)


def test_a_remote_pyspark_merges_into_it(tmp_path):
    script = tmp_path / "merge.py"
    script.write_text(MERGE)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["20", "110"]


def test_the_history_names_who_did_what(run):
    history = run(f"DESCRIBE HISTORY {TABLE}")
    assert [(row[0], row[3], row[4]) for row in history] == [
        (2, "grace", "MERGE"),
        (1, "ada", "WRITE"),
        (0, "ada", "CREATE TABLE"),
    ]


def test_a_wrong_statement_is_answered_with_its_condition(run):
    with pytest.raises(hive.OperationalError) as failed:
        run("SELECT * FROM stack_tests.not_there")
    status = failed.value.args[0].status
    assert status.sqlState == "42P01"
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in status.errorMessage
