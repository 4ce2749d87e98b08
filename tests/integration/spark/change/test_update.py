"""UPDATE: which rows change and to what, with and without deletion vectors, change feed and row tracking."""

from __future__ import annotations

import pytest
from built_once import built_once
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from pydelta.errors import (
    BindError,
    CastOverflowError,
    ConflictingSetError,
    ConstraintViolatedError,
    ParseError,
    UnsafeOperationError,
)
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

COLUMNS = (
    "id long, p string, amount decimal(8,2), note string, at timestamp, s struct<a:int,b:struct<c:string>>, tiny byte"
)


def rows_of(spark, path):
    return {row["id"]: row for row in spark.read.format("delta").load(path).collect()}


@pytest.fixture(params=["copied", "vectors"])
def table(request, spark, tmp_path):
    return make(spark, tmp_path, **({"delta.enableDeletionVectors": "true"} if request.param == "vectors" else {}))


def make(spark, tmp_path, name="t", **properties):
    return parted(spark, str(tmp_path / name), **properties)


@built_once
def parted(spark, path, **properties):
    """ids 0-39 in four files, two partitions."""
    builder = DeltaTable.create(spark).location(path).addColumns(spark.createDataFrame([], COLUMNS).schema)
    for key, value in properties.items():
        builder = builder.property(key, value)
    builder.partitionedBy("p").execute()
    for start in (0, 20):
        spark.range(start, start + 20, 1, 1).selectExpr(
            "id",
            "IF(id % 2 = 0, 'even', 'odd') AS p",
            "CAST(id AS decimal(8,2)) AS amount",
            "concat('n', id) AS note",
            "TIMESTAMP'2024-01-01 00:00:00' AS at",
            "named_struct('a', CAST(id AS int), 'b', named_struct('c', 'x')) AS s",
            "CAST(1 AS byte) AS tiny",
        ).write.format("delta").mode("append").save(path)


def test_rows_that_match_get_new_values_and_no_others(spark, table):
    before = rows_of(spark, table)
    result = DeltaTable.forPath(spark, table).update(
        "id BETWEEN 5 AND 8", {"amount": "amount * 2 + 0.5", "note": F.concat(F.lit("new "), F.col("note"))}
    )
    after = rows_of(spark, table)
    assert result.num_updated_rows == 4
    assert {key for key in before if before[key] != after[key]} == {5, 6, 7, 8}
    assert (str(after[5]["amount"]), after[5]["note"], after[5]["p"]) == ("10.50", "new n5", "odd")
    row = DeltaTable.forPath(spark, table).history(1).collect()[0]
    assert row["operation"] == "UPDATE"
    assert row["operationMetrics"]["numUpdatedRows"] == "4"
    assert row["operationParameters"]["predicate"].startswith("[")


def test_only_files_with_a_matching_row_are_touched(spark, table):
    result = DeltaTable.forPath(spark, table).update("id = 3", {"note": "'x'"})
    assert result.num_touched_files == 1
    copied = 0 if DeltaLog.for_table(table).update().properties.enable_deletion_vectors else 9
    assert result.num_copied_rows == copied


def test_no_condition_changes_every_row(spark, table):
    result = DeltaTable.forPath(spark, table).update(set={"note": F.lit("all")})
    assert result.num_updated_rows == 40
    assert {row["note"] for row in rows_of(spark, table).values()} == {"all"}


def test_no_match_is_no_commit(spark, table):
    version = DeltaLog.for_table(table).update().version
    assert DeltaTable.forPath(spark, table).update("id > 1000", {"note": "'x'"}).version is None
    assert DeltaTable.forPath(spark, table).update("note IS NULL", {"note": "'x'"}).version is None
    assert DeltaLog.for_table(table).update().version == version


def test_null_conditions_change_nothing(spark, table):
    DeltaTable.forPath(spark, table).update("id = 1", {"note": "NULL"})
    assert DeltaTable.forPath(spark, table).update("note = 'n1' OR note = 'n2'", {"tiny": "2"}).num_updated_rows == 1


def test_a_row_moves_when_its_partition_column_is_set(spark, table):
    DeltaTable.forPath(spark, table).update("id = 4", {"p": "'new part'"})
    found = spark.read.format("delta").load(table)
    assert [row["id"] for row in found.where("p = 'new part'").collect()] == [4]
    assert found.count() == 40


def test_fields_of_structs_and_values_swapped(spark, table):
    DeltaTable.forPath(spark, table).alias("t").update(
        "t.id = 2", {"t.s.b.c": "t.note", "s.a": "s.a + 100", "note": "s.b.c"}
    )
    row = rows_of(spark, table)[2]
    assert (row["s"]["a"], row["s"]["b"]["c"], row["note"]) == (102, "n2", "x")


def test_a_struct_that_was_null_gets_the_parts_that_are_set(spark, table):
    DeltaTable.forPath(spark, table).update("id = 2", {"s": "NULL"})
    DeltaTable.forPath(spark, table).update("id = 2", {"s.b.c": "'y'"})
    row = rows_of(spark, table)[2]
    assert (row["s"]["a"], row["s"]["b"]["c"]) == (None, "y")


def test_updates_one_after_the_other(spark, table):
    for number in range(4):
        DeltaTable.forPath(spark, table).update(f"id % 4 = {number}", {"amount": "amount + 1", "tiny": "tiny + 1"})
    after = rows_of(spark, table)
    assert all(row["amount"] == key + 1 and row["tiny"] == 2 for key, row in after.items())
    assert len(after) == 40


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ({"nte": "'x'"}, BindError, "Did you mean 'note'"),
        ({"s.zz": "1"}, BindError, "no column 'zz' in s"),
        ({"note": "missing_column"}, BindError, "missing_column"),
        ({"note": "1 +"}, ParseError, ""),
        ({"note": 5}, TypeError, "must contain only Spark SQL Columns or strings"),
        ({"s": "named_struct('a', 1, 'b', null)", "s.a": "1"}, ConflictingSetError, "overlap"),
        ({"note": "'x'", "Note": "'y'"}, ConflictingSetError, "[DELTA_CONFLICT_SET_COLUMN] UPDATE sets 'note' twice"),
        ({"amount": "array(1)"}, AnalysisException, "DATATYPE_MISMATCH"),
        ({"at": "X'00'"}, AnalysisException, "DATATYPE_MISMATCH"),
    ],
)
def test_what_cannot_be_set_is_refused_and_nothing_changes(spark, tmp_path, values, error, said):
    path = make(spark, tmp_path)
    version = DeltaLog.for_table(path).update().version
    with pytest.raises(error) as caught:
        DeltaTable.forPath(spark, path).update("id = 1", values)
    assert said in str(caught.value)
    assert DeltaLog.for_table(path).update().version == version


def test_a_value_too_large_fails_the_job_whatever_the_mode(spark, table):
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            with pytest.raises(CastOverflowError, match='"INT" does not fit the column `tiny`'):
                DeltaTable.forPath(spark, table).update("id = 1", {"tiny": "1000"})
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
    assert rows_of(spark, table)[1]["tiny"] == 1


def test_constraints_hold_for_new_values(spark, tmp_path):
    path = make(spark, tmp_path, **{"delta.constraints.positive": "amount >= 0"})
    with pytest.raises(ConstraintViolatedError, match="positive"):
        DeltaTable.forPath(spark, path).update("id = 7", {"amount": "-1"})
    assert len(rows_of(spark, path)) == 40


def test_append_only_tables_refuse(spark, tmp_path):
    path = make(spark, tmp_path, **{"delta.appendOnly": "true"})
    with pytest.raises(UnsafeOperationError):
        DeltaTable.forPath(spark, path).update("id = 7", {"amount": "1"})


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_the_change_feed_has_both_images(spark, tmp_path, vectors):
    path = make(spark, tmp_path, **{"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": vectors})
    version = DeltaTable.forPath(spark, path).update("id IN (3, 4)", {"note": "concat(note, '!')"}).version
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version).load(path)
    found = sorted((row["id"], row["_change_type"], row["note"]) for row in feed.collect())
    assert found == [
        (3, "update_postimage", "n3!"),
        (3, "update_preimage", "n3"),
        (4, "update_postimage", "n4!"),
        (4, "update_preimage", "n4"),
    ]
    assert len(rows_of(spark, path)) == 40


def test_random_values_are_the_same_in_the_feed_and_in_the_table(spark, tmp_path):
    path = make(spark, tmp_path, **{"delta.enableChangeDataFeed": "true"})
    version = DeltaTable.forPath(spark, path).update("id < 10", {"note": "uuid()"}).version
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version).load(path)
    posted = {row["id"]: row["note"] for row in feed.where("_change_type = 'update_postimage'").collect()}
    after = rows_of(spark, path)
    assert posted == {key: after[key]["note"] for key in range(10)}
    assert len(set(posted.values())) == 10


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_rows_keep_their_ids(spark, tmp_path, vectors):
    from pydelta.engines.spark.scan.scan import Extra, scan_dataframe

    path = make(spark, tmp_path, **{"delta.enableRowTracking": "true", "delta.enableDeletionVectors": vectors})

    def tracked():
        frame = scan_dataframe(spark, DeltaLog.for_table(path).update(), pinned=True, extra=Extra.TRACKING)
        return {row["id"]: (row["__pydelta_row_id"], row["__pydelta_row_version"]) for row in frame.collect()}

    before = tracked()
    version = DeltaTable.forPath(spark, path).update("id IN (3, 23)", {"note": "'x'"}).version
    after = tracked()
    assert {key: value[0] for key, value in before.items()} == {key: value[0] for key, value in after.items()}
    assert {key for key, value in after.items() if value[1] == version} == {3, 23}


def test_generated_columns_follow_what_they_are_made_of(spark, tmp_path):
    path = str(tmp_path / "g")
    builder = DeltaTable.create(spark).location(path).addColumn("id", "long")
    builder.addColumn("twice", "long", generatedAlwaysAs="id * 2").execute()
    spark.range(5).write.format("delta").mode("append").save(path)
    DeltaTable.forPath(spark, path).update("id = 3", {"id": "100"})
    assert {(row["id"], row["twice"]) for row in spark.read.format("delta").load(path).collect()} == {
        (0, 0),
        (1, 2),
        (2, 4),
        (100, 200),
        (4, 8),
    }
