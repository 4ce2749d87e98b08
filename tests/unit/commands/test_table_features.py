"""Features added and dropped: what is refused and why, what a drop leaves in the log."""

from __future__ import annotations

import itertools

import pytest

from pydelta.errors import InvalidArgumentError, TableNotFoundError, UnsafeOperationError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.log.row_ids import BASE_ROW_ID, with_row_ids
from pydelta.protocol.actions import DeletionVectorDescriptor
from pydelta.protocol.features import implied_features
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import add_feature, drop_feature, upgrade_protocol
from pydelta.testing.operations import add_file, append, create_table, rows_of
from pydelta.txn import Operation, start_transaction

_NAMES = itertools.count()
_DAY = 86_400_000
_VECTOR = DeletionVectorDescriptor(storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=1)


def table(*, vector=False, **properties):
    log = DeltaLog(MemoryStore(f"memory://features{next(_NAMES)}/t"))
    create_table(log, [add_file("1", [1, 2])], **properties)
    if vector:
        txn = start_transaction(log)
        [add] = txn.snapshot.files.adds(txn.read_files())
        txn.commit([add.remove(deletion_timestamp=1), add.replace(deletion_vector=_VECTOR)], Operation(name="DELETE"))
    return log


def purge(log):
    """What a rewrite does: the file with a vector goes, another comes."""
    txn = start_transaction(log)
    [add] = txn.snapshot.files.adds(txn.read_files())
    txn.commit([add.remove(deletion_timestamp=2), add_file("1", [2])], Operation(name="REORG"))


def features(log):
    return implied_features(log.update().protocol)


def versions(log):
    protocol = log.update().protocol
    return protocol.min_reader_version, protocol.min_writer_version


def test_a_protocol_is_raised_once():
    log = table()
    assert upgrade_protocol(log, reader_version=1, writer_version=4).version == 1
    assert versions(log) == (1, 4)
    info = log.history(1)[0].commit_info.fields
    assert info["operation"] == "UPGRADE PROTOCOL"
    assert info["operationParameters"] == {"newProtocol": '{"minReaderVersion":1,"minWriterVersion":4}'}
    assert upgrade_protocol(log, reader_version=1, writer_version=3).version is None
    with pytest.raises(InvalidArgumentError, match="writer version 7"):
        upgrade_protocol(log, reader_version=3, writer_version=4)


def test_a_feature_is_added_once_and_turns_nothing_on():
    log = table()
    assert add_feature(log, "deletionVectors").version == 1
    assert versions(log) == (3, 7)
    info = log.history(1)[0].commit_info.fields
    assert info["operation"] == "SET TBLPROPERTIES"
    assert info["operationParameters"]["properties"] == '{"delta.feature.deletionVectors":"supported"}'
    assert log.update().metadata.configuration == {}
    assert add_feature(log, "deletionVectors").version is None
    with pytest.raises(UnsupportedFeatureError, match="flyingCarpets"):
        add_feature(log, "flyingCarpets")
    with pytest.raises(UnsupportedFeatureError, match="collations"):
        add_feature(log, "collations")


def test_a_dropped_feature_does_not_come_back_with_the_metadata():
    log = table(delta_feature_vacuumProtocolCheck="supported")
    assert "vacuumProtocolCheck" in features(log)
    assert log.update().metadata.configuration == {}
    drop_feature(log, "vacuumProtocolCheck")
    txn = start_transaction(log)
    txn.update_metadata(txn.snapshot.metadata.replace(description="changed"))
    txn.commit([], Operation(name="COMMENT"))
    assert "vacuumProtocolCheck" not in features(log)


def test_a_writer_feature_goes_in_one_commit():
    log = table(delta_enableInCommitTimestamps="true", delta_appendOnly="true")
    assert drop_feature(log, "inCommitTimestamp").version == 1
    assert versions(log) == (1, 2)
    assert log.update().metadata.configuration == {"delta.appendOnly": "true"}
    info = log.history(1)[0].commit_info.fields
    assert info["operation"] == "DROP FEATURE"
    assert info["operationParameters"] == {"featureName": "inCommitTimestamp", "truncateHistory": "false"}
    append("1", [5]).run(log)
    assert "inCommitTimestamp" not in log.history(1)[0].commit_info.fields


def test_vectors_have_to_be_purged_first():
    log = table(vector=True, delta_enableDeletionVectors="true")
    with pytest.raises(UnsafeOperationError, match="1 files have a deletion vector") as caught:
        drop_feature(log, "deletionVectors")
    assert "PURGE" in caught.value.hint
    assert log.update().version == 1
    purge(log)
    dropped = drop_feature(log, "deletionVectors")
    assert dropped.version == 3
    assert features(log) == {"appendOnly", "invariants", "checkpointProtection"}
    assert versions(log) == (1, 7)
    assert log.update().metadata.configuration == {"delta.requireCheckpointProtectionBeforeVersion": "3"}
    held = log.held()
    assert {item.version for item in held.checkpoints} == {2, 3}
    assert rows_of(DeltaLog(log.store).update()) == rows_of(log.update())
    append("1", [9]).run(DeltaLog(log.store))


def test_history_is_truncated_before_a_feature_goes_without_protection():
    log = table(vector=True, delta_enableDeletionVectors="true")
    purge(log)
    with pytest.raises(UnsafeOperationError, match="Version 2 is still in the log") as first:
        drop_feature(log, "deletionVectors", truncate_history=True)
    with pytest.raises(UnsafeOperationError, match="is still in the log") as again:
        drop_feature(log, "deletionVectors", truncate_history=True)
    assert [error.value.code for error in (first, again)] == [
        "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD",
        "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST",
    ], "the wait begins with the call that turns the feature off"
    assert log.history(1)[0].commit_info.operation == "UNSET TBLPROPERTIES"
    assert log.update().metadata.configuration == {}
    assert "deletionVectors" in features(log)
    later = log.update().timestamp_ms + 3 * _DAY
    dropped = drop_feature(log, "deletionVectors", truncate_history=True, now_ms=later)
    assert features(log) == {"appendOnly", "invariants"}
    assert versions(log) == (1, 2)
    assert min(log.held().commits) == dropped.version - 1
    assert rows_of(DeltaLog(log.store).update()) == {("1", 2): 1}


def test_protection_goes_when_nothing_protected_is_left():
    log = table(delta_checkpointPolicy="v2")
    drop_feature(log, "v2Checkpoint")
    assert "checkpointProtection" in features(log)
    with pytest.raises(UnsafeOperationError, match="protected"):
        drop_feature(log, "checkpointProtection", truncate_history=True)
    later = log.update().timestamp_ms + 3 * _DAY
    append("1", [5]).run(log)
    drop_feature(log, "checkpointProtection", truncate_history=True, now_ms=later)
    assert features(log) == {"appendOnly", "invariants"}
    assert log.update().metadata.configuration == {}


def test_row_tracking_goes_with_its_ids():
    log = table(delta_enableRowTracking="true")
    append("2", [7]).run(log)
    with pytest.raises(UnsafeOperationError, match="needed by rowTracking"):
        drop_feature(log, "domainMetadata")
    before = rows_of(log.update())
    drop_feature(log, "rowTracking")
    snapshot = DeltaLog(log.store).update()
    assert features(log) == {"appendOnly", "invariants", "domainMetadata"}
    assert snapshot.metadata.configuration == {}
    assert dict(snapshot.domain_metadata) == {}
    assert with_row_ids(snapshot.files, snapshot.files.core)[BASE_ROW_ID].null_count() == 2
    assert rows_of(snapshot) == before
    assert {action.data_change for action in log.actions(2) if action.kind == "add"} == {False}
    drop_feature(log, "domainMetadata")
    assert versions(log) == (1, 2)


@pytest.mark.parametrize(
    ("properties", "name", "truncate", "error", "said"),
    [
        ({}, "deletionVectors", False, UnsupportedFeatureError, "not in the table's protocol"),
        ({}, "flyingCarpets", False, UnsupportedFeatureError, "flyingCarpets"),
        ({}, "appendOnly", False, UnsupportedFeatureError, "cannot be dropped"),
        ({"delta_constraints_c": "x > 0"}, "checkConstraints", False, UnsafeOperationError, "constraints c"),
        ({"delta_columnMapping_mode": "name"}, "columnMapping", False, UnsafeOperationError, "mode is name"),
        ({"delta_enableRowTracking": "true"}, "rowTracking", True, UnsupportedFeatureError, "does not truncate"),
    ],
)
def test_what_cannot_be_dropped(properties, name, truncate, error, said):
    log = table(**properties)
    with pytest.raises(error, match=said) as caught:
        drop_feature(log, name, truncate_history=truncate)
    assert caught.value.hint
    assert log.update().version == 0


def test_there_has_to_be_a_table():
    log = DeltaLog(MemoryStore(f"memory://features{next(_NAMES)}/t"))
    for change in (
        lambda: add_feature(log, "rowTracking"),
        lambda: drop_feature(log, "rowTracking"),
        lambda: upgrade_protocol(log, reader_version=1, writer_version=2),
    ):
        with pytest.raises(TableNotFoundError):
            change()
