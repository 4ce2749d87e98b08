"""Log compaction files: which runs are due, what they say, and that a log with them reads as one without."""

from __future__ import annotations

import deltalake
import pytest
from log_tables import add, info, log_of, metadata, new_store, remove

from pydelta.errors import InvalidArgumentError, UnknownSettingError
from pydelta.log import DeltaLog
from pydelta.log.compaction import compact_run, plan_run
from pydelta.log.segment import read_listing
from pydelta.protocol.actions import (
    AddCDCFile,
    AddFile,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    decode_commit,
)
from pydelta.protocol.paths import LOG_DIR, compacted_file
from pydelta.settings import check_property_names
from pydelta.txn import Operation, start_transaction

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
VECTOR = DeletionVectorDescriptor(storage_type="u", path_or_inline_dv="ab", offset=1, size_in_bytes=3, cardinality=2)


@pytest.mark.parametrize(
    ("version", "interval", "checkpoints", "expected"),
    [
        (10, 10, 100, (1, 10)),
        (20, 10, 100, (11, 20)),
        (100, 10, 100, None),  # a checkpoint is written
        (110, 10, 100, (101, 110)),
        (10, 5, 7, (8, 10)),  # behind the checkpoint of version 7
        (8, 4, 7, None),  # one commit behind it
        (9, 3, 7, (8, 9)),
        (4, 2, 3, None),
        (11, 10, 100, None),
        (0, 10, 100, None),
        (10, None, 100, None),
        (10, 1, 100, None),
        (10, 10, 10, None),
    ],
)
def test_runs_that_are_due(version, interval, checkpoints, expected):
    assert plan_run(version, interval=interval, checkpoint_interval=checkpoints) == expected


def test_the_last_word_stands_and_what_only_commits_hold_is_left_out():
    hidden = add(1).replace(deletion_vector=VECTOR)
    txn, domain = SetTransaction(app_id="a", version=1), DomainMetadata(domain="d", configuration="1", removed=False)
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    change = AddCDCFile(path="c", partition_values={}, size=1)
    spelt_otherwise = remove(add(2)).replace(path=add(2).path.replace("=", "%3D"))
    said = compact_run(
        [
            [info(), protocol, metadata("t1"), add(1), add(2), txn, domain],
            [info(), remove(add(1)), hidden, change, metadata("t2")],
            [info(), spelt_otherwise, txn.replace(version=2), domain.replace(removed=True)],
        ],
        root="memory://x",
    )
    assert said == [
        protocol, metadata("t2"), remove(add(1)), hidden, spelt_otherwise, txn.replace(version=2),
        domain.replace(removed=True),
    ]  # fmt: skip


def _table(log: DeltaLog, last: int, **properties: str) -> None:
    definition = Metadata(id="t", schema_string=SCHEMA, configuration=properties)
    for number in range(last + 1):
        txn = start_transaction(log)
        file = AddFile(path=f"{number}", partition_values={}, size=number, modification_time=0, data_change=True)
        actions = [Protocol(min_reader_version=1, min_writer_version=2), definition] if number == 0 else []
        if number % 4 == 3:
            txn.read_whole_table()
            core = txn.snapshot.files.core
            actions = [core_add.remove(deletion_timestamp=number) for core_add in txn.snapshot.files.adds(core[:2])]
        assert txn.commit([*actions, file], Operation(name="WRITE")).hook_failures == ()


def _state(snapshot) -> tuple[object, ...]:
    files = sorted(map(repr, snapshot.files.adds(snapshot.files.core)))
    return snapshot.version, snapshot.state, files, sorted(snapshot.tombstones()["path"])


def test_a_log_with_compactions_reads_as_one_without_and_from_fewer_files():
    plain, compacted = new_store(), new_store()
    every = {"delta.checkpointInterval": "100"}
    _table(log_of(plain), 23, **every)
    _table(log_of(compacted), 23, **every, **{"pydelta.log.compactionInterval": "5"})
    listing = read_listing(compacted.list_from("", prefix=LOG_DIR))
    assert {start: [run.end for run in runs] for start, runs in listing.compacted.items()} == {
        1: [5], 6: [10], 11: [15], 16: [20],
    }  # fmt: skip
    assert len(log_of(compacted).snapshot().segment.commits) == 8
    for version in range(24):
        expected, found = log_of(plain).snapshot(version=version), log_of(compacted).snapshot(version=version)
        assert _state(found)[2:] == _state(expected)[2:]
    data = compacted.read(f"{LOG_DIR}/{compacted_file(1, 5)}")
    assert {action.kind for action in decode_commit(data, source="x")} == {"add", "remove"}


def test_a_compaction_that_is_there_is_left_alone():
    store = new_store()
    log = log_of(store)
    _table(log, 5, **{"pydelta.log.compactionInterval": "5"})
    assert log.compact(log.snapshot()) is False


def test_another_engine_reads_a_log_with_compactions(tmp_path):
    path = str(tmp_path)
    _table(DeltaLog.for_table(path), 12, **{"pydelta.log.compactionInterval": "5", "delta.checkpointInterval": "100"})
    ours = DeltaLog.for_table(path).snapshot()
    DeltaLog.clear_cache()
    names = {uri.rpartition("/")[2] for uri in deltalake.DeltaTable(path).file_uris()}
    assert names == set(ours.files.core["path"])


def test_the_property_is_checked():
    check_property_names({"pydelta.log.compactionInterval": "10"})
    with pytest.raises(UnknownSettingError, match="compactionIntervall"):
        check_property_names({"pydelta.log.compactionIntervall": "10"})
    with pytest.raises(InvalidArgumentError):
        check_property_names({"pydelta.log.compactionInterval": "none"})
