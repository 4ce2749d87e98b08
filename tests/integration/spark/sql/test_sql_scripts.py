"""``EXECUTE IMMEDIATE``, ``BEGIN … END`` and ``CACHE TABLE … AS`` over Delta tables."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException

from pydelta.api.sql.targets import log_for_name
from pydelta.errors import BindError, ConstraintViolatedError

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark):
    for name in ("scripted", "made_by_script"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql("CREATE TABLE scripted (id BIGINT, name STRING) USING delta")
    spark.sql("INSERT INTO scripted VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    yield "scripted"
    for name in ("scripted", "made_by_script"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def ids(spark, name="scripted"):
    return sorted(row.id for row in spark.table(name).collect())


def newest(spark, name="scripted"):
    return log_for_name(spark, name).update()


def test_execute_immediate(spark, table):
    spark.sql("EXECUTE IMMEDIATE 'DELETE FROM scripted WHERE id = ?' USING 1L")
    spark.sql("EXECUTE IMMEDIATE 'INSERT INTO scripted VALUES (:id, :name)' USING 9L AS id, 'z' AS name")
    assert ids(spark) == [2, 3, 9]
    spark.sql("EXECUTE IMMEDIATE 'UPDATE scripted SET id = id + 1'")
    assert [row.id for row in spark.sql("EXECUTE IMMEDIATE 'SELECT id FROM scripted ORDER BY id'").collect()] == [
        3, 4, 10,
    ]  # fmt: skip
    told = spark.sql("EXECUTE IMMEDIATE 'DESCRIBE HISTORY scripted'").collect()
    assert [row.operation for row in told][:3] == ["UPDATE", "WRITE", "DELETE"]
    assert newest(spark).version == 4, "each ran once"


def test_execute_immediate_reads_and_sets_variables(spark, table):
    spark.sql("DECLARE OR REPLACE VARIABLE how_many BIGINT")
    spark.sql("DECLARE OR REPLACE VARIABLE statement STRING DEFAULT 'SELECT count(*) FROM scripted WHERE id > :least'")
    spark.sql("EXECUTE IMMEDIATE statement INTO how_many USING 1L AS least")
    assert spark.sql("SELECT how_many").first()[0] == 2
    spark.sql("EXECUTE IMMEDIATE 'DELETE FROM scripted WHERE id = ?' USING how_many")
    assert ids(spark) == [1, 3]


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("EXECUTE IMMEDIATE 'DELETE FROM scripted WHERE nope = 1'", BindError),
        ("EXECUTE IMMEDIATE 'DELETE FROM scripted WHERE id = ?'", AnalysisException),
        ("EXECUTE IMMEDIATE 'DELETE FROM'", ParseException),
        ("EXECUTE IMMEDIATE 'DELETE FROM scripted' INTO how_many", AnalysisException),
    ],
)
def test_what_execute_immediate_refuses_changes_nothing(spark, table, statement, kind):
    spark.sql("DECLARE OR REPLACE VARIABLE how_many BIGINT")
    with pytest.raises(kind):
        spark.sql(statement)
    assert newest(spark).version == 1


def test_a_script_sees_what_its_own_statements_did(spark, table):
    frame = spark.sql(
        """
        BEGIN
          DECLARE gone BIGINT DEFAULT 2;
          DECLARE round INT DEFAULT 0;
          CREATE TABLE made_by_script (id BIGINT) USING delta;
          DELETE FROM scripted WHERE id = gone;
          INSERT INTO made_by_script SELECT id FROM scripted;
          WHILE round < 2 DO
            INSERT INTO made_by_script VALUES (100 + round);
            SET round = round + 1;
          END WHILE;
          MERGE INTO scripted USING made_by_script AS s ON s.id = scripted.id
            WHEN MATCHED THEN UPDATE SET name = 'merged' WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'new');
          IF (SELECT count(*) FROM scripted) = 4 THEN UPDATE scripted SET name = 'four' WHERE id = 1; END IF;
          SELECT id, name FROM scripted ORDER BY id;
        END
        """
    )
    assert [tuple(row) for row in frame.collect()] == [(1, "four"), (3, "merged"), (100, "new"), (101, "new")]
    assert newest(spark).version == 4, "DELETE, MERGE and UPDATE, each once"
    assert newest(spark, "made_by_script").version == 3


def test_a_script_loops_over_rows_and_travels(spark, table):
    spark.sql(
        "BEGIN FOR row AS SELECT id FROM scripted DO INSERT INTO scripted VALUES (row.id + 10, 'x'); END FOR; END"
    )
    assert ids(spark) == [1, 2, 3, 11, 12, 13]
    assert spark.sql("BEGIN SELECT count(*) FROM scripted VERSION AS OF 1; END").first()[0] == 3
    assert (
        spark.sql("BEGIN WITH few AS (SELECT 2L id) SELECT count(*) FROM few JOIN scripted USING (id); END").first()[0]
        == 1
    )


def test_a_script_ends_at_the_statement_that_fails(spark, table):
    spark.sql("ALTER TABLE scripted ADD CONSTRAINT positive CHECK (id > 0)")
    with pytest.raises(ConstraintViolatedError):
        spark.sql("BEGIN DELETE FROM scripted WHERE id = 1; INSERT INTO scripted VALUES (-1, 'x'); SELECT 1; END")
    assert ids(spark) == [2, 3]
    with pytest.raises(BindError, match="nope"):
        spark.sql("BEGIN UPDATE scripted SET nope = 1; END")


def test_a_handler_catches_errors_of_tables(spark, table):
    spark.sql("ALTER TABLE scripted ADD CONSTRAINT positive CHECK (id > 0)")
    for what in ("SQLEXCEPTION", "SQLSTATE '23001'"):
        frame = spark.sql(
            f"""
            BEGIN
              DECLARE EXIT HANDLER FOR {what}
                BEGIN INSERT INTO scripted VALUES (7, 'handled'); SELECT 'caught' AS end; END;
              DELETE FROM scripted WHERE id = 1;
              INSERT INTO scripted VALUES (-1, 'x');
              DELETE FROM scripted;
            END
            """
        )
        assert [row.end for row in frame.collect()] == ["caught"]
        assert ids(spark) == [2, 3, 7]
        spark.sql("DELETE FROM scripted WHERE id = 7")
    with pytest.raises(AnalysisException, match="nowhere"):  # a handler's own error is not taken for the one it caught
        spark.sql(
            "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION SELECT * FROM nowhere; "
            "INSERT INTO scripted VALUES (-1, 'x'); END"
        )
    with pytest.raises(ConstraintViolatedError):
        spark.sql("BEGIN DECLARE EXIT HANDLER FOR DIVIDE_BY_ZERO SELECT 1; INSERT INTO scripted VALUES (-1, 'x'); END")


@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        ("INSERT INTO scripted VALUES ((SELECT max(id) FROM scripted), 'x')", None),
        ("INSERT INTO scripted SELECT nope, 'x' FROM scripted", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("INSERT INTO scripted SELECT 1 DIV (id - 1), 'x' FROM scripted", "DIVIDE_BY_ZERO"),
        ("UPDATE scripted SET id = CAST('x' AS INT) WHERE id = 2", "CAST_INVALID_INPUT"),
        ("MERGE INTO scripted t USING (SELECT nope(1) AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE", None),
    ],
)
def test_a_handler_catches_sparks_errors_in_statements_about_tables(spark, table, statement, condition):
    script = f"""
        BEGIN
          DECLARE EXIT HANDLER FOR {{what}} BEGIN SELECT 'caught' AS end; END;
          DELETE FROM scripted WHERE id = 3;
          {statement};
          DELETE FROM scripted;
        END
    """
    assert [row.end for row in spark.sql(script.format(what="SQLEXCEPTION")).collect()] == ["caught"]
    assert ids(spark) == [1, 2]
    with pytest.raises(PySparkException) as raised:
        spark.sql(script.format(what="SQLSTATE '99999'"))
    assert condition is None or raised.value.getCondition() == condition
    assert raised.value.getCondition() and ids(spark) == [1, 2]


def test_a_script_without_delta_tables_is_sparks(spark):
    assert spark.sql("BEGIN DECLARE x INT DEFAULT 3; SELECT x + 1; END").first()[0] == 4


def test_cached_queries(spark, table):
    try:
        spark.sql("CACHE TABLE few AS SELECT id FROM scripted WHERE id < 3")
        assert spark.catalog.isCached("few")
        assert ids(spark, "few") == [1, 2]
        spark.sql("INSERT INTO scripted VALUES (0, 'x')")
        assert ids(spark, "few") == [0, 1, 2], "a write goes through to what is cached"
        with pytest.raises(AnalysisException):
            spark.sql("CACHE TABLE few AS SELECT id FROM scripted")
        spark.sql("CACHE LAZY TABLE lazily OPTIONS ('storageLevel' 'DISK_ONLY') AS SELECT id FROM scripted")
        assert spark.catalog.isCached("lazily") and len(ids(spark, "lazily")) == 4
    finally:
        for view in ("few", "lazily"):
            spark.catalog.dropTempView(view)


def test_the_name_of_a_variable_is_that_of_a_marker_of_execute_immediate(spark, table):
    spark.sql("DECLARE OR REPLACE VARIABLE wanted BIGINT DEFAULT 1")
    spark.sql("EXECUTE IMMEDIATE 'DELETE FROM scripted WHERE id = :wanted' USING wanted")
    assert spark.sql("EXECUTE IMMEDIATE 'SELECT id FROM scripted WHERE id = :wanted' USING wanted").collect() == []
    shown = spark.sql("EXECUTE IMMEDIATE 'SELECT :wanted AS w, :a AS a FROM scripted LIMIT 1' USING wanted, 'x' AS a")
    assert [tuple(row) for row in shown.collect()] == [(1, "x")]
    spark.sql("DROP TEMPORARY VARIABLE wanted")
