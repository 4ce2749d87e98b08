"""Writes that fail half-way: retried tasks, a full disk, a place that takes no files, rows that cannot be computed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from leaks import secret
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pydelta.errors import DeltaConcurrentModificationException, StorageError
from pydelta.log import DeltaLog
from pydelta.storage.pages import is_unfinished

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """What ``write_faults_job`` found, in a session with retries, an event log and a limit on file sizes."""
    folder = tmp_path_factory.mktemp("faults")
    program = Path(__file__).with_name("write_faults_job.py")
    done = subprocess.run(
        [sys.executable, str(program), str(folder)], capture_output=True, text=True, timeout=240, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-4_000:]
    return json.loads(lines[0].removeprefix("RESULT "))


@pytest.mark.ci
def test_a_retried_task_adds_no_row(outcome):
    assert outcome["rows"] is True
    assert outcome["files_of_the_version"] == 20


def test_a_full_disk_makes_no_version_and_says_how_many_files_were_staged(outcome):
    assert "DELTA_STORAGE_FULL" in outcome["full"]
    assert "3 files were staged" in outcome["full"]
    assert outcome["left"] == []
    assert outcome["afterwards"] == 3


def test_secrets_of_the_store_are_in_no_event_log(outcome):
    assert outcome["event_log_has_the_plan"] is True
    assert outcome["secret_in_event_log"] is False


def test_a_place_that_takes_no_files_is_a_storage_error(spark):
    with pytest.raises(StorageError):
        spark.range(3).write.format("delta").save("/proc/no-table-here")


def test_rows_that_cannot_be_computed_leave_nothing_behind(spark, tmp_path):
    path = tmp_path / "t"
    broken = spark.range(0, 1_000, 1, 2).select((F.lit(1) / (F.col("id") - 700)).alias("x"))
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO") as caught:
        broken.write.format("delta").option("maxRecordsPerFile", 50).save(str(path))
    assert "no version was made" in "".join(caught.value.__notes__).lower()
    assert not (path / "_delta_log").exists()


@pytest.mark.parametrize("partition_by", [(), ("p",)])
def test_a_task_that_is_under_way_when_another_one_fails_leaves_nothing_either(spark, tmp_path, partition_by):
    path = tmp_path / "t"
    spark.sql("SELECT 1L AS id, 'a' AS p, 1D AS x").write.format("delta").partitionBy(*partition_by).save(str(path))
    before = {item for item in path.rglob("*") if item.is_file()}
    broken = F.lit(1) / F.when(F.col("id") == 3, 0).otherwise(7)
    rows = spark.range(0, 8, 1, 8).select("id", F.lit("b").alias("p"), broken.alias("x"))
    for _ in range(5):
        with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
            rows.write.format("delta").mode("append").save(str(path))
        left = {item for item in path.rglob("*") if item.is_file()}
        # Spark kills the process of a task that does not end in two seconds: what it was writing is left to VACUUM.
        assert {item for item in left if not is_unfinished(item.name)} == before


def test_a_lost_race_removes_the_staged_files_and_says_so(spark, tmp_path, monkeypatch):
    """A schema change that lands between reading and committing is a conflict; the files go, the winner stays."""
    path = str(tmp_path / "t")
    spark.range(3).write.format("delta").save(path)
    from pydelta.engines.spark.write import writer

    original = writer.DataFrameSource.write

    def write_and_lose(self, target):
        written = original(self, target)
        monkeypatch.setattr(writer.DataFrameSource, "write", original)
        spark.sql("select 5L id, 'x' extra").write.format("delta").mode("append").option("mergeSchema", True).save(path)
        return written

    monkeypatch.setattr(writer.DataFrameSource, "write", write_and_lose)
    with pytest.raises(DeltaConcurrentModificationException) as caught:
        spark.range(7, 9).coalesce(1).write.format("delta").mode("append").save(path)
    assert "1 file was staged" in str(caught.value)
    snapshot = DeltaLog.for_table(path).update()
    live = {add.path for add in snapshot.files.adds(snapshot.files.core)}
    on_disk = {file.name for file in Path(path).glob("*.parquet")}
    assert on_disk == live
    assert sorted(r[0] for r in spark.read.format("delta").load(path).select("id").collect()) == [0, 1, 2, 5]


def test_the_plan_shows_no_secret(spark, tmp_path, capsys):
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.s3a.secret.key", secret("plan"))
    try:
        from pydelta.engines.spark.write import writer
        from pydelta.protocol.schema import parse_schema
        from pydelta.settings import TableProperties

        seen = []
        original = writer.map_in_arrow

        def keep(df, function, schema):
            seen.append(original(df, function, schema))
            return seen[-1]

        writer.map_in_arrow = keep
        try:
            writer.write_files(
                spark,
                spark.range(0, 3, 1, 1),
                writer.TableShape(
                    uri=(tmp_path / "t").as_uri(),
                    schema=parse_schema(spark.range(3).schema.json()),
                    partition_columns=(),
                    properties=TableProperties(),
                ),
            )
        finally:
            writer.map_in_arrow = original
        seen[0].explain(True)
        shown = capsys.readouterr().out
        assert "MapInArrow" in shown
        assert secret("plan") not in shown
    finally:
        hadoop.unset("fs.s3a.secret.key")
