"""``jobs/compact.py`` and ``jobs/delete.py``: one line of JSON, an exit code, safe to run again."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from jobs import compact, delete
from pydelta.errors import (
    BindError,
    ConcurrentDeleteReadException,
    InvalidArgumentError,
    StorageError,
)
from pydelta.log import DeltaLog

pytestmark = pytest.mark.spark
NOW = dt.datetime(2024, 1, 10, 12, tzinfo=dt.UTC)


@pytest.fixture
def days(spark, tmp_path):
    """Ten ids for each of the days from 1 to 9 January, three files a day."""
    path = str(tmp_path / "t")
    frame = spark.range(90).selectExpr("id", "date_add(date'2024-01-01', cast(id % 9 as int)) as day")
    for _ in range(3):
        frame.coalesce(1).write.format("delta").partitionBy("day").mode("append").save(path)
    return path


def files_of(path):
    snapshot = DeltaLog.for_table(path).update()
    counts: dict[str, int] = {}
    for add in snapshot.files.adds(snapshot.files.core):
        counts[add.partition_values["day"][-2:]] = counts.get(add.partition_values["day"][-2:], 0) + 1
    return [count for _, count in sorted(counts.items())]


def test_old_partitions_are_compacted_and_new_ones_left_alone(spark, days):
    result = compact.run(spark, ["--table", days, "--older-than", "5"], now=NOW)
    assert files_of(days) == [1, 1, 1, 1, 3, 3, 3, 3, 3]
    assert (result.by, result.older_than, result.partitions) == ("partition day", "2024-01-05", 4)
    assert (result.version, result.files_removed, result.files_added) == (3, 12, 4)
    assert result.files_considered == 12
    again = compact.run(spark, ["--table", days, "--older-than", "5"], now=NOW)
    assert (again.version, again.files_removed) == (None, 0)
    assert DeltaLog.for_table(days).update().version == 3


def test_a_run_takes_no_more_files_than_it_may(spark, days):
    arguments = ["--table", days, "--max-files-per-partition", "2", "--where", "day < '2024-01-03'"]
    for expected in ([2, 2], [1, 1], [1, 1]):
        compact.run(spark, arguments)
        assert files_of(days)[:2] == expected
    assert spark.read.format("delta").load(days).count() == 270


def test_a_table_without_a_date_goes_by_the_times_of_its_files(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(0, 8, numPartitions=4).write.format("delta").save(path)
    result = compact.run(spark, ["--table", f"delta.`{path}`", "--older-than", "1"])
    assert (result.by, result.version, result.files_considered) == ("modification time", None, 0)
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=2)
    assert compact.run(spark, ["--table", path, "--older-than", "1"], now=later).files_removed == 4


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (["--older-than", "-1"], InvalidArgumentError, "--older-than is -1"),
        (["--older-than", "soon"], InvalidArgumentError, "soon"),
        (["--max-files-per-partition", "1"], InvalidArgumentError, "2 or more"),
        (["--where", "id = 1"], InvalidArgumentError, "only partition columns"),
        (["--where", "dya = 1"], BindError, "dya"),
        (["--unheard-of"], InvalidArgumentError, "--help"),
    ],
)
def test_arguments_of_compact_that_cannot_be_right_are_named(spark, days, arguments, error, said):
    with pytest.raises(error, match=said):
        compact.run(spark, ["--table", days, *arguments])
    assert DeltaLog.for_table(days).update().version == 2


def test_delete_says_what_it_did_and_does_nothing_twice(spark, days):
    result = delete.run(spark, ["--table", days, "--where", "day = '2024-01-01' AND id < 9"])
    assert (result["table"], result["version"], result["numDeletedRows"]) == (days, 3, 3)
    again = delete.run(spark, ["--table", days, "--where", "day = '2024-01-01' AND id < 9"])
    assert (again["version"], again["numDeletedRows"]) == (None, 0)
    assert spark.read.format("delta").load(days).count() == 267
    assert delete.run(spark, ["--table", days, "--all-rows"])["numDeletedRows"] == 267


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ([], InvalidArgumentError, "--where"),
        (["--where", " "], InvalidArgumentError, "--all-rows"),
        (["--where", "id = 1", "--all-rows"], InvalidArgumentError, "not allowed"),
        (["--where", "nope = 1"], BindError, "nope"),
    ],
)
def test_arguments_of_delete_that_cannot_be_right_are_named(spark, days, arguments, error, said):
    with pytest.raises(error, match=said):
        delete.run(spark, ["--table", days, *arguments])
    assert DeltaLog.for_table(days).update().version == 2


@pytest.mark.parametrize(("job", "arguments"), [(compact, []), (delete, ["--where", "id = 1"])])
def test_main_prints_one_line_and_gives_an_exit_code(spark, days, tmp_path, job, arguments, capsys):
    assert job.main(["--table", days, *arguments]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["table"], said["version"]) == (days, 3)
    assert job.main(["--table", str(tmp_path / "none"), *arguments]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == "DELTA_MISSING_DELTA_TABLE"
    assert job.main(["--nonsense"]) == 1
    assert job.main(["--help"]) == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConcurrentDeleteReadException("lost"), 2), (StorageError("busy", retryable=True), 2), (StorageError("gone"), 1)],
)
@pytest.mark.parametrize(("job", "arguments"), [(compact, []), (delete, ["--where", "id = 1"])])
def test_exit_codes_tell_what_may_be_run_again(spark, days, monkeypatch, capsys, job, arguments, error, code):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(compact, "run_command", fail)
    monkeypatch.setattr("pydelta.api.python.table.run_in_session", fail)
    assert job.main(["--table", days, *arguments]) == code
    assert json.loads(capsys.readouterr().out)["exit_code"] == code
