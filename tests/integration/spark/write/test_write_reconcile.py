"""What Spark counted on the way into the writer, and what files say that they hold: a difference commits nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from pydelta.engines.spark.write import writer
from pydelta.errors import RowsDoNotAddUpError
from pydelta.log import DeltaLog

pytestmark = pytest.mark.spark


def versions(path):
    return sorted(file.name for file in (Path(path) / "_delta_log").glob("*.json"))


def data_files(path):
    return sorted(str(f.relative_to(path)) for f in Path(path).rglob("*.parquet") if "_delta_log" not in f.parts)


def losing(lost):
    """A writer of tasks that passes on what ``lost`` leaves of each batch."""
    from pydelta.engines.arrow.tasks.write_files import run_task

    def run(batches, task, *, partition_id):
        def left():
            for batch in batches:
                yield from lost(batch)

        return run_task(left(), task, partition_id=partition_id)

    return run


DAMAGES = {
    "a row lost": (lambda batch: [batch.slice(1)], 96),
    "all rows of a batch lost": (lambda batch: [], 0),
    "rows doubled": (lambda batch: [batch, batch.slice(0, 2)], 108),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_difference_to_what_spark_counted_commits_nothing(spark, tmp_path, monkeypatch, damage, partitioned):
    path = str(tmp_path / "t")
    rows = spark.range(0, 100, 1, 4).withColumn("p", F.col("id") % 3)
    start = rows.write.format("delta")
    (start.partitionBy("p") if partitioned else start).save(path)
    before = data_files(path)
    lost, written = DAMAGES[damage]
    monkeypatch.setattr(writer, "run_task", losing(lost))
    with pytest.raises(RowsDoNotAddUpError) as caught:
        rows.write.format("delta").mode("append").save(path)
    assert f"100 rows went into the write, but {written} are in its files" in str(caught.value)
    assert "no version was made" in str(caught.value).lower()
    assert versions(path) == ["00000000000000000000.json"]
    assert data_files(path) == before


@pytest.mark.parametrize(
    ("lost_kind", "message"),
    [
        (None, "30 rows went into the write, but 0"),
        ("delete", "10 rows of the change data feed went into the write, but 0"),
    ],
)
def test_rows_of_the_change_feed_are_counted_apart(spark, tmp_path, monkeypatch, lost_kind, message):
    path = str(tmp_path / "t")
    spark.range(0, 40, 1, 1).write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)

    def lost(batch):
        kinds = batch.column(batch.num_columns - 1).to_pylist()
        yield batch.filter(pa.array([kind != lost_kind for kind in kinds]))

    monkeypatch.setattr(writer, "run_task", losing(lost))
    monkeypatch.setenv("PYDELTA_LOCAL_MAX_BYTES", "0")  # it is about what Spark's job counted
    from pydelta.tables import DeltaTable

    before = data_files(path)
    with pytest.raises(RowsDoNotAddUpError, match=message):
        DeltaTable.forPath(spark, path).delete("id < 10")
    assert versions(path) == ["00000000000000000000.json"]
    assert data_files(path) == before


def test_plans_of_every_kind_are_counted_once(spark, tmp_path):
    """No rows, a cached input, a shuffle that adaptive execution changes, a limit, a union, the user's own counts."""
    from pyspark.sql import Observation

    seen = Observation("mine")
    ids = spark.range(0, 1_000, 1, 8)
    cached = ids.where("id % 7 = 0").cache()
    cached.count()
    frames = {
        "none": ids.where("id < 0"),
        "empty": spark.createDataFrame([], "id long"),
        "literal": spark.createDataFrame([(1,), (2,)], "id long"),
        "cached": cached,
        "shuffled": ids.repartition(50, "id").where("id % 3 = 1"),
        "aggregated": ids.groupBy((F.col("id") % 11).alias("id")).count().select("id"),
        "limited": ids.limit(5),
        "united": ids.union(ids),
        "observed": ids.observe(seen, F.count(F.lit(1)).alias("rows")),
        "joined": ids.join(ids.where("id < 20"), "id"),
        "sorted": ids.orderBy(F.desc("id")),
    }
    for label, frame in frames.items():
        path = str(tmp_path / label)
        frame.write.format("delta").save(path)
        snapshot = DeltaLog.for_table(path).update()
        recorded = sum(json.loads(add.stats)["numRecords"] for add in snapshot.files.adds(snapshot.files.core))
        assert recorded == frame.count() == spark.read.format("delta").load(path).count()
    assert seen.get == {"rows": 1_000}
    cached.unpersist()


@pytest.mark.ci
def test_attempts_that_fail_or_come_second_are_not_counted(tmp_path):
    """Executors of their own: a task that is retried, one that two attempts finish, an executor that dies."""
    program = Path(__file__).with_name("write_attempts_job.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=3000, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-4_000:]
    found = json.loads(lines[0].removeprefix("RESULT "))
    assert found["retried"] == found["expected"]
    assert found["speculated"] == found["expected"]
    assert found["second attempts"] >= 1
    assert found["lost executor"] == found["expected"]
    counts = "Spark counted that 400 rows went into the write, but 399 are in its files."
    assert found["mismatch"].startswith(f"[DELTA_ROWS_DO_NOT_ADD_UP] {counts}")
