"""Statements of sessions whose parser is the engine's: what they answer, and that each runs once."""

from __future__ import annotations

import pytest
from served import Refused

from pydelta.log import DeltaLog


def versions(path):
    return DeltaLog.for_table(str(path)).update().version


@pytest.fixture
def table(client, tmp_path):
    path = tmp_path / "t"
    client.plan(f"CREATE TABLE delta.`{path}` (id BIGINT, name STRING) USING delta")
    client.plan(f"INSERT INTO delta.`{path}` VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    return path


def test_a_query_reads_the_newest_version(client, table):
    assert client.rows(f"SELECT * FROM delta.`{table}` ORDER BY id") == ["1|a", "2|b", "3|c"]
    client.plan(f"DELETE FROM delta.`{table}` WHERE id = 2")
    assert client.rows(f"SELECT count(*), max(id) FROM delta.`{table}`") == ["2|3"]
    assert client.rows(f"SELECT count(*) FROM delta.`{table}` VERSION AS OF 1") == ["3"]


def test_a_query_is_the_native_scan(client, table):
    plan = str(client.plan(f"SELECT * FROM delta.`{table}`").queryExecution().executedPlan().toString())
    assert "FileScan parquet" in plan


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("DELETE FROM {t} WHERE id = 1", ["1"]),
        ("UPDATE {t} SET name = 'z' WHERE id > 1", ["2"]),
        ("INSERT INTO {t} VALUES (4, 'd')", None),
        ("WITH n AS (SELECT 9L AS id, 'n' AS name) INSERT INTO {t} SELECT * FROM n", None),
        ("MERGE INTO {t} AS t USING (SELECT 1L AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE", ["1|0|1|0"]),
        ("ALTER TABLE {t} ADD COLUMN more INT", []),
        ("OPTIMIZE {t} ZORDER BY (id)", None),
        ("RESTORE TABLE {t} TO VERSION AS OF 0", None),
        ("BEGIN DELETE FROM {t} WHERE id = 1; END", None),
        ("EXECUTE IMMEDIATE 'DELETE FROM {t} WHERE id = 1'", ["1"]),
    ],
)
def test_a_statement_with_an_effect_commits_once(client, table, text, rows):
    before = versions(table)
    frame = client.plan(text.format(t=f"delta.`{table}`"))
    assert versions(table) == before + 1
    for _ in range(2):  # a client fetches the rows, and again
        found = [str(row.mkString("|")) for row in frame.collectAsList()]
        assert rows is None or found == rows
    frame.schema()
    assert versions(table) == before + 1


def test_a_statement_that_is_parsed_and_not_run_has_no_effect(client, table):
    for text in ("DELETE FROM delta.`{t}`", "VACUUM delta.`{t}`", "OPTIMIZE delta.`{t}`", "DROP TABLE delta.`{t}`"):
        client.parse(text.format(t=table))
        client.parse(text.format(t=table))
    assert versions(table) == 1


def test_explain_of_a_statement_with_an_effect_runs_nothing(client, table):
    for statement in (f"DELETE FROM delta.`{table}`", f"INSERT INTO delta.`{table}` VALUES (9, 'x')"):
        assert "Execute Delta" in client.rows(f"EXPLAIN {statement}")[0]
    client.rows(f"EXPLAIN EXTENDED UPDATE delta.`{table}` SET id = 0")
    assert "FileScan parquet" in client.rows(f"EXPLAIN SELECT * FROM delta.`{table}`")[0]
    assert versions(table) == 1


def test_statements_of_our_own_show_their_columns_and_rows(client, table):
    assert client.columns(f"DESCRIBE HISTORY delta.`{table}`")[:3] == ["version", "timestamp", "userId"]
    assert [row.split("|")[0] for row in client.rows(f"DESCRIBE HISTORY delta.`{table}`")] == ["1", "0"]
    assert client.columns(f"DESCRIBE DETAIL delta.`{table}`")[0] == "format"
    assert client.rows(f"DESCRIBE DETAIL delta.`{table}`")[0].startswith("delta|")


def test_what_spark_runs_comes_back_as_a_statement_that_has_run(client, table):
    for text in (f"DELETE FROM delta.`{table}` WHERE id = 1", f"DESCRIBE HISTORY delta.`{table}`"):
        plan = client.plan(text).queryExecution().commandExecuted()
        assert str(plan.nodeName()) == "CommandResult"  # what Connect asks, before it sends rows or the text again


def test_parameters_by_name_and_by_position(client, server, table):
    jvm = server.root._jvm
    named = jvm.java.util.HashMap()
    named.put("least", 2)
    assert client.rows(f"SELECT id FROM delta.`{table}` WHERE id >= :least ORDER BY id", named) == ["2", "3"]
    before = versions(table)
    assert client.rows(f"DELETE FROM delta.`{table}` WHERE id >= :least", named) == ["2"]
    placed = server.root.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)
    placed[0] = "neu"
    client.plan(f"INSERT INTO delta.`{table}` VALUES (7, ?)", placed)
    assert client.rows(f"SELECT name FROM delta.`{table}` WHERE id = 7") == ["neu"]
    assert versions(table) == before + 2
    with pytest.raises(Refused, match="cannot have parameters") as refused:
        client.plan(f"OPTIMIZE delta.`{table}` WHERE id = :least", named)
    assert refused.value.condition is not None


def test_views_and_caches_read_afresh(client, server, table, tmp_path):
    client.plan(f"CREATE TEMPORARY VIEW v AS SELECT count(*) AS n FROM delta.`{table}`")
    client.plan(f"CREATE VIEW served_view AS SELECT id FROM delta.`{table}`")
    client.plan(f"CACHE TABLE c AS SELECT id FROM delta.`{table}`")
    try:
        assert client.rows("SELECT * FROM v") == ["3"]
        assert client.rows("SELECT count(*) FROM c") == ["3"]
        client.plan(f"DELETE FROM delta.`{table}` WHERE id = 1")
        assert client.rows("SELECT * FROM v") == ["2"]
        assert sorted(client.rows("SELECT * FROM served_view")) == ["2", "3"]
        assert client.rows("SELECT count(*) FROM c") == ["2"]
        other = server.client()
        assert sorted(other.rows("SELECT * FROM served_view")) == ["2", "3"]
        by_name = client.session.table("served_view").collectAsList()  # no text of a statement: Spark parses the view's
        assert sorted(str(row.get(0)) for row in by_name) == ["2", "3"]
        with pytest.raises(Refused, match="TABLE_OR_VIEW_NOT_FOUND"):
            other.rows("SELECT * FROM v")
    finally:
        client.plan("DROP VIEW served_view")
        client.plan("UNCACHE TABLE IF EXISTS c")


def test_tables_by_name_through_create_rename_and_drop(client):
    client.plan("CREATE TABLE served_a (id INT) USING delta")
    client.plan("INSERT INTO served_a SELECT 5")
    client.plan("ALTER TABLE served_a RENAME TO served_b")
    assert client.rows("WITH w AS (SELECT * FROM served_b) SELECT a.id FROM w a JOIN served_b b USING (id)") == ["5"]
    assert client.rows("SHOW COLUMNS IN served_b") == ["id"]
    client.plan("CREATE OR REPLACE TABLE served_b USING delta AS SELECT 1 AS x, 2 AS y")
    assert client.rows("SELECT * FROM served_b") == ["1|2"]
    client.plan("DROP TABLE served_b")
    with pytest.raises(Refused) as refused:
        client.rows("SELECT * FROM served_b")
    assert (refused.value.condition, refused.value.state) == ("TABLE_OR_VIEW_NOT_FOUND", "42P01")


def test_a_script_with_variables_and_branches(client, table):
    rows = client.rows(
        f"""BEGIN
        DECLARE n INT DEFAULT 0;
        SET n = (SELECT count(*) FROM delta.`{table}`);
        IF n = 3 THEN DELETE FROM delta.`{table}` WHERE id = 3; END IF;
        SELECT n, count(*) FROM delta.`{table}`;
        END"""
    )
    assert rows == ["3|2"]


def test_errors_have_condition_and_state_and_no_trace(client, table):
    for text, condition, state in (
        (f"DELETE FROM delta.`{table}` WHERE nope = 1", "UNRESOLVED_COLUMN.WITH_SUGGESTION", "42703"),
        (f"SELECT nope FROM delta.`{table}`", "UNRESOLVED_COLUMN.WITH_SUGGESTION", "42703"),
        ("SELEC 1", "PARSE_SYNTAX_ERROR", "42601"),
        (f"SELECT * FROM delta.`{table}` VERSION AS OF 77", "DELTA_VERSION_NOT_FOUND", "22003"),
        ("DESCRIBE HISTORY nothing_there", None, None),
        (f"ALTER TABLE delta.`{table}` ADD COLUMN id INT", None, None),
        (f"INSERT INTO delta.`{table}` VALUES (1, 'a', 'too many')", None, None),
    ):
        with pytest.raises(Refused) as refused:
            client.rows(text)
        assert refused.value.condition is not None, text
        if condition is not None:
            assert (refused.value.condition, refused.value.state) == (condition, state), text
        for word in ("py4j", "Traceback", "UndeclaredThrowable", 'File "'):
            assert word not in str(refused.value)


def test_a_statement_that_failed_is_not_tried_again(client, table):
    text = f"ALTER TABLE delta.`{table}` ADD CONSTRAINT small CHECK (id < 2)"
    with pytest.raises(Refused, match="small"):
        client.rows(text)
    assert versions(table) == 1


def test_one_statement_sees_one_version_which_is_the_newest_when_it_is_planned(client, server, table):
    frame = client.plan(f"SELECT a.id FROM delta.`{table}` a LEFT JOIN delta.`{table}` b USING (id) WHERE b.id IS NULL")
    rows = client.plan(f"SELECT a.id FROM delta.`{table}` a JOIN delta.`{table}` b USING (id)")
    server.client().plan(f"DELETE FROM delta.`{table}` WHERE id = 1")
    assert (len(frame.collectAsList()), len(rows.collectAsList())) == (0, 2)


def test_other_statements_are_spark_s_own(client, tmp_path):
    assert client.rows("SELECT 1 AS one") == ["1"]
    client.plan(f"CREATE TABLE served_p (id INT) USING parquet LOCATION '{tmp_path / 'p'}'")
    client.plan("INSERT INTO served_p VALUES (1)")
    assert client.rows("SELECT * FROM served_p") == ["1"]
    assert client.rows("SHOW TABLES LIKE 'served_p'") == ["default|served_p|false"]
    client.plan("DROP TABLE served_p")
    client.plan("SET spark.sql.shuffle.partitions = 3")
    assert client.rows("SET spark.sql.shuffle.partitions") == ["spark.sql.shuffle.partitions|3"]


def test_pyspark_s_own_method_on_such_a_session(server, table):
    spark = server.root.newSession()
    assert spark.sql(f"DELETE FROM delta.`{table}` WHERE id = :id", {"id": 1}).first()[0] == 1
    assert versions(table) == 2
    assert spark.sql(f"SELECT count(*) FROM delta.`{table}`").first()[0] == 2
