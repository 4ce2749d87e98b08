"""delta-rs wins or loses a race for a version against this engine; both then read the same log."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pytest

from pydelta.errors import DeltaConcurrentModificationException
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile
from pydelta.storage import open_store
from pydelta.storage.backoff import Backoff
from pydelta.txn import Operation, start_transaction

NO_PAUSE = Backoff(first_ms=0, sleep=lambda seconds: None)


def rows(*values: int) -> pa.Table:
    return pa.table({"p": [str(value % 2) for value in values], "x": pa.array(values, pa.int64())})


def begin(path):
    return start_transaction(DeltaLog(open_store(str(path))), backoff=NO_PAUSE)


def add(number: int) -> AddFile:
    return AddFile(
        path=f"p=1/part-{number}.parquet",
        partition_values={"p": "1"},
        size=10,
        modification_time=0,
        data_change=True,
        stats='{"numRecords":1,"minValues":{"x":1},"maxValues":{"x":1},"nullCount":{"x":0}}',
    )


@pytest.fixture
def table(tmp_path):
    deltalake.write_deltalake(str(tmp_path), rows(1, 2, 3), partition_by=["p"])
    return tmp_path


def test_an_append_is_moved_behind_an_append_of_the_other_engine(table):
    txn = begin(table)
    deltalake.write_deltalake(str(table), rows(5), mode="append")
    done = txn.commit([add(1)], Operation(name="WRITE"))
    assert (done.version, done.attempts) == (2, 2)
    other = deltalake.DeltaTable(str(table))
    assert other.version() == 2
    paths = {path.removeprefix(f"{table}/") for path in other.file_uris()}
    assert paths == set(done.snapshot.files.core["path"])
    assert other.history(1)[0]["operation"] == "WRITE"


def test_a_delete_by_the_other_engine_of_a_file_that_was_read_is_a_conflict(table):
    txn = begin(table)
    txn.read_files()
    deltalake.DeltaTable(str(table)).delete("x = 1")
    with pytest.raises(DeltaConcurrentModificationException) as caught:
        txn.commit([add(1)], Operation(name="WRITE"))
    assert caught.value.winning_version == 1
    assert caught.value.winning_operation == "DELETE"
    assert deltalake.DeltaTable(str(table)).version() == 1


def test_the_other_engine_goes_on_after_a_commit_and_a_checkpoint_of_ours(table):
    for number in range(1, 11):
        assert begin(table).commit([add(number)], Operation(name="WRITE")).hook_failures == ()
    deltalake.write_deltalake(str(table), rows(7), mode="append")
    other = deltalake.DeltaTable(str(table))
    assert other.version() == 11
    assert len(other.file_uris()) == 2 + 10 + 1
    snapshot = DeltaLog(open_store(str(table))).update()
    assert (snapshot.version, snapshot.num_files) == (11, 13)
