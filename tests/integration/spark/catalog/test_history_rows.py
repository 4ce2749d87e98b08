"""The rows of DESCRIBE HISTORY: whatever a commit says of itself, at whatever time, with no job."""

from __future__ import annotations

import json
import os

import pytest

from pydelta.engines.spark.local_rows import local_frame
from pydelta.tables import DeltaTable

HOUR_MS = 3_600_000
REPEATED_MS = 1_729_989_000_000
"""2024-10-27 00:30 UTC: in Berlin 02:30, an hour before the clock shows 02:30 again."""
LAST_MS = 2**63 // 1000 - 1
"""A little before the last time of a timestamp in microseconds; Python's calendar ends long before."""


def add_commit(folder, version, said):
    """Append a commit with nothing but what it says of itself."""
    path = folder / "_delta_log" / f"{version:020d}.json"
    path.write_text(json.dumps({"commitInfo": said}) + "\n")
    return path


@pytest.fixture
def table(spark, tmp_path):
    spark.range(1).write.format("delta").save(str(tmp_path / "t"))
    return tmp_path / "t"


@pytest.mark.usefixtures("in_berlin")
def test_times_in_the_hour_that_a_clock_shows_twice(spark, table):
    times = (REPEATED_MS, REPEATED_MS + HOUR_MS)
    for version, at in enumerate(times, 1):
        path = add_commit(table, version, {"operation": "WRITE"})
        os.utime(path, ns=(at * 1_000_000, at * 1_000_000))
    os.utime(table / "_delta_log" / f"{0:020d}.json", ns=(0, 0))
    found = DeltaTable.forPath(spark, str(table)).history(2)
    assert [row[0] for row in found.selectExpr("unix_millis(timestamp)").collect()] == [*reversed(times)]


def test_a_time_after_the_end_of_pythons_calendar(spark, tmp_path):
    properties = "('delta.enableInCommitTimestamps' = 'true')"
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` (id INT) USING delta TBLPROPERTIES {properties}")
    for version, at in enumerate((LAST_MS, 2**62), 1):
        add_commit(tmp_path / "t", version, {"inCommitTimestamp": at, "timestamp": at, "operation": "WRITE"})
    found = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/t`").selectExpr("unix_millis(timestamp)").collect()
    assert [row[0] for row in found[:2]] == [None, LAST_MS]


def test_what_other_writers_say_in_other_types(spark, table):
    add_commit(
        table,
        1,
        {
            "userName": 7,
            "operation": ["WRITE"],
            "operationParameters": {"mode": "Append", "keys": [1], "none": None},
            "operationMetrics": "many",
            "job": {"jobId": 12},
            "readVersion": "3",
            "isBlindAppend": "true",
        },
    )
    add_commit(table, 2, {"readVersion": 2**70, "isBlindAppend": 1, "userMetadata": {"a": 1}})
    newest, before = DeltaTable.forPath(spark, str(table)).history(2).collect()
    assert (newest.readVersion, newest.isBlindAppend, newest.userMetadata) == (None, None, '{"a": 1}')
    assert (before.userName, before.operation, before.operationMetrics) == ("7", '["WRITE"]', None)
    assert before.operationParameters == {"mode": "Append", "keys": "[1]", "none": None}
    assert (before.job.jobId, before.job.jobName, before.readVersion, before.isBlindAppend) == ("12", None, 3, True)


def test_neither_history_nor_description_starts_a_job(spark, table):
    spark.sparkContext.setJobGroup("described", "history and description")
    try:
        delta = DeltaTable.forPath(spark, str(table))
        assert len(delta.history().collect()) == 1
        assert delta.detail().first().numFiles == 1
        assert [row.col_name for row in spark.sql(f"DESCRIBE delta.`{table}`").collect()] == ["id"]
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup("described") == []


def test_no_rows_have_the_schema_all_the_same(spark):
    found = local_frame(spark, [], "a long, b struct<c: string>")
    assert (found.count(), found.schema.simpleString()) == (0, "struct<a:bigint,b:struct<c:string>>")
