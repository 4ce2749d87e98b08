"""Statements that only this engine knows, in SQL: what they do and what they tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from pyspark.errors import ParseException

from pydelta.engines.spark.catalog.lookup import location_of
from pydelta.errors import (
    DeltaError,
    InvalidArgumentError,
    ParseError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsafeOperationError,
    VersionNotFoundError,
)
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark):
    for name in ("own", "own_clone"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql("CREATE TABLE own USING delta PARTITIONED BY (p) AS SELECT id AS a, id % 2 AS p FROM range(0, 10, 1, 4)")
    yield "own"
    for name in ("own", "own_clone"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def one(frame):
    (row,) = frame.collect()
    return row


def newest(spark, name="own"):
    return DeltaLog.for_table(location_of(spark, name)).update()


def test_history_and_detail(spark, table):
    spark.sql("DELETE FROM own WHERE a = 3")
    history = spark.sql("DESCRIBE HISTORY own").collect()
    assert [(row.version, row.operation) for row in history] == [(1, "DELETE"), (0, "CREATE TABLE AS SELECT")]
    assert spark.sql("DESC HISTORY default.own LIMIT 1").count() == 1
    detail = one(spark.sql("DESCRIBE DETAIL own"))
    assert (detail.format, detail.partitionColumns, detail.numFiles) == ("delta", ["p"], newest(spark).num_files)
    path = location_of(spark, "own")
    assert one(spark.sql(f"DESCRIBE DETAIL delta.`{path}`")).id == detail.id


def test_optimize(spark, table):
    before = newest(spark).num_files
    assert before == 8
    row = one(spark.sql("OPTIMIZE own WHERE p = 1"))
    assert (row.path, row.metrics.numFilesRemoved, row.metrics.numFilesAdded) == (newest(spark).table_uri, 4, 1)
    row = one(spark.sql("OPTIMIZE own ZORDER BY (a)"))
    assert row.metrics.zOrderStats is not None
    assert spark.sql("SELECT sum(a) FROM own").first()[0] == 45
    with pytest.raises(InvalidArgumentError):
        spark.sql("OPTIMIZE own WHERE a = 1")
    with pytest.raises(DeltaError, match="nope"):
        spark.sql("OPTIMIZE own ZORDER BY (nope)")


def test_restore(spark, table):
    spark.sql("DELETE FROM own WHERE p = 1")
    moment = spark.sql("DESCRIBE HISTORY own").collect()[1].timestamp
    row = one(spark.sql("RESTORE TABLE own TO VERSION AS OF 0"))
    assert (row.num_restored_files, row.num_removed_files) == (4, 0)
    assert spark.table("own").count() == 10
    spark.sql("DELETE FROM own WHERE p = 0")
    spark.sql(f"RESTORE own TO TIMESTAMP AS OF '{moment.isoformat(sep=' ')}'")
    assert spark.table("own").count() == 10
    with pytest.raises(VersionNotFoundError):
        spark.sql("RESTORE own TO VERSION AS OF 99")
    with pytest.raises(InvalidArgumentError, match="not a timestamp"):
        spark.sql("RESTORE own TO TIMESTAMP AS OF 'yesterday-ish'")


def test_restore_takes_the_entry_along(spark, table):
    spark.sql("ALTER TABLE own ADD COLUMNS (later STRING)")
    assert len(spark.catalog.listColumns("own")) == 3
    spark.sql("RESTORE own TO VERSION AS OF 0")
    assert spark.table("own").columns == ["a", "p"]
    assert len(spark.catalog.listColumns("own")) == 2


def test_clones(spark, table, tmp_path):
    row = one(spark.sql("CREATE TABLE own_clone SHALLOW CLONE own"))
    assert (row.source_num_of_files, row.num_copied_files) == (8, 0)
    spark.sql("INSERT INTO own_clone VALUES (100, 1)")
    assert (spark.table("own").count(), spark.table("own_clone").count()) == (10, 11)
    with pytest.raises(TableAlreadyExistsError, match="CREATE OR REPLACE"):
        spark.sql("CREATE TABLE own_clone SHALLOW CLONE own")
    spark.sql("CREATE TABLE IF NOT EXISTS own_clone CLONE own")
    assert spark.table("own_clone").count() == 11
    row = one(spark.sql("CREATE OR REPLACE TABLE own_clone DEEP CLONE own TBLPROPERTIES ('mine'='yes')"))
    assert (row.num_copied_files, row.num_removed_files) == (8, 9)
    assert newest(spark, "own_clone").metadata.configuration["mine"] == "yes"
    place = str(tmp_path / "clone")
    spark.sql("DELETE FROM own")
    spark.sql(f"CREATE TABLE delta.`{place}` CLONE own VERSION AS OF 0")
    assert spark.sql(f"SELECT count(*) FROM delta.`{place}`").first()[0] == 10


def test_convert(spark, tmp_path):
    path = str(tmp_path / "files")
    spark.range(6).selectExpr("id", "cast(id % 2 AS INT) AS p").write.partitionBy("p").parquet(path)
    assert spark.sql(f"CONVERT TO DELTA parquet.`{path}` PARTITIONED BY (p INT)").columns == []
    assert spark.sql(f"SELECT sum(id), sum(p) FROM delta.`{path}`").first() == (15, 3)
    with pytest.raises(InvalidArgumentError, match="not a Parquet table"):
        spark.sql("CONVERT TO DELTA some.table")


def test_generate_iceberg(spark, table):
    spark.sql("ALTER TABLE own SET TBLPROPERTIES ('delta.enableDeletionVectors'='true')")
    spark.sql("DELETE FROM own WHERE a = 7")
    spark.sql("GENERATE iceberg FOR TABLE own")
    with pytest.raises(InvalidArgumentError, match="it takes no condition"):
        spark.sql("GENERATE iceberg FOR TABLE own WHERE a = 9")
    DeltaTable.forName(spark, "own").generate("iceberg")
    folder = location_of(spark, "own") + "/_pydelta/iceberg"
    rows = StaticTable.from_metadata(folder).scan().to_arrow().to_pylist()
    expected = [row.asDict() for row in spark.table("own").collect()]
    assert sorted(rows, key=str) == sorted(expected, key=str)


def test_reorg_generate_vacuum(spark, table):
    spark.sql("ALTER TABLE own SET TBLPROPERTIES ('delta.enableDeletionVectors'='true')")
    spark.sql("DELETE FROM own WHERE a = 7")  # beside a 9 in its file
    with pytest.raises(DeltaError, match="PURGE"):
        spark.sql("GENERATE symlink_format_manifest FOR TABLE own")
    purged = one(spark.sql("REORG TABLE own APPLY (PURGE)")).metrics
    assert (purged.deletionVectorStats.numDeletionVectorsRemoved, purged.numFilesRemoved) == (1, 1)
    spark.sql("GENERATE Symlink_Format_MANIFEST FOR TABLE own")
    root = Path(location_of(spark, "own").removeprefix("file:"))
    lines = [line for manifest in root.rglob("manifest") for line in manifest.read_text().splitlines()]
    assert len(lines) == newest(spark).num_files
    with pytest.raises(InvalidArgumentError, match="GENERATE has no mode"):
        spark.sql("GENERATE something FOR TABLE own")
    assert spark.sql("VACUUM own DRY RUN").count() == 0, "everything is younger than a week"
    with pytest.raises(UnsafeOperationError, match="168"):
        spark.sql("VACUUM own RETAIN 0 HOURS")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        doomed = [row.path for row in spark.sql("VACUUM own RETAIN 0 HOURS DRY RUN").collect()]
        assert len(doomed) >= 1
        assert spark.sql("VACUUM own RETAIN 0 HOURS").first().path == newest(spark).table_uri
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert not [path for path in doomed if Path(path.removeprefix("file://").removeprefix("file:")).exists()]
    assert spark.sql("SELECT count(*), sum(a) FROM own").first() == (9, 38)
    assert [row.operation for row in spark.sql("DESCRIBE HISTORY own LIMIT 2").collect()] == [
        "VACUUM END", "VACUUM START",
    ]  # fmt: skip


def test_a_feature_goes(spark, table):
    spark.sql("ALTER TABLE own SET TBLPROPERTIES ('delta.feature.vacuumProtocolCheck'='supported')")
    assert "vacuumProtocolCheck" in one(spark.sql("DESCRIBE DETAIL own")).tableFeatures
    spark.sql("ALTER TABLE own DROP FEATURE vacuumProtocolCheck")
    assert "vacuumProtocolCheck" not in one(spark.sql("DESCRIBE DETAIL own")).tableFeatures


def test_versions_in_a_name(spark, table):
    spark.sql("DELETE FROM own WHERE p = 1")
    path = location_of(spark, "own")
    assert spark.sql("SELECT count(*) FROM own VERSION AS OF 0").first()[0] == 10
    assert spark.sql(f"SELECT count(*) FROM delta.`{path}@v0`").first()[0] == 10
    assert spark.sql("SELECT count(*) FROM `own@v0`").first()[0] == 10
    assert spark.table("default.`own@v0`").count() == 10
    assert DeltaTable.forName(spark, "own").toDF().count() == 5


def test_what_is_wrong_says_where(spark, table):
    with pytest.raises(ParseError, match=r"line 1, pos 20") as caught:
        spark.sql("OPTIMIZE own ZORDER (a)")
    assert isinstance(caught.value, ParseException)
    assert str(caught.value).rstrip().endswith("--------------------^^^")
    with pytest.raises(TableNotFoundError, match="nowhere is not a Delta table"):
        spark.sql("VACUUM nowhere")
    with pytest.raises(ParseException, match="CREATEE"):
        spark.sql("CREATEE TABLE x CLONE y")
    with pytest.raises(InvalidArgumentError, match="cannot have parameters"):
        spark.sql("DESCRIBE HISTORY own LIMIT 1", args={"a": 1})


def test_table_changes(spark, table):
    spark.sql("ALTER TABLE own SET TBLPROPERTIES ('delta.enableChangeDataFeed'='true')")
    spark.sql("UPDATE own SET a = a + 100 WHERE a = 4")
    spark.sql("DELETE FROM own WHERE a = 1")
    query = "SELECT a, _change_type AS what, _commit_version AS at FROM table_changes({})"
    rows = {tuple(row) for row in spark.sql(query.format("'own', 2")).collect()}
    assert rows == {(4, "update_preimage", 2), (104, "update_postimage", 2), (1, "delete", 3)}
    assert {row.at for row in spark.sql(query.format("'default.own', 2, 2")).collect()} == {2}
    path = location_of(spark, "own")
    counted = f"WITH c AS (SELECT * FROM table_changes_by_path('{path}', 3)) SELECT count(*) FROM c"
    assert spark.sql(counted).first()[0] == 1
    with pytest.raises(InvalidArgumentError, match="1 arguments"):
        spark.sql("SELECT * FROM table_changes('own')")
    with pytest.raises(TableNotFoundError, match="nowhere"):
        spark.sql("SELECT * FROM table_changes('nowhere', 1)")


@pytest.mark.parametrize("view", ["TEMP VIEW seen", "VIEW seen"])
def test_a_view_is_no_source_of_a_clone_and_has_no_version_to_go_back_to(spark, table, view):
    spark.sql(f"CREATE {view} AS SELECT * FROM own")
    try:
        for statement, condition in {
            "CREATE TABLE cloned SHALLOW CLONE seen": "DELTA_CLONE_UNSUPPORTED_SOURCE",
            "RESTORE TABLE seen TO VERSION AS OF 0": "DELTA_ONLY_OPERATION",
            "OPTIMIZE seen": "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
        }.items():
            with pytest.raises(TableNotFoundError, match="seen is a view") as refused:
                spark.sql(statement)
            assert refused.value.getCondition() == condition, statement
    finally:
        spark.sql("DROP VIEW seen")


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("counted() RETURNS BIGINT RETURN (SELECT count(*) FROM own)", "SELECT counted()"),
        ("counted() RETURNS TABLE (a BIGINT) RETURN SELECT a FROM own", "SELECT * FROM counted()"),
    ],
)
def test_a_function_over_a_table_that_another_program_created_says_what_to_do_when_it_is_called(
    spark, table, made, used
):
    spark._jsparkSession.sql(f"CREATE FUNCTION {made}")
    try:
        for run in (lambda: spark.sql(used).collect(), lambda: spark.sql(f"{used} LIMIT 1").toArrow()):
            with pytest.raises(InvalidArgumentError, match="the body of a SQL function") as refused:
                run()
            assert "Make a view" in str(refused.value)
    finally:
        spark.sql("DROP FUNCTION counted")
