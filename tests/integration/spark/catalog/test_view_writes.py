"""What is written through a view over a Delta table is a commit, or is refused: never Spark's own file writer."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pydelta.errors import DeltaError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

ROWS = [(i, i % 3) for i in range(6)]
LAYOUTS = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
}


def _files(path: str) -> dict[str, int]:
    root = Path(path)
    return {str(file.relative_to(root)): file.stat().st_size for file in root.rglob("*") if file.is_file()}


def _rows(spark, path) -> list[tuple]:
    return sorted(tuple(row) for row in spark.read.format("delta").load(path).collect())


def _version(path) -> int:
    return DeltaLog.for_table(path).update().version


@pytest.fixture(params=list(LAYOUTS))
def layout(request):
    return request.param


@pytest.fixture
def path(spark, tmp_path, layout):
    """Six rows in three partitions; with vectors, one more row that a vector hides."""
    target = str(tmp_path / "t")
    write = spark.createDataFrame([*ROWS, (99, 0)], "id long, p long").coalesce(1).write.format("delta")
    write.partitionBy("p").options(**LAYOUTS[layout]).save(target)
    DeltaTable.forPath(spark, target).delete("id = 99")
    assert _rows(spark, target) == ROWS
    return target


@pytest.fixture
def view(spark, path):
    """Views of every kind that show the whole table, by name."""
    frame = spark.read.format("delta").load(path)
    frame.createOrReplaceTempView("whole_frame")
    frame.createOrReplaceGlobalTempView("whole_global")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW whole_sql AS SELECT * FROM delta.`{path}`")
    spark.sql("CREATE OR REPLACE TEMP VIEW whole_nested AS SELECT * FROM whole_frame")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW whole_table AS TABLE delta.`{path}`")
    spark.sql(f"SELECT * FROM delta.`{path}`").createOrReplaceTempView("whole_selected")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW whole_using USING delta OPTIONS (path '{path}')")
    yield
    for name in ("frame", "sql", "nested", "table", "selected", "using"):
        spark.catalog.dropTempView(f"whole_{name}")
    spark.catalog.dropGlobalTempView("whole_global")


WHOLE = (
    "whole_frame", "global_temp.whole_global", "whole_sql", "whole_nested", "whole_table", "whole_selected",
    "whole_using",
)  # fmt: skip


# --- past PySpark: what the relation itself refuses -------------------------------------------------------------

REFUSED = (PySparkException, Py4JJavaError)
"""Spark says of DELETE and its kin that they should not have come so far."""


NOT_ROUTED = (
    "INSERT INTO {v} SELECT 100L, 1L",
    "INSERT INTO {v} (p, id) SELECT 1L, 100L",
    "INSERT INTO {v} BY NAME SELECT 1L AS p, 100L AS id",
    "INSERT INTO {v} PARTITION (p = 1) SELECT 100L",
    "INSERT OVERWRITE {v} SELECT 100L, 1L",
    "INSERT OVERWRITE {v} PARTITION (p = 1) SELECT 100L",
    "INSERT OVERWRITE {v} PARTITION (p) SELECT 100L, 1L",
    "INSERT INTO {v} REPLACE WHERE p = 1 SELECT 100L, 1L",
    "DELETE FROM {v}",
    "UPDATE {v} SET p = 1",
    "MERGE INTO {v} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE {v}",
    "LOAD DATA INPATH '{elsewhere}' INTO TABLE {v}",
    "ALTER TABLE {v} ADD PARTITION (p = 9)",
    "ALTER TABLE {v} DROP PARTITION (p = 1)",
)


def test_a_statement_that_is_not_routed_leaves_the_folder_alone(spark, tmp_path, path, view):
    """As Spark Connect, the Thrift Server and sessions that are not enabled run it: inside the JVM."""
    before = _files(path)
    elsewhere = tmp_path / "elsewhere.parquet"
    elsewhere.write_bytes(b"PAR1")
    here, other = spark._jsparkSession, spark._jsparkSession.newSession()
    routes = ((here, "whole_frame"), (other, "global_temp.whole_global"))
    try:
        for mode, cached in (("static", False), ("dynamic", True)):
            if cached:
                here.sql("CACHE TABLE whole_frame").collect()
            for session in (here, other):
                session.conf().set("spark.sql.sources.partitionOverwriteMode", mode)
            for statement in NOT_ROUTED:
                for session, name in routes:
                    with pytest.raises(REFUSED):
                        session.sql(statement.format(v=name, elsewhere=elsewhere)).collect()
                    assert _files(path) == before, statement
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
        spark.catalog.clearCache()


def test_a_writer_that_is_not_routed_leaves_the_folder_alone(spark, path, view):
    before = _files(path)
    frame = spark.createDataFrame([(100, 1)], "id long, p long")._jdf
    writers = (
        lambda name: frame.write().insertInto(name),
        lambda name: frame.write().mode("overwrite").insertInto(name),
        lambda name: frame.writeTo(name).append(),
        lambda name: frame.writeTo(name).overwritePartitions(),
    )
    for name in ("whole_frame", "global_temp.whole_global"):
        for write in writers:
            with pytest.raises(PySparkException):
                write(name)
            assert _files(path) == before


# --- through the engine: commits ----------------------------------------------------------------------------


def _others(p: int) -> list[tuple]:
    return [row for row in ROWS if row[1] != p]


CHANGES = (
    ("INSERT INTO {v} SELECT 100L, 1L", [*ROWS, (100, 1)]),
    ("INSERT INTO {v} (p, id) SELECT 1L, 100L", [*ROWS, (100, 1)]),
    ("INSERT INTO {v} BY NAME SELECT 1L AS p, 100L AS id", [*ROWS, (100, 1)]),
    ("INSERT INTO {v} PARTITION (p = 1) SELECT 100L", [*ROWS, (100, 1)]),
    ("INSERT OVERWRITE {v} SELECT 100L, 1L", [(100, 1)]),
    ("INSERT OVERWRITE {v} PARTITION (p = 1) SELECT 100L", [*_others(1), (100, 1)]),
    ("INSERT INTO {v} REPLACE WHERE p = 1 SELECT 100L, 1L", [*_others(1), (100, 1)]),
    ("DELETE FROM {v} WHERE id < 2", ROWS[2:]),
    ("UPDATE {v} SET p = 7 WHERE id = 5", [*ROWS[:5], (5, 7)]),
    (
        "MERGE INTO {v} t USING (SELECT 3L AS id, 0L AS p UNION ALL SELECT 100L, 1L) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
        [*ROWS[:3], *ROWS[4:], (100, 1)],
    ),
)


def _expect(spark, path, change, expected) -> None:
    """One commit with these rows, and nothing beside the log and the files that it names."""
    before = _version(path)
    change()
    assert _rows(spark, path) == sorted(expected)
    assert _version(path) == before + 1
    DeltaTable.forPath(spark, path).restoreToVersion(before)
    assert _rows(spark, path) == ROWS


@pytest.mark.parametrize("layout", ["plain"], indirect=True)
def test_every_statement_through_a_view_of_a_whole_table_commits(spark, path, view):
    for name, (statement, expected) in zip(itertools.cycle(WHOLE), CHANGES, strict=False):
        _expect(spark, path, lambda text=statement, name=name: spark.sql(text.format(v=name)), expected)
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        dynamic = "INSERT OVERWRITE whole_frame SELECT 100L, 1L"
        _expect(spark, path, lambda: spark.sql(dynamic), [*_others(1), (100, 1)])
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


@pytest.mark.parametrize("layout", ["plain"], indirect=True)
def test_every_writer_through_a_view_of_a_whole_table_commits(spark, path, view):
    new = spark.createDataFrame([(100, 1)], "id long, p long")
    writers = (
        (lambda name: new.write.insertInto(name), [*ROWS, (100, 1)]),
        (lambda name: new.write.insertInto(name, overwrite=True), [(100, 1)]),
        (lambda name: new.writeTo(name).append(), [*ROWS, (100, 1)]),
        (lambda name: new.writeTo(name).overwrite(new.p == 1), [*_others(1), (100, 1)]),
        (lambda name: new.writeTo(name).overwritePartitions(), [*_others(1), (100, 1)]),
        (lambda name: DeltaTable.forName(spark, name).delete("id < 2"), ROWS[2:]),
    )
    for name, (write, expected) in zip(itertools.cycle(WHOLE), writers, strict=False):
        _expect(spark, path, lambda write=write, name=name: write(name), expected)


def test_every_view_of_a_whole_table_takes_an_insert_and_a_delete_and_shows_them(spark, path, view):
    for position, name in enumerate(WHOLE, start=100):
        spark.sql(f"INSERT INTO {name} SELECT {position}L, 1L")
        assert _rows(spark, path) == [*ROWS, (position, 1)], name
        assert spark.table(name).count() == len(ROWS) + 1
        spark.sql(f"DELETE FROM {name} WHERE id = {position}")
        assert _rows(spark, path) == ROWS, name


def test_a_catalog_view_and_a_view_of_a_named_table_commit_to_the_table(spark, tmp_path):
    spark.sql("CREATE TABLE below_view (id BIGINT, p BIGINT) USING delta")
    spark.sql("CREATE OR REPLACE VIEW kept_in_catalog AS SELECT * FROM below_view")
    spark.table("below_view").createOrReplaceTempView("of_named")
    spark.sql("CREATE OR REPLACE TEMP VIEW over_kept AS SELECT * FROM kept_in_catalog")
    try:
        for position, name in enumerate(("kept_in_catalog", "of_named", "over_kept"), start=1):
            spark.sql(f"INSERT INTO {name} SELECT 1L, 1L")
            assert spark.table("below_view").count() == position
    finally:
        spark.sql("DROP VIEW over_kept")
        spark.sql("DROP VIEW of_named")
        spark.sql("DROP VIEW kept_in_catalog")
        spark.sql("DROP TABLE below_view")


# --- views that show something else -----------------------------------------------------------------------------


def test_views_that_show_something_else_are_refused_and_the_table_stays(spark, path):
    frame = spark.read.format("delta").load(path)
    old = spark.read.format("delta").option("versionAsOf", _version(path)).load(path)
    frames = {
        "filtered": frame.where("id > 2"),
        "fewer": frame.select("id"),
        "swapped": frame.select("p", "id"),
        "renamed": frame.toDF("a", "b"),
        "exchanged": frame.selectExpr("p AS id", "id AS p"),
        "more": frame.selectExpr("*", "1 AS x"),
        "limited": frame.limit(2),
        "unioned": frame.union(frame),
        "joined": frame.join(spark.range(3), "id"),
        "older": old,
    }
    texts = {
        "sql_filtered": f"SELECT * FROM delta.`{path}` WHERE id > 2",
        "sql_fewer": f"SELECT id FROM delta.`{path}`",
        "sql_older": f"SELECT * FROM delta.`{path}` VERSION AS OF 0",
        "sql_older_path": f"SELECT * FROM delta.`{path}@v0`",
        "sql_nested": "SELECT * FROM odd_filtered",
        "sql_below": f"SELECT * FROM range(3) WHERE id IN (SELECT id FROM delta.`{path}`)",
    }
    for kind, shown in frames.items():
        shown.createOrReplaceTempView(f"odd_{kind}")
    for kind, text in texts.items():
        spark.sql(f"CREATE OR REPLACE TEMP VIEW odd_{kind} AS {text}")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW odd_named (x, y) AS SELECT * FROM delta.`{path}`")
    before = _files(path)
    new = spark.createDataFrame([(100, 1)], "id long, p long")
    try:
        for kind in (*frames, *texts, "named"):
            name = f"odd_{kind}"
            statements = [text.format(v=name) for text, _ in CHANGES[:: 1 if kind in ("filtered", "older") else 4]]
            writers = (
                *(lambda text=text: spark.sql(text) for text in statements),
                lambda name=name: new.write.insertInto(name),
                lambda name=name: new.write.insertInto(name, overwrite=True),
                lambda name=name: new.writeTo(name).append(),
                lambda name=name: new.writeTo(name).overwritePartitions(),
            )
            for write in writers:
                with pytest.raises(
                    UnsupportedFeatureError, match=f"{name} is a view that shows|{name} is a view that does"
                ):
                    write()
            with pytest.raises(DeltaError, match="is a view"):
                DeltaTable.forName(spark, name)
        assert _files(path) == before
    finally:
        for kind in (*frames, *texts, "named"):
            spark.catalog.dropTempView(f"odd_{kind}")


def test_a_view_made_before_the_columns_changed_is_refused(spark, path, view):
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN late STRING")
    before = _files(path)
    for name in ("whole_frame", "whole_sql"):
        with pytest.raises(UnsupportedFeatureError, match="shows the columns id, p, and the table's are id, p, late"):
            spark.sql(f"INSERT INTO {name} SELECT 100L, 1L")
    assert _files(path) == before


def test_views_over_other_tables_stay_sparks(spark, tmp_path):
    spark.range(3).write.parquet(str(tmp_path / "plain"))
    spark.read.parquet(str(tmp_path / "plain")).createOrReplaceTempView("plain_parquet")
    spark.sql("INSERT INTO plain_parquet SELECT 100L")
    assert spark.read.parquet(str(tmp_path / "plain")).count() == 4
    spark.sql("CREATE OR REPLACE TEMP VIEW plain_text AS SELECT 1L AS id")
    with pytest.raises(PySparkException) as refused:
        spark.sql("INSERT INTO plain_text SELECT 100L")
    assert not isinstance(refused.value, DeltaError)
    spark.catalog.dropTempView("plain_parquet")
    spark.catalog.dropTempView("plain_text")
