"""A table whose log holds expressions that run code, read files or ask queries: rows are not written by them."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import ParseException
from pyspark.sql import functions as F

from pydelta.errors import DeltaError, UnsafeOperationError
from pydelta.log import DeltaLog
from pydelta.protocol.paths import commit_file
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark
MARK = "pydelta.hostile.log"
RUNS = f"java_method('java.lang.System', 'setProperty', '{MARK}', 'ran')"
BY_OTHER_NAMES = (
    f"REFLECT('java.lang.System', 'setProperty', '{MARK}', 'ran')",
    f"try_reflect('java.lang.System', 'setProperty', '{MARK}', 'ran')",
    f"system.builtin.java_method('java.lang.System', 'setProperty', '{MARK}', 'ran')",
    f"IDENTIFIER('java_method')('java.lang.System', 'setProperty', '{MARK}', 'ran')",
    f"element_at(transform(array(1), x -> {RUNS}), 1)",
    "from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/etc/passwd')).a",
    "hostile_udf(id)",
    "spark_catalog.default.hostile_udf(id)",
    "(SELECT max(value) FROM text.`/etc/passwd`)",
)


@pytest.fixture
def hostile(spark, tmp_path):
    """Makes a table, then gives its log another expression by hand, as somebody else's engine may."""
    spark.udf.register("hostile_udf", lambda value: value)
    spark._jvm.java.lang.System.clearProperty(MARK)

    def make(kind, text):
        path = str(tmp_path / "t")
        spark.range(3).selectExpr("id", "CAST(id AS STRING) AS name").write.format("delta").save(path)
        metadata = DeltaLog.for_table(path).update().metadata
        schema, configuration = json.loads(metadata.schema_string), dict(metadata.configuration)
        if kind == "constraint":
            configuration["delta.constraints.rule"] = f"({text}) IS NOT NULL"
        else:
            key = {
                "generated": "delta.generationExpression",
                "default": "CURRENT_DEFAULT",
                "invariant": "delta.invariants",
            }
            said = f"({text}) IS NOT NULL" if kind == "invariant" else f"CAST({text} AS STRING)"
            value = json.dumps({"expression": {"expression": said}}) if kind == "invariant" else said
            schema["fields"][1]["metadata"][key[kind]] = value
        body = {
            "id": metadata.id, "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema),
            "partitionColumns": [], "configuration": configuration,
        }  # fmt: skip
        features = ["checkConstraints", "generatedColumns", "allowColumnDefaults", "invariants", "appendOnly"]
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
        lines = [{"commitInfo": {"operation": "SET"}}, {"protocol": protocol}, {"metaData": body}]
        log = tmp_path / "t" / "_delta_log"
        (log / commit_file(1)).write_text("\n".join(map(json.dumps, lines)))
        return path

    yield make
    spark.sql("DROP TEMPORARY FUNCTION IF EXISTS hostile_udf")


def changes(spark, path):
    """Statements that compute the expression of the column ``name``, or check it."""
    rows = spark.createDataFrame([(7,)], "id BIGINT")
    source = spark.createDataFrame([(1, "n"), (9, "m")], "id BIGINT, name STRING")
    return {
        "append": lambda: rows.write.format("delta").mode("append").save(path),
        "INSERT": lambda: spark.sql(f"INSERT INTO delta.`{path}` (id) VALUES (7)"),
        "DEFAULT": lambda: spark.sql(f"INSERT INTO delta.`{path}` VALUES (7, DEFAULT)"),
        "UPDATE": lambda: DeltaTable.forPath(spark, path).update("id = 1", {"id": F.lit(8)}),
        "MERGE": lambda: (
            DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
            .whenMatchedUpdate(set={"id": "s.id + 100"}).whenNotMatchedInsert(values={"id": "s.id"}).execute()
        ),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["constraint", "generated", "default", "invariant"])
def test_what_a_log_says_runs_no_code(spark, hostile, kind):
    path = hostile(kind, RUNS)
    refused = []
    for name, change in changes(spark, path).items():
        try:
            change()
        except UnsafeOperationError as error:
            assert "java_method" in str(error)
            assert "Nothing was computed" in error.hint
            refused.append(name)
        except DeltaError:
            assert (kind, name) == ("generated", "DEFAULT")  # such a column takes no DEFAULT
    expected = {
        "constraint": {"append", "INSERT", "DEFAULT", "UPDATE", "MERGE"},
        "invariant": {"append", "INSERT", "DEFAULT", "UPDATE", "MERGE"},
        "generated": {"append", "INSERT", "UPDATE", "MERGE"},
        "default": {"append", "INSERT", "DEFAULT", "MERGE"},
    }
    assert expected[kind] <= set(refused)
    assert spark._jvm.java.lang.System.getProperty(MARK) is None
    assert spark.read.format("delta").load(path).count() == 3


@pytest.mark.parametrize("text", BY_OTHER_NAMES)
def test_nor_by_another_name(spark, hostile, text):
    path = hostile("constraint", text)
    with pytest.raises(UnsafeOperationError, match="Expressions in a table's log"):
        changes(spark, path)["append"]()
    assert spark._jvm.java.lang.System.getProperty(MARK) is None
    assert DeltaLog.for_table(path).update().version == 1


def test_nor_where_a_session_reads_the_text_in_another_way(spark, hostile):
    path = hostile("constraint", f"\"java_method\"('java.lang.System', 'setProperty', '{MARK}', 'ran')")
    for quoted_is_a_name in ("false", "true"):  # the first finds no expression in the text, the second a function
        spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", quoted_is_a_name)
        try:
            with pytest.raises((UnsafeOperationError, ParseException)) as refused:
                changes(spark, path)["append"]()
        finally:
            spark.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")
        assert isinstance(refused.value, UnsafeOperationError) == (quoted_is_a_name == "true")
        assert spark._jvm.java.lang.System.getProperty(MARK) is None
    assert DeltaLog.for_table(path).update().version == 1


def test_a_table_like_that_is_not_made_here(spark, tmp_path, hostile):
    spark.range(3).write.format("delta").save(str(tmp_path / "own"))
    with pytest.raises(UnsafeOperationError, match="hostile_udf") as refused:
        spark.sql(f"ALTER TABLE delta.`{tmp_path}/own` ADD CONSTRAINT c CHECK (hostile_udf(id) IS NOT NULL)")
    assert refused.value.getCondition() == "DELTA_UDF_IN_CHECK_CONSTRAINT"
    make = DeltaTable.create(spark).location(str(tmp_path / "made")).addColumn("id", "BIGINT")
    with pytest.raises(UnsafeOperationError, match="hostile_udf") as refused:
        make.addColumn("name", "STRING", generatedAlwaysAs="hostile_udf(id)").execute()
    assert refused.value.getCondition() == "DELTA_UDF_IN_GENERATED_COLUMN"
    assert not (tmp_path / "made" / "_delta_log").exists()


def test_what_spark_brings_is_taken(spark, hostile):
    path = hostile("constraint", "abs(id) + length(concat(name, 'x'))  > 0 AND date_trunc('DAY', current_timestamp())")
    rows = spark.createDataFrame([(7, "n")], "id BIGINT, name STRING")
    with pytest.raises(DeltaError) as wrong:  # it is no condition, which Spark says
        rows.write.format("delta").mode("append").save(path)
    assert not isinstance(wrong.value, UnsafeOperationError)
