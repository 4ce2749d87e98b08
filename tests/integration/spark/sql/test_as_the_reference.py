"""Statements at the edges that answer as the reference engine does, or fail with its conditions."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark):
    spark.sql("DROP TABLE IF EXISTS edges")
    spark.sql("CREATE TABLE edges (a INT, b STRING COMMENT 'the b') USING delta")
    yield "edges"
    spark.sql("DROP TABLE IF EXISTS edges")


def _condition(action):
    with pytest.raises(DeltaError) as raised:
        action()
    return raised.value.getCondition()


@pytest.mark.parametrize("method", ["replace", "createOrReplace"])
def test_a_replace_that_is_to_keep_the_schema_is_refused(spark, table, method):
    writer = spark.range(2).writeTo(table).using("delta").option("overwriteSchema", "false")
    assert _condition(getattr(writer, method)) == "DELTA_ILLEGAL_USAGE"
    assert spark.table(table).columns == ["a", "b"]


def test_a_table_is_read_where_auto_compaction_needs_no_number_of_files(spark, table):
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "0")
    try:
        spark.sql(f"INSERT INTO {table} VALUES (1, 'x')")
        assert spark.table(table).collect() == [(1, "x")]
    finally:
        spark.conf.unset("spark.databricks.delta.autoCompact.minNumFiles")


def test_an_insert_into_a_path_without_a_table_says_that_there_is_none(spark, tmp_path):
    path = str(tmp_path / "none")
    actions = (
        lambda: spark.sql(f"INSERT INTO delta.`{path}` VALUES (1)"),
        lambda: spark.sql(f"INSERT OVERWRITE delta.`{path}` SELECT 1"),
        lambda: spark.range(1).write.insertInto(f"delta.`{path}`"),
        lambda: spark.range(1).write.insertInto(f"delta.`{path}`", overwrite=True),
    )
    assert {_condition(action) for action in actions} <= {"DELTA_TABLE_NOT_FOUND", "PATH_NOT_FOUND"}
    assert not (tmp_path / "none").exists()


def test_a_column_without_a_zone_needs_its_feature_asked_for(spark, table):
    rows = spark.sql("SELECT 1 AS a, TIMESTAMP_NTZ'2024-01-01' AS n")
    actions = (
        lambda: spark.sql(f"ALTER TABLE {table} ADD COLUMN n TIMESTAMP_NTZ"),
        lambda: spark.sql(f"ALTER TABLE {table} ADD COLUMN n STRUCT<x: ARRAY<TIMESTAMP_NTZ>>"),
        lambda: spark.sql("CREATE OR REPLACE TABLE edges (n TIMESTAMP_NTZ) USING delta"),
        lambda: rows.write.format("delta").mode("append").option("mergeSchema", True).saveAsTable(table),
    )
    assert {_condition(action) for action in actions} == {"DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"}
    assert spark.sql(f"DESCRIBE HISTORY {table}").count() == 1
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN n TIMESTAMP_NTZ")
    rows.write.format("delta").mode("append").option("mergeSchema", True).saveAsTable(table)
    assert spark.table(table).count() == 1


def test_an_empty_comment_is_one(spark, table):
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN b COMMENT ''")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN c INT COMMENT ''")
    shown = {row.col_name: row.comment for row in spark.sql(f"DESCRIBE {table}").collect()}
    assert shown == {"a": None, "b": "", "c": ""}


def test_a_table_at_a_place_with_another_partitioning_is_refused_by_that_name(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(3).selectExpr("id", "id AS p").write.format("delta").partitionBy("p").save(path)
    for clause in ("PARTITIONED BY (id)", "", "PARTITIONED BY (id, p)"):
        text = f"CREATE TABLE edges_there (id BIGINT, p BIGINT) USING delta {clause} LOCATION '{path}'"
        assert _condition(lambda: spark.sql(text)) == "DELTA_CREATE_TABLE_WITH_DIFFERENT_PARTITIONING", clause  # noqa: B023
    other = f"CREATE TABLE edges_there (id INT, p BIGINT) USING delta PARTITIONED BY (p) LOCATION '{path}'"
    assert _condition(lambda: spark.sql(other)) == "DELTA_CREATE_TABLE_SCHEME_MISMATCH"
    assert not spark.catalog.tableExists("edges_there")


def test_several_inserts_share_a_with(spark, table):
    spark.sql("CREATE OR REPLACE TABLE edges_too (a INT, b STRING) USING delta")
    spark.sql(
        f"WITH c AS (SELECT * FROM VALUES (1, 'x'), (2, 'y') AS v(a, b)) FROM c INSERT INTO {table} SELECT a, b "
        "INSERT INTO edges_too SELECT a * 10, b WHERE a > 1"
    )
    assert sorted(spark.table(table).collect()) == [(1, "x"), (2, "y")]
    assert spark.table("edges_too").collect() == [(20, "y")]
    spark.sql("DROP TABLE edges_too")


def test_a_pipe_sets_a_column_to_what_a_query_finds(spark, table):
    spark.sql(f"INSERT INTO {table} VALUES (1, 'x'), (2, 'y')")
    shown = spark.sql(f"FROM {table} |> SET b = (SELECT max(b) FROM {table}), a = a + (SELECT count(*) FROM {table})")
    assert sorted(shown.collect()) == [(3, "y"), (4, "y")]
    assert sorted(spark.sql(f"FROM {table} |> SET b = 'z'").collect()) == [(1, "z"), (2, "z")]


def test_columns_to_cluster_by_may_have_dots_in_their_names(spark, table):
    spark.sql(f"CREATE OR REPLACE TABLE {table} (s STRUCT<`a.b`: INT>, `x.y` INT) USING delta CLUSTER BY (s.`a.b`)")
    spark.sql(f"INSERT INTO {table} SELECT named_struct('a.b', 1), 2")
    detail = spark.sql(f"DESCRIBE DETAIL {table}").select("clusteringColumns")
    assert detail.first()[0] == ["s.`a.b`"]
    spark.sql(f"ALTER TABLE {table} CLUSTER BY (`x.y`, s.`a.b`)")
    assert spark.sql(f"DESCRIBE DETAIL {table}").first().clusteringColumns == ["`x.y`", "s.`a.b`"]
    assert spark.table(table).select("`x.y`", "s.`a.b`").collect() == [(2, 1)]


def test_a_table_without_columns_gets_them_from_a_merge(spark, table):
    spark.sql(f"INSERT INTO {table} VALUES (1, 'x'), (2, 'y')")
    spark.sql("DROP TABLE IF EXISTS edges_none")
    spark.sql("CREATE TABLE edges_none USING delta")
    merge = f"INTO edges_none USING {table} ON false WHEN NOT MATCHED THEN INSERT *"
    with pytest.raises(DeltaError):
        spark.sql(f"MERGE {merge}")
    spark.sql(f"MERGE WITH SCHEMA EVOLUTION {merge}")
    assert sorted(spark.table("edges_none").collect()) == [(1, "x"), (2, "y")]
    assert spark.table("edges_none").columns == ["a", "b"]
    spark.sql("DROP TABLE edges_none")


def test_metadata_shows_what_row_ids_are_made_of(spark, table):
    spark.sql(f"CREATE OR REPLACE TABLE {table} (a INT) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    spark.sql(f"INSERT INTO {table} VALUES (5), (6)")
    shown = spark.sql(
        f"SELECT a, _metadata.row_id, _metadata.base_row_id, _metadata.default_row_commit_version AS v FROM {table}"
    )
    assert sorted(shown.select("a", "row_id", "v").collect()) == [(5, 0, 2), (6, 1, 2)]
    assert {row.base_row_id <= row.row_id for row in shown.collect()} == {True}


@pytest.mark.parametrize("kind", ["", "TEMPORARY "])
@pytest.mark.parametrize(
    "body",
    [
        "INT RETURN SELECT max(a) FROM edges",
        "INT RETURN 1 + (SELECT max(a) FROM edges)",
        "TABLE(a INT) RETURN SELECT a FROM edges",
    ],
)
def test_a_function_over_a_table_is_refused_in_one_sentence(spark, table, kind, body):
    action = lambda: spark.sql(f"CREATE OR REPLACE {kind}FUNCTION edges_f() RETURNS {body}")  # noqa: E731
    assert _condition(action) == "DELTA_OPERATION_NOT_ALLOWED"
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION edges_f(x INT) RETURNS INT RETURN x + 1")
    assert spark.sql("SELECT edges_f(1)").first()[0] == 2
    spark.sql("DROP TEMPORARY FUNCTION edges_f")


@pytest.mark.parametrize(
    "statement", ["INSERT INTO {} (b) VALUES ('x')", "INSERT OVERWRITE {} BY NAME SELECT 'x' AS b"]
)
def test_an_insert_must_name_columns_without_a_default_where_the_session_says_so(spark, table, statement):
    spark.conf.set("spark.sql.defaultColumn.useNullsForMissingDefaultValues", "false")
    try:
        assert _condition(lambda: spark.sql(statement.format(table))) == "DELTA_INSERT_COLUMN_MISMATCH"
        spark.sql(f"INSERT INTO {table} (b, a) VALUES ('y', 2)")
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')")
        spark.sql(f"ALTER TABLE {table} ALTER COLUMN a SET DEFAULT 7")
        spark.sql(statement.format(table))
    finally:
        spark.conf.unset("spark.sql.defaultColumn.useNullsForMissingDefaultValues")
    assert (7, "x") in spark.table(table).collect()


def test_an_insert_that_evolves_the_schema_widens_parts_of_every_type(spark):
    spark.sql("DROP TABLE IF EXISTS widened")
    columns = (
        "a TINYINT, s STRUCT<x: TINYINT>, r ARRAY<SMALLINT>, m MAP<SMALLINT, TINYINT>, q ARRAY<STRUCT<x: TINYINT>>"
    )
    spark.sql(f"CREATE TABLE widened ({columns}) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    spark.sql("INSERT INTO widened VALUES (1, struct(1), array(1), map(1, 1), array(struct(1)))")
    values = "70000, named_struct('x', 300), array(70000), map(70000, 300), array(named_struct('x', 300))"
    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    try:
        spark.sql(f"INSERT INTO widened (a, s, r, m, q) VALUES ({values})")
        spark.sql("INSERT INTO widened (a, r) VALUES (5000000000, array(5000000000))")
    finally:
        spark.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
    assert spark.table("widened").dtypes == [
        ("a", "bigint"), ("s", "struct<x:int>"), ("r", "array<bigint>"), ("m", "map<int,int>"),
        ("q", "array<struct<x:int>>"),
    ]  # fmt: skip
    rows = spark.sql("SELECT a, s.x, r, m, q.x FROM widened ORDER BY a").collect()
    assert [tuple(row) for row in rows] == [
        (1, 1, [1], {1: 1}, [1]), (70000, 300, [70000], {70000: 300}, [300]),
        (5000000000, None, [5000000000], None, None),
    ]  # fmt: skip
    spark.sql("DROP TABLE widened")


def test_nothing_to_set_changes_no_value_and_keeps_rows_from_later_clauses(spark, table):
    spark.sql(f"INSERT INTO {table} VALUES (1, 'x'), (2, 'y'), (3, 'z')")
    target = DeltaTable.forName(spark, table)
    target.update(set={})
    target.update("a = 1", {})
    source = spark.sql("SELECT explode(array(1, 2, 9)) AS k")
    merge = target.merge(source, "a = k").whenMatchedUpdate("a = 1", {}).whenMatchedUpdate(set={}).whenMatchedDelete()
    merge.whenNotMatchedBySourceUpdate(set={}).whenNotMatchedInsert(values={"a": "k"}).execute()
    assert spark.table(table).orderBy("a").collect() == [(1, "x"), (3, "z"), (9, None)]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_history_of_no_versions_has_no_rows(spark, table, limit):
    assert DeltaTable.forName(spark, table).history(limit).collect() == []
    assert spark.sql(f"DESCRIBE HISTORY {table} LIMIT 0").collect() == []


@pytest.mark.parametrize("kind", ["STRUCT<a: INT, b: STRING NOT NULL>", "ARRAY<STRUCT<a: INT NOT NULL>>"])
def test_a_new_column_may_not_have_fields_that_rows_must_have(spark, table, kind):
    action = lambda: spark.sql(f"ALTER TABLE {table} ADD COLUMNS (x {kind}, z INT)")  # noqa: E731
    assert _condition(action) == "DELTA_OPERATION_NOT_ALLOWED"
    assert spark.table(table).columns == ["a", "b"]


def test_a_table_may_be_named_twice_with_the_protocol_that_it_was_made_with(spark, tmp_path):
    properties = "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    for name in ("once", "twice"):
        spark.sql(f"DROP TABLE IF EXISTS named_{name}")
        features = "" if name == "once" else ", 'delta.feature.columnMapping' = 'supported'"
        text = f"USING delta LOCATION '{tmp_path}/t' TBLPROPERTIES ({properties}{features})"
        spark.sql(f"CREATE TABLE named_{name} (id INT) {text}")
    spark.sql("INSERT INTO named_once VALUES (1)")
    assert spark.table("named_twice").collect() == [(1,)]
    for name in ("once", "twice"):
        spark.sql(f"DROP TABLE named_{name}")


def test_dropping_type_widening_rewrites_files_of_older_types(spark, tmp_path):
    path, table = tmp_path / "t", f"delta.`{tmp_path}/t`"
    properties = "'delta.enableTypeWidening' = 'true', 'delta.enableRowTracking' = 'true'"
    columns = "a SMALLINT, s STRUCT<x: TINYINT>, r ARRAY<INT>"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING delta TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO {table} VALUES (1, struct(1), array(1)), (2, NULL, NULL)")
    for change in ("a TYPE BIGINT", "s.x TYPE INT", "r.element TYPE BIGINT"):
        spark.sql(f"ALTER TABLE {table} ALTER COLUMN {change}")
    spark.sql(f"INSERT INTO {table} VALUES (5000000000, struct(70000), array(5000000000))")
    ids = f"SELECT a, _metadata.row_id FROM {table} ORDER BY a"
    before = spark.sql(ids).collect()
    spark.sql(f"ALTER TABLE {table} DROP FEATURE typeWidening")
    snapshot = DeltaLog.for_table(str(path)).update()
    assert "typeWidening" not in snapshot.protocol.writer_features
    assert "delta.typeChanges" not in snapshot.metadata.schema_string
    for add in snapshot.files.adds(snapshot.files.core):
        stored = pq.read_schema(path / add.path)
        assert (stored.field("a").type, stored.field("s").type.field("x").type) == (pa.int64(), pa.int32())
        assert stored.field("r").type.value_type == pa.int64()
    assert [tuple(row) for row in spark.sql(f"SELECT a, s.x, r FROM {table} ORDER BY a").collect()] == [
        (1, 1, [1]), (2, None, None), (5000000000, 70000, [5000000000]),
    ]  # fmt: skip
    assert spark.sql(ids).collect() == before


def test_a_variant_may_have_a_default(spark):
    spark.sql("DROP TABLE IF EXISTS variants")
    spark.sql("CREATE TABLE variants (id INT, v VARIANT) USING delta")
    spark.sql("ALTER TABLE variants SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')")
    spark.sql("""ALTER TABLE variants ALTER COLUMN v SET DEFAULT (parse_json('{"k": "v"}'))""")
    spark.sql("INSERT INTO variants VALUES (1, DEFAULT)")
    spark.sql("INSERT INTO variants (id) VALUES (2)")
    shown = spark.sql("SELECT id, variant_get(v, '$.k', 'STRING') FROM variants ORDER BY id").collect()
    assert [tuple(row) for row in shown] == [(1, "v"), (2, "v")]
    spark.sql("DROP TABLE variants")


@pytest.mark.parametrize(("made", "named"), [("id", ""), ("id", "CLUSTER BY (p)"), ("", "CLUSTER BY (s.x)")])
def test_a_table_that_is_clustered_otherwise_is_not_taken_by_a_name(spark, tmp_path, made, named):
    columns, path = "id INT, p INT, s STRUCT<x: INT>", f"{tmp_path}/t"
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {f'CLUSTER BY ({made})' if made else ''}")
    spark.sql("DROP TABLE IF EXISTS clustered_there")
    create = f"CREATE TABLE clustered_there ({columns}) USING delta {named} LOCATION '{path}'"
    assert _condition(lambda: spark.sql(create)) == "DELTA_CREATE_TABLE_WITH_DIFFERENT_CLUSTERING"
    assert not spark.catalog.tableExists("clustered_there")
    spark.sql(f"CREATE TABLE clustered_there USING delta LOCATION '{path}'")
    spark.sql("DROP TABLE clustered_there")


def test_a_default_may_be_a_date_that_python_does_not_have(spark):
    spark.sql("DROP TABLE IF EXISTS ancient")
    defaults = (
        "d DATE DEFAULT date'0000-01-02', t TIMESTAMP DEFAULT timestamp'0000-01-02', m MAP<INT, DATE> DEFAULT NULL"
    )
    supported = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    spark.sql(f"CREATE TABLE ancient (id INT, {defaults}) USING delta {supported}")
    spark.sql("INSERT INTO ancient (id) VALUES (1)")
    assert spark.sql("SELECT year(d), year(t), m FROM ancient").collect() == [(0, 0, None)]
    bad = lambda: spark.sql("ALTER TABLE ancient ALTER COLUMN d SET DEFAULT 'no date'")  # noqa: E731
    assert _condition(bad) == "INVALID_DEFAULT_VALUE.DATA_TYPE"
    spark.sql("DROP TABLE ancient")
