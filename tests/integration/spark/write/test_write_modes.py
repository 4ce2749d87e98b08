"""Modes, options and checks of a write, through ``df.write.format("delta")``."""

from __future__ import annotations

import json

import pytest
from deltalake import DeltaTable as RsTable
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.engines.spark.types import from_spark
from pydelta.errors import (
    BindError,
    ConstraintViolatedError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    UnsafeOperationError,
)
from pydelta.log import DeltaLog
from pydelta.protocol.schema import parse_schema
from pydelta.settings import Settings
from pydelta.testing.commands import create_table

pytestmark = pytest.mark.spark


def log_of(path):
    return DeltaLog.for_table(path)


def version(path):
    return log_of(path).update().version


def commit_info(path):
    return log_of(path).history(1)[0].commit_info.fields


def read(spark, path):
    return spark.read.format("delta").load(path)


def tuples(df):
    return sorted(tuple(row) for row in df.collect())


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


@pytest.fixture
def partitioned(spark, path):
    """Rows (id, p) with id 0-9 and p = id % 3."""
    rows = spark.range(10).select("id", (F.col("id") % 3).cast("int").alias("p"))
    rows.write.format("delta").partitionBy("p").save(path)
    return path


def make(path, fields, **more):
    """A table with a schema given as the log's JSON fields."""
    create_table(
        log_of(path),
        TableDefinition(schema=parse_schema(json.dumps({"type": "struct", "fields": fields})), **more),
        mode=CreateMode.CREATE,
        settings=Settings(),
    )


def column(name, type_="long", *, nullable=True, **metadata):
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def test_append_adds_and_the_history_says_what(spark, path):
    spark.range(3).write.format("delta").mode("append").save(path)
    spark.range(3, 5).write.format("delta").mode("append").option("userMetadata", "second").save(path)
    assert tuples(read(spark, path)) == [(i,) for i in range(5)]
    info = commit_info(path)
    assert info["operation"] == "WRITE"
    assert info["operationParameters"] == {"mode": "Append", "partitionBy": "[]"}
    assert info["isBlindAppend"] is True
    assert info["userMetadata"] == "second"
    assert info["operationMetrics"]["numOutputRows"] == "2"
    assert int(info["operationMetrics"]["numOutputBytes"]) > 0
    assert RsTable(path).to_pyarrow_table().num_rows == 5


def test_overwrite_replaces_rows_and_keeps_history(spark, path):
    spark.range(3).write.format("delta").save(path)
    spark.range(7, 9).write.format("delta").mode("overwrite").save(path)
    assert tuples(read(spark, path)) == [(7,), (8,)]
    assert tuples(spark.read.format("delta").option("versionAsOf", 0).load(path)) == [(0,), (1,), (2,)]


def test_errorifexists_refuses_as_spark_users_expect(spark, path):
    spark.range(3).write.format("delta").save(path)
    with pytest.raises(AnalysisException, match="DELTA_PATH_EXISTS") as caught:
        spark.range(3).write.format("delta").save(path)
    assert isinstance(caught.value, TableAlreadyExistsError)
    assert version(path) == 0


def test_ignore_leaves_a_table_as_it_is_and_makes_a_missing_one(spark, path):
    spark.range(3).write.format("delta").mode("ignore").save(path)
    spark.range(9).write.format("delta").mode("ignore").save(path)
    assert version(path) == 0
    assert read(spark, path).count() == 3


def test_an_empty_frame_makes_a_version_without_files(spark, path):
    spark.range(0).write.format("delta").save(path)
    assert version(path) == 0
    assert log_of(path).update().num_files == 0
    assert read(spark, path).count() == 0


def test_columns_are_matched_by_name_ignoring_case_and_keep_the_tables_spelling(spark, path):
    spark.createDataFrame([(1, "a")], "Id long, Name string").write.format("delta").save(path)
    spark.createDataFrame([("b", 2)], "NAME string, id long").write.format("delta").mode("append").save(path)
    back = read(spark, path)
    assert back.columns == ["Id", "Name"]
    assert tuples(back) == [(1, "a"), (2, "b")]


def test_missing_columns_become_null_and_narrow_types_are_widened(spark, path):
    spark.createDataFrame([(1, 1.5, "a")], "a long, b double, c string").write.format("delta").save(path)
    spark.createDataFrame([(2, 3)], "a int, b int").write.format("delta").mode("append").save(path)
    assert tuples(read(spark, path).select("a", "b")) == [(1, 1.5), (2, 3.0)]
    assert read(spark, path).schema["a"].dataType.simpleString() == "bigint"
    assert read(spark, path).where("c is null").count() == 1


def test_structs_are_matched_by_name_and_widened_inside(spark, path):
    spark.sql("select named_struct('a', 1L, 'b', 'x') s, array(named_struct('u', 1L, 'v', 2L)) l").write.format(
        "delta"
    ).save(path)
    spark.sql("select named_struct('B', 'y', 'A', 2) s, array(named_struct('V', 4, 'U', 3), null) l").write.format(
        "delta"
    ).mode("append").save(path)
    rows = {json.dumps(r.asDict(recursive=True), sort_keys=True) for r in read(spark, path).collect()}
    assert rows == {
        '{"l": [{"u": 1, "v": 2}], "s": {"a": 1, "b": "x"}}',
        '{"l": [{"u": 3, "v": 4}, null], "s": {"a": 2, "b": "y"}}',
    }


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select 'x' id", "'id' is string in the data and long in the table"),
        ("select 1.5D id", "'id' is double in the data and long in the table"),
        ("select 1L id, 2 extra", "'extra' (integer) is not in the table"),
    ],
)
def test_data_that_does_not_fit_shows_both_schemas_and_the_column(spark, path, sql, said):
    spark.range(1).write.format("delta").save(path)
    with pytest.raises(SchemaMismatchError) as caught:
        spark.sql(sql).write.format("delta").mode("append").save(path)
    text = str(caught.value)
    assert said in text
    assert "Table schema:" in text
    assert "Data schema:" in text
    assert isinstance(caught.value, AnalysisException)
    assert version(path) == 0


def test_mergeschema_adds_columns_at_the_end_also_in_structs(spark, path):
    spark.sql("select 1 id, named_struct('a', 1) s").write.format("delta").save(path)
    spark.sql("select named_struct('a', 2, 'b', 3) s, 'new' extra, 2 id").write.format("delta").mode("append").option(
        "mergeSchema", "true"
    ).save(path)
    back = read(spark, path)
    assert back.schema.simpleString() == "struct<id:int,s:struct<a:int,b:int>,extra:string>"
    assert {(r["id"], r["s"]["b"], r["extra"]) for r in back.collect()} == {(1, None, None), (2, 3, "new")}


def test_overwriteschema_replaces_columns_and_partitioning(spark, partitioned):
    writer = spark.sql("select 'a' x, 1.5D y").write.format("delta").mode("overwrite")
    writer.option("overwriteSchema", "true").partitionBy("x").save(partitioned)
    snapshot = log_of(partitioned).update()
    assert snapshot.schema.names == ("x", "y")
    assert snapshot.partition_columns == ("x",)
    assert tuples(read(spark, partitioned)) == [("a", 1.5)]


def test_overwriteschema_without_partitionby_leaves_a_table_without_partitions(spark, partitioned):
    rows = spark.sql("select 7L id").write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    rows.save(partitioned)
    snapshot = log_of(partitioned).update()
    assert (snapshot.schema.names, snapshot.partition_columns) == (("id",), ())
    assert tuples(read(spark, partitioned)) == [(7,)]


def test_insertinto_keeps_schema_and_partitioning_with_overwriteschema(spark, partitioned):
    writer = spark.sql("select 2 x, '1' y").write.mode("overwrite").option("overwriteSchema", "true")
    writer.insertInto(f"delta.`{partitioned}`")
    snapshot = log_of(partitioned).update()
    assert (snapshot.schema.names, snapshot.partition_columns) == (("id", "p"), ("p",))
    assert tuples(read(spark, partitioned)) == [(2, 1)]
    assert "canOverwriteSchema" not in commit_info(partitioned)["operationParameters"]


def test_an_overwrite_with_another_schema_is_refused_without_the_option(spark, path):
    spark.range(1).write.format("delta").save(path)
    with pytest.raises(SchemaMismatchError, match="overwriteSchema"):
        spark.sql("select 'x' other").write.format("delta").mode("overwrite").save(path)


def test_partitioning_that_differs_from_the_tables_is_refused(spark, partitioned):
    with pytest.raises(SchemaMismatchError, match=r"partitioned by \(p\)"):
        read(spark, partitioned).write.format("delta").mode("append").partitionBy("id").save(partitioned)
    read(spark, partitioned).write.format("delta").mode("append").partitionBy("P").save(partitioned)
    assert version(partitioned) == 1


def test_replacewhere_on_a_partition_removes_its_files_unread(spark, partitioned):
    new = spark.createDataFrame([(100, 1), (101, 1)], "id long, p int")
    new.write.format("delta").mode("overwrite").option("replaceWhere", "p = 1").save(partitioned)
    assert tuples(read(spark, partitioned).where("p = 1")) == [(100, 1), (101, 1)]
    assert read(spark, partitioned).where("p <> 1").count() == 7
    info = commit_info(partitioned)
    assert info["operationParameters"]["predicate"] == "p = 1"
    counts = {name: info["operationMetrics"][name] for name in ("numCopiedRows", "numAddedChangeFiles")}
    assert counts == {"numCopiedRows": "0", "numAddedChangeFiles": "0"}


def test_replacewhere_on_data_rewrites_only_files_with_such_rows(spark, path):
    spark.range(0, 100, 1, 4).write.format("delta").save(path)
    before = {add.path for add in log_of(path).update().files.adds(log_of(path).update().files.core)}
    new = spark.createDataFrame([(10,), (11,)], "id long")
    new.write.format("delta").mode("overwrite").option("replaceWhere", "id between 10 and 20").save(path)
    assert sorted(r[0] for r in read(spark, path).collect()) == [*range(10), 10, 11, *range(21, 100)]
    after = {add.path for add in log_of(path).update().files.adds(log_of(path).update().files.core)}
    assert len(before & after) == 3


def test_replacewhere_refuses_rows_outside_of_it_and_names_one(spark, partitioned):
    new = spark.createDataFrame([(100, 1), (7777, 2)], "id long, p int")
    with pytest.raises(ConstraintViolatedError, match="7777"):
        new.write.format("delta").mode("overwrite").option("replaceWhere", "p = 1").save(partitioned)
    assert version(partitioned) == 0


def test_replacewhere_over_a_column_that_is_not_there_lists_those_there_are(spark, partitioned):
    with pytest.raises(BindError, match="id, p"):
        read(spark, partitioned).write.format("delta").mode("overwrite").option("replaceWhere", "nope = 1").save(
            partitioned
        )


def test_dynamic_overwrite_touches_only_the_partitions_of_the_data(spark, partitioned):
    new = spark.createDataFrame([(100, 1), (200, None)], "id long, p int")
    new.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(partitioned)
    assert tuples(read(spark, partitioned).where("p = 1")) == [(100, 1)]
    assert read(spark, partitioned).count() == 7 + 2
    new.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(partitioned)
    assert read(spark, partitioned).where("p is null").count() == 1
    spark.createDataFrame([], "id long, p int").write.format("delta").mode("overwrite").option(
        "partitionOverwriteMode", "dynamic"
    ).save(partitioned)
    assert read(spark, partitioned).count() == 7 + 2


def test_the_sessions_overwrite_mode_counts_where_the_option_is_silent(spark, partitioned):
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        spark.createDataFrame([(100, 1)], "id long, p int").write.format("delta").mode("overwrite").save(partitioned)
        assert read(spark, partitioned).count() == 8
        spark.createDataFrame([(100, 1)], "id long, p int").write.format("delta").mode("overwrite").option(
            "partitionOverwriteMode", "static"
        ).save(partitioned)
        assert read(spark, partitioned).count() == 1
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


def test_a_repeated_txnversion_commits_once(spark, path):
    def write(number):
        spark.range(5).write.format("delta").mode("append").options(txnAppId="job", txnVersion=number).save(path)

    for number in (1, 1, 2, 1):
        write(number)
    assert version(path) == 1
    assert read(spark, path).count() == 10
    assert log_of(path).update().set_transactions["job"].version == 2


def test_datachange_false_is_noted_on_every_file(spark, path):
    spark.range(0, 10, 1, 4).write.format("delta").save(path)
    read(spark, path).coalesce(1).write.format("delta").mode("overwrite").option("dataChange", "false").save(path)
    actions = log_of(path).actions(1)
    assert {a.data_change for a in actions if a.kind in ("add", "remove")} == {False}
    assert log_of(path).update().num_files == 1


def test_maxrecordsperfile_and_target_size(spark, path, tmp_path):
    spark.range(0, 100, 1, 1).write.format("delta").option("maxRecordsPerFile", 30).save(path)
    assert log_of(path).update().num_files == 4
    small = str(tmp_path / "small")
    spark.range(0, 200_000, 1, 1).select(F.rand(1).alias("r")).write.format("delta").option(
        "delta.targetFileSize", "400kb"
    ).save(small)
    sizes = [add.size for add in log_of(small).update().files.adds(log_of(small).update().files.core)]
    assert 3 <= len(sizes) <= 5
    assert log_of(small).update().metadata.configuration == {"delta.targetFileSize": "400kb"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"txnAppId": "x"}, "txnVersion"),
        ({"mergeSchmea": "true"}, "mergeSchema"),
        ({"mergeSchema": "yes"}, "mergeSchema"),
        ({"delta.appendOnyl": "true"}, "appendOnly"),
        ({"compression": "brotli9"}, "codec"),
    ],
)
def test_options_that_cannot_be_right_are_refused_before_anything_is_written(spark, path, options, said):
    with pytest.raises(InvalidArgumentError, match=said):
        spark.range(1).write.format("delta").mode("append").options(**options).save(path)
    assert not log_of(path).table_exists()


def test_session_defaults_become_properties_of_a_new_table(spark, path):
    spark.conf.set("spark.databricks.delta.properties.defaults.appendOnly", "true")
    try:
        spark.range(1).write.format("delta").save(path)
    finally:
        spark.conf.unset("spark.databricks.delta.properties.defaults.appendOnly")
    assert log_of(path).update().metadata.configuration == {"delta.appendOnly": "true"}
    spark.range(1).write.format("delta").mode("append").save(path)
    with pytest.raises(UnsafeOperationError, match="append-only"):
        spark.range(1).write.format("delta").mode("overwrite").save(path)


def test_not_null_names_the_column_and_shows_a_row(spark, path):
    make(path, [column("id", nullable=False), column("name", "string")])
    spark.createDataFrame([(1, "a")], "id long, name string").write.format("delta").mode("append").save(path)
    with pytest.raises(ConstraintViolatedError, match=r"'id' is NOT NULL.*culprit"):
        spark.createDataFrame([(2, "b"), (None, "culprit")], "id long, name string").write.format("delta").mode(
            "append"
        ).save(path)
    with pytest.raises(SchemaMismatchError, match="'id' is NOT NULL in the table and missing"):
        spark.sql("select 'x' name").write.format("delta").mode("append").save(path)
    assert version(path) == 1


@pytest.mark.damages_tables  # PySpark's toArrow cannot hold a null struct with a required field; the table is sound
def test_not_null_inside_a_struct_holds_where_the_struct_is_there(spark, path):
    inner = {"type": "struct", "fields": [column("x", nullable=False)]}
    element = {"type": "struct", "fields": [column("x")]}
    make(path, [column("s", inner), column("a", {"type": "array", "elementType": element, "containsNull": False})])

    def append(sql):
        spark.sql(sql).write.format("delta").mode("append").save(path)

    append("select cast(null as struct<x: long>) s, array(named_struct('x', 1L)) a")
    with pytest.raises(ConstraintViolatedError, match=r"s\.x"):
        append("select named_struct('x', cast(null as long)) s, array(named_struct('x', 1L)) a")
    with pytest.raises(ConstraintViolatedError, match=r"a\.element"):
        append("select named_struct('x', 1L) s, array(null, named_struct('x', 1L)) a")


def test_check_constraints_and_invariants_hold_for_every_row(spark, path):
    invariant = json.dumps({"expression": {"expression": "v < 100"}})
    make(path, [column("v", **{"delta.invariants": invariant})], properties={"delta.constraints.positive": "v > 0"})
    spark.range(1, 5).toDF("v").write.format("delta").mode("append").save(path)
    for bad, said in ((-5, "positive"), (500, "v < 100"), ("null", "Row")):
        with pytest.raises(ConstraintViolatedError, match=said):
            spark.sql(f"select cast({bad} as long) v").write.format("delta").mode("append").save(path)
    assert version(path) == 1
    spark.range(1, 3).toDF("v").write.format("delta").mode("overwrite").save(path)
    assert version(path) == 2


def test_generated_columns_are_computed_or_checked(spark, path):
    make(
        path,
        [column("at", "timestamp"), column("day", "date", **{"delta.generationExpression": "CAST(at AS DATE)"})],
        partition_columns=["day"],
    )
    rows = spark.sql("select timestamp'2024-05-06 07:08:09' at")
    rows.write.format("delta").mode("append").save(path)
    rows.withColumn("day", F.to_date(F.lit("2024-05-06"))).write.format("delta").mode("append").save(path)
    assert [str(r["day"]) for r in read(spark, path).collect()] == ["2024-05-06"] * 2
    with pytest.raises(ConstraintViolatedError, match="generation expression"):
        rows.withColumn("day", F.to_date(F.lit("2020-01-01"))).write.format("delta").mode("append").save(path)


def test_defaults_fill_columns_that_the_data_lacks(spark, path):
    make(
        path,
        [column("id"), column("state", "string", CURRENT_DEFAULT="'new'")],
        properties={"delta.feature.allowColumnDefaults": "supported"},
    )
    spark.range(1).write.format("delta").mode("append").save(path)
    spark.sql("select 1L id, cast(null as string) state").write.format("delta").mode("append").save(path)
    assert tuples(read(spark, path).fillna("-")) == [(0, "new"), (1, "-")]


def test_statistics_follow_the_tables_properties(spark, path, tmp_path):
    def stats(where, **properties):
        target = str(tmp_path / where)
        rows = spark.sql("select 1 a, 2 b, named_struct('c', 3, 'd', 4) s")
        rows.write.format("delta").options(**properties).save(target)
        [add] = log_of(target).update().files.adds(log_of(target).update().files.core)
        return json.loads(add.stats)["minValues"]

    assert stats("all") == {"a": 1, "b": 2, "s": {"c": 3, "d": 4}}
    assert stats("two", **{"delta.dataSkippingNumIndexedCols": "2"}) == {"a": 1, "b": 2}
    assert stats("none", **{"delta.dataSkippingNumIndexedCols": "0"}) == {}
    assert stats("named", **{"delta.dataSkippingStatsColumns": "b,s.d"}) == {"b": 2, "s": {"d": 4}}


def test_a_write_can_read_the_table_it_writes(spark, partitioned):
    read(spark, partitioned).where("p = 0").write.format("delta").mode("overwrite").save(partitioned)
    assert read(spark, partitioned).count() == 4
    assert from_spark(read(spark, partitioned).schema).names == ("id", "p")
