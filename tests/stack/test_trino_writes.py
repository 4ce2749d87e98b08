"""Trino with TRINO_DELTA_SECURITY=allow-all: what it registers and writes, Spark reads."""

from __future__ import annotations

import pytest
from conftest import DATABASE, INGEST_ORDERS, ON_HDFS, ORDERS, ROOT, in_trino
from trino.exceptions import TrinoUserError

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
