"""Names, SQL and views: resolved afresh on each call, by this engine, and not at all once it is disabled."""

from __future__ import annotations

import contextlib
import io
import json

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import pydelta
import pydelta.tables
from pydelta.api.routing import wishes
from pydelta.engines.spark.catalog.entries import create_entry
from pydelta.engines.spark.catalog.lookup import location_of
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path
from pydelta.engines.spark.session import checks
from pydelta.errors import DeltaEnvironmentError, SchemaMismatchError, VersionNotFoundError

pytestmark = [pytest.mark.spark, pytest.mark.damages_tables]


def _plan(frame) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        frame.explain()
    return out.getvalue()


def _is_native(frame) -> bool:
    plan = _plan(frame)
    return "FileScan parquet" in plan and "BatchScan" not in plan


def _append(path, *ids) -> None:
    write_deltalake(path, pa.table({"id": list(ids), "k": [i % 3 for i in ids]}), mode="append")


@pytest.fixture
def path(tmp_path):
    target = str(tmp_path / "t")
    _append(target, *range(9))
    return target


@pytest.fixture
def name(spark, path):
    spark.sql("DROP TABLE IF EXISTS routed")
    create_entry(spark, ("routed",), log_for_path(spark, path).update())
    yield "routed"
    spark.sql("DROP TABLE IF EXISTS routed")


def test_a_catalog_table_is_read_natively_and_afresh(spark, name, path):
    first = spark.table(name)
    assert _is_native(first) and _is_native(spark.read.table(name)) and _is_native(spark.sql(f"SELECT * FROM {name}"))
    _append(path, 100)
    assert first.count() == 10
    assert spark.table(name).count() == 10
    assert spark.sql(f"SELECT count(*) FROM {name}").first()[0] == 10
    assert spark.sql(f"SELECT count(*) FROM default.{name}").first()[0] == 10
    assert spark.sql(f"SELECT count(*) FROM spark_catalog.default.{name}").first()[0] == 10


def test_a_table_made_by_sql_at_a_location_is_read(spark, path):
    spark.sql("DROP TABLE IF EXISTS located")
    spark.sql(f"CREATE TABLE located USING delta LOCATION '{path}'")
    try:
        assert _is_native(spark.table("located"))
        assert spark.table("located").count() == 9
        assert spark.sql("SELECT located.id FROM located WHERE located.k = 1").count() == 3
    finally:
        spark.sql("DROP TABLE located")


def test_the_entry_that_is_registered_names_provider_location_and_columns(spark, name, path):
    assert spark.catalog.tableExists(name)
    entry = (
        spark._jsparkSession.sessionState()
        .catalog()
        .getTableMetadata(Jvm.of(spark).table_identifier.apply(name, Jvm.of(spark).none, Jvm.of(spark).none))
    )
    assert entry.provider().get() == "delta"
    assert str(entry.tableType().name()) == "EXTERNAL"
    assert [field.name for field in spark.table(name).schema] == ["id", "k"]
    assert location_of(spark, name).rstrip("/").endswith(path)
    create_entry(spark, (name,), log_for_path(spark, path).update())  # again: no error, no change


def test_sql_over_a_path_with_ctes_subqueries_joins_and_parameters(spark, path):
    table = f"delta.`{path}`"
    query = f"""
        WITH a AS (SELECT * FROM {table} WHERE k = 1), b AS (SELECT id FROM a)
        SELECT (SELECT max(id) FROM {table}) AS top, count(*) AS n
        FROM b JOIN {table} c ON b.id = c.id
        WHERE EXISTS (SELECT 1 FROM {table} z WHERE z.k = 2) AND b.id IN (SELECT id FROM {table})
    """
    assert _is_native(spark.sql(query))
    assert tuple(spark.sql(query).first()) == (8, 3)
    assert spark.sql(f"SELECT * FROM {table} WHERE k = :k", {"k": 1}).count() == 3
    assert spark.sql(f"SELECT * FROM {table} WHERE k = ? AND id > ?", [1, 1]).count() == 2
    assert spark.sql("SELECT * FROM {frame} WHERE k = 1", frame=spark.sql(f"SELECT * FROM {table}")).count() == 3
    assert spark.sql(f"EXPLAIN SELECT * FROM {table}").first()[0].count("FileScan parquet") == 1


def test_a_cte_hides_a_table_of_its_name(spark, name):
    assert spark.sql(f"WITH {name} AS (SELECT 7 AS id) SELECT sum(id) FROM {name}").first()[0] == 7
    assert spark.sql(f"WITH {name} AS (SELECT id FROM {name} WHERE id < 3) SELECT count(*) FROM {name}").first()[0] == 3


def test_sql_time_travel(spark, name, path):
    _append(path, 100)
    assert spark.sql(f"SELECT * FROM {name} VERSION AS OF 0").count() == 9
    newest = log_for_path(spark, path).update().timestamp_ms
    assert spark.sql(f"SELECT * FROM {name} TIMESTAMP AS OF timestamp_millis({newest})").count() == 10
    with pytest.raises(VersionNotFoundError, match="after the newest version"):
        spark.sql(f"SELECT * FROM {name} TIMESTAMP AS OF current_timestamp() + INTERVAL 1 HOUR")
    assert spark.sql(f"SELECT * FROM delta.`{path}@v0`").count() == 9
    assert spark.read.option("versionAsOf", "0").table(name).count() == 9
    assert spark.table(name).count() == 10


def test_a_temporary_view_of_a_frame_sees_later_commits(spark, path):
    spark.read.format("delta").load(path).where("k = 1").createOrReplaceTempView("ones")
    _append(path, 100, 103)
    assert spark.table("ones").count() == 5
    assert spark.sql("SELECT count(*) FROM ones WHERE id < 200").first()[0] == 5
    assert _is_native(spark.table("ones"))


def test_a_temporary_view_of_a_named_version_stays(spark, path):
    spark.read.format("delta").option("versionAsOf", 0).load(path).createOrReplaceTempView("old")
    _append(path, 100)
    assert spark.table("old").count() == 9


def test_a_view_whose_table_changed_its_columns_says_so(spark, path):
    spark.read.format("delta").load(path).createOrReplaceTempView("stale")
    write_deltalake(path, pa.table({"id": [5], "k": [1], "more": ["x"]}), mode="append", schema_mode="merge")
    assert spark.table("stale").columns == ["id", "k"]  # new columns do not concern it, new rows do
    assert spark.table("stale").filter("id = 5").count() >= 1
    write_deltalake(path, pa.table({"id": ["5"]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SchemaMismatchError, match="stale") as caught:
        spark.table("stale")
    assert isinstance(caught.value, AnalysisException)


def test_views_made_by_sql_are_read_natively(spark, name, path):
    spark.sql("DROP VIEW IF EXISTS kept")
    spark.sql(f"CREATE VIEW kept (a, b) AS SELECT id, k FROM {name}")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW passing AS SELECT id FROM delta.`{path}`")
    try:
        _append(path, 100)
        assert spark.table("kept").columns == ["a", "b"]
        assert spark.sql("SELECT max(a) FROM kept").first()[0] == 100
        assert spark.table("passing").count() == 10
        assert _is_native(spark.table("kept")) and _is_native(spark.table("passing"))
    finally:
        spark.sql("DROP VIEW kept")


def test_other_sources_and_statements_go_to_spark_as_before(spark, tmp_path):
    spark.range(5).write.parquet(str(tmp_path / "plain"))
    assert spark.read.load(str(tmp_path / "plain")).count() == 5
    assert spark.sql(f"SELECT * FROM parquet.`{tmp_path / 'plain'}`").count() == 5
    assert spark.sql("SELECT 1 AS one").first()[0] == 1
    spark.range(3).createOrReplaceTempView("three")
    assert spark.table("three").count() == 3
    with pytest.raises(ParseException):
        spark.sql("SELEC 1")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("there_is_no_such_table")


def test_a_missing_column_is_sparks_own_error(spark, path):
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        spark.sql(f"SELECT nope FROM delta.`{path}`")


def test_rows_can_be_written_elsewhere_from_a_delta_table(spark, path, tmp_path):
    spark.sql(f"CREATE TABLE copied USING parquet LOCATION '{tmp_path / 'copied'}' AS SELECT * FROM delta.`{path}`")
    try:
        spark.sql(f"INSERT INTO copied SELECT id + 100, k FROM delta.`{path}`")
        assert spark.table("copied").count() == 18
    finally:
        spark.sql("DROP TABLE copied")


def test_the_python_source_answers_where_routing_does_not(spark, path):
    write_deltalake(
        path, pa.table({"id": [50], "k": [None]}, pa.schema([("id", pa.int64()), ("k", pa.int64())])), mode="append"
    )
    frame = spark.read._df(spark._jsparkSession.read().format("delta").load(path))  # as SQL inside the JVM would
    assert "BatchScan" in _plan(frame)
    assert {(row.id, row.k) for row in frame.collect()} == {(i, i % 3) for i in range(9)} | {(50, None)}
    old = spark.read._df(spark._jsparkSession.read().format("delta").option("versionAsOf", "0").load(path))
    assert old.count() == 9


def test_a_new_session_of_an_enabled_one_is_enabled(spark, path):
    other = spark.newSession()
    third = other.newSession()
    try:
        assert other.sql(f"SELECT * FROM delta.`{path}`").count() == 9
        assert third.read.format("delta").load(path).count() == 9
    finally:
        pydelta.disable(other)
        pydelta.disable(third)
    with pytest.raises(Exception, match="delta"):
        other.sql(f"SELECT * FROM delta.`{path}`")
    assert spark.read.format("delta").load(path).count() == 9


def test_disable_puts_every_method_back(spark, path):
    patched = (SparkSession.sql, SparkSession.table)
    pydelta.disable(spark)
    try:
        assert SparkSession.sql is not patched[0] and SparkSession.table is not patched[1]
        assert not hasattr(SparkSession.sql, "__wrapped__")
        with pytest.raises(Exception, match="delta"):
            spark.read.format("delta").load(path)
    finally:
        pydelta.enable(spark)
    assert spark.read.format("delta").load(path).count() == 9
    assert pydelta.enable(spark) is spark  # again: nothing happens


def test_a_session_that_runs_the_jvm_engine_is_recognised_and_the_settings_named(spark, monkeypatch):
    monkeypatch.setattr(checks, "has_jvm_engine", lambda spark: True)
    with monkeypatch.context() as settings:
        settings.setattr(Jvm, "session_conf", lambda self: {"spark.sql.catalog.spark_catalog": "a.DeltaCatalog"})
        with pytest.raises(DeltaEnvironmentError) as caught:
            checks.check_session(spark)
    assert "spark.sql.catalog.spark_catalog" in str(caught.value)
    assert "spark.sql.extensions" in str(caught.value)


def test_settings_for_the_jvm_engine_without_its_jar_are_the_wish_for_this_one(spark, path):
    other = spark.newSession()
    pydelta.disable(other)
    other.conf.set("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    pydelta.enable(other)
    try:
        assert other.sql(f"SELECT * FROM delta.`{path}`").count() == 9
        assert other.sql("SHOW TABLES").collect() is not None  # by a catalog that can be loaded
    finally:
        pydelta.disable(other)


def test_a_builder_makes_enabled_sessions_where_it_or_its_settings_ask_for_delta(spark, path):
    reference = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension, org.example.Another",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    pydelta.disable(spark)
    try:
        with pytest.raises(Exception, match="delta"):
            SparkSession.builder.getOrCreate().read.format("delta").load(path)
        found = pydelta.configure_spark_with_delta_pip(SparkSession.builder.appName("t")).getOrCreate()
        assert found.read.format("delta").load(path).count() == 9
        pydelta.disable(found)
        asked = SparkSession.builder.config("spark.pydelta.enabled", "true").getOrCreate()
        assert asked.read.format("delta").load(path).count() == 9
    finally:
        spark.conf.unset("spark.pydelta.enabled")
        pydelta.enable(spark)
    assert wishes.asks_for_delta(reference)
    assert wishes.asks_for_delta({"spark.pydelta.enabled": "TRUE"})
    assert not wishes.asks_for_delta({**reference, "spark.pydelta.enabled": "false"})
    assert not wishes.asks_for_delta({})
    wishes.without_jvm_engine(reference)
    assert reference == {"spark.sql.extensions": "org.example.Another"}


def test_a_connect_session_is_refused():
    class SparkConnectSession:
        """Has no JVM, as a Spark Connect client has none."""

    with pytest.raises(DeltaEnvironmentError, match="classic"):
        pydelta.enable(SparkConnectSession())


def test_a_deletion_vector_that_is_none_is_refused_with_what_is_wrong(spark, tmp_path):
    path = tmp_path / "t"
    write_deltalake(str(path), pa.table({"id": [1, 2, 3]}))
    log = path / "_delta_log" / "00000000000000000000.json"
    vector = {"storageType": "i", "pathOrInlineDv": "ab", "sizeInBytes": 40, "cardinality": 1}
    log.write_text(log.read_text().replace('"add":{', '"add":{"deletionVector":' + json.dumps(vector) + ","))
    with pytest.raises(Exception, match="The deletion vector 'iab' is damaged"):
        spark.read.format("delta").load(str(path)).collect()
    with pytest.raises(Exception, match="The deletion vector 'iab' is damaged"):
        spark.sql(f"SELECT sum(id) FROM delta.`{path}`").collect()


def test_functions_of_the_frame_work_on_a_routed_table(spark, name):
    assert spark.table(name).select(F.sum("id")).first()[0] == 36
    assert spark.table(name).alias("x").where("x.k = 1").count() == 3
