"""INSERT in every form: the same rows as in a Parquet table, and in one commit."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, NumberFormatException

from pydelta.errors import BindError, InvalidArgumentError, SchemaMismatchError, UnsupportedFeatureError
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

BASE = "SELECT id AS a, concat('v', id) AS b, cast(id % 2 AS INT) AS p FROM range(4)"


@pytest.fixture
def both(spark):
    """One table twice: ``sql_delta`` and ``sql_parquet``."""
    for provider in ("delta", "parquet"):
        spark.sql(f"DROP TABLE IF EXISTS sql_{provider}")
        spark.sql(f"CREATE TABLE sql_{provider} (a BIGINT, b STRING, p INT) USING {provider} PARTITIONED BY (p)")
        spark.sql(f"INSERT INTO sql_{provider} {BASE}")
    yield
    for provider in ("delta", "parquet"):
        spark.sql(f"DROP TABLE sql_{provider}")


def rows(spark, table):
    return sorted(tuple(row) for row in spark.sql(f"SELECT a, b, p FROM {table}").collect())


def versions(spark):
    return spark.sql("DESCRIBE HISTORY sql_delta").count()


STATEMENTS = [
    "INSERT INTO {t} VALUES (10, 'x', 0), (11, NULL, 1)",
    "INSERT INTO TABLE {t} SELECT a + 10, b, p FROM {t} WHERE p = 1",
    "INSERT INTO {t} (p, a, b) SELECT 1, 20, 'y'",
    "INSERT INTO {t} (a, p) VALUES (21, 0)",
    "INSERT INTO {t} BY NAME SELECT 1 AS p, 'z' AS b, 22L AS a",
    "INSERT INTO {t} PARTITION (p = 1) SELECT 23, 'w'",
    "INSERT INTO {t} PARTITION (p = 1) (b, a) SELECT 'w', 24",
    "INSERT INTO {t} PARTITION (p) SELECT 25, 'w', 0",
    "INSERT INTO {t} TABLE {t}",
    "INSERT INTO {t} WITH c AS (SELECT 30 AS a) SELECT a, 'c', 1 FROM c",
    "WITH c AS (SELECT 31 AS a), d AS (SELECT a + 1 AS a FROM c) INSERT INTO {t} SELECT a, 'd', 1 FROM d",
    "FROM range(2) INSERT INTO {t} SELECT id, 'm', 0 INSERT INTO {t} SELECT id, 'n', 1",
    "INSERT INTO {t} SELECT 1.9, 5, 1L",  # cast as ANSI assignment allows
    "INSERT OVERWRITE {t} SELECT 1, 'only', 1",
    "INSERT OVERWRITE TABLE {t} PARTITION (p = 1) SELECT 40, 'q'",
    "INSERT OVERWRITE {t} PARTITION (p = 7) SELECT 41, 'new'",
    "INSERT OVERWRITE {t} SELECT a, b, p FROM {t} WHERE a > 1",
]


CASES = [
    (text, mode) for text in STATEMENTS for mode in ("static", "dynamic") if mode == "static" or "OVERWRITE" in text
]


@pytest.mark.parametrize(("statement", "mode"), CASES)
def test_rows_are_those_that_parquet_would_have(spark, both, statement, mode):
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", mode)
    outcome = {}
    try:
        for provider in ("delta", "parquet"):
            table = f"sql_{provider}"
            text = statement.format(t=table)
            if provider == "parquet" and "OVERWRITE" in text and "FROM sql_parquet" in text:
                text = text.replace(
                    "FROM sql_parquet", f"FROM ({BASE})"
                )  # Parquet tables cannot read what they overwrite
            try:
                result = spark.sql(text)
                assert result.columns == []
                outcome[provider] = rows(spark, table)
            except AnalysisException:
                outcome[provider] = "refused"
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert outcome["delta"] == outcome["parquet"]
    commits = 0 if outcome["delta"] == "refused" else 2 if statement.startswith("FROM") else 1
    assert versions(spark) == 2 + commits


def test_replace_where(spark, both):
    spark.sql("INSERT INTO sql_delta REPLACE WHERE p = 1 AND a > 1 SELECT 50L, 'r', 1")
    assert rows(spark, "sql_delta") == [(0, "v0", 0), (1, "v1", 1), (2, "v2", 0), (50, "r", 1)]
    with pytest.raises(Exception, match=r"outside replaceWhere"):
        spark.sql("INSERT INTO sql_delta REPLACE WHERE p = 1 SELECT 51L, 'r', 0")
    assert rows(spark, "sql_delta") == [(0, "v0", 0), (1, "v1", 1), (2, "v2", 0), (50, "r", 1)]


def test_defaults_stand_for_what_is_left_out_or_called_default(spark):
    spark.sql("DROP TABLE IF EXISTS sql_defaults")
    spark.sql(
        "CREATE TABLE sql_defaults (a INT DEFAULT 7, b STRING DEFAULT upper('x'), d DATE, "
        "y INT GENERATED ALWAYS AS (year(d))) USING delta"
    )
    try:
        spark.sql("INSERT INTO sql_defaults (a, b, d) VALUES (1, DEFAULT, DATE'2020-05-05'), (DEFAULT, 'b', DEFAULT)")
        spark.sql("INSERT INTO sql_defaults (d) SELECT DATE'2021-01-01'")
        spark.sql("INSERT INTO sql_defaults (b, d) SELECT DEFAULT, DATE'2022-01-01'")
        found = sorted(map(str, (tuple(row) for row in spark.sql("SELECT a, b, y FROM sql_defaults").collect())))
        assert found == ["(1, 'X', 2020)", "(7, 'X', 2021)", "(7, 'X', 2022)", "(7, 'b', None)"]
        with pytest.raises(InvalidArgumentError, match="is then computed"):
            spark.sql("INSERT INTO sql_defaults (y) VALUES (DEFAULT)")
    finally:
        spark.sql("DROP TABLE sql_defaults")


def test_parameters_are_bound(spark, both):
    spark.sql("INSERT INTO sql_delta VALUES (:a, :b, 0)", args={"a": 60, "b": "it's"})
    spark.sql("INSERT INTO sql_delta SELECT ?, ?, 1", args=[61, "q"])
    spark.sql("DELETE FROM sql_delta WHERE a < :limit", args={"limit": 60})
    spark.sql("UPDATE sql_delta SET b = ? WHERE a = ?", args=["new", 61])
    assert rows(spark, "sql_delta") == [(60, "it's", 0), (61, "new", 1)]
    spark.sql("INSERT INTO IDENTIFIER(:t) VALUES (62, 'r', 0)", args={"t": "sql_delta"})
    spark.sql("UPDATE IDENTIFIER('sql_' || 'delta') SET p = 1 WHERE a = 62")
    assert spark.sql("SELECT p FROM IDENTIFIER(:t) WHERE a = 62", args={"t": "default.sql_delta"}).first()[0] == 1
    frame = spark.sql("SELECT * FROM {t} WHERE a = {x}", t=spark.table("sql_delta"), x=61)
    assert frame.count() == 1


def test_schema_evolution_is_asked_for(spark, both):
    spark.sql("INSERT INTO sql_delta WITH (mergeSchema = true) BY NAME SELECT 70L AS a, 1 AS p, 'new' AS extra")
    assert spark.table("sql_delta").columns == ["a", "b", "p", "extra"]
    assert spark.sql("SELECT extra FROM sql_delta WHERE a = 70").first()[0] == "new"


def test_a_path_is_a_table_too(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(2).write.format("delta").save(path)
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (7)")
    spark.sql(f"INSERT OVERWRITE delta.`{path}` SELECT id + 1 FROM delta.`{path}`")
    assert sorted(row.id for row in DeltaTable.forPath(spark, path).toDF().collect()) == [1, 2, 8]


MISTAKES = {
    "INSERT INTO sql_delta VALUES (1, 'x')": (SchemaMismatchError, "3 columns and the data has 2"),
    "INSERT INTO sql_delta (a, bb) VALUES (1, 'x')": (BindError, "Did you mean b"),
    "INSERT INTO sql_delta (a, a) VALUES (1, 2)": (SchemaMismatchError, "given twice"),
    "INSERT INTO sql_delta (a) VALUES (1, 2)": (SchemaMismatchError, "names 1 columns"),
    "INSERT INTO sql_delta VALUES (DATE'2020-01-01', 'x', 1)": (AnalysisException, "DATATYPE_MISMATCH"),
    "INSERT INTO sql_delta BY NAME SELECT 1 AS a, 2 AS nope": (SchemaMismatchError, "no column 'nope'"),
    "INSERT INTO sql_delta PARTITION (b = 1) SELECT 1, 2": (InvalidArgumentError, "partitioned by p"),
    "INSERT OVERWRITE TABLE sql_delta PARTITION (p = 1) IF NOT EXISTS SELECT 1, 2": (UnsupportedFeatureError, "IF NOT"),
    "INSERT INTO delta.`/nowhere/at/all` SELECT 1": (Exception, "no Delta table"),
}


@pytest.mark.parametrize("statement", MISTAKES)
def test_mistakes_are_named_and_change_nothing(spark, both, statement):
    kind, words = MISTAKES[statement]
    before = rows(spark, "sql_delta")
    with pytest.raises(kind, match=words):
        spark.sql(statement)
    assert rows(spark, "sql_delta") == before
    assert versions(spark) == 2


def test_fields_of_structs_go_by_position_or_by_name_as_in_the_reference_engine(spark):
    """Tried with Delta 4.4.0 on Spark 4.2.0, statement by statement."""
    spark.sql("DROP TABLE IF EXISTS by_place")
    spark.sql("CREATE TABLE by_place (id INT, o ARRAY<STRUCT<a: INT, b: INT>>, s STRUCT<a: INT, b: INT>) USING delta")
    turned, whole = "array(named_struct('b', 2, 'a', 1))", "named_struct('b', 2, 'a', 1)"
    for statement in (
        f"SELECT 1 AS id, {turned} AS o, {whole} AS s",
        f"SELECT 2 AS ID, {turned} AS o, {whole} AS s",
        f"SELECT 3L AS id, {turned} AS o, {whole} AS s",
        f"(id, o, s) SELECT 4, {turned}, {whole}",
        f"(o, s, id) SELECT {turned} AS o, {whole} AS s, 5 AS id",
    ):
        spark.sql(f"INSERT INTO by_place {statement}")
    spark.sql(f"SELECT 6 AS id, {turned} AS o, {whole} AS s").write.insertInto("by_place")
    spark.sql(f"SELECT 7 AS id, {turned} AS p, {whole} AS s").write.insertInto("by_place")
    spark.sql("INSERT INTO by_place (id, o) SELECT 8, array(named_struct('b', 2L, 'a', 1L))")
    found = spark.sql("SELECT id, o[0].a, s.a FROM by_place ORDER BY id").collect()
    spark.sql("DROP TABLE by_place")
    assert [tuple(row) for row in found] == [
        (1, 1, 1), (2, 2, 2), (3, 2, 2), (4, 1, 2), (5, 1, 2), (6, 1, 1), (7, 2, 2), (8, 2, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO sql_delta SELECT * FROM sql_delta WHERE false",
        "INSERT OVERWRITE sql_delta PARTITION (p = 7) SELECT 1, 'x' WHERE false",
        "INSERT INTO sql_delta REPLACE WHERE p = 7 SELECT 1, 'x', 7 WHERE false",
    ],
)
def test_an_insert_that_brings_and_takes_no_row_makes_no_version(spark, both, text):
    before, rows_before = versions(spark), rows(spark, "sql_delta")
    spark.sql(text)
    assert (versions(spark), rows(spark, "sql_delta")) == (before, rows_before)


def test_an_insert_without_rows_makes_a_version_where_rows_go_or_columns_come(spark, both):
    before = versions(spark)
    spark.sql("INSERT WITH SCHEMA EVOLUTION INTO sql_delta SELECT *, 1 AS more FROM sql_delta WHERE false")
    assert versions(spark) == before + 1
    assert spark.table("sql_delta").columns[-1] == "more"
    spark.sql("INSERT OVERWRITE sql_delta SELECT * FROM sql_delta WHERE false")
    assert (versions(spark), rows(spark, "sql_delta")) == (before + 2, [])


@pytest.fixture
def by_text(spark):
    """A table that is partitioned by a text, with a row in the partition of null."""
    spark.sql("DROP TABLE IF EXISTS sql_parts")
    spark.sql("CREATE TABLE sql_parts (a INT, p STRING) USING delta PARTITIONED BY (p)")
    spark.sql("INSERT INTO sql_parts VALUES (0, NULL), (1, 'None')")
    yield
    spark.sql("DROP TABLE sql_parts")


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_null_in_a_partition_clause_is_null_and_not_a_text(spark, by_text, mode):
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", mode)
    try:
        spark.sql("INSERT INTO sql_parts PARTITION (p = NULL) SELECT 2")
        assert sorted(tuple(row) for row in spark.table("sql_parts").where("p IS NULL").collect()) == [
            (0, None),
            (2, None),
        ]
        spark.sql("INSERT OVERWRITE sql_parts PARTITION (p = NULL) SELECT 3")
        spark.sql("INSERT INTO sql_parts PARTITION (p = NULL) (a) VALUES (4)")
        spark.sql("INSERT INTO sql_parts PARTITION (p = NULL) BY NAME SELECT 5 AS a")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    expected = [(1, "None"), (3, None), (4, None), (5, None)]
    assert sorted(tuple(row) for row in spark.table("sql_parts").collect()) == expected


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("INT", ["NULL", "1", "'2'"]),
        ("DATE", ["NULL", "DATE'2024-01-05'", "'2024-02-05'"]),
        ("TIMESTAMP", ["NULL", "TIMESTAMP'2024-01-05 10:11:12.123456'"]),
        ("BOOLEAN", ["NULL", "true", "'false'"]),
        ("DECIMAL(10, 2)", ["NULL", "1.50", "-3"]),
    ],
)
def test_values_of_a_partition_clause_are_those_of_a_cast(spark, kind, values):
    spark.sql("DROP TABLE IF EXISTS sql_typed")
    spark.sql(f"CREATE TABLE sql_typed (a INT, p {kind}) USING delta PARTITIONED BY (p)")
    for number, value in enumerate(values):
        spark.sql(f"INSERT INTO sql_typed PARTITION (p = {value}) SELECT {number}")
        spark.sql(f"INSERT OVERWRITE sql_typed PARTITION (p = {value}) SELECT {number}")
    expected = spark.sql(" UNION ALL ".join(f"SELECT {n}, CAST({v} AS {kind})" for n, v in enumerate(values))).collect()
    assert sorted(spark.table("sql_typed").collect()) == sorted(expected)
    spark.sql("DROP TABLE sql_typed")


@pytest.mark.parametrize(
    ("kind", "given", "stored"),
    [
        ("CHAR(5)", "ab", "ab   "),
        ("CHAR(2)", "ab   ", "ab"),
        ("VARCHAR(3)", "ab   ", "ab "),
        ("VARCHAR(3)", "a", "a"),
        ("STRING", "", None),
    ],
)
def test_a_text_of_a_partition_clause_overwrites_the_rows_that_have_it_as_the_column_stores_it(
    spark, kind, given, stored
):
    spark.sql("DROP TABLE IF EXISTS sql_typed")
    spark.sql(f"CREATE TABLE sql_typed (a INT, p {kind}) USING delta PARTITIONED BY (p)")
    spark.sql("INSERT INTO sql_typed VALUES (0, 'z')")
    spark.sql(f"INSERT INTO sql_typed PARTITION (p = '{given}') SELECT 1")
    spark.sql(f"INSERT OVERWRITE sql_typed PARTITION (p = '{given}') SELECT 2")
    found = {row.a: row.p for row in spark.table("sql_typed").collect()}
    assert set(found) == {0, 2} and found[2] == stored
    spark.sql("DROP TABLE sql_typed")


def test_bytes_of_a_partition_clause_that_are_not_utf_8_are_refused(spark):
    spark.sql("DROP TABLE IF EXISTS sql_typed")
    spark.sql("CREATE TABLE sql_typed (a INT, p BINARY) USING delta PARTITIONED BY (p)")
    spark.sql("INSERT INTO sql_typed PARTITION (p = X'61') SELECT 1")
    with pytest.raises(InvalidArgumentError, match="not UTF-8"):
        spark.sql("INSERT INTO sql_typed PARTITION (p = X'00FF') SELECT 2")
    assert [(row.a, bytes(row.p)) for row in spark.table("sql_typed").collect()] == [(1, b"a")]
    spark.sql("DROP TABLE sql_typed")


@pytest.mark.parametrize("policy", ["ANSI", "STRICT", "LEGACY"])
def test_a_value_of_a_partition_clause_is_cast_by_spark_whatever_the_policy_of_assignment(spark, policy):
    spark.sql("DROP TABLE IF EXISTS sql_typed")
    spark.sql("CREATE TABLE sql_typed (a INT, p INT, d DATE) USING delta PARTITIONED BY (p, d)")
    spark.conf.set("spark.sql.storeAssignmentPolicy", policy)
    try:
        spark.sql("INSERT INTO sql_typed PARTITION (p = '1', d = '2024-1-5') SELECT 1")
        spark.sql("INSERT OVERWRITE sql_typed PARTITION (p = ' 1 ', d = DATE'2024-01-05') SELECT 2")
        with pytest.raises(NumberFormatException, match="CAST_INVALID_INPUT"):
            spark.sql("INSERT INTO sql_typed PARTITION (p = '', d = '2024-1-5') SELECT 3")
        for twice in ("(a, P, d) SELECT 1, 1, NULL", "BY NAME SELECT 1 AS a, 1 AS p"):
            with pytest.raises(InvalidArgumentError) as refused:
                spark.sql(f"INSERT INTO sql_typed PARTITION (p = 1) {twice}")
            assert refused.value.getCondition() == "STATIC_PARTITION_COLUMN_IN_INSERT_COLUMN_LIST"
    finally:
        spark.conf.unset("spark.sql.storeAssignmentPolicy")
    assert [tuple(row) for row in spark.table("sql_typed").selectExpr("a", "p", "string(d)").collect()] == [
        (2, 1, "2024-01-05")
    ]
    predicate = spark.sql("DESCRIBE HISTORY sql_typed LIMIT 1").first().operationParameters["predicate"]
    assert "((p <=> 1) AND (d <=> DATE '2024-01-05'))" in predicate
    spark.sql("DROP TABLE sql_typed")
