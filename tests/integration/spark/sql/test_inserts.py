"""INSERT, part by part: the rows that a small table holds after one statement, or why nothing was written."""

from __future__ import annotations

import shutil

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, NumberFormatException, PySparkException

from pydelta.api.sql.dispatch import is_effect
from pydelta.api.sql.insert import _field, _matches, _value, insert, replace_where
from pydelta.api.sql.nodes import Nodes
from pydelta.engines.spark.catalog.objects import copy_of
from pydelta.errors import (
    DeltaError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableNotFoundError,
    UnsafeOperationError,
    UnsupportedFeatureError,
)
from pydelta.protocol.types import PrimitiveType, StructField, StructType

pytestmark = pytest.mark.spark

X, Y = (1, "x", 0), (2, "y", 1)
MODE = "spark.sql.sources.partitionOverwriteMode"
REQUIRED = "spark.sql.defaultColumn.useNullsForMissingDefaultValues"


@pytest.fixture
def made(spark, tmp_path):
    """Make a table with rows; returns its name in SQL."""

    def make(columns="a INT, b STRING, p INT", by="p", rows="VALUES (1, 'x', 0), (2, 'y', 1)", name="t"):
        table = f"delta.`{tmp_path / name}`"
        spark.sql(f"CREATE TABLE {table} ({columns}) USING delta {f'PARTITIONED BY ({by})' if by else ''}")
        if rows:
            spark.sql(f"INSERT INTO {table} {rows}")
        return table

    return make


@pytest.fixture
def setting(spark):
    """Set a setting of the session for one test."""
    names = []

    def put(name, value):
        names.append(name)
        spark.conf.set(name, value)

    yield put
    for name in names:
        spark.conf.unset(name)


def rows(spark, table):
    return sorted((tuple(row) for row in spark.sql(f"SELECT * FROM {table}").collect()), key=str)


def predicate(spark, table):
    return spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").first().operationParameters.get("predicate")


ADDED = {
    "VALUES (3, 'z', 0)": (3, "z", 0),
    "(p, a) VALUES (1, 3)": (3, None, 1),
    "BY NAME SELECT 1 AS p, 3 AS a": (3, None, 1),
    "PARTITION (P = 5) SELECT 3, 'z'": (3, "z", 5),
    "PARTITION (p = 5) (b) VALUES ('z')": (None, "z", 5),
    "PARTITION (p = NULL) SELECT 3, 'z'": (3, "z", None),
    "PARTITION (p = '__HIVE_DEFAULT_PARTITION__') SELECT 3, 'z'": (3, "z", None),
    "PARTITION (p = 5) BY NAME SELECT 'z' AS b, 3 AS a": (3, "z", 5),
    "PARTITION (p) SELECT 3, 'z', 5": (3, "z", 5),
    "WITH c AS (SELECT 3 AS n) SELECT n, 'z', DEFAULT FROM c": (3, "z", None),
    "SELECT 3, 'DEFAULT', 5 UNION ALL SELECT 3, 'z', 5 WHERE false": (3, "DEFAULT", 5),
    "VALUES (3, default, 0)": (3, None, 0),
    "(b, p) SELECT Default, 5": (None, None, 5),
}


@pytest.mark.parametrize("words", ADDED)
def test_a_row_is_added_in_one_version(spark, made, words):
    table = made()
    assert spark.sql(f"INSERT INTO {table} {words}").columns == []
    assert rows(spark, table) == sorted([X, Y, ADDED[words]], key=str)
    assert spark.sql(f"DESCRIBE HISTORY {table}").count() == 3


REPLACED = {
    "OVERWRITE {t} VALUES (3, 'z', 1)": ([(3, "z", 1)], [X, (3, "z", 1)]),
    "OVERWRITE {t} WITH (partitionOverwriteMode = 'DYNAMIC') VALUES (3, 'z', 1)": ([X, (3, "z", 1)],) * 2,
    "OVERWRITE {t} WITH (PartitionOverwriteMode = 'static') VALUES (3, 'z', 1)": ([(3, "z", 1)],) * 2,
    "OVERWRITE {t} WITH (mergeSchema = 'false') VALUES (3, 'z', 1)": ([(3, "z", 1)], [X, (3, "z", 1)]),
    "OVERWRITE {t} PARTITION (p = 1) SELECT 3, 'z'": ([X, (3, "z", 1)],) * 2,
    "OVERWRITE {t} PARTITION (p = 1) SELECT 3, 'z' WHERE false": ([X], [X, Y]),
    "OVERWRITE {t} WITH (partitionOverwriteMode = 'DYNAMIC') PARTITION (p = 1) SELECT 3, 'z' LIMIT 0": ([X, Y],) * 2,
    "OVERWRITE {t} WITH (PartitionOverwriteMode = 'static') PARTITION (p = 1) SELECT 3, 'z' LIMIT 0": ([X],) * 2,
    "INTO {t} REPLACE WHERE a = 2 VALUES (2, 'z', 1)": ([X, (2, "z", 1)],) * 2,
    "INTO {t} BY NAME REPLACE WHERE p > 0 SELECT 7 AS p, 3 AS a": ([X, (3, None, 7)],) * 2,
    "INTO {t} REPLACE USING (a) VALUES (2, 'z', 7)": ([X, (2, "z", 7)],) * 2,
    "INTO {t} AS old REPLACE ON old.a = s.k SELECT * FROM VALUES (2, 'z', 7) AS s(k, b, p)": ([X, (2, "z", 7)],) * 2,
    "INTO {t} REPLACE ON a = k SELECT * FROM VALUES (2, 'z', 7) AS s(k, l, m)": ([X, (2, "z", 7)],) * 2,
    "INTO {t} REPLACE ON {t}.a = k SELECT * FROM VALUES (2, 'z', 7) AS s(k, l, m)": ([X, (2, "z", 7)],) * 2,
    "INTO {t} AS old REPLACE ON {t}.a = k SELECT * FROM VALUES (2, 'z', 7) AS s(k, l, m)": ([X, (2, "z", 7)],) * 2,
}


@pytest.mark.parametrize("mode", ["STATIC", "DYNAMIC"])
@pytest.mark.parametrize("words", REPLACED)
def test_rows_are_replaced(spark, made, setting, words, mode):
    table = made()
    setting(MODE, mode)
    spark.sql(f"INSERT {words.format(t=table)}")
    assert rows(spark, table) == sorted(REPLACED[words][mode == "DYNAMIC"], key=str)


def test_rows_are_replaced_in_whole_where_the_mode_is_not_set(spark, made):
    table = made()
    spark.sql(f"INSERT OVERWRITE {table} VALUES (3, 'z', 1)")
    assert rows(spark, table) == [(3, "z", 1)]
    assert predicate(spark, table) in (None, "", "[]")


REFUSED = {
    "INTO {t} VALUES (3, 'z')": (SchemaMismatchError, "3 columns"),
    "INTO {t} VALUES (3, DEFAULT, 0, DEFAULT)": (AnalysisException, "`DEFAULT` cannot be resolved"),
    "INTO {t} (a, nope) VALUES (3, DEFAULT)": (InvalidArgumentError, "'nope'"),
    "INTO {t} PARTITION (b = 'z') SELECT 3, 0": (InvalidArgumentError, "partitioned by p"),
    "INTO {t} PARTITION (p = 1) (a, P) SELECT 3, 1": (InvalidArgumentError, "'p' has a value in PARTITION"),
    "INTO {t} PARTITION (p = 1) BY NAME SELECT 3 AS a, 1 AS P": (InvalidArgumentError, "'p' has a value in PARTITION"),
    "INTO {t} PARTITION (p = '') SELECT 3, 'z'": (Exception, "CAST_INVALID_INPUT"),
    "OVERWRITE {t} PARTITION (p = '') SELECT 3, 'z'": (Exception, "CAST_INVALID_INPUT"),
    "OVERWRITE {t} PARTITION (p = 1) IF NOT EXISTS SELECT 3, 'z'": (UnsupportedFeatureError, "IF NOT EXISTS"),
    "INTO {t} BY NAME SELECT 3 AS a, 'n' AS extra": (SchemaMismatchError, "extra"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_wrong_is_refused_and_nothing_is_written(spark, made, words):
    table = made()
    kind, text = REFUSED[words]
    with pytest.raises(kind, match=text) as refused:
        spark.sql(f"INSERT {words.format(t=table)}")
    assert rows(spark, table) == [X, Y]
    if isinstance(refused.value, DeltaError) and "IF NOT" not in words:
        assert refused.value.table == f"file://{table[7:-1]}"


@pytest.mark.parametrize("rows", ["VALUES (1)", "PARTITION (p = 1) VALUES (1)", "(a, b) VALUES (1, DEFAULT)"])
def test_a_path_without_a_table_is_named(spark, tmp_path, rows):
    with pytest.raises(TableNotFoundError, match="no Delta table at"):
        spark.sql(f"INSERT INTO delta.`{tmp_path / 'none'}` {rows}")
    assert not (tmp_path / "none").exists()


def test_a_column_is_added_where_the_statement_asks_for_it(spark, made):
    table = made()
    spark.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME SELECT 3 AS a, 0 AS p, true AS extra")
    assert rows(spark, table) == [(1, "x", 0, None), (2, "y", 1, None), (3, None, 0, True)]
    spark.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {table} SELECT 4, 'z', 0, false, 1.5D AS further")
    assert rows(spark, table)[-1] == (4, "z", 0, False, 1.5)


def test_names_of_partition_columns_have_any_case(spark, made):
    table = made("a INT, Q INT", "Q", "VALUES (1, 1)")
    spark.sql(f"INSERT INTO {table} PARTITION (q = 2) SELECT 2")
    spark.sql(f"INSERT OVERWRITE {table} PARTITION (Q = 1) SELECT 3")
    assert rows(spark, table) == [(2, 2), (3, 1)]
    assert predicate(spark, table) == "(Q <=> 1)"
    with pytest.raises(InvalidArgumentError, match="'Q' has a value in PARTITION"):
        spark.sql(f"INSERT INTO {table} PARTITION (q = 2) (a, q) SELECT 1, 2")
    assert rows(spark, table) == [(2, 2), (3, 1)]


def test_the_value_of_a_partition_is_cast_whatever_the_policy_for_the_query_is(spark, made, setting):
    table = made("a INT, p INT", rows=None)
    setting("spark.sql.storeAssignmentPolicy", "STRICT")
    spark.sql(f"INSERT INTO {table} PARTITION (p = '7') SELECT 1")
    assert rows(spark, table) == [(1, 7)]


def test_a_table_whose_folder_is_gone_is_named(spark, tmp_path):
    spark.sql(f"CREATE TABLE gone_from_disk (a INT) USING delta LOCATION '{tmp_path / 'gone'}'")
    try:
        shutil.rmtree(tmp_path / "gone")
        with pytest.raises(TableNotFoundError, match="There is no Delta table at"):
            spark.sql("INSERT INTO gone_from_disk VALUES (1)")
        assert not (tmp_path / "gone").exists()
    finally:
        spark.sql("DROP TABLE IF EXISTS gone_from_disk")


TYPED = [
    ("STRING", "' 1'", " 1", "(p <=> ' 1')"),
    ("STRING", "''", None, "(p IS NULL)"),
    ("STRING", "'a\ufffd'", "a\ufffd", "(p <=> 'a\ufffd')"),
    ("BINARY", "X''", None, "(p IS NULL)"),
    ("CHAR(3)", "'a'", "a  ", "(p <=> 'a  ')"),
    ("DOUBLE", "'1e1'", 10.0, "(p <=> 10.0D)"),
    ("BOOLEAN", "'t'", True, "(p <=> true)"),
    ("INT", "' 7 '", 7, "(p <=> 7)"),
]


@pytest.mark.parametrize(("kind", "given", "stored", "shown"), TYPED)
def test_the_partition_of_a_value_is_replaced_as_the_column_stores_it(spark, made, kind, given, stored, shown):
    table = made(f"a INT, p {kind}", rows=None)
    spark.sql(f"INSERT INTO {table} PARTITION (p = {given}) SELECT 1")
    spark.sql(f"INSERT OVERWRITE {table} PARTITION (p = {given}) SELECT 2")
    assert rows(spark, table) == [(2, stored)]
    assert predicate(spark, table) == shown


def test_bytes_that_are_not_utf_8_are_refused(spark, made):
    table = made("a INT, p BINARY", rows=None)
    spark.sql(f"INSERT INTO {table} PARTITION (p = X'61') SELECT 1")
    with pytest.raises(InvalidArgumentError, match="not UTF-8"):
        spark.sql(f"INSERT INTO {table} PARTITION (p = X'00FF') SELECT 2")
    assert rows(spark, table) == [(1, b"a")]


def test_of_two_values_both_choose_the_rows_that_are_replaced(spark, made):
    table = made("a INT, p INT, q INT", "p, q", "VALUES (1, NULL, 1), (2, NULL, 2), (3, 5, 1)")
    spark.sql(f"INSERT OVERWRITE {table} PARTITION (p = NULL, q = 1) SELECT 9")
    assert rows(spark, table) == [(2, None, 2), (3, 5, 1), (9, None, 1)]
    assert predicate(spark, table) == "((p IS NULL) AND (q <=> 1))"
    spark.sql(f"INSERT OVERWRITE {table} PARTITION (p = 5, q) VALUES (8, 4)")
    assert rows(spark, table) == [(2, None, 2), (8, 5, 4), (9, None, 1)]


DEFAULTS = (
    "a BIGINT DEFAULT 7, b STRING DEFAULT upper('x'), d INT GENERATED ALWAYS AS (cast(a AS INT) + 1), "
    "i BIGINT GENERATED BY DEFAULT AS IDENTITY, n STRING"
)


def test_defaults_stand_where_the_statement_says_so(spark, made):
    table = made(DEFAULTS, "", None)
    spark.sql(f"INSERT INTO {table} (a, b, n, i) VALUES (1, DEFAULT, DEFAULT, 5), (DEFAULT, 'DEFAULT', 'n', 6)")
    spark.sql(f"INSERT INTO {table} (b, a, i) SELECT DEFAULT, 3, 7")
    spark.sql(f"INSERT INTO {table} (b, i, a) WITH c AS (SELECT 8 AS i) SELECT DEFAULT, i, DEFAULT FROM c")
    expected = [(1, "X", 2, 5, None), (7, "DEFAULT", 8, 6, "n"), (3, "X", 4, 7, None), (7, "X", 8, 8, None)]
    assert rows(spark, table) == sorted(expected, key=str)
    for column in ("d", "i"):
        with pytest.raises(InvalidArgumentError, match="is then computed"):
            spark.sql(f"INSERT INTO {table} (a, {column}) VALUES (1, DEFAULT)")


def test_a_default_has_the_type_of_its_column(spark, made):
    table = made("a INT, b STRING DEFAULT 5", "", None)
    spark.sql(f"INSERT INTO {table} VALUES (1, DEFAULT), (2, 'z')")
    assert rows(spark, table) == [(1, "5"), (2, "z")]


def test_a_default_that_runs_code_is_refused(spark):
    nodes = Nodes(spark)
    [cell] = nodes.items(nodes.jvm.state.sqlParser().parsePlan("SELECT DEFAULT").projectList())
    runs = {"CURRENT_DEFAULT": "reflect('java.lang.System', 'getenv')"}
    schema = StructType((StructField("a", PrimitiveType("string"), metadata=runs),))
    with pytest.raises(UnsafeOperationError, match=r"The default .reflect"):
        _value(nodes, cell, 0, schema, ["a"])


def test_columns_without_a_default_need_a_value_where_the_session_says_so(spark, made, setting):
    table, plain = made(DEFAULTS, "", None, "d"), made("A INT, b STRING, p INT")
    spark.sql(f"INSERT INTO {plain} (b, p) VALUES ('z', 1)")
    setting(REQUIRED, "FALSE")
    spark.sql(f"INSERT INTO {table} (n) VALUES ('n')")
    spark.sql(f"INSERT INTO {plain} (a, B, p) VALUES (3, 'z', 0)")
    spark.sql(f"INSERT INTO {plain} BY NAME SELECT 4 AS a, 'z' AS b, 0 AS p")
    spark.sql(f"INSERT INTO {plain} VALUES (5, 'z', 0)")
    for words in ("(a, b) VALUES (6, 'z')", "BY NAME SELECT 6 AS a, 0 AS p"):
        with pytest.raises(SchemaMismatchError, match="gives no value for the column"):
            spark.sql(f"INSERT INTO {plain} {words}")
    with pytest.raises(SchemaMismatchError, match="'n'"):
        spark.sql(f"INSERT INTO {table} (a) VALUES (6)")
    assert sorted(row[0] or 0 for row in rows(spark, plain)) == [0, 1, 2, 3, 4, 5]
    assert [row[:3] for row in rows(spark, table)] == [(7, "X", 8)]


def test_several_inserts_of_one_source_go_to_delta_tables_alone(spark, made, tmp_path):
    one, two = made(), made(name="u")
    spark.sql(f"FROM VALUES (3) AS s(k) INSERT INTO {one} SELECT k, 'z', 0 INSERT INTO {two} SELECT k, 'z', 1")
    assert (rows(spark, one), rows(spark, two)) == ([X, Y, (3, "z", 0)], [X, Y, (3, "z", 1)])
    twice = f"FROM VALUES (4) AS s(k) INSERT INTO {two} SELECT k, 'z', 0 INSERT INTO {two} SELECT k, 'z', 1"
    spark.sql(f"BEGIN {twice}; WITH s AS (SELECT 5 AS k) {twice.replace('VALUES (4) AS s(k)', 's')}; END")
    assert rows(spark, two) == [X, Y, (3, "z", 1), *((k, "z", p) for k in (4, 5) for p in (0, 1))]
    spark.range(1).write.parquet(str(tmp_path / "plain"))
    foreign = f"parquet.`{tmp_path / 'plain'}`"
    with pytest.raises(UnsupportedFeatureError, match="into other tables"):
        spark.sql(f"FROM range(1) INSERT INTO {one} SELECT id, 'z', 0 INSERT INTO {foreign} SELECT id")
    inside = f"parquet.`{one[7:-1]}`"
    with pytest.raises(UnsafeOperationError, match="belongs to the Delta table"):
        spark.sql(f"FROM range(1) INSERT INTO {inside} SELECT id, 'z', 0 INSERT INTO {inside} SELECT id, 'z', 1")
    assert rows(spark, one) == [X, Y, (3, "z", 0)]
    assert [row[0] for row in spark.sql("SELECT 1 UNION ALL SELECT 2").collect()] == [1, 2]


def test_several_inserts_may_write_folders_that_are_not_a_table_s(spark, made, tmp_path):
    table = made()
    own = f"INSERT INTO {table} SELECT id, 'z', 0"
    [folder, other, inside] = [
        f"INSERT OVERWRITE DIRECTORY '{place}' USING parquet SELECT id"
        for place in (tmp_path / "one", tmp_path / "other", table[7:-1])
    ]
    for words in (f"{own} {folder}", f"{folder} {own}"):
        with pytest.raises(UnsupportedFeatureError, match="or folders"):
            spark.sql(f"FROM range(1) {words}")
        with pytest.raises(UnsupportedFeatureError, match="or folders"):
            spark.sql(f"WITH c AS (SELECT 1L AS id) FROM c {words}")
    named = f"INSERT INTO IDENTIFIER('delta.`' || '{table[7:-1]}`') SELECT id, 'z', 0"
    for words in (f"{own} {named} {folder}", f"{named} {folder}"):
        with pytest.raises(UnsupportedFeatureError, match="or folders"):
            spark.sql(f"FROM range(1) {words}")
    for text in (f"FROM range(1) {folder} {inside}", f"WITH c AS (SELECT 1L AS id) FROM c {folder} {inside}"):
        with pytest.raises(UnsafeOperationError, match="belongs to the Delta table"):
            spark.sql(text)
    with pytest.raises(UnsafeOperationError, match="belongs to the Delta table"):
        spark.sql(f"WITH c AS (SELECT 1L AS id) {inside} FROM c")
    assert not (tmp_path / "one").exists()
    spark.sql(f"FROM range(3) {folder} {other} WHERE id > 1")
    assert [spark.read.parquet(str(tmp_path / name)).count() for name in ("one", "other")] == [3, 1]
    assert rows(spark, table) == [X, Y]


def test_several_inserts_run_once_and_a_union_as_often_as_it_is_planned(spark, made, tmp_path):
    table, parser = made(), Nodes(spark).jvm.state.sqlParser()
    folder = f"INSERT OVERWRITE DIRECTORY '{tmp_path / 'one'}' USING parquet SELECT id"
    for words in (folder, f"INSERT INTO {table} SELECT id, 'z', 0"):
        assert is_effect(spark, parser.parsePlan(f"FROM range(1) {folder} {words}"))
        assert is_effect(spark, parser.parsePlan(f"WITH c AS (SELECT 1L AS id) FROM c {words} {folder}"))
    assert not is_effect(spark, parser.parsePlan("SELECT 1 UNION ALL SELECT 2"))


def test_other_tables_are_spark_s_own(spark, made):
    table = made()
    with pytest.raises(UnsafeOperationError, match="belongs to the Delta table"):
        spark.sql(f"INSERT INTO parquet.`{table[7:-1]}` VALUES (3, 'z', 0)")
    spark.sql("CREATE TABLE spark_s_own (a INT) USING parquet")
    try:
        spark.sql("INSERT INTO spark_s_own VALUES (3)")
        spark.sql("FROM range(2) INSERT INTO spark_s_own SELECT id INSERT INTO spark_s_own SELECT id + 5")
        nodes = Nodes(spark)
        unnamed = copy_of(nodes.jvm.state.sqlParser().parsePlan("INSERT INTO t VALUES (1)"), table=nodes.jvm.no_rows())
        assert insert(nodes, unnamed) is None
        assert sorted(row.a for row in spark.table("spark_s_own").collect()) == [0, 1, 3, 5, 6]
    finally:
        spark.sql("DROP TABLE spark_s_own")


def test_an_insert_into_a_view_of_a_whole_table_reaches_the_table(spark, made):
    table = made()
    spark.sql(f"CREATE OR REPLACE TEMP VIEW over_one AS SELECT * FROM {table}")
    try:
        spark.sql("INSERT INTO over_one VALUES (3, 'z', 0)")
        spark.sql("FROM range(1) INSERT INTO over_one SELECT 4, 'z', 0 INSERT INTO over_one SELECT 5, 'z', 0")
    finally:
        spark.sql("DROP VIEW over_one")
    assert rows(spark, table) == [X, Y, (3, "z", 0), (4, "z", 0), (5, "z", 0)]


@pytest.mark.parametrize("provider", ["delta", "DELTA"])
def test_a_folder_is_not_written_as_delta(spark, tmp_path, provider):
    with pytest.raises(UnsupportedFeatureError, match="cannot write a Delta table"):
        spark.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path / 'd'}' USING {provider} SELECT 1 AS a")
    assert not (tmp_path / "d").exists()


def test_a_folder_is_written_by_spark_unless_it_is_a_table_s(spark, made, tmp_path):
    table, other = made(), tmp_path / "other"
    spark.sql(f"INSERT OVERWRITE DIRECTORY '{other}' USING parquet SELECT 5 AS a")
    assert spark.read.parquet(str(other)).first()[0] == 5
    spark.sql(f"INSERT OVERWRITE DIRECTORY USING parquet OPTIONS (path '{other}') SELECT 6 AS a")
    assert spark.read.parquet(str(other)).first()[0] == 6
    for words in (f"'{table[7:-1]}' USING parquet", f"USING parquet OPTIONS (path '{table[7:-1]}')"):
        with pytest.raises(UnsafeOperationError, match="to be written as parquet"):
            spark.sql(f"INSERT OVERWRITE DIRECTORY {words} SELECT 5 AS a")
    with pytest.raises(UnsafeOperationError, match="to be written as hive"):
        spark.sql(f"INSERT OVERWRITE LOCAL DIRECTORY '{table[7:-1]}' STORED AS PARQUET SELECT 5 AS a")
    assert rows(spark, table) == [X, Y]


class OfSpark42:
    """The node of REPLACE WHERE as Spark 4.2 has it, made from that of the Spark that runs."""

    def __init__(self, node, *, by_name=False, evolve=None):
        self.table, self.query, self.isByName = node.table, node.query, lambda: by_name
        if evolve is not None:
            self.withSchemaEvolution = lambda: evolve
        self.deleteExpr = node.replaceCriteriaOpt().get().cond

    def __getattr__(self, name):
        raise Py4JError(f"The node has no {name}.")


def test_replace_where_of_spark_4_2(spark, made):
    table = made()
    nodes = Nodes(spark)

    def parsed(query):
        return nodes.jvm.state.sqlParser().parsePlan(f"INSERT INTO {table} REPLACE WHERE a = 2 {query}")

    assert replace_where(nodes, OfSpark42(parsed("VALUES (2, 'z', 7)"))).columns == []
    assert rows(spark, table) == [X, (2, "z", 7)]
    named = OfSpark42(parsed("SELECT 8 AS p, 2 AS a"), by_name=True)
    replace_where(nodes, named)
    assert rows(spark, table) == [X, (2, None, 8)]
    with pytest.raises(SchemaMismatchError):
        replace_where(nodes, OfSpark42(parsed("SELECT 8 AS p, 2 AS a, 1 AS extra"), by_name=True))
    replace_where(nodes, OfSpark42(parsed("SELECT 9 AS p, 2 AS a, 1 AS extra"), by_name=True, evolve=True))
    assert rows(spark, table) == [(*X, None), (2, None, 9, 1)]
    other = nodes.jvm.state.sqlParser().parsePlan("INSERT INTO parquet.`/none` REPLACE WHERE a = 2 VALUES (1)")
    assert replace_where(nodes, OfSpark42(other)) is None


def test_replace_where_of_spark_4_2_reaches_the_table_of_a_view(spark, made):
    table, nodes = made(), Nodes(spark)
    spark.sql(f"CREATE OR REPLACE TEMP VIEW over_one AS SELECT * FROM {table}")
    try:
        text = "INSERT INTO over_one REPLACE WHERE a = 2 VALUES (2, 'z', 7)"
        replace_where(nodes, OfSpark42(nodes.jvm.state.sqlParser().parsePlan(text)))
    finally:
        spark.sql("DROP VIEW over_one")
    assert rows(spark, table) == [X, (2, "z", 7)]


class OfLaterSpark:
    """A node with a criterion that this engine does not know."""

    def __init__(self, option):
        self.replaceCriteriaOpt = lambda: option


def test_what_a_later_spark_may_have_is_refused_and_what_an_older_one_lacks_is_left_out(spark, made):
    nodes = Nodes(spark)
    with pytest.raises(UnsupportedFeatureError, match="does not know INSERT … Object"):
        _matches(nodes, OfLaterSpark(nodes.jvm.option.apply(nodes.jvm.view.java.lang.Object())), None)
    node = nodes.jvm.state.sqlParser().parsePlan("INSERT INTO t VALUES (1)")
    assert _field(node, "noSuchField", 5) == 5
    assert _field(node, "overwrite", True) is False


@pytest.mark.parametrize(("policy", "refused"), [("ANSI", True), ("STRICT", True), ("LEGACY", False)])
def test_a_partition_s_text_that_does_not_fit_is_refused_without_ansi_mode_too(spark, tmp_path, policy, refused):
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{path}` (a INT, p INT) USING delta PARTITIONED BY (p)")
    settings = {"spark.sql.ansi.enabled": "false", "spark.sql.storeAssignmentPolicy": policy}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        if refused:
            with pytest.raises(NumberFormatException):
                spark.sql(f"INSERT INTO delta.`{path}` PARTITION (p = '') SELECT 1")
        else:
            spark.sql(f"INSERT INTO delta.`{path}` PARTITION (p = '') SELECT 1")
    finally:
        for name in settings:
            spark.conf.unset(name)
    found = [tuple(row) for row in spark.read.format("delta").load(str(path)).collect()]
    assert found == ([] if refused else [(1, None)])


@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        ("INSERT INTO {t} (b) VALUES (2)", "DELTA_INSERT_COLUMN_MISMATCH"),
        ("INSERT OVERWRITE {t} (b) SELECT 2", "DELTA_INSERT_COLUMN_MISMATCH"),
        ("INSERT INTO {t} BY NAME SELECT 2 AS b", "DELTA_INSERT_COLUMN_MISMATCH"),
        ("INSERT INTO {t} (a, b) VALUES (DEFAULT, 2)", "NO_DEFAULT_COLUMN_VALUE_AVAILABLE"),
        ("UPDATE {t} SET a = DEFAULT", "NO_DEFAULT_COLUMN_VALUE_AVAILABLE"),
        ("INSERT INTO {t} VALUES (NULL, 2)", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
    ],
)
def test_a_not_null_column_without_a_value_has_the_condition_of_the_reference(spark, tmp_path, statement, condition):
    t = f"delta.`{tmp_path}/t`"
    spark.sql(f"CREATE TABLE {t} (a INT NOT NULL, b INT) USING delta")
    spark.sql(f"INSERT INTO {t} VALUES (1, 1)")
    with pytest.raises(PySparkException) as refused:
        spark.sql(statement.format(t=t))
    assert refused.value.getCondition() == condition
    assert [tuple(row) for row in spark.sql(f"SELECT * FROM {t}").collect()] == [(1, 1)]


def test_a_not_null_column_with_a_default_may_be_left_out(spark, tmp_path):
    t = f"delta.`{tmp_path}/t`"
    feature = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    spark.sql(f"CREATE TABLE {t} (a INT NOT NULL DEFAULT 7, b INT) USING delta {feature}")
    spark.sql(f"INSERT INTO {t} (b) VALUES (2)")
    spark.sql(f"INSERT INTO {t} (a, b) VALUES (DEFAULT, 3)")
    spark.sql(f"UPDATE {t} SET a = DEFAULT")
    assert sorted(tuple(row) for row in spark.sql(f"SELECT * FROM {t}").collect()) == [(7, 2), (7, 3)]
