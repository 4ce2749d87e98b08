"""The relations of a statement: which table, version, view or change feed each name stands for."""

from __future__ import annotations

import logging
import os
import shutil

import polars as pl
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import pydelta
from pydelta.api.sql.relations import RelationResolver, _names_metadata, named_tables
from pydelta.engines.spark.catalog.lookup import ViewEntry, look_up
from pydelta.engines.spark.catalog.objects import copy_of
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.refresh import indexes_in
from pydelta.errors import (
    BindError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pydelta.log import DeltaLog

pytestmark = pytest.mark.spark

DAYS = 1704067200, 1704153600, 1704240000  # The first days of 2024.


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A table with a change feed: [], [1, 2], [1, 2, 3] in versions 0 to 2, one per day."""
    path = tmp_path_factory.mktemp("relations") / "t"
    table = pydelta.LocalTable.create(str(path), {"id": "bigint"}, properties={"delta.enableChangeDataFeed": "true"})
    table.append(pl.DataFrame({"id": [1, 2]}))
    table.append(pl.DataFrame({"id": [3]}))
    for version, moment in enumerate(DAYS):
        os.utime(path / "_delta_log" / f"{version:020}.json", (moment, moment))
    return str(path)


@pytest.fixture(scope="module")
def lake(spark, path):
    """The database ``rel`` with the table as ``t`` and a table of Spark's own."""
    spark.sql("CREATE DATABASE rel")
    spark.sql(f"CREATE TABLE rel.t USING delta LOCATION '{path}'")
    spark.sql("CREATE TABLE rel.own (id BIGINT) USING parquet")
    yield
    spark.sql("DROP DATABASE rel CASCADE")


@pytest.fixture
def rel(spark, lake):
    """The database, which is current."""
    spark.catalog.setCurrentDatabase("rel")
    yield
    spark.catalog.setCurrentDatabase("default")


@pytest.fixture
def fresh(spark, rel):
    """The database, from which all that a test makes is dropped."""
    yield
    for view in ("seen", "framed", "streamed", "t@v1"):
        spark.catalog.dropTempView(view)
    jvm = Jvm.of(spark)
    catalog = jvm.state.catalog()
    for name in jvm.to_list(catalog.listTables("rel")):
        if str(name.table()) not in ("t", "own"):
            catalog.dropTable(name, True, True)


def versions(plan):
    """Return the versions that a resolved plan reads."""
    return [index.version_and_id[0] for index in indexes_in(Jvm.of(SparkSession.getActiveSession()), plan)]


def ids(frame):
    return sorted((row[0] for row in frame.collect()), key=str)


QUERIES = {
    "SELECT id FROM t": [1, 2, 3],
    "SELECT t.id FROM T": [1, 2, 3],
    "SELECT rel.t.id FROM rel.t": [1, 2, 3],
    "SELECT spark_catalog.rel.t.id FROM spark_catalog.rel.t": [1, 2, 3],
    "SELECT a.id FROM t AS a JOIN rel.t AS b ON a.id = b.id + 1": [2, 3],
    "SELECT id FROM delta.`{path}`": [1, 2, 3],
    "SELECT id FROM delta.`{path}@v1`": [1, 2],
    "SELECT id FROM delta.`{path}@20240102120000000`": [1, 2],
    "SELECT id FROM rel.`t@v1`": [1, 2],
    "SELECT t.id FROM t VERSION AS OF 1 AS t": [1, 2],
    "SELECT id FROM t VERSION AS OF '1'": [1, 2],
    "SELECT id FROM delta.`{path}` VERSION AS OF 0": [],
    "SELECT id FROM t TIMESTAMP AS OF '2024-01-02 12:00:00'": [1, 2],
    "SELECT id FROM t TIMESTAMP AS OF DATE'2024-01-01'": [],
    "SELECT n.id FROM t VERSION AS OF 1 AS o RIGHT JOIN t AS n ON o.id = n.id": [1, 2, 3],
    "SELECT id FROM t WHERE id IN (SELECT max(id) FROM t VERSION AS OF 1)": [2],
    "WITH T AS (SELECT 9 AS id) SELECT id FROM t": [9],
    "WITH t AS (SELECT 9 AS id) SELECT id FROM T": [9],
    "WITH t AS (SELECT 9 AS id) SELECT id FROM rel.t": [1, 2, 3],
    "WITH t AS (SELECT 9 AS k) SELECT id FROM rel.t, t WHERE t.k = 9": [1, 2, 3],
    "WITH rel AS (SELECT 9 AS id) SELECT id FROM rel.t": [1, 2, 3],
    "WITH t AS (SELECT id FROM t WHERE id = 1) SELECT id FROM t": [1],
    "WITH a AS (SELECT id FROM t), b AS (SELECT id + 1 AS id FROM A) SELECT id FROM b": [2, 3, 4],
    "SELECT id FROM (WITH t AS (SELECT 9 AS id) SELECT id FROM t)": [9],
    "SELECT id FROM (WITH t AS (SELECT 9 AS id) SELECT id FROM t) UNION ALL SELECT id FROM t": [1, 2, 3, 9],
    "WITH t AS (SELECT 9 AS id) SELECT id FROM (WITH u AS (SELECT id FROM t) SELECT id FROM u)": [9],
    "WITH t AS (SELECT 9 AS id), u AS (SELECT id FROM rel.t) SELECT t.id FROM t, u WHERE u.id = 1": [9],
    "WITH c AS (SELECT 8 AS id) SELECT id FROM c": [8],
    "SELECT id FROM t WHERE id > (WITH t AS (SELECT 2 AS id) SELECT max(id) FROM t)": [3],
    "SELECT id FROM table_changes('t', 1)": [1, 2, 3],
    "SELECT id FROM TABLE_CHANGES('rel.t', 1, 1)": [1, 2],
    "SELECT id FROM table_changes('t', 0 + 2)": [3],
    "SELECT id FROM spark_catalog.rel.table_changes('t', 2)": [3],
    "SELECT id FROM table_changes('t', '2024-01-03')": [3],
    "SELECT id FROM table_changes('t', '2024-01-01', '2024-01-02')": [1, 2],
    "SELECT id FROM table_changes_by_path('{path}', 2)": [3],
    "SELECT x.id FROM table_changes('t', 1, 2) AS x WHERE x._commit_version = 2": [3],
    "SELECT id FROM range(2)": [0, 1],
    "SELECT id FROM t CHANGES FROM VERSION 2": [3],
    "SELECT t.id FROM t CHANGES FROM VERSION 1 TO VERSION 1": [1, 2],
    "FROM t |> SET id = (SELECT max(id) FROM t) + id": [4, 5, 6],
    "FROM t |> SET id = CAST(EXISTS (SELECT * FROM t WHERE id = 7) AS INT)": [0, 0, 0],
    "FROM t |> SET id = CAST(id IN (SELECT id FROM t VERSION AS OF 1) AS INT)": [0, 1, 1],
    "FROM t |> SET id = id + 1": [2, 3, 4],
    "SELECT id FROM t |> SET id = id + 1 |> EXCEPT SELECT 4": [2, 3],
    "FROM VALUES (1) AS s(id) |> SET id = id + 1": [2],
    "FROM VALUES (1) AS s(id) |> SET id = (SELECT max(id) FROM t)": [3],
    "FROM VALUES (1) AS s(id) |> SET id = (SELECT max(id) FROM delta.`{path}` VERSION AS OF 1)": [2],
    "SELECT id FROM range(2) UNION ALL SELECT id FROM t": [0, 1, 1, 2, 3],
    "SELECT * EXCEPT (x) FROM (SELECT id, 1 AS x FROM t)": [1, 2, 3],
    "SELECT id FROM IDENTIFIER('rel.' || 't')": [1, 2, 3],
    "SELECT id FROM IDENTIFIER('delta.`{path}`') WHERE id > 1": [2, 3],
    "SELECT id FROM IDENTIFIER('rel.' || 't') VERSION AS OF 1": [1, 2],
    "SELECT id FROM IDENTIFIER('rel.' || 't') CHANGES FROM VERSION 2": [3],
    "SELECT a.id FROM t VERSION AS OF 1 AS a JOIN IDENTIFIER('rel.' || 't') AS b ON a.id = b.id": [1, 2],
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_has_the_rows_of_what_it_names(spark, rel, path, query):
    assert ids(spark.sql(query.format(path=path))) == QUERIES[query]


def test_the_folder_of_a_partition_has_its_rows(spark, fresh, tmp_path):
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` (id BIGINT, p INT) USING delta PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO delta.`{tmp_path}/t` VALUES (1, 1), (2, 2), (3, 1)")
    assert ids(spark.sql(f"SELECT id FROM delta.`{tmp_path}/t/p=1`")) == [1, 3]
    assert ids(spark.sql(f"SELECT id FROM delta.`{tmp_path}/t`")) == [1, 2, 3]


REFUSED = {
    "SELECT * FROM table_changes('t')": (InvalidArgumentError, "given 1 arguments"),
    "SELECT * FROM table_changes('t', 1, 2, 3)": (InvalidArgumentError, "given 4 arguments"),
    "SELECT * FROM table_changes('t', NULL)": (InvalidArgumentError, "was given NULL"),
    "SELECT * FROM table_changes('t', 0, NULL)": (InvalidArgumentError, "was given NULL"),
    "SELECT * FROM table_changes(NULL, 1)": (BindError, "given NULL for the table"),
    "SELECT * FROM table_changes_by_path(CAST(NULL AS STRING), 1)": (BindError, "given NULL for the table"),
    "SELECT * FROM table_changes('own', 0)": (TableNotFoundError, "own is not a Delta table"),
    "SELECT * FROM table_changes('nowhere', 0)": (TableNotFoundError, "nowhere is not a Delta table"),
    "SELECT * FROM IDENTIFIER(CAST(NULL AS STRING))": (BindError, "is null"),
    "SELECT * FROM own VERSION AS OF 1": (AnalysisException, "(?i)time travel"),
    "SELECT * FROM own CHANGES FROM VERSION 1": (AnalysisException, "(?i)changes|change data"),
    "SELECT * FROM t, own VERSION AS OF 1": (AnalysisException, "(?i)time travel"),
    "SELECT * FROM t, own CHANGES FROM VERSION 1": (AnalysisException, "(?i)changes|change data"),
    "SELECT * FROM t, STREAM own": (AnalysisException, "(?i)stream"),
    "SELECT * FROM `t@v9`": (Exception, "9"),
    "SELECT * FROM `own@v1`": (AnalysisException, "TABLE_OR_VIEW_NOT_FOUND"),
    "SELECT * FROM `t@v1` VERSION AS OF 0": (AnalysisException, "TABLE_OR_VIEW_NOT_FOUND"),
}


@pytest.mark.parametrize("query", REFUSED)
def test_a_query_that_names_nothing_is_refused(spark, rel, query):
    kind, text = REFUSED[query]
    with pytest.raises(kind, match=text):
        spark.sql(query).collect()


def test_identifier_names_the_table_of_an_insert_and_of_a_delete(spark, fresh, tmp_path):
    spark.sql(f"CREATE TABLE rel.n (id INT) USING delta LOCATION '{tmp_path / 'n'}'")
    spark.sql("INSERT INTO IDENTIFIER('rel.' || 'n') VALUES (1), (2)")
    spark.sql("INSERT INTO IDENTIFIER('n') SELECT id + 5 FROM IDENTIFIER('t')")
    spark.sql("INSERT INTO n SELECT id + 10 FROM IDENTIFIER('t')")
    spark.sql("DELETE FROM IDENTIFIER('rel.' || 'n') WHERE id = 2")
    assert ids(spark.table("n")) == [1, 11, 12, 13, 6, 7, 8]


VIEWS = {
    "v": "SELECT id FROM t",
    "w (k)": "SELECT id + 1 AS n FROM V",
    "x": "SELECT t.id FROM t JOIN two ON t.id = two.id",
    "y": "SELECT id FROM two",
    "z": "WITH t AS (SELECT 9 AS id) SELECT t.id FROM t JOIN rel.t AS u ON u.id = 1",
    "c": "SELECT id FROM table_changes('t', 2)",
    "d": "SELECT id FROM t CHANGES FROM VERSION 2",
    "o": "SELECT id FROM t VERSION AS OF 1",
    "p": "SELECT id FROM delta.`{path}` WHERE id = 3",
}
MAPPED = {"delta.columnMapping.mode": "name"}
OF_VIEWS = {"v": [1, 2, 3], "w": [2, 3, 4], "x": [2], "y": [2], "z": [9], "c": [3], "d": [3], "o": [1, 2], "p": [3]}


def test_a_view_s_names_are_those_of_its_database_wherever_it_is_read(spark, fresh, path):
    spark.sql("CREATE TABLE two USING parquet AS SELECT 2L AS id")
    for name, query in VIEWS.items():
        spark.sql(f"CREATE VIEW rel.{name} AS {query.format(path=path)}")
    spark.catalog.setCurrentDatabase("default")
    found = {name: ids(spark.sql(f"SELECT * FROM rel.{name}")) for name in OF_VIEWS}
    assert found == OF_VIEWS
    assert ids(spark.sql("SELECT v.id FROM rel.v JOIN rel.w ON v.id = w.k")) == [2, 3]
    assert ids(spark.sql("SELECT rel.v.id FROM rel.v WHERE id = 1")) == [1]
    jvm, resolver = Jvm.of(spark), RelationResolver(spark)
    assert {name: resolver.reads_delta(look_up(spark, ("rel", name))) for name in ("v", "w", "y", "p")} == {
        "v": True, "w": True, "y": False, "p": True,
    }  # fmt: skip
    with pytest.raises(AnalysisException, match="TIME_TRAVEL"):
        spark.sql("SELECT * FROM rel.v VERSION AS OF 1")
    with pytest.raises(BindError, match="is a view, which has no versions"):
        spark.read.option("versionAsOf", 1).table("rel.v")
    with pytest.raises(BindError, match="is a view, which has no versions"):
        spark.sql("SELECT * FROM rel.`v@v1`")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM rel.`y@v1`")
    other = ViewEntry(qualifier=("m",), text="", relation=lambda: jvm.subquery_alias.apply("m", jvm.no_rows()))
    assert not RelationResolver(spark).reads_delta(other)


def test_a_view_may_be_named_like_a_version_of_a_table(spark, fresh):
    spark.sql("CREATE TEMP VIEW `t@v1` AS SELECT id + 10 AS id FROM rel.t")
    assert ids(spark.sql("SELECT id FROM `t@v1`")) == [11, 12, 13]
    assert ids(spark.sql("SELECT id FROM rel.`t@v1`")) == [1, 2]


def test_a_temporary_view_hides_a_table_in_the_texts_of_temporary_views_alone(spark, fresh):
    spark.sql("CREATE TEMP VIEW seen AS SELECT id FROM t WHERE id > 1")
    spark.sql("CREATE TEMP VIEW framed AS SELECT id + 1 AS id FROM SEEN")
    spark.sql("CREATE TABLE rel.seen (id BIGINT) USING parquet")
    spark.sql("CREATE VIEW rel.over AS SELECT id FROM rel.seen")
    spark.catalog.setCurrentDatabase("default")
    assert (ids(spark.table("seen")), ids(spark.table("framed"))) == ([2, 3], [3, 4])
    assert ids(spark.sql("SELECT id FROM rel.over")) == []


def test_a_temporary_view_hides_a_table_on_the_path_in_the_texts_of_temporary_views(spark, fresh):
    if not Jvm.of(spark).has_paths:
        pytest.skip("this Spark has no SET PATH, which came with 4.3")
    spark.sql("CREATE TEMP VIEW seen AS SELECT id FROM rel.t WHERE id > 1")
    spark.sql("CREATE TEMP VIEW framed AS SELECT id + 1 AS id FROM seen")
    spark.sql("CREATE TABLE rel.seen USING delta AS SELECT 7L AS id")
    spark.conf.set("spark.sql.path.enabled", "true")
    try:
        spark.sql("SET PATH = spark_catalog.rel, system.session, system.builtin")
        assert (ids(spark.sql("SELECT id FROM framed")), ids(spark.sql("SELECT id FROM seen"))) == ([3, 4], [7])
    finally:
        Jvm.of(spark).state.catalogManager().clearSessionPath()
        spark.conf.unset("spark.sql.path.enabled")


def test_a_view_of_a_frame_shows_new_rows_and_is_refused_without_its_columns(spark, fresh, tmp_path):
    place = str(tmp_path / "n")
    local = pydelta.LocalTable.create(place, pl.DataFrame({"id": [1], "b": [1]}), properties=MAPPED)
    spark.read.format("delta").load(place).where("id > 0").createOrReplaceTempView("framed")
    assert ids(spark.sql("SELECT id FROM framed")) == [1]
    assert ids(spark.sql("SELECT framed.id FROM framed")) == [1]
    query = Jvm.of(spark).state.sqlParser().parsePlan("SELECT framed.id FROM framed")
    assert RelationResolver(spark).statement(query) is None
    local.append(pl.DataFrame({"id": [2], "b": [1]}))
    assert versions(RelationResolver(spark).statement(query)) == [1]
    assert ids(spark.sql("SELECT framed.id FROM framed")) == [1, 2]
    spark.sql(f"ALTER TABLE delta.`{place}` DROP COLUMN b")
    with pytest.raises(SchemaMismatchError, match="have changed since"):
        spark.sql("SELECT id FROM framed")


def test_one_statement_sees_one_version_of_each_table(spark, rel, path):
    plan = Jvm.of(spark).state.sqlParser().parsePlan("SELECT * FROM t UNION ALL SELECT * FROM rel.t")
    resolver = RelationResolver(spark)
    assert resolver.statement(plan) is not None
    assert (resolver.replaced, list(resolver._snapshots)) == (2, [look_up(spark, ("rel", "t")).location])
    assert resolver._settings is not None


def test_a_statement_sees_the_version_that_it_saw_first(spark, fresh, tmp_path):
    place = str(tmp_path / "n")
    local = pydelta.LocalTable.create(place, pl.DataFrame({"id": [1]}))
    query = Jvm.of(spark).state.sqlParser().parsePlan(f"SELECT * FROM delta.`{place}`")
    resolver = RelationResolver(spark)
    assert versions(resolver.relation(query, ())) == [0]
    local.append(pl.DataFrame({"id": [2]}))
    assert versions(resolver.relation(query, ())) == [0]
    assert versions(RelationResolver(spark).relation(query, ())) == [1]


def test_the_location_of_a_named_table_is_read_as_it_is(spark, fresh, path):
    spark.sql(f"CREATE TABLE rel.n (id BIGINT) USING delta LOCATION '{path}@v1'")
    shutil.rmtree(f"{path}@v1")
    with pytest.raises(TableNotFoundError):
        spark.sql("SELECT * FROM n")


def test_columns_that_an_entry_lacks_are_noted_for_the_newest_version_alone(spark, fresh, tmp_path, caplog):
    place = str(tmp_path / "n")
    local = pydelta.LocalTable.create(place, pl.DataFrame({"id": [1]}))
    spark.sql(f"CREATE TABLE rel.n USING delta LOCATION '{place}'")
    local.overwrite(pl.DataFrame({"id": [1], "b": [2]}), overwrite_schema=True)
    with caplog.at_level(logging.WARNING, logger="pydelta.engines.spark.catalog.entries"):
        spark.sql("SELECT b FROM n VERSION AS OF 1")
        assert "differs from the table's log" not in caplog.text
        spark.sql("SELECT b FROM n")
        assert "differs from the table's log" in caplog.text


def test_a_query_makes_its_session_follow_newest_versions(spark, rel, monkeypatch):
    jvm = Jvm.of(spark)
    monkeypatch.setattr(jvm.spark, "_pydelta_newest_versions", False, raising=False)
    RelationResolver(spark).relation(jvm.state.sqlParser().parsePlan("SELECT * FROM t"), ())
    assert jvm.spark._pydelta_newest_versions


NAMES_METADATA = {
    "SELECT _metadata FROM t": True,
    "SELECT id, _METADATA.row_id FROM t": True,
    "SELECT _metadata.* FROM t": True,
    "SELECT coalesce(1, _metadata.row_id) AS n FROM t": True,
    "SELECT id FROM t WHERE id IN (SELECT _metadata.row_id FROM t)": True,
    "SELECT id + 1 AS _metadata FROM t": False,
    "SELECT 1": False,
}


@pytest.mark.parametrize("query", NAMES_METADATA)
def test_a_statement_may_name_the_metadata_of_rows(spark, query):
    jvm = Jvm.of(spark)
    assert _names_metadata(jvm, jvm.state.sqlParser().parsePlan(query)) is NAMES_METADATA[query]
    assert not _names_metadata(jvm, None)


def test_a_log_in_parts_gives_the_metadata_of_rows_to_statements_that_name_it(spark, rel, tmp_path):
    place = str(tmp_path / "n")
    tracked = {"delta.enableRowTracking": "true"}
    local = pydelta.LocalTable.create(place, pl.DataFrame({"id": [5]}), properties=tracked)
    local.append(pl.DataFrame({"id": [6]}))
    local.checkpoint()
    spark.conf.set("spark.pydelta.log.maxFilesInMemory", "1")
    DeltaLog.clear_cache()
    try:
        plain = spark.sql(f"SELECT id FROM delta.`{place}`")
        assert "row_id" not in str(plain._jdf.queryExecution().analyzed())
        found = spark.sql(f"SELECT id, _metadata.row_id AS n FROM delta.`{place}`").collect()
        assert sorted(map(tuple, found)) == [(5, 0), (6, 1)]
        assert ids(plain) == [5, 6]
        DeltaLog.clear_cache()
        inner = "(WITH one AS (SELECT 5 AS k) SELECT k FROM one)"
        beside = f"SELECT id, _metadata.row_id AS n FROM {inner} AS s JOIN delta.`{place}` AS t ON s.k = t.id"
        assert spark.sql(beside).collect() == [(5, 0)]
    finally:
        spark.conf.unset("spark.pydelta.log.maxFilesInMemory")
        DeltaLog.clear_cache()


CONCERNS = {
    "SELECT * FROM t": True,
    "SELECT * FROM `t`": True,
    "SELECT * FROM rel.t": True,
    "SELECT * FROM own": False,
    "SELECT * FROM rel.own, nowhere": False,
    "SELECT * FROM own JOIN t": True,
    "SELECT * FROM delta.`{path}`": True,
    "SELECT * FROM own WHERE id IN (SELECT id FROM t)": True,
    "SELECT 1": False,
    "EXPLAIN SELECT 1": True,
    "SELECT * FROM table_changes('t', 1)": True,
    "DELETE FROM own": False,
    "SELECT * FROM `ow n`": True,
    "FROM VALUES (1) AS s(id) |> SET id = (SELECT 1 FROM t)": True,
    "SELECT '|>' AS a": False,
}


@pytest.mark.parametrize("query", CONCERNS)
def test_the_text_alone_shows_whether_a_statement_may_concern_a_table(spark, rel, path, query):
    plan = Jvm.of(spark).state.sqlParser().parsePlan(query.format(path=path))
    assert RelationResolver(spark).concerns(plan) is CONCERNS[query]


def test_a_query_without_its_text_may_concern_a_table(spark, rel):
    jvm = Jvm.of(spark)
    parsed = jvm.state.sqlParser().parsePlan("SELECT * FROM own")
    assert RelationResolver(spark).concerns(jvm.project(parsed.projectList(), parsed.child()))


COMPUTED = [
    "DELETE FROM IDENTIFIER('t' || '')",
    "DELETE FROM IDENTIFIER('t' || '') AS x",
    "SELECT * FROM IDENTIFIER('t' || '') VERSION AS OF 1",
    "SELECT * FROM IDENTIFIER('t' || '') CHANGES FROM VERSION 1",
    "SELECT * FROM STREAM IDENTIFIER('t' || '')",
]


def test_what_names_no_delta_table_is_left_to_spark(spark, rel):
    parser, resolver = Jvm.of(spark).state.sqlParser(), RelationResolver(spark)
    for text in (
        "SELECT * FROM own",
        "SELECT 1",
        "WITH c AS (SELECT 1) SELECT * FROM c",
        "DELETE FROM t",
        "SELECT `a`",
    ):
        assert resolver.statement(parser.parsePlan(text)) is None, text
    for text in ("SELECT * FROM own", "WITH t AS (SELECT 1) SELECT * FROM t", "EXPLAIN SELECT 1"):
        assert RelationResolver(spark).relation(parser.parsePlan(text), ()) is None, text
    found = RelationResolver(spark).relation(parser.parsePlan("SELECT * FROM t"), ())
    assert "SubqueryAlias spark_catalog.rel.t" in str(found.treeString())
    assert RelationResolver(spark).relation(parser.parsePlan("SELECT * FROM t"), ("default",)) is None
    spark.catalog.setCurrentDatabase("default")
    within = RelationResolver(spark).relation(parser.parsePlan("SELECT * FROM t"), ("rel",))
    assert "SubqueryAlias spark_catalog.rel.t" in str(within.treeString())
    assert named_tables(Jvm.of(spark), found) is found
    for text in COMPUTED:
        plan = parser.parsePlan(text)
        assert RelationResolver(spark).statement(plan) is None, text
        assert RelationResolver(spark).relation(plan, ()) is None, text
    earlier = parser.parsePlan("SELECT * FROM STREAM rel.t").collectLeaves().apply(0)  # As Spark 4.1 has it.
    assert RelationResolver(spark).relation(earlier, ()).isStreaming()


LATE = {
    "SELECT * FROM own": [("own",)],
    "SELECT * FROM t, rel.own": [("t",), ("rel", "own")],
    "SELECT * FROM t VERSION AS OF 1": [("t",)],
    "SELECT * FROM t CHANGES FROM VERSION 1": [("t",)],
    "WITH t AS (SELECT * FROM own) SELECT * FROM t": [("own",)],
    "SELECT * FROM STREAM t": [],
    "SELECT * FROM STREAM t CHANGES FROM VERSION 1": [],
    "SELECT 1": [],
}


@pytest.mark.parametrize("query", LATE)
def test_names_that_are_resolved_later_are_handed_over(spark, rel, query):
    jvm = Jvm.of(spark)
    one_row = jvm.state.sqlParser().parsePlan("SELECT 7 AS late")
    seen = []

    def relation(node, name):
        seen.append(name)
        return one_row

    found = RelationResolver(spark).late(jvm.state.sqlParser().parsePlan(query), relation)
    assert seen == LATE[query]
    assert (found is not None) == bool(seen)
    assert found is None or str(found.treeString()).count("7 AS late") == len(seen)


def test_explain_shows_the_scan_of_the_table(spark, rel):
    text = spark.sql("EXPLAIN SELECT id FROM t WHERE id = 2").first()[0]
    assert "parquet" in text.lower() and "id" in text
    assert "EXTENDED" not in text
    extended = spark.sql("EXPLAIN EXTENDED SELECT id FROM t").first()[0]
    assert "== Analyzed Logical Plan ==" in extended and "spark_catalog.rel.t" in extended


STREAMS = {
    "SELECT id FROM STREAM t": [1, 2, 3],
    "SELECT rel.t.id FROM STREAM rel.t": [1, 2, 3],
    "SELECT s.id FROM STREAM(t) WITH (startingVersion = 2) AS s": [3],
    "SELECT id FROM STREAM t CHANGES FROM VERSION 2": [3],
}


@pytest.mark.parametrize("query", STREAMS)
def test_a_stream_has_the_rows_of_what_it_names(spark, fresh, tmp_path, query):
    frame = spark.sql(query)
    assert frame.isStreaming
    out = frame.writeStream.format("memory").queryName("streamed").trigger(availableNow=True)
    assert out.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(60)
    assert ids(spark.table("streamed")) == STREAMS[query]


EVOLVING = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def test_a_stream_has_its_name_and_an_error_names_its_table(spark, rel):
    with pytest.raises(UnsupportedFeatureError, match="given the name 'first_one'") as refused:
        spark.sql("SELECT * FROM STREAM rel.t IDENTIFIED BY first_one")
    assert refused.value.table == "rel.t"
    spark.conf.set(EVOLVING, "true")
    try:
        assert spark.sql("SELECT * FROM STREAM t IDENTIFIED BY first_one").isStreaming
    finally:
        spark.conf.unset(EVOLVING)
    with pytest.raises(AnalysisException):
        spark.sql("SELECT * FROM STREAM own").collect()


TWIN_OF = "pydelta.table.location"
TWINS = [
    "INSERT INTO twin VALUES (1)",
    "FROM range(1) INSERT INTO twin SELECT id INSERT INTO twin SELECT id",
    "ALTER TABLE twin ADD COLUMN b INT",
    "TRUNCATE TABLE twin",
    "ANALYZE TABLE twin COMPUTE STATISTICS",
]


@pytest.fixture
def twin(spark, fresh, path):
    """The entry by which Trino reads the table's manifests, as catalog_sync makes it."""
    jvm = Jvm.of(spark)
    catalog = jvm.state.catalog()
    own = catalog.getTableMetadata(jvm.table_identifier.apply("own", jvm.option.apply("rel"), jvm.none))
    reader = jvm.option.apply("org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat")
    entry = copy_of(
        own,
        identifier=jvm.table_identifier.apply("twin", jvm.option.apply("rel"), jvm.none),
        storage=copy_of(own.storage(), inputFormat=reader),
        provider=jvm.option.apply("hive"),
        properties=jvm.scala_map({TWIN_OF: path}),
    )
    catalog.createTable(entry, False, False)
    assert look_up(spark, ("rel", "twin")).twin


@pytest.mark.parametrize("text", TWINS)
def test_a_statement_that_changes_a_twin_is_refused(spark, twin, path, text):
    with pytest.raises(UnsupportedFeatureError, match="is the entry by which"):
        RelationResolver(spark).statement(Jvm.of(spark).state.sqlParser().parsePlan(text))


ON_TWINS = [
    "DELETE FROM {}",
    "UPDATE {} AS u SET id = 1",
    "MERGE INTO {} AS m USING own ON true WHEN MATCHED THEN DELETE",
]


@pytest.mark.parametrize("text", ON_TWINS)
def test_a_change_of_a_twin_is_refused_and_of_another_table_left_to_its_command(spark, twin, text):
    parser = Jvm.of(spark).state.sqlParser()
    for name in ("twin", "rel.twin"):
        with pytest.raises(UnsupportedFeatureError, match="is the entry by which"):
            RelationResolver(spark).statement(parser.parsePlan(text.format(name)))
    for name in ("t", "own", "nowhere"):
        assert RelationResolver(spark).statement(parser.parsePlan(text.format(name))) is None


DESCRIBED = [
    "DESCRIBE twin", "DESCRIBE twin id", "SHOW COLUMNS IN twin", "SHOW PARTITIONS twin", "SHOW TBLPROPERTIES twin",
    "SHOW CREATE TABLE twin", "REFRESH TABLE twin",
    "EXPLAIN ANALYZE TABLE twin COMPUTE STATISTICS",
]  # fmt: skip


@pytest.mark.parametrize("text", DESCRIBED)
def test_a_statement_that_describes_a_twin_is_spark_s_own(spark, twin, text):
    assert RelationResolver(spark).statement(Jvm.of(spark).state.sqlParser().parsePlan(text)) is None


def test_a_twin_is_read_as_its_table(spark, twin):
    assert ids(spark.sql("SELECT id FROM twin")) == [1, 2, 3]
    assert ids(spark.sql("SELECT id FROM twin WHERE id > 1 UNION ALL SELECT id FROM twin")) == [1, 2, 2, 3, 3]
    assert ids(spark.sql("SELECT id FROM twin VERSION AS OF 1")) == [1, 2]
    assert "rel.twin" in spark.sql("EXPLAIN EXTENDED SELECT id FROM twin").first()[0]
