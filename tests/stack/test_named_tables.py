"""Tables that Spark makes by name are in Trino's delta catalog as they are: nobody registers them there."""

from __future__ import annotations

import pytest
from conftest import DATABASE, ROOT

import pydelta
from pydelta.engines.spark.catalog.entries import drop_table

pytestmark = [pytest.mark.before_submit, pytest.mark.spark, pytest.mark.slow]

MADE, EXTERNAL = f"{DATABASE}.named", f"{DATABASE}.named_external"


@pytest.fixture(scope="module")
def spark():
    session = pydelta.session(
        "named-tests", conf={"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    )
    session.sparkContext.setLogLevel("ERROR")
    for name in (MADE, EXTERNAL):
        drop_table(session, tuple(name.split(".")), if_exists=True)
    yield session
    session.stop()


def test_trino_reads_a_table_that_was_made_by_name(spark, sql, metastore):
    spark.sql(
        f"CREATE TABLE {MADE} (id BIGINT COMMENT 'which', name STRING, price DECIMAL(10,2), day DATE) USING DELTA "
        "PARTITIONED BY (day) COMMENT 'made by name'"
    )
    spark.sql(f"INSERT INTO {MADE} VALUES (1, 'a', 1.50, DATE'2024-01-01'), (2, 'b', 2.25, DATE'2024-01-02')")
    read = f"SELECT id, name, CAST(price AS varchar), CAST(day AS varchar) FROM delta.{MADE} ORDER BY id"
    assert sql(read) == [[1, "a", "1.50", "2024-01-01"], [2, "b", "2.25", "2024-01-02"]]
    assert sql(f"SELECT count(*) FROM delta.{MADE} WHERE day = DATE'2024-01-02'") == [[1]]
    entry = metastore.get_table(DATABASE, "named")
    assert entry.tableType == "MANAGED_TABLE"
    assert entry.sd.serdeInfo.parameters["path"] == f"{ROOT}/named"
    assert [(column.name, column.type) for column in entry.sd.cols] == [
        ("id", "bigint"), ("name", "string"), ("price", "decimal(10,2)"), ("day", "date"),
    ]  # fmt: skip


def test_a_table_saved_with_a_path_and_widened_by_it(spark, sql):
    spark.range(3).write.format("delta").option("path", f"{ROOT}/elsewhere").saveAsTable(EXTERNAL)
    assert sql(f"SELECT count(*) FROM delta.{EXTERNAL}") == [[3]]
    wider = spark.range(3, 5).selectExpr("id", "'new' AS note")
    wider.write.format("delta").mode("append").option("mergeSchema", "true").save(f"{ROOT}/elsewhere")
    assert sql(f"SELECT count(note), count(*) FROM delta.{EXTERNAL}") == [[2, 5]]


def test_a_dropped_table_is_gone_for_trino_and_only_managed_files_with_it(spark, sql, store_at):
    for name in (MADE, EXTERNAL):
        assert drop_table(spark, tuple(name.split(".")))
    listed = {row[0] for row in sql(f"SHOW TABLES FROM delta.{DATABASE}")}
    assert not listed & {"named", "named_external"}
    assert list(store_at(f"{ROOT}/named").list_all()) == []
    assert list(store_at(f"{ROOT}/elsewhere").list_all()) != []
