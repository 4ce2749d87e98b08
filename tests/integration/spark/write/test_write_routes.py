"""The ways a write reaches the engine: save, saveAsTable, insertInto, writeTo; and that other formats do not."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import NumberFormatException
from pyspark.sql import functions as F

import pydelta
from pydelta.engines.spark.session import patches
from pydelta.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pydelta.log import DeltaLog

pytestmark = pytest.mark.spark


@pytest.fixture
def name(spark, request):
    """A table name of the test's own, dropped afterwards."""
    table = "w_" + request.node.name.split("[")[0][-40:]
    yield table
    spark.sql(f"DROP TABLE IF EXISTS {table}")


def operations(location):
    return [record.commit_info.operation for record in DeltaLog.for_table(str(location)).history()]


def location_of(spark, name):
    from pydelta.engines.spark.catalog.lookup import location_of as find

    return find(spark, name)


def ids(df):
    return sorted(row["id"] for row in df.collect())


def test_saveastable_makes_a_managed_table_that_spark_table_reads(spark, name):
    spark.range(3).write.format("delta").saveAsTable(name)
    assert ids(spark.table(name)) == [0, 1, 2]
    assert ids(spark.sql(f"select * from {name} where id > 0")) == [1, 2]
    assert operations(location_of(spark, name)) == ["CREATE TABLE AS SELECT"]
    spark.range(3, 5).write.format("delta").mode("append").saveAsTable(name)
    assert ids(spark.table(name)) == [0, 1, 2, 3, 4]
    spark.range(9, 10).write.format("delta").mode("overwrite").saveAsTable(name)
    assert ids(spark.table(name)) == [9]
    spark.range(1).write.format("delta").mode("ignore").saveAsTable(name)
    assert ids(spark.table(name)) == [9]
    with pytest.raises(TableAlreadyExistsError):
        spark.range(1).write.format("delta").saveAsTable(name)


def test_saveastable_with_a_path_makes_an_external_table(spark, name, tmp_path):
    target = str(tmp_path / "ext")
    df = spark.range(4).withColumn("p", F.col("id") % 2)
    df.write.format("delta").option("path", target).partitionBy("p").saveAsTable(name)
    assert ids(spark.table(name)) == [0, 1, 2, 3]
    assert ids(spark.read.format("delta").load(target)) == [0, 1, 2, 3]
    assert DeltaLog.for_table(target).update().partition_columns == ("p",)
    assert spark.table(name).columns == ["id", "p"]


def test_saveastable_refuses_a_name_that_is_something_else(spark, name):
    spark.range(1).write.format("parquet").saveAsTable(name)
    with pytest.raises(TableAlreadyExistsError, match="not a Delta table"):
        spark.range(1).write.format("delta").mode("append").saveAsTable(name)


def provider_of(spark, name):
    return spark.sql(f"DESCRIBE EXTENDED {name}").filter("col_name = 'Provider'").first()["data_type"].lower()


@pytest.mark.parametrize("form", ["parquet", "json", None])
def test_saveastable_in_another_format_answers_by_its_mode_over_a_delta_table(spark, name, form):
    spark.range(2).write.format("delta").saveAsTable(name)
    spark.sql(f"DELETE FROM {name} WHERE id = 0")

    def writer(rows):
        return rows.write if form is None else rows.write.format(form)

    more = spark.range(5, 8)
    with pytest.raises(InvalidArgumentError, match="doesn't match the specified format"):
        writer(more).mode("append").saveAsTable(name)
    with pytest.raises(TableAlreadyExistsError, match="already exists"):
        writer(more).mode("error").saveAsTable(name)
    writer(more).mode("ignore").saveAsTable(name)
    assert (provider_of(spark, name), ids(spark.table(name))) == ("delta", [1])
    with pytest.raises(Exception, match="5"):
        writer(more.selectExpr("id", "raise_error('5') AS x")).mode("overwrite").saveAsTable(name)
    assert (provider_of(spark, name), ids(spark.table(name))) == ("delta", [1])
    writer(spark.table(name).union(more)).mode("overwrite").saveAsTable(name)
    assert (provider_of(spark, name), ids(spark.table(name))) == (form or "parquet", [1, 5, 6, 7])


def test_insertinto_matches_by_position_and_casts(spark, name):
    spark.createDataFrame([(1, "a")], "id long, s string").write.format("delta").saveAsTable(name)
    spark.createDataFrame([(2, 5)], "x int, y int").write.insertInto(name)
    assert sorted(map(tuple, spark.table(name).collect())) == [(1, "a"), (2, "5")]
    spark.createDataFrame([(3, "c")], "x long, y string").write.insertInto(name, overwrite=True)
    assert sorted(map(tuple, spark.table(name).collect())) == [(3, "c")]
    with pytest.raises(SchemaMismatchError, match="2 columns and the data has 1"):
        spark.range(1).write.insertInto(name)
    with pytest.raises(NumberFormatException, match="CAST_INVALID_INPUT"):
        spark.createDataFrame([("x", "y")], "a string, b string").write.insertInto(name)


def test_writeto_creates_appends_and_replaces(spark, name):
    df = spark.range(4).withColumn("p", (F.col("id") % 2).cast("int"))
    df.writeTo(name).using("delta").partitionedBy("p").tableProperty("delta.appendOnly", "false").create()
    snapshot = DeltaLog.for_table(location_of(spark, name)).update()
    assert snapshot.partition_columns == ("p",)
    assert snapshot.metadata.configuration == {"delta.appendOnly": "false"}
    with pytest.raises(TableAlreadyExistsError):
        df.writeTo(name).using("delta").create()
    df.where("id = 3").writeTo(name).append()
    assert ids(spark.table(name)) == [0, 1, 2, 3, 3]
    df.where("id = 1").writeTo(name).overwritePartitions()
    assert ids(spark.table(name)) == [0, 1, 2]
    df.where("id = 2").writeTo(name).overwrite(F.col("p") == 0)
    assert ids(spark.table(name)) == [1, 2]
    df.where("id = 0").writeTo(name).overwrite(F.lit(True))
    assert ids(spark.table(name)) == [0]
    spark.range(2).writeTo(name).using("delta").replace()
    assert spark.table(name).columns == ["id"]
    spark.range(7, 8).toDF("id").writeTo(name).using("delta").createOrReplace()
    assert ids(spark.table(name)) == [7]
    assert operations(location_of(spark, name))[:2] == ["CREATE OR REPLACE TABLE AS SELECT", "REPLACE TABLE AS SELECT"]


def test_writeto_takes_a_path(spark, tmp_path):
    target = str(tmp_path / "t")
    with pytest.raises(TableNotFoundError) as absent:
        spark.range(2).writeTo(f"delta.`{target}`").append()
    assert absent.value.getCondition() == "PATH_NOT_FOUND"
    spark.range(2).writeTo(f"delta.`{target}`").using("delta").create()
    spark.range(2, 3).writeTo(f"delta.`{target}`").append()
    assert ids(spark.read.format("delta").load(target)) == [0, 1, 2]
    with pytest.raises(TableNotFoundError):
        spark.range(1).writeTo(f"delta.`{tmp_path / 'none'}`").append()
    with pytest.raises(TableNotFoundError):
        spark.range(1).writeTo(f"delta.`{tmp_path / 'none'}`").using("delta").replace()


def test_transforms_and_layouts_that_delta_has_not_are_refused(spark, tmp_path):
    df = spark.range(1).withColumn("at", F.current_timestamp())
    with pytest.raises(UnsupportedFeatureError, match="years"):
        df.writeTo(f"delta.`{tmp_path / 't'}`").using("delta").partitionedBy(F.partitioning.years("at")).create()
    with pytest.raises(UnsupportedFeatureError, match="bucketBy"):
        df.write.format("delta").bucketBy(2, "id").save(str(tmp_path / "t"))
    assert not (tmp_path / "t").exists()


def test_save_without_a_path_says_what_to_do(spark):
    with pytest.raises(InvalidArgumentError, match="No path"):
        spark.range(1).write.format("delta").save()


def test_save_takes_everything_as_arguments(spark, tmp_path):
    target = str(tmp_path / "t")
    df = spark.range(4).withColumn("p", F.col("id") % 2)
    df.write.save(target, format="delta", mode="append", partitionBy="p", userMetadata="note")
    assert DeltaLog.for_table(target).update().partition_columns == ("p",)
    assert DeltaLog.for_table(target).history(1)[0].commit_info.get("userMetadata") == "note"


def test_delta_as_the_sessions_default_source(spark, tmp_path):
    target = str(tmp_path / "t")
    spark.conf.set("spark.sql.sources.default", "delta")
    try:
        spark.range(2).write.save(target)
    finally:
        spark.conf.unset("spark.sql.sources.default")
    assert DeltaLog.for_table(target).table_exists()


def test_other_formats_go_to_spark(spark, tmp_path, name):
    spark.range(3).write.mode("overwrite").parquet(str(tmp_path / "p"))
    spark.range(3).write.format("json").save(str(tmp_path / "j"))
    spark.range(3).write.save(str(tmp_path / "d"))
    assert pq.read_table(tmp_path / "p").num_rows == 3
    assert spark.read.json(str(tmp_path / "j")).count() == 3
    assert not (tmp_path / "d" / "_delta_log").exists()
    spark.range(3).write.format("parquet").saveAsTable(name)
    spark.range(3).write.insertInto(name)
    assert spark.table(name).count() == 6


def test_a_disabled_session_has_sparks_own_methods_again(spark, tmp_path, monkeypatch):
    from pyspark.sql.readwriter import DataFrameWriter

    monkeypatch.setattr(patches, "_enabled", {patches._key(spark)})  # other tests' sessions are not asked about
    patched = DataFrameWriter.save
    pydelta.disable(spark)
    try:
        assert DataFrameWriter.save is not patched
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            spark.range(1).write.format("delta").save(str(tmp_path / "t"))
        assert not Path(tmp_path / "t").exists()
    finally:
        pydelta.enable(spark)
    spark.range(1).write.format("delta").save(str(tmp_path / "t"))
    assert DeltaLog.for_table(str(tmp_path / "t")).table_exists()


def test_a_write_refreshes_what_the_session_caches(spark, tmp_path):
    target = str(tmp_path / "t")
    spark.range(3).write.format("delta").save(target)
    cached = spark.read.format("delta").load(target).cache()
    try:
        assert cached.count() == 3
        spark.range(3, 5).write.format("delta").mode("append").save(target)
        assert spark.read.format("delta").load(target).count() == 5
    finally:
        cached.unpersist()


def test_a_foreachbatch_writes_through_the_engine(spark, tmp_path):
    target = str(tmp_path / "t")
    source = str(tmp_path / "in")
    spark.range(5).write.parquet(source)

    def write(batch, number):
        assert pydelta.api.routing.enable.is_enabled(batch.sparkSession)
        batch.write.format("delta").mode("append").options(txnAppId="stream", txnVersion=number).save(target)

    query = (
        spark.readStream.schema("id long")
        .parquet(source)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "cp"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert ids(spark.read.format("delta").load(target)) == [0, 1, 2, 3, 4]
    assert DeltaLog.for_table(target).update().set_transactions["stream"].version == 0


def test_frames_of_pandas_on_spark_write_and_read_delta_tables(spark, name, tmp_path):
    import pyspark.pandas as ps

    path = str(tmp_path / "t")
    frame = spark.range(4).selectExpr("id", "id % 2 AS p").pandas_api()
    frame.to_delta(path, partition_cols="p")
    frame.set_index("id").to_delta(path, mode="overwrite", index_col="id", overwriteSchema="true")
    assert ids(ps.read_delta(path).to_spark()) == [0, 1, 2, 3]
    assert ids(ps.read_delta(path, version=0, index_col="p").to_spark()) == [0, 1, 2, 3]
    assert DeltaLog.for_table(path).update().version == 1
    frame.to_table(name, format="delta", partition_cols=["p"])
    assert ids(ps.read_table(name).to_spark()) == [0, 1, 2, 3]
    assert DeltaLog.for_table(spark.sql(f"DESCRIBE DETAIL {name}").first()["location"]).update().partition_columns == (
        "p",
    )
