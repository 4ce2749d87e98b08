"""A table on S3 whose service loses replies: every row once, and only the files that are needed are read."""

from __future__ import annotations

import uuid

import pytest
from s3_server import Misbehaviour

from pydelta.log import DeltaLog
from pydelta.testing.operations import append, create_table, rows_of
from pydelta.txn.commit import SILENT


@pytest.fixture
def location(s3_server):
    return f"contract/{uuid.uuid4()}/a table"


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_without_a_reply_lands_once(s3_server, s3_settings, location, applied):
    log = DeltaLog.for_table(f"s3a://{location}", options=s3_settings)
    create_table(log)
    append("a", [1]).run(log, SILENT)
    s3_server.faults.append(Misbehaviour(f"{2:020}.json", status=500, applied=applied))
    committed = append("a", [2]).run(log, SILENT)
    append("a", [3]).run(log, SILENT)
    assert s3_server.faults == []
    assert committed.version == 2
    fresh = DeltaLog.for_table(f"s3://{location}", options=s3_settings).snapshot()
    assert fresh.version == 3
    assert rows_of(fresh) == {("a", 1): 1, ("a", 2): 1, ("a", 3): 1}


def test_a_table_opens_with_one_hint_one_listing_one_checkpoint_and_the_commits_after_it(
    s3_server, s3_settings, location
):
    log = DeltaLog.for_table(f"s3a://{location}", options=s3_settings)
    create_table(log)
    for value in range(12):
        append("a", [value]).run(log, SILENT)
    s3_server.requests.clear()
    snapshot = DeltaLog.for_table(f"s3n://{location}", options=s3_settings).snapshot()
    assert snapshot.version == 12
    names = [path.rpartition("/")[2] for _, path in s3_server.requests]
    assert names == ["_last_checkpoint", "contract", f"{10:020}.checkpoint.parquet", f"{11:020}.json", f"{12:020}.json"]
