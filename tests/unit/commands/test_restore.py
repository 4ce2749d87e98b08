"""RESTORE over tables of a few files: what comes back, what stands in its way, and what of the log only moves on."""

from __future__ import annotations

import itertools
import time

import pyarrow as pa
import pytest

from pydelta.commands import restore as module
from pydelta.commands.restore import restored_metadata
from pydelta.commands.vacuum.notes import running_vacuum
from pydelta.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    LogCorruptedError,
    UnsafeOperationError,
)
from pydelta.log import CommitRecord, DeltaLog
from pydelta.protocol.actions import CommitInfo, DeletionVectorDescriptor, Metadata, Protocol
from pydelta.protocol.vectors import vector_path
from pydelta.settings import Settings
from pydelta.storage import LocalStore
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import restore
from pydelta.testing.tables import TableBuilder
from pydelta.txn import Operation, start_transaction
from pydelta.txn.prepare import with_kept_enablement

_NAMES = itertools.count()
WITH_VECTORS = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors",),
)
PLAIN = Protocol(min_reader_version=1, min_writer_version=2)
# The example of the protocol's text.
VECTOR = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=4, size_in_bytes=40, cardinality=1
)
VECTOR_FILE = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


@pytest.fixture
def store():
    return MemoryStore(f"memory://restored{next(_NAMES)}/t")


def rows(*values: int) -> pa.Table:
    return pa.table({"x": list(values)})


def builder(store, **options) -> TableBuilder:
    return TableBuilder(store, columns={"x": "long"}, **options)


def two_versions(store):
    """A file at version 0; another one instead of it at version 1."""
    table = builder(store)
    first, second = table.file(rows(1)), table.file(rows(2))
    table.commit(first)
    table.commit(first.remove(deletion_timestamp=1), second)
    return table, first, second


def test_a_table_that_is_at_the_version_gets_no_other_one(store):
    _, _, second = two_versions(store)
    result = restore(DeltaLog(store), version=1)
    assert (result.version, result.num_removed_files, result.num_restored_files) == (None, 0, 0)
    assert (result.num_of_files_after_restore, result.table_size_after_restore) == (1, second.size)
    assert DeltaLog(store).update().version == 1


@pytest.mark.parametrize("level", ["WriteSerializable", "Serializable"])
def test_rows_appended_meanwhile_are_a_conflict_at_both_levels(store, monkeypatch, level):
    table = builder(store, properties={"delta.isolationLevel": level})
    first, second = table.file(rows(1)), table.file(rows(2))
    table.commit(first).commit(first.remove(deletion_timestamp=1), second)
    check = module._refuse_missing

    def meanwhile(*args, **kwargs):
        start_transaction(DeltaLog(store)).commit([table.file(rows(3))], Operation(name="WRITE"))
        return check(*args, **kwargs)

    monkeypatch.setattr(module, "_refuse_missing", meanwhile)
    with pytest.raises(ConcurrentAppendException, match="Version 2"):
        restore(DeltaLog(store), version=0)
    assert DeltaLog(store).update().version == 2


def test_the_protocol_grows_by_what_the_old_version_needs_and_never_shrinks(store):
    table = builder(store, protocol=WITH_VECTORS)
    first, second = table.file(rows(1)), table.file(rows(2))
    store.put(VECTOR_FILE, b"vector")
    marked = first.replace(deletion_vector=VECTOR, stats='{"numRecords":1}')
    table.commit(marked).commit(marked.remove(deletion_timestamp=1), second).commit(PLAIN)
    restore(DeltaLog(store), version=0)
    after = DeltaLog(store).update()
    assert "deletionVectors" in (after.protocol.reader_features or ())
    assert after.files.core["dv_id"].to_list() == [VECTOR.unique_id]
    restore(DeltaLog(store), version=2)
    assert DeltaLog(store).update().protocol == after.protocol


def test_a_vector_that_is_gone_is_named_and_nothing_is_changed(store):
    table = builder(store, protocol=WITH_VECTORS)
    first, second = table.file(rows(1)), table.file(rows(2))
    marked = first.replace(deletion_vector=VECTOR, stats='{"numRecords":1}')
    table.commit(marked).commit(marked.remove(deletion_timestamp=1), second)
    with pytest.raises(UnsafeOperationError, match="deletion_vector_d2c639aa"):
        restore(DeltaLog(store), version=0)
    assert DeltaLog(store).update().version == 1


@pytest.mark.parametrize("spelling", ["{uri}", "file:{path}", "{path}"])
@pytest.mark.parametrize("inside", [True, False])
def test_absolute_paths_are_looked_up_where_they_are(tmp_path, spelling, inside):
    store = LocalStore(str(tmp_path / "a table"))
    other = store if inside else LocalStore(str(tmp_path / "else where"))
    table = builder(store)
    file, second = builder(other).file(rows(1)), table.file(rows(2))
    escaped = f"{other.root.removeprefix('file://')}/{file.path}"
    file = file.replace(path=spelling.format(uri=f"{other.root}/{file.path}", path=escaped))
    table.commit(file).commit(file.remove(deletion_timestamp=1), second)
    assert restore(DeltaLog(store), version=0).num_restored_files == 1
    other.delete_many([item.path for item in other.list_all() if item.path.endswith(".parquet")])
    table.version += 1
    table.commit(file.remove(deletion_timestamp=1))
    with pytest.raises(UnsafeOperationError, match="no longer exist"):
        restore(DeltaLog(store), version=0)


def test_what_belongs_to_the_log_only_moves_forward():
    def metadata(**properties: str) -> Metadata:
        return Metadata(
            id="t", schema_string="{}", configuration={k.replace("_", "."): v for k, v in properties.items()}
        )

    old = metadata(delta_columnMapping_maxColumnId="9", delta_appendOnly="true")
    new = metadata(
        delta_columnMapping_maxColumnId="10",
        delta_enableInCommitTimestamps="true",
        delta_inCommitTimestampEnablementVersion="4",
        delta_inCommitTimestampEnablementTimestamp="1700000000000",
    )
    restored = restored_metadata(old, new, stamped=True)
    kept = with_kept_enablement(restored, new, was_on=True, is_on=True).configuration  # as every commit does
    assert kept == {"delta.appendOnly": "true", **new.configuration}
    assert restored_metadata(old, old, stamped=False) == old


def test_where_a_vector_lies():
    assert vector_path(VECTOR) == VECTOR_FILE
    assert vector_path(VECTOR.replace(storage_type="i")) is None
    assert vector_path(VECTOR.replace(storage_type="p", path_or_inline_dv="s3://b/v.bin")) == "s3://b/v.bin"
    for broken in ("short", "~" * 20, "#" * 20):
        with pytest.raises(LogCorruptedError, match="does not name a file"):
            vector_path(VECTOR.replace(path_or_inline_dv=broken))


# -- beside a VACUUM --------------------------------------------------------------------------------------------------

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000


def record(version, operation, *, hours_ago, engine="Apache-Spark/4.1.0 Delta-Lake/4.4.0", **parameters):
    info = CommitInfo({"operation": operation, "operationParameters": parameters, "engineInfo": engine})
    return CommitRecord(version=version, timestamp_ms=NOW_MS - hours_ago * HOUR_MS, commit_info=info)


def start(version, *, hours_ago, retention_hours=None, default_hours=168):
    parameters = {"retentionCheckEnabled": "true", "defaultRetentionMillis": str(default_hours * HOUR_MS)}
    if retention_hours is not None:
        parameters["specifiedRetentionMillis"] = str(retention_hours * HOUR_MS)
    return record(version, "VACUUM START", hours_ago=hours_ago, **parameters)


def end(version, *, hours_ago):
    return record(version, "VACUUM END", hours_ago=hours_ago, status="COMPLETED")


def our_start(version, *, hours_ago):
    retention = str(HOUR_MS)
    return record(version, "VACUUM START", hours_ago=hours_ago, engine="pydelta/1", specifiedRetentionMillis=retention)


def our_end(version, *, of, hours_ago):
    return record(version, "VACUUM END", hours_ago=hours_ago, engine="pydelta/1", startVersion=str(of))


RUNS = [
    # commits, oldest first; the version that is under way and how many hours ago its cut-off lies
    ([], None),
    ([record(0, "WRITE", hours_ago=1)], None),
    ([start(1, hours_ago=2), end(2, hours_ago=1)], None),
    ([start(1, hours_ago=2), record(2, "WRITE", hours_ago=1)], (1, 170)),
    ([start(1, hours_ago=2, retention_hours=1)], (1, 3)),
    ([record(1, "VACUUM START", hours_ago=2)], (1, 2)),  # says nothing: may delete everything
    ([start(1, hours_ago=25)], None),  # taken for dead
    ([start(1, hours_ago=2), end(2, hours_ago=2), start(3, hours_ago=1)], (3, 169)),
    # Whose end it is is not known: the first goes on, and may delete as much as the second.
    ([start(1, hours_ago=3), start(2, hours_ago=2, retention_hours=0), end(3, hours_ago=1)], (1, 2)),
    ([start(1, hours_ago=3), start(2, hours_ago=2), end(3, hours_ago=1), end(4, hours_ago=1)], None),
    ([end(1, hours_ago=2), start(2, hours_ago=1)], (2, 169)),
    ([CommitRecord(version=1, timestamp_ms=NOW_MS, commit_info=None), start(2, hours_ago=1)], (2, 169)),
    # An end of ours says whose it is.
    ([our_start(1, hours_ago=3), our_start(2, hours_ago=2), our_end(3, of=1, hours_ago=1)], (2, 3)),
    ([our_start(1, hours_ago=3), our_start(2, hours_ago=2), our_end(3, of=2, hours_ago=1)], (1, 4)),
    ([our_start(5, hours_ago=2), our_end(6, of=1, hours_ago=1)], (5, 3)),
    ([our_start(1, hours_ago=3), start(2, hours_ago=2), end(3, hours_ago=1)], (1, 4)),
    ([start(1, hours_ago=3), our_start(2, hours_ago=2), our_end(3, of=2, hours_ago=1)], (1, 171)),
    ([start(1, hours_ago=30), start(2, hours_ago=3), end(3, hours_ago=2)], None),
]


@pytest.mark.parametrize(("commits", "expected"), RUNS)
def test_a_vacuum_runs_from_its_start_to_its_end_or_for_a_day(commits, expected):
    found = running_vacuum(commits[::-1], now_ms=NOW_MS)
    seen = None if found is None else (found.version, (NOW_MS - found.cutoff_ms) // HOUR_MS)
    assert seen == expected


def begun_vacuum(store, *, retention_ms):
    parameters = {"specifiedRetentionMillis": retention_ms, "defaultRetentionMillis": 168 * HOUR_MS}
    start_transaction(DeltaLog(store)).commit([], Operation(name="VACUUM START", parameters=parameters))


def test_what_a_running_vacuum_may_delete_does_not_come_back(store):
    _, first, _ = two_versions(store)
    begun_vacuum(store, retention_ms=HOUR_MS)
    with pytest.raises(UnsafeOperationError, match="has not ended, and it may delete 1 of") as caught:
        restore(DeltaLog(store), version=0)
    assert first.path in str(caught.value)
    assert "spark.pydelta.restore.vacuumCheck=false" in str(caught.value)
    assert DeltaLog(store).update().version == 2
    restore(DeltaLog(store), version=1)  # nothing comes back
    unchecked = DeltaLog(store, settings=Settings(vacuum_check=False))
    assert restore(unchecked, version=0).num_restored_files == 1


def test_what_it_must_keep_comes_back_beside_it(store):
    table = builder(store)
    first, second = table.file(rows(1)), table.file(rows(2))
    table.commit(first)
    now = time.time_ns() // 1_000_000
    table.commit(first.remove(deletion_timestamp=now), second)
    begun_vacuum(store, retention_ms=HOUR_MS)
    assert restore(DeltaLog(store), version=0).num_restored_files == 1


def test_a_vacuum_that_begins_meanwhile_is_a_conflict(store, monkeypatch):
    two_versions(store)
    refuse = module._refuse_missing

    def slow(*args, **named):
        refuse(*args, **named)
        begun_vacuum(store, retention_ms=HOUR_MS)

    monkeypatch.setattr(module, "_refuse_missing", slow)
    with pytest.raises(ConcurrentDeleteReadException, match="VACUUM"):
        restore(DeltaLog(store), version=0)
    assert DeltaLog(store).update().version == 2


def test_only_commits_since_the_files_were_removed_are_looked_at(store, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "find_running", lambda log, version, *, since_ms: asked.append((version, since_ms)))
    table = builder(store)
    first, second, third = (table.file(rows(number)) for number in (1, 2, 3))
    table.commit(first, second, third)
    now = time.time_ns() // 1_000_000
    table.commit(first.remove(deletion_timestamp=now), second.remove(deletion_timestamp=now - 5 * HOUR_MS))
    restore(DeltaLog(store), version=0)
    assert asked == [(1, now - 5 * HOUR_MS - 600_000)]
