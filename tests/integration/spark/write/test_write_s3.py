"""Writes to an object store: executors open it by themselves, from the session's ``fs.s3a`` settings."""

from __future__ import annotations

import os
import urllib.request

import pytest
from deltalake import DeltaTable as RsTable
from pyspark.sql import functions as F
from s3_server import S3Server

from pydelta.errors import DeltaEnvironmentError
from pydelta.log import DeltaLog

pytestmark = pytest.mark.spark

BUCKET = "lake"


@pytest.fixture(scope="module")
def s3():
    """An S3 look-alike on the loopback, with one bucket."""
    os.environ["NO_PROXY"] = ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1"]))
    server = S3Server()
    urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/{BUCKET}", method="PUT"), timeout=30).close()
    yield server
    server.stop()


def test_a_table_on_s3_is_written_partitioned_and_appended_to(spark, s3):
    options = {key.removeprefix("spark.hadoop."): value for key, value in s3.options().items()}
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in options.items():
        hadoop.set(key, value)
    path = f"s3a://{BUCKET}/tables/a table"
    spark.conf.set("spark.pydelta.storage.hadoopCheck", "false")  # this session only writes
    try:
        rows = spark.range(100).select("id", F.concat(F.lit("50% "), F.col("id") % 3).alias("p"))
        rows.write.format("delta").partitionBy("p").save(path)
        rows.write.format("delta").mode("append").save(path)
    finally:
        spark.conf.unset("spark.pydelta.storage.hadoopCheck")
        for key in options:
            hadoop.unset(key)
    snapshot = DeltaLog.for_table(path, options=options).update()
    assert snapshot.version == 1
    adds = snapshot.files.adds(snapshot.files.core)
    assert {add.partition_values["p"] for add in adds} == {"50% 0", "50% 1", "50% 2"}
    theirs = RsTable(
        path,
        storage_options={
            "aws_endpoint": s3.endpoint,
            "aws_access_key_id": options["fs.s3a.access.key"],
            "aws_secret_access_key": options["fs.s3a.secret.key"],
            "aws_region": "us-east-1",
            "allow_http": "true",
        },
    ).to_pyarrow_table()
    assert sorted(theirs["id"].to_pylist()) == sorted(list(range(100)) * 2)


def test_a_store_that_spark_could_not_read_is_refused_before_anything_is_written(spark, s3):
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    options = {key.removeprefix("spark.hadoop."): value for key, value in s3.options().items()}
    path = f"s3a://{BUCKET}/tables/never"
    try:
        for key, value in options.items():
            hadoop.set(key, value)
        with pytest.raises(DeltaEnvironmentError, match=r"cannot read s3a://") as caught:
            spark.range(3).write.format("delta").save(path)
        assert "org.apache.hadoop:hadoop-aws:" in str(caught.value) and "fs.s3a.access.key" in str(caught.value)
        with pytest.raises(DeltaEnvironmentError, match=r"cannot read s3a://"):
            spark.sql(f"CREATE TABLE delta.`{path}` (a INT) USING delta")
    finally:
        for key in options:
            hadoop.unset(key)
    assert not DeltaLog.for_table(path, options=options).table_exists()
