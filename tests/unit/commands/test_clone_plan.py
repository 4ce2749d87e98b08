"""CLONE on the log alone: what the clone's log says, what is copied, what is left behind when it fails."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from refusals import RefusingStore

from pydelta.commands.clone import CloneResult, ThreadCopier, absolute_add
from pydelta.errors import (
    InvalidArgumentError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsafeOperationError,
    VersionNotFoundError,
)
from pydelta.log import DeltaLog
from pydelta.log.vector_files import read_deleted_rows, write_vectors
from pydelta.protocol.actions import AddFile
from pydelta.protocol.features import implied_features
from pydelta.storage import open_store
from pydelta.testing.commands import clone_table
from pydelta.testing.operations import add_file, append, create_table, rows_of
from pydelta.txn import Operation, start_transaction

_NAMES = itertools.count()


def new_log():
    return DeltaLog(open_store(f"memory://clones{next(_NAMES)}/t"))


def put(log, add):
    log.store.put(add.path, b"x" * add.size)
    return add


def table(*, vector=False, **properties):
    """Versions 0 and 1 of a file each; their bytes are there."""
    log = new_log()
    create_table(log, [put(log, add_file("1", [1, 2]))], **properties)
    txn = start_transaction(log)
    txn.commit([put(log, add_file("2", [3]))], Operation(name="WRITE"))
    if vector:
        described, _ = write_vectors([np.array([0], dtype=np.uint64)], store=log.store)
        txn = start_transaction(log)
        [add] = [a for a in txn.snapshot.files.adds(txn.read_files()) if a.partition_values["p"] == "1"]
        marked = add.replace(deletion_vector=described[0])
        txn.commit([add.remove(deletion_timestamp=1), marked], Operation(name="DELETE"))
    return log


def adds(log):
    snapshot = DeltaLog(log.store).update()
    return snapshot.files.adds(snapshot.files.core)


def data_files(log):
    return {item.path for item in log.store.list_all() if not item.path.startswith("_delta_log")}


def test_a_shallow_clone_names_the_sources_files():
    source, target = table(delta_appendOnly="false"), new_log()
    result = clone_table(source, target, shallow=True, properties={"team": "x"})
    assert result == CloneResult(
        source_table_size=source.update().size_bytes,
        source_num_of_files=2,
        num_removed_files=0,
        num_copied_files=0,
        removed_files_size=0,
        copied_files_size=0,
        version=0,
    )
    assert {add.path for add in adds(target)} == {f"{source.uri}/{add.path}" for add in adds(source)}
    assert data_files(target) == set()
    ours, theirs = target.update().metadata, source.update().metadata
    assert ours.id != theirs.id
    assert ours.schema_string == theirs.schema_string
    assert ours.configuration == {"delta.appendOnly": "false", "team": "x"}
    assert rows_of(target.update()) == rows_of(source.update())
    info = target.history(1)[0].commit_info.fields
    assert info["operation"] == "CLONE"
    assert info["operationParameters"] == {"source": f"delta.`{source.uri}`", "sourceVersion": "1"}
    assert set(info["operationMetrics"]) == {
        "sourceTableSize", "sourceNumOfFiles", "numRemovedFiles", "numCopiedFiles", "removedFilesSize",
        "copiedFilesSize",
    }  # fmt: skip


def test_a_deep_clone_has_files_of_its_own():
    source, target = table(), new_log()
    result = clone_table(source, target, shallow=False)
    assert (result.num_copied_files, result.copied_files_size) == (2, source.update().size_bytes)
    assert {add.path for add in adds(target)} == data_files(target)
    assert not data_files(target) & data_files(source)
    for add in adds(target):
        assert add.path.startswith(f"p={add.partition_values['p']}/part-")
        assert target.store.read(add.path) == b"x" * add.size
    assert rows_of(target.update()) == rows_of(source.update())


@pytest.mark.parametrize("shallow", [True, False])
def test_a_version_of_the_past(shallow):
    source, target = table(), new_log()
    clone_table(source, target, shallow=shallow, version=0)
    assert rows_of(target.update()) == {("1", 1): 1, ("1", 2): 1}
    other = new_log()
    time = source.history()[-1].timestamp_ms
    clone_table(source, other, shallow=shallow, timestamp_ms=time)
    assert other.update().num_files in (1, 2)  # both versions may be of one millisecond
    with pytest.raises(VersionNotFoundError):
        clone_table(source, new_log(), shallow=shallow, version=7)


@pytest.mark.parametrize("shallow", [True, False])
def test_vectors_come_along(shallow):
    source, target = table(vector=True, delta_enableDeletionVectors="true"), new_log()
    clone_table(source, target, shallow=shallow)
    assert "deletionVectors" in implied_features(target.update().protocol)
    [marked] = [add for add in adds(target) if add.deletion_vector is not None]
    rows = read_deleted_rows([marked.deletion_vector], store=target.store, root=target.uri, options=None)
    assert [row.tolist() for row in rows] == [[0]]
    assert marked.deletion_vector.storage_type == ("p" if shallow else "u")


def test_a_repeated_clone_brings_what_is_new():
    for shallow in (True, False):
        source, target = table(), new_log()
        clone_table(source, target, shallow=shallow)
        before = {add.path for add in adds(target)}
        txn = start_transaction(source)
        [gone] = [add for add in adds(source) if add.partition_values["p"] == "1"]
        new = put(source, add_file("3", [9]))
        txn.commit([gone.remove(deletion_timestamp=1), new], Operation(name="WRITE"))
        result = clone_table(source, target, shallow=shallow, replace=True)
        assert result.num_removed_files == 1
        assert result.num_copied_files == (0 if shallow else 1)
        assert len({add.path for add in adds(target)} & before) == 1
        assert rows_of(target.update()) == rows_of(source.update())
        assert target.update().version == 1


def test_a_table_that_is_replaced_keeps_its_id_and_history():
    source, target = table(), new_log()
    create_table(target, [put(target, add_file("7", [7]))])
    own = target.update().metadata.id
    with pytest.raises(TableAlreadyExistsError, match="version 0"):
        clone_table(source, target, shallow=True)
    clone_table(source, target, shallow=True, replace=True)
    assert target.update().metadata.id == own
    assert rows_of(target.update()) == rows_of(source.update())
    assert rows_of(target.snapshot(version=0)) == {("7", 7): 1}


def test_row_ids_come_along_and_new_ones_are_above():
    source, target = table(delta_enableRowTracking="true"), new_log()
    clone_table(source, target, shallow=True)
    before = {add.base_row_id for add in adds(source)}
    assert {add.base_row_id for add in adds(target)} == before
    append("5", [5]).run(target)
    assert max(add.base_row_id for add in adds(target)) == 3
    assert target.update().properties.row_id_column == source.update().properties.row_id_column


def test_what_belongs_to_one_log_stays_behind():
    source = table()
    txn = start_transaction(source)
    metadata = txn.snapshot.metadata.replace(configuration={"delta.enableInCommitTimestamps": "true"})
    txn.update_metadata(metadata)
    txn.commit([], Operation(name="SET TBLPROPERTIES"))
    assert "delta.inCommitTimestampEnablementVersion" in source.update().metadata.configuration
    target = new_log()
    clone_table(source, target, shallow=True)
    assert target.update().metadata.configuration == {"delta.enableInCommitTimestamps": "true"}
    assert target.history(1)[0].commit_info.in_commit_timestamp is not None


def test_what_cannot_be_cloned():
    source = table()
    with pytest.raises(InvalidArgumentError, match="itself"):
        clone_table(source, DeltaLog(source.store), shallow=True)
    with pytest.raises(TableNotFoundError):
        clone_table(new_log(), new_log(), shallow=True)
    foreign = new_log()
    foreign.store.put("notes.txt", b"x")
    with pytest.raises(TableAlreadyExistsError, match=r"notes\.txt"):
        clone_table(source, foreign, shallow=True)
    guarded = new_log()
    create_table(guarded, [], delta_appendOnly="true")
    with pytest.raises(UnsafeOperationError, match="append-only"):
        clone_table(source, guarded, shallow=True, replace=True)


def test_a_file_that_is_too_short_or_gone_leaves_nothing_behind():
    for damage in (lambda store, path: store.put(path, b"x"), lambda store, path: store.delete_many([path])):
        source, target = table(), new_log()
        damage(source.store, adds(source)[0].path)
        with pytest.raises(StorageError):
            clone_table(source, target, shallow=False, copier=ThreadCopier())
        assert data_files(target) == set()
        assert target.update().version == -1


def test_a_refused_commit_gives_the_copies_back():
    source, inner = table(), new_log()
    with pytest.raises(StorageError):
        clone_table(source, DeltaLog(RefusingStore(inner.store)), shallow=False)
    assert data_files(inner) == set()


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("file:///a%20b/t", "p=1/x%20y", "file:/a%20b/t/p=1/x%20y"),
        ("s3a://bucket/a b", "x", "s3a://bucket/a%20b/x"),
        ("s3a://bucket/t", "s3a://other/x", "s3a://other/x"),
        ("file:///t", "/elsewhere/x", "/elsewhere/x"),
    ],
)
def test_absolute_paths_are_escaped_once(root, path, expected):
    add = AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=False)
    found = absolute_add(add, root)
    assert found.path == expected
    assert found.data_change is True
