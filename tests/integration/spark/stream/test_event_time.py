"""Streams with a watermark, whose initial snapshot is read by the time of its rows."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from stream_queries import Query, all_of, stream

from pydelta.errors import InvalidArgumentError

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def table(spark, tmp_path):
    """Files whose rows are later, earlier and between: a row a minute; and one row without a time."""
    path = str(tmp_path / "t")
    for first, last in ((100, 120), (0, 20), (50, 70)):
        rows = spark.range(first, last, 1, 1).withColumn("at", F.timestamp_seconds(F.col("id") * 60 + 60))
        rows.write.format("delta").mode("append").save(path)
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (999, NULL)")
    return path


def unique(frame):
    return frame.withWatermark("at", "1 minute").dropDuplicates(["id", "at"])


@pytest.mark.ci
def test_no_row_of_the_initial_snapshot_is_late(spark, table, tmp_path):
    expected = [*range(20), *range(50, 70), *range(100, 120), 999]
    options = {"maxFilesPerTrigger": 1, "withEventTimeOrder": True}
    query = Query(tmp_path / "ordered")
    with pytest.raises(StreamingQueryException, match="the batch is lost"):
        query.run(unique(stream(spark, table, **options)), fail_in=1)
    done = query.batches
    batches = [batch for batch in done + query.run(unique(stream(spark, table, **options))) if batch]
    assert all_of(batches) == expected
    assert 999 in batches[0]  # without a time
    assert len(batches) == 4  # an hour and a half in four slices
    stateless = stream(spark, table, **options).withWatermark("at", "1 minute")
    assert all_of(Query(tmp_path / "stateless").run(stateless)) == expected
    lost = Query(tmp_path / "unordered").run(unique(stream(spark, table, maxFilesPerTrigger=1)))
    assert len(all_of(lost)) < len(expected)
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1000, timestamp'2030-01-01 00:00:00')")
    assert all_of(query.run(unique(stream(spark, table, **options)))) == [1000]


def test_without_a_watermark_on_a_column_of_the_table_it_is_refused(spark, table, tmp_path):
    frame = stream(spark, table, withEventTimeOrder=True)
    with pytest.raises(InvalidArgumentError, match="withWatermark"):
        Query(tmp_path / "none").run(frame)
    other = frame.withColumn("later", F.col("at") + F.expr("interval 1 hour")).withWatermark("later", "1 minute")
    with pytest.raises(InvalidArgumentError, match="no watermark"):
        Query(tmp_path / "other").run(other)
