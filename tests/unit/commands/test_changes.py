"""Which files a commit's changes are read from, and which versions a range means."""

from __future__ import annotations

import itertools

import pytest

from pydelta.commands.change_feed import (
    ChangedFile,
    ChangeRange,
    changed_files,
    incompatibilities,
    plan_changes,
    resolve_range,
)
from pydelta.errors import (
    ChangeDataNotRecordedError,
    InvalidArgumentError,
    LogCorruptedError,
    SchemaMismatchError,
    TableNotFoundError,
    VersionNotFoundError,
)
from pydelta.log import CommitRecord, DeltaLog
from pydelta.protocol.actions import AddCDCFile, AddFile, CommitInfo, DeletionVectorDescriptor, RemoveFile
from pydelta.protocol.schema import parse_schema
from pydelta.storage.memory import MemoryStore
from pydelta.testing.operations import append, create_table, table_metadata
from pydelta.txn import Operation, start_transaction

_NAMES = itertools.count()
_RECORD = CommitRecord(version=5, timestamp_ms=1000, commit_info=None)


def vector(name):
    return DeletionVectorDescriptor(storage_type="u", path_or_inline_dv=name, size_in_bytes=1, cardinality=1, offset=1)


def add(path, *, dv=None, data_change=True):
    return AddFile(
        path=path, partition_values={"p": "1"}, size=7, modification_time=1, data_change=data_change, deletion_vector=dv
    )


def remove(path, *, dv=None, data_change=True):
    return add(path, dv=dv).remove(deletion_timestamp=2, data_change=data_change)


def read(path, change, **more):
    return ChangedFile(
        path=path, partition_values={"p": "1"}, size=7, change_type=change, version=5, timestamp_ms=1000, **more
    )


CDC = AddCDCFile(path="_change_data/c", partition_values={"p": "1"}, size=7)
A, B = vector("a"), vector("b")


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ([], []),
        ([add("x")], [read("x", "insert")]),
        ([remove("x")], [read("x", "delete")]),
        ([add("x"), remove("y")], [read("x", "insert"), read("y", "delete")]),
        ([add("x", data_change=False), remove("y", data_change=False)], []),
        ([add("x"), remove("y"), CDC], [read("_change_data/c", None)]),
        ([add("x", dv=A)], [read("x", "insert", hides=A)]),
        ([remove("x", dv=A)], [read("x", "delete", hides=A)]),
        ([remove("x"), add("x", dv=A)], [read("x", "delete", only=(A, None))]),
        ([add("x"), remove("x", dv=A)], [read("x", "insert", only=(A, None))]),
        ([remove("x", dv=A), add("x", dv=B)], [read("x", "delete", only=(B, A)), read("x", "insert", only=(A, B))]),
        ([remove("x", dv=A), add("x", dv=A)], []),
    ],
    ids=[
        "nothing", "added", "removed", "both", "rearranged", "recorded", "added with a vector", "removed with a vector",
        "a vector comes", "a vector goes", "a vector changes", "the same vector",
    ],
)  # fmt: skip
def test_files_of_a_commit(actions, expected):
    assert changed_files(_RECORD, actions) == expected


@pytest.mark.parametrize(("counts", "files"), [("0", 0), ("1", 1)])
def test_a_merge_that_changed_no_row_is_no_change(counts, files):
    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    metrics = {**dict.fromkeys(names, "0"), "numTargetRowsInserted": counts}
    info = CommitInfo({"operation": "MERGE", "operationMetrics": metrics})
    record = CommitRecord(version=5, timestamp_ms=1000, commit_info=info)
    assert len(changed_files(record, [add("x")])) == files


def test_a_removed_file_that_says_nothing_of_itself_cannot_be_read():
    with pytest.raises(LogCorruptedError, match="Version 5"):
        changed_files(_RECORD, [RemoveFile(path="x", data_change=True)])


@pytest.fixture
def log():
    """Versions 0 to 3, a second apart, with a feed from version 1 on."""
    log = DeltaLog(MemoryStore(f"memory://changes{next(_NAMES)}/t"))
    create_table(log)
    metadata = log.update().metadata
    txn = start_transaction(log)
    txn.update_metadata(metadata.replace(configuration={"delta.enableChangeDataFeed": "true"}))
    txn.commit([], Operation(name="SET TBLPROPERTIES"))
    append("1", [1]).run(log)
    append("1", [2]).run(log)
    return log


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"starting_version": 1}, (1, 3)),
        ({"starting_version": 2, "ending_version": 2}, (2, 2)),
        ({"starting_version": 2, "ending_version": 99}, (2, 3)),
        ({"starting_timestamp_ms": 0}, (0, 3)),
    ],
)
def test_ranges(log, asked, expected):
    assert resolve_range(log, ChangeRange(**asked)) == expected


def test_times_mean_versions_inside_of_them(log):
    times = {record.version: record.timestamp_ms for record in log.history()}
    for version in range(4):
        at = ChangeRange(starting_timestamp_ms=times[version], ending_timestamp_ms=times[version])
        assert resolve_range(log, at) == (version, version)
    if times[2] - times[1] > 1:
        assert resolve_range(log, ChangeRange(starting_timestamp_ms=times[1] + 1))[0] == 2


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({}, InvalidArgumentError, "startingVersion"),
        ({"starting_version": 1, "starting_timestamp_ms": 1}, InvalidArgumentError, "startingVersion"),
        ({"starting_version": 1, "ending_version": 2, "ending_timestamp_ms": 1}, InvalidArgumentError, "both given"),
        ({"starting_version": 3, "ending_version": 2}, InvalidArgumentError, "before version 3"),
        ({"starting_version": 4}, VersionNotFoundError, "version 4"),
        ({"starting_timestamp_ms": 1 << 50}, VersionNotFoundError, "version 4"),
        ({"starting_version": 1, "ending_timestamp_ms": 0}, VersionNotFoundError, "before the oldest"),
    ],
)
def test_ranges_that_cannot_be(log, asked, error, said):
    with pytest.raises(error, match=said):
        resolve_range(log, ChangeRange(**asked))


def test_a_version_without_the_feed_is_named(log):
    with pytest.raises(ChangeDataNotRecordedError, match="version 0"):
        plan_changes(log, ChangeRange(starting_version=0))
    assert [file.version for file in plan_changes(log, ChangeRange(starting_version=1)).files] == [2, 3]
    txn = start_transaction(log)
    txn.update_metadata(log.update().metadata.replace(configuration={}))
    txn.commit([], Operation(name="UNSET TBLPROPERTIES"))
    with pytest.raises(ChangeDataNotRecordedError, match="version 4"):
        plan_changes(log, ChangeRange(starting_version=1))
    assert plan_changes(log, ChangeRange(starting_version=1, ending_version=3)).last == 3


def test_there_has_to_be_a_table():
    log = DeltaLog(MemoryStore(f"memory://changes{next(_NAMES)}/t"))
    with pytest.raises(TableNotFoundError):
        plan_changes(log, ChangeRange(starting_version=0))


def schema(**types):
    fields = [
        f'{{"name":"{name}","type":"{kind}","nullable":{str(nullable).lower()},"metadata":{{}}}}'
        for name, (kind, nullable) in types.items()
    ]
    return parse_schema(f'{{"type":"struct","fields":[{",".join(fields)}]}}')


@pytest.mark.parametrize(
    ("old", "read", "said"),
    [
        ({"a": ("long", True)}, {"a": ("long", True), "b": ("string", True)}, []),
        ({"a": ("integer", True)}, {"A": ("long", True)}, []),
        ({"a": ("long", True)}, {"b": ("long", True)}, ["column a no longer exists"]),
        ({"a": ("long", True)}, {"a": ("string", True)}, ["column a is long, not string"]),
        ({"a": ("long", True)}, {"a": ("long", False)}, ["column a may be null"]),
        ({"a": ("long", False)}, {"a": ("long", True)}, []),
    ],
)
def test_what_keeps_rows_from_being_read_in_a_schema(old, read, said):
    assert list(incompatibilities(schema(**old), schema(**read))) == said


def test_a_changed_schema_is_refused_with_the_version(log):
    other = table_metadata(delta_enableChangeDataFeed="true").replace(id=log.update().metadata.id)
    renamed = other.replace(schema_string=other.schema_string.replace('"x"', '"y"'))
    txn = start_transaction(log)
    txn.read_whole_table()
    txn.update_metadata(renamed)
    txn.commit([], Operation(name="WRITE"))
    with pytest.raises(SchemaMismatchError, match=r"(?s)version 1.*column x no longer exists"):
        plan_changes(log, ChangeRange(starting_version=1))
    assert plan_changes(log, ChangeRange(starting_version=4)).files == ()
