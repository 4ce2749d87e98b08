"""Trino with TRINO_DELTA_SECURITY=allow-all: what it registers and writes, Spark reads."""

from __future__ import annotations

import pytest
from conftest import DATABASE, INGEST_ORDERS, ORDERS, ROOT, in_trino

import pydelta
from pydelta.tables import DeltaTable

pytestmark = [pytest.mark.trino_writes, pytest.mark.spark, pytest.mark.slow]

NAME = f"{DATABASE}.named_by_trino"


def test_spark_reads_what_trino_registered_and_changed(sql, submit):
    done = submit(*INGEST_ORDERS, "--table", f"{ROOT}/changed_by_trino")
    assert done.code == 0, done.errors
    sql(f"CALL delta.system.register_table('{DATABASE}', 'named_by_trino', '{in_trino(ROOT)}/changed_by_trino')")
    sql(f"DELETE FROM delta.{NAME} WHERE id < 100")
    left = sorted(row[0] for row in ORDERS if row[0] >= 100)
    spark = pydelta.session("trino-writes", conf={"spark.sql.session.timeZone": "UTC"})
    try:
        assert sorted(row[0] for row in spark.table(NAME).select("id").collect()) == left
        assert DeltaTable.forName(spark, NAME).history(1).collect()[0].userName == "tests"
    finally:
        spark.stop()
    sql(f"CALL delta.system.unregister_table('{DATABASE}', 'named_by_trino')")
