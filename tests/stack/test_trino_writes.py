"""Trino with TRINO_DELTA_SECURITY=allow-all: what it registers and writes, Spark reads."""

from __future__ import annotations

import threading

import pytest
from conftest import DATABASE, INGEST_ORDERS, ON_HDFS, ORDERS, ROOT, in_trino
from trino.exceptions import TrinoQueryError, TrinoUserError

import pydelta
from pydelta.tables import DeltaTable

pytestmark = [pytest.mark.trino_writes, pytest.mark.spark, pytest.mark.slow]

NAME = f"{DATABASE}.named_by_trino"


def test_spark_reads_what_trino_registered_and_changed(sql, submit):
    done = submit(*INGEST_ORDERS, "--table", f"{ROOT}/changed_by_trino")
    assert done.code == 0, done.errors
    sql(f"CALL delta.system.register_table('{DATABASE}', 'named_by_trino', '{in_trino(ROOT)}/changed_by_trino')")
    left = sorted(row[0] for row in ORDERS)
    if ON_HDFS:  # Trino cannot put a file there only if it is not there yet, and says so
        with pytest.raises(TrinoUserError, match="Writes are not enabled on the hdfs filesystem"):
            sql(f"DELETE FROM delta.{NAME} WHERE id < 100")
    else:
        sql(f"DELETE FROM delta.{NAME} WHERE id < 100")
        left = [number for number in left if number >= 100]
    spark = pydelta.session("trino-writes", conf={"spark.sql.session.timeZone": "UTC"})
    try:
        assert sorted(row[0] for row in spark.table(NAME).select("id").collect()) == left
        last = DeltaTable.forName(spark, NAME).history(1).collect()[0]
        assert last.version == 0 if ON_HDFS else last.userName == "tests"
    finally:
        spark.stop()
    sql(f"CALL delta.system.unregister_table('{DATABASE}', 'named_by_trino')")


@pytest.mark.skipif(ON_HDFS, reason="Trino changes no rows of Delta tables on HDFS")
def test_spark_and_trino_write_one_table_at_once_and_each_row_that_was_acknowledged_is_there_once(sql):
    """Who loses a race is told so, and tries again or not: what counts is that nobody is told otherwise."""
    name, place, rounds, rows = f"{DATABASE}.written_by_both", f"{ROOT}/written_by_both", 6, 10
    spark = pydelta.session("trino-beside-spark", conf={"spark.sql.session.timeZone": "UTC"})
    spark.sql(f"CREATE TABLE {name} (writer STRING, step INT, n INT) USING delta LOCATION '{place}'")
    done, refused = set(), []

    def by_trino():
        for step in range(rounds):
            values = ", ".join(f"('trino', {step}, {n})" for n in range(rows))
            try:
                sql(f"INSERT INTO delta.{name} VALUES {values}")
                done.add(("trino", step))
                if step % 3 == 2:
                    sql(f"DELETE FROM delta.{name} WHERE writer = 'trino' AND step = {step - 1}")
                    done.discard(("trino", step - 1))
            except TrinoQueryError as error:
                refused.append(str(error))

    other = threading.Thread(target=by_trino)
    other.start()
    for step in range(rounds):
        frame = spark.range(rows).selectExpr("'spark' AS writer", f"{step} AS step", "CAST(id AS INT) AS n")
        frame.write.format("delta").mode("append").saveAsTable(name)
        done.add(("spark", step))
    other.join()
    counted = f"SELECT writer, step, count(*), count(DISTINCT n) FROM {{}}{name} GROUP BY writer, step"
    expected = {(*key, rows, rows) for key in done}
    assert {tuple(row) for row in spark.sql(counted.format("")).collect()} == expected
    assert {tuple(row) for row in sql(counted.format("delta."))} == expected
    assert {("spark", step) for step in range(rounds)} < done, refused
    spark.stop()
