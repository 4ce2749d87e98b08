"""Files tell the bounds of their pages, and Spark reads the pages that a filter leaves: never one row less for it."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from session_settings import with_settings

from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

ROWS = 100_000  # of one file: five pages of each column
# Sorted by the number of the row, so that bounds of pages rule out most of them; a whole page of nulls among them.
COLUMNS = {
    "small": "CAST(id DIV 1000 AS SMALLINT)",
    "i": "CAST(id AS INT)",
    "l": "id * 3",
    "f": "CAST(id AS FLOAT) / 8",
    "d": "CASE WHEN id % 30000 = 29999 THEN double('NaN') WHEN id < 5 THEN -0.0D ELSE id / 4D END",
    "few": "CAST(id DIV 100 AS DECIMAL(9, 2))",
    "more": "CAST(id AS DECIMAL(18, 4)) - 50000",
    "most": "CAST(id AS DECIMAL(38, 10)) * -1",
    "s": "lpad(CAST(id AS STRING), 8, '0')",
    "wide": "repeat(lpad(CAST(id DIV 20000 AS STRING), 2, '0'), 300)",
    "bin": "unhex(lpad(hex(id), 8, '0'))",
    "day": "date_add(DATE'1500-01-01', CAST(id AS INT))",
    "at": "timestamp_micros((id - 50000) * 86400000000)",
    "ntz": "CAST(timestamp_micros(id * 1000) AS TIMESTAMP_NTZ)",
    "flag": "id > 60000",
    "gap": "CASE WHEN id BETWEEN 20000 AND 59999 THEN NULL ELSE id END",
    "n": "named_struct('x', id, 'y', CASE WHEN id < 20000 THEN NULL ELSE id END)",
}
FILTERS = (
    "small = 20", "i = 60001", "i > 99998", "i < 20000 AND i >= 19999", "l = 180003", "f = 7500.125", "d > 24000",
    "d = 'NaN'", "d <= 0", "d < 1", "few = 600", "few > 998", "more = 10001", "most < -99990", "s = '00040000'",
    "s >= '00099999'", "s LIKE '0007999%'", "wide < repeat('01', 300)", "wide = repeat('03', 300)", "bin = X'0000EA61'",
    "day = DATE'1664-04-12'", "day < DATE'1500-01-03'", "at < TIMESTAMP'1833-02-11 00:00:00'",
    "at = TIMESTAMP'1970-01-02 00:00:00'", "ntz >= TIMESTAMP_NTZ'1970-01-01 00:01:39.999'", "flag AND i < 60010",
    "gap IS NULL AND i > 59990", "gap = 60001", "gap < 20001", "gap IS NOT NULL AND i BETWEEN 19998 AND 60001",
    "n.x = 79998", "n.y < 20002", "n.y IS NULL AND i > 19990", "i IN (3, 50000, 99999)", "NOT i > 3",
    "gap <=> NULL AND i < 20003",
)  # fmt: skip


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("pages") / "t")
    rows = spark.range(0, ROWS, 1, 1).selectExpr("id", *[f"{text} AS {name}" for name, text in COLUMNS.items()])
    rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(path)
    DeltaTable.forPath(spark, path).delete("id % 7 = 3")
    return path


def test_each_column_tells_the_bounds_of_its_pages(spark, table):
    (name,) = [
        row.path for row in spark.sql(f"SELECT DISTINCT _metadata.file_path AS path FROM delta.`{table}`").collect()
    ]
    group = pq.read_metadata(name.removeprefix("file://")).row_group(0)
    told = {group.column(at).path_in_schema: group.column(at).has_column_index for at in range(group.num_columns)}
    assert {name for name, has in told.items() if not has} == {"d"}  # it holds NaN, of which bounds say nothing


def ids(spark, table, condition):
    return sorted(row.id for row in spark.read.format("delta").load(table).where(condition).select("id").collect())


@pytest.mark.parametrize("condition", FILTERS)
def test_a_filter_finds_what_it_finds_without_bounds(spark, table, condition):
    found = ids(spark, table, condition)
    with with_settings(spark, parquet_filterPushdown="false"):
        assert found == ids(spark, table, condition)
    assert found, "a filter that finds nothing shows nothing"


def test_pages_that_a_filter_rules_out_are_not_read(spark, table):
    with with_settings(spark, adaptive_enabled="false"):  # the plan is the one that ran
        rows = spark.read.format("delta").load(table).where("i = 60002").selectExpr("max(s)")
        assert rows.collect()[0][0] == "00060002"
        plan = rows._jdf.queryExecution().executedPlan()
    leaves = plan.collectLeaves()
    assert leaves.size() == 1
    assert 0 < leaves.head().metrics().apply("numOutputRows").value() <= 20_000, plan.toString()
