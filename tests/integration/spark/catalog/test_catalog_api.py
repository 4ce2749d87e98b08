"""``spark.catalog`` and ``spark.conf`` over Delta tables: what they say is what the log knows."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException

from pydelta.tables import DeltaTable


@pytest.fixture
def database(spark, tmp_path):
    spark.sql(f"CREATE DATABASE told LOCATION '{tmp_path}'")
    yield tmp_path
    spark.sql("DROP DATABASE told CASCADE")


def shown(columns):
    return [(it.name, it.description, it.dataType, it.nullable, it.isPartition, it.isCluster) for it in columns]


def test_what_a_table_is_comes_from_its_log(spark, database):
    spark.sql(
        "CREATE TABLE told.own (p STRING, id BIGINT NOT NULL COMMENT 'a key', c CHAR(3), m MAP<STRING, ARRAY<INT>>) "
        "USING delta PARTITIONED BY (p) COMMENT 'of people'"
    )
    spark.sql(
        f"CREATE TABLE told.ext (id BIGINT, s STRUCT<a: INT>) USING delta CLUSTER BY (id) LOCATION '{database}/x'"
    )
    catalog = spark.catalog
    table = catalog.getTable("told.own")
    assert (table.description, table.tableType, table.namespace) == ("of people", "MANAGED", ["told"])
    assert catalog.getTable("spark_catalog.told.ext").tableType == "EXTERNAL"
    tables = [table for table in catalog.listTables("told") if not table.isTemporary]  # views of other tests
    listed = {table.name: (table.description, table.tableType) for table in tables}
    assert listed == {"own": ("of people", "MANAGED"), "ext": (None, "EXTERNAL")}
    expected = [
        ("p", None, "string", True, True, False),
        ("id", "a key", "bigint", False, False, False),
        ("c", None, "char(3)", True, False, False),
        ("m", None, "map<string,array<int>>", True, False, False),
    ]
    assert shown(catalog.listColumns("told.own")) == expected
    with pytest.warns(FutureWarning):
        assert shown(catalog.listColumns("own", "told")) == expected
    assert shown(catalog.listColumns("told.ext"))[0][5] is True
    spark.sql("ALTER TABLE told.own ADD COLUMN late INT COMMENT 'new' FIRST")
    spark.sql("COMMENT ON TABLE told.own IS 'other words'")
    assert shown(catalog.listColumns("told.own"))[0] == ("late", "new", "int", True, False, False)
    assert catalog.getTable("told.own").description == "other words"


def test_a_table_named_by_its_path_is_known_too(spark, tmp_path):
    path, nothing = f"delta.`{tmp_path / 't'}`", f"delta.`{tmp_path / 'nothing'}`"
    spark.range(2).write.format("delta").save(str(tmp_path / "t"))
    assert (spark.catalog.tableExists(path), spark.catalog.tableExists(nothing)) == (True, False)
    table = spark.catalog.getTable(path)
    assert (table.name, table.namespace, table.tableType) == (str(tmp_path / "t"), ["delta"], "MANAGED")
    assert [it.name for it in spark.catalog.listColumns(path)] == ["id"]
    for ask in (spark.catalog.getTable, spark.catalog.listColumns):
        with pytest.raises(AnalysisException) as caught:
            ask(nothing)
        assert caught.value.getCondition() == "DELTA_MISSING_DELTA_TABLE"


def test_statements_of_the_catalog_reach_the_table(spark, database):
    spark.sql("CREATE TABLE told.t USING delta TBLPROPERTIES ('a.b' = 'c') AS SELECT id FROM range(3)")
    catalog = spark.catalog
    catalog.analyzeTable("told.t")
    catalog.analyzeTable("told.t", noScan=True)
    catalog.refreshTable("told.t")
    assert catalog.getCreateTableString("told.t").startswith("CREATE TABLE")
    assert catalog.getTableProperties("told.t")["a.b"] == "c"
    catalog.truncateTable("told.t")
    assert DeltaTable.forName(spark, "told.t").toDF().count() == 0
    catalog.dropTable("told.t")
    assert not catalog.tableExists("told.t")
    catalog.dropTable("told.t", ifExists=True)
    with pytest.raises(AnalysisException):
        catalog.truncateTable("told.t")


def test_tables_of_other_formats_and_views_are_shown_as_spark_shows_them(spark, database):
    spark.sql("CREATE TABLE told.files (id BIGINT) USING parquet COMMENT 'files'")
    spark.sql("CREATE OR REPLACE TEMP VIEW seen AS SELECT 1 AS one")
    assert spark.catalog.getTable("told.files").description == "files"
    assert [it.name for it in spark.catalog.listColumns("told.files")] == ["id"]
    assert spark.catalog.getTable("seen").isTemporary
    spark.catalog.truncateTable("told.files")
    listed = {table.name: table.isTemporary for table in spark.catalog.listTables("told")}
    assert (listed["files"], listed["seen"]) == (False, True)
    assert [name for name, temporary in listed.items() if not temporary] == ["files"]
    spark.catalog.dropTempView("seen")


def test_a_setting_that_was_not_set_has_the_default_of_the_reference_engine(spark):
    key = "spark.databricks.delta.retentionDurationCheck.enabled"
    assert spark.conf.get(key) == "true"
    assert spark.conf.get(key, "mine") == "mine"
    assert spark.conf.get(key, None) is None
    spark.conf.set(key, "false")
    try:
        assert spark.conf.get(key) == "false"
    finally:
        spark.conf.unset(key)
    assert spark.conf.get("spark.databricks.delta.write.txnVersion") is None
    with pytest.raises(PySparkException, match="SQL_CONF_NOT_FOUND"):
        spark.conf.get("spark.databricks.delta.nope")
