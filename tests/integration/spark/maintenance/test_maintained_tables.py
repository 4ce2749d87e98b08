"""``jobs/maintain.py`` over real tables on the local disk: OPTIMIZE and VACUUM by the jobs, the book read by Spark."""

from __future__ import annotations

import json

import pytest

from jobs import maintain
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable
from pydelta.tools.maintenance.journal import Journal, Row

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PREFIX = "pydelta.maintenance."


def properties(**given):
    return ", ".join(f"'{name}' = '{value}'" for name, value in given.items())


@pytest.fixture
def tables(spark, tmp_path):
    """One past its bound and with garbage, one in columns' order, one that is left alone."""
    crowded, ordered, quiet = (str(tmp_path / name) for name in ("crowded", "ordered", "quiet"))
    small = {PREFIX + "compact.minFiles": "5", PREFIX + "compact.minAge": "0 seconds"}
    for path, more in (
        (crowded, {PREFIX + "vacuum": "lite", "delta.deletedFileRetentionDuration": "interval 0 seconds"}),
        (ordered, {PREFIX + "zorder": "id, v", PREFIX + "compact.smallFileSize": "1k"}),
        (quiet, {PREFIX + "enabled": "false"}),
    ):
        spark.range(0).selectExpr("id", "rand(7) AS v").write.format("delta").save(path)
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties(**small, **more)})")
    rows = spark.range(0, 1000, numPartitions=8).selectExpr("id", "rand(7) AS v")
    rows.write.format("delta").mode("append").save(crowded)
    rows.write.format("delta").mode("overwrite").save(crowded)
    rows.write.format("delta").mode("append").save(ordered)
    rows.write.format("delta").mode("append").save(quiet)
    return crowded, ordered, quiet


def parquet_files(tmp_path, name):
    return len(list((tmp_path / name).glob("*.parquet")))


def test_a_turn_does_what_is_due_writes_the_book_and_a_second_turn_does_nothing(spark, tmp_path, tables):
    crowded, ordered, quiet = tables
    before = {path: spark.read.format("delta").load(path).count() for path in tables}
    assert (before, parquet_files(tmp_path, "crowded") >= 16) == (dict.fromkeys(tables, 1000), True)
    arguments = [*tables, f"--journal-location={tmp_path / 'ops' / 'maintenance'}"]

    found = maintain.run({}, arguments)

    assert found["exit_code"] == 0
    kinds = {item["table"]: [action["kind"] for action in item["actions"]] for item in found["tables"]}
    assert kinds == {crowded: ["compact", "vacuum lite"], ordered: ["zorder"], quiet: []}
    assert DeltaLog.for_table(crowded).update().num_files == 1
    assert DeltaLog.for_table(quiet).update().num_files == 8
    assert {path: spark.read.format("delta").load(path).count() for path in tables} == before
    last = DeltaLog.for_table(ordered).history(1)[0].commit_info
    ordered_by = json.loads(last.get("operationParameters")["zOrderBy"])
    assert (last.operation, ordered_by) == ("OPTIMIZE", ["id", "v"])
    book = {row.action: row for row in spark.read.format("delta").load(str(tmp_path / "ops" / "maintenance")).collect()}
    assert {name: row.outcome for name, row in book.items()} == dict.fromkeys(
        ["compact", "vacuum lite", "zorder"], "done"
    )
    compact = book["compact"]
    assert (compact.files_read, compact.files_written, compact.saved_files) == (8, 1, 7)
    assert compact.version_after > compact.version_before
    assert compact.bytes_read > compact.bytes_written > 0
    assert (compact.attempt, compact.error) == (1, None)
    assert compact.seconds > 0
    assert book["vacuum lite"].files_removed >= 8
    assert parquet_files(tmp_path, "crowded") <= 9

    versions = {path: DeltaLog.for_table(path).update().version for path in tables}
    again = maintain.run({}, arguments)
    assert (again["exit_code"], [item["actions"] for item in again["tables"]]) == (0, [[], [], [], []])  # and the book
    assert {path: DeltaLog.for_table(path).update().version for path in tables} == versions
    assert spark.read.format("delta").load(str(tmp_path / "ops" / "maintenance")).count() == 3


def test_the_book_itself_can_be_compacted_and_read_on(spark, tmp_path):
    place = str(tmp_path / "book")
    book = Journal(DeltaLog.for_table(place))
    now_ms = spark.sql("SELECT unix_millis(now())").head()[0]
    rows = [
        Row(at_ms=now_ms + number, table="t", location="l", action="compact", reason="r", outcome="done", seconds=0.5)
        for number in range(4)
    ]
    for row in rows:
        book.note(row)
        book.write()
    DeltaTable.forPath(spark, place).optimize().executeCompaction()
    again = Journal(DeltaLog.for_table(place))
    assert again.log.update().num_files == 1
    assert again.known("l").last == {"compact": now_ms + 3}
    found = sorted(spark.read.format("delta").load(place).collect(), key=lambda row: row.at)
    assert [(row.at.timestamp() * 1000, row.table) for row in found] == [
        (pytest.approx(row.at_ms, abs=1), "t") for row in rows
    ]
