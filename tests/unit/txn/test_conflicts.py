"""The table of conflicts: one row a situation, one column an isolation level."""

from __future__ import annotations

import dataclasses
import json

import pytest

from pydelta import errors
from pydelta.protocol.actions import (
    AddCDCFile,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from pydelta.txn import Isolation, ReadPredicate, ReadSet, Staged, WinningCommit, find_conflict
from pydelta.txn.footprint import key_frame

APPEND = errors.ConcurrentAppendException
READ = errors.ConcurrentDeleteReadException
BOTH = errors.ConcurrentDeleteDeleteException
METADATA = errors.MetadataChangedException
PROTOCOL = errors.ProtocolChangedException
APP = errors.ConcurrentTransactionException
WRITE = errors.ConcurrentWriteException
OK = None


def vector(name: str) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(storage_type="u", path_or_inline_dv=name, size_in_bytes=4, cardinality=1)


def _path(name: str) -> tuple[str, dict[str, str | None], DeletionVectorDescriptor | None]:
    """``p1/a`` is file a of partition p=1; ``p1/a#v`` the same with deletion vector v; ``a`` is unpartitioned."""
    name, _, dv = name.partition("#")
    folder = name.rpartition("/")[0]
    return name, {"p": folder[1:]} if folder else {}, vector(dv) if dv else None


def add(name: str, *, data_change: bool = True) -> AddFile:
    path, values, dv = _path(name)
    return AddFile(
        path=path, partition_values=values, size=1, modification_time=0, data_change=data_change, deletion_vector=dv
    )


def remove(name: str, *, data_change: bool = True) -> RemoveFile:
    path, values, dv = _path(name)
    return RemoveFile(path=path, partition_values=values, data_change=data_change, deletion_vector=dv)


def here(name: str) -> AddFile:
    return add(name, data_change=False)


def away(name: str) -> RemoveFile:
    return remove(name, data_change=False)


def app(name: str, version: int = 1) -> SetTransaction:
    return SetTransaction(app_id=name, version=version)


def domain(name: str) -> DomainMetadata:
    return DomainMetadata(domain=name, configuration="{}", removed=False)


def identity(mark: int) -> Metadata:
    """The definition of a table whose column gave out identity values up to a mark."""
    told = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.highWaterMark": mark}
    field = {"name": "id", "type": "long", "nullable": True, "metadata": told}
    return Metadata(id="t", schema_string=json.dumps({"type": "struct", "fields": [field]}))


NEW_SCHEMA = Metadata(id="t", schema_string='{"type":"struct","fields":[]}')
UPGRADE = Protocol(min_reader_version=1, min_writer_version=2)
CDC = AddCDCFile(path="_change_data/x", partition_values={}, size=1)
BLIND = CommitInfo({"operation": "WRITE", "isBlindAppend": True})
SEEING = CommitInfo({"operation": "MERGE", "isBlindAppend": False})


def matches_partition(predicate: ReadPredicate, adds):
    """A stand-in for pruning: filters are texts such as ``p=1``; none means everything."""
    for item in adds:
        if all(f == f"p={item.partition_values.get('p')}" for f in predicate.partition_filters):
            return item
    return None


VACUUMING = CommitInfo({"operation": "VACUUM START", "isBlindAppend": True})
VACUUMED = CommitInfo({"operation": "VACUUM END", "isBlindAppend": True})


def reads(*scans: str, files: tuple[str, ...] = (), apps: tuple[str, ...] = (), whole: bool = False) -> ReadSet:
    """Scans are ``p=1`` or ``*``; files are named as above."""
    return ReadSet(
        predicates=tuple(ReadPredicate(partition_filters=() if scan == "*" else (scan,)) for scan in scans),
        files=key_frame([remove(name).key for name in files]),
        app_ids=frozenset(apps),
        whole_table=whole,
        matcher=matches_partition,
    )


NOTHING = reads()
P1 = reads("p=1", files=("p1/a", "p1/b"))
ALL = reads("*", files=("p1/a", "p1/b", "p2/c"))
WHOLE = reads(whole=True)
IDENTITY = dataclasses.replace(NOTHING, metadata=identity(5))
BACK = dataclasses.replace(WHOLE, exactly=True, brings_back=True)

# situation, reads, staged, winner, then what comes out at Serializable, WriteSerializable, SnapshotIsolation;
# a single outcome is that of all three
CASES = [
    # Files that come back must not be being deleted.
    ("restore / vacuum begins", BACK, [remove("a"), add("b")], [VACUUMING], READ),
    ("restore / vacuum ends", BACK, [remove("a"), add("b")], [VACUUMED], READ),
    ("restore of nothing that was gone / vacuum begins", WHOLE, [remove("a")], [VACUUMING], OK),
    ("restore / blind append", BACK, [remove("a"), add("b")], [BLIND, add("w")], APPEND, APPEND, OK),
    ("restore / empty commit", BACK, [add("b")], [SEEING], OK),
    ("append / vacuum begins", NOTHING, [add("n")], [VACUUMING], OK),
    # Blind appends never meet anybody's rows.
    ("append / append", NOTHING, [add("p1/n")], [BLIND, add("p1/w")], OK),
    ("append / append that does not say", NOTHING, [add("p1/n")], [add("p1/w")], OK),
    ("append / append that read", NOTHING, [add("p1/n")], [SEEING, add("p1/w")], OK),
    ("append / delete", NOTHING, [add("p1/n")], [SEEING, remove("p1/a")], OK),
    ("append / rewrite", NOTHING, [add("p1/n")], [SEEING, remove("p1/a"), add("p1/w")], OK),
    ("append / overwrite of all", NOTHING, [add("n")], [SEEING, remove("a"), remove("b"), add("w")], OK),
    ("append / compaction", NOTHING, [add("p1/n")], [SEEING, away("p1/a"), here("p1/w")], OK),
    ("append / empty commit", NOTHING, [add("p1/n")], [SEEING], OK),
    ("append / change data only", NOTHING, [add("n")], [SEEING, CDC], OK),
    ("empty commit / append", NOTHING, [], [BLIND, add("p1/w")], OK),
    # Appends that were read over.
    ("delete in p1 / blind append to p1", P1, [remove("p1/a")], [BLIND, add("p1/w")], APPEND, OK, OK),
    ("delete in p1 / blind append to p2", P1, [remove("p1/a")], [BLIND, add("p2/w")], OK),
    ("delete in p1 / silent append to p1", P1, [remove("p1/a")], [add("p1/w")], APPEND, APPEND, OK),
    ("delete in p1 / silent append to p2", P1, [remove("p1/a")], [add("p2/w")], OK),
    ("delete in p1 / merge into p1", P1, [remove("p1/a")], [SEEING, add("p1/w")], APPEND, APPEND, OK),
    ("delete in p1 / merge into p2", P1, [remove("p1/a")], [SEEING, add("p2/w")], OK),
    ("delete in p1 / merge into both", P1, [remove("p1/a")], [SEEING, add("p2/v"), add("p1/w")], APPEND, APPEND, OK),
    ("delete by data / blind append", ALL, [remove("p1/a")], [BLIND, add("p3/w")], APPEND, OK, OK),
    ("delete by data / merge elsewhere", ALL, [remove("p1/a")], [SEEING, add("p3/w")], APPEND, APPEND, OK),
    ("two scans / hit by the second", reads("p=1", "p=2"), [add("p1/n")], [SEEING, add("p2/w")], APPEND, APPEND, OK),
    ("two scans / missed by both", reads("p=1", "p=2"), [add("p1/n")], [SEEING, add("p3/w")], OK),
    ("read then append / blind append", P1, [add("p1/n")], [BLIND, add("p1/w")], APPEND, OK, OK),
    ("read then append / read then append", P1, [add("p1/n")], [SEEING, add("p1/w")], APPEND, APPEND, OK),
    ("empty scan / merge into it", reads("p=9"), [add("p9/n")], [SEEING, add("p9/w")], APPEND, APPEND, OK),
    ("overwrite / blind append", WHOLE, [remove("a"), add("n")], [BLIND, add("w")], APPEND, OK, OK),
    ("overwrite / merge", WHOLE, [remove("a"), add("n")], [SEEING, add("w")], APPEND, APPEND, OK),
    ("overwrite by scan / blind append", reads("*"), [remove("a"), add("n")], [BLIND, add("w")], APPEND, OK, OK),
    ("files marked / merge", reads(files=("p1/a",)), [remove("p1/a")], [SEEING, add("p1/w")], OK),
    # A schema change is no reordering of rows: blind appends count again.
    ("overwrite with new schema / blind append", WHOLE, [NEW_SCHEMA, remove("a")],
     [BLIND, add("w")], APPEND, APPEND, OK),
    ("scan and new schema / blind append in it", P1, [NEW_SCHEMA], [BLIND, add("p1/w")], APPEND, APPEND, OK),
    ("scan and new schema / blind append elsewhere", P1, [NEW_SCHEMA], [BLIND, add("p2/w")], OK),
    ("new schema alone / blind append", NOTHING, [NEW_SCHEMA], [BLIND, add("w")], OK),
    ("new schema alone / delete", NOTHING, [NEW_SCHEMA], [SEEING, remove("a")], OK),
    # Files that were read have to stay.
    ("read p1 / delete in p1", P1, [add("p1/n")], [SEEING, remove("p1/a")], READ),
    ("read p1 / delete in p2", P1, [add("p1/n")], [SEEING, remove("p2/c")], OK),
    ("read p1 / delete of an unread file in p1", P1, [add("p1/n")], [SEEING, remove("p1/z")], OK),
    ("read p1 / compaction in p1", P1, [add("p1/n")], [SEEING, away("p1/a"), here("p1/w")], READ),
    ("read p1 / compaction in p2", P1, [add("p1/n")], [SEEING, away("p2/c"), here("p2/w")], OK),
    ("read p1 / compaction of unread files in p1", P1, [add("p1/n")],
     [SEEING, away("p1/y"), away("p1/z"), here("p1/w")], OK),
    ("read all / compaction", ALL, [add("n")], [SEEING, away("p2/c"), here("p2/w")], READ),
    ("whole table / delete of anything", WHOLE, [add("n")], [SEEING, remove("zz")], READ),
    ("whole table / refreshed metadata of a file", WHOLE, [remove("a")], [SEEING, here("a")], OK),
    ("read p1 / refreshed metadata of a file", P1, [remove("p1/a")], [SEEING, here("p1/a")], OK),
    ("marked / deleted", reads(files=("p1/a",)), [add("p1/n")], [SEEING, remove("p1/a")], READ),
    ("marked / other deleted", reads(files=("p1/a",)), [add("p1/n")], [SEEING, remove("p1/b")], OK),
    ("the second of two deleted", P1, [add("p1/n")], [SEEING, remove("p2/c"), remove("p1/b")], READ),
    # Deletion vectors are part of what a file is.
    ("read with vector / that one removed", reads(files=("p1/a#v",)), [add("p1/n")], [SEEING, remove("p1/a#v")], READ),
    ("read without vector / vector put on it", reads(files=("p1/a",)), [add("p1/n")],
     [SEEING, remove("p1/a"), add("p1/a#v")], READ),
    ("read with vector / another one removed", reads(files=("p1/a#v",)), [add("p1/n")], [SEEING, remove("p1/b#v")], OK),
    ("both put a vector on a file", NOTHING, [remove("a"), add("a#u")], [SEEING, remove("a"), add("a#v")], BOTH),
    ("vectors on two files", NOTHING, [remove("a"), add("a#u")], [SEEING, remove("b"), add("b#v")], OK),
    # Both remove.
    ("delete / delete of the same file", NOTHING, [remove("a")], [SEEING, remove("a")], BOTH),
    ("delete / delete of another file", NOTHING, [remove("a")], [SEEING, remove("b")], OK),
    ("delete after reading / delete of the same file", P1, [remove("p1/a")], [SEEING, remove("p1/a")], READ),
    ("delete / rewrite of the same file", NOTHING, [remove("a")], [SEEING, remove("a"), add("w")], BOTH),
    ("rewrite / delete of the same file", NOTHING, [remove("a"), add("n")], [SEEING, remove("a")], BOTH),
    ("delete of several / of one of them", NOTHING, [remove("a"), remove("b")],
     [SEEING, remove("c"), remove("b")], BOTH),
    ("overwrite / overwrite", WHOLE, [remove("a"), add("n")], [SEEING, remove("a"), add("w")], APPEND, APPEND, READ),
    ("delete of all / delete of all", WHOLE, [remove("a")], [SEEING, remove("a")], READ),
    # Compaction (it changes no row, so it is checked as a snapshot whatever the level).
    ("compaction / blind append", P1, [away("p1/a"), here("p1/n")], [BLIND, add("p1/w")], OK),
    ("compaction / merge beside it", P1, [away("p1/a"), here("p1/n")], [SEEING, add("p1/w")], OK),
    ("compaction / delete of a file it read", P1, [away("p1/a"), here("p1/n")], [SEEING, remove("p1/b")], READ),
    ("compaction / delete elsewhere", P1, [away("p1/a"), here("p1/n")], [SEEING, remove("p2/c")], OK),
    ("compaction / compaction of the same", NOTHING, [away("a"), here("n")], [SEEING, away("a"), here("w")], BOTH),
    ("compaction / compaction of others", NOTHING, [away("a"), here("n")], [SEEING, away("b"), here("w")], OK),
    ("compaction and txn / merge beside it", P1, [away("p1/a"), here("p1/n"), app("x")],
     [SEEING, add("p1/w")], APPEND, APPEND, OK),
    ("compaction / new schema", P1, [away("p1/a"), here("p1/n")], [SEEING, NEW_SCHEMA], METADATA),
    # The same path on both sides.
    ("both add a path", NOTHING, [add("a")], [BLIND, add("a")], APPEND),
    ("metadata refresh / delete of the file", NOTHING, [here("a")], [SEEING, remove("a")], READ),
    ("restore of a file / removal of it", NOTHING, [add("a")], [SEEING, remove("a")], READ),
    ("removal / another vector on it", NOTHING, [remove("a#u")], [SEEING, remove("a#v"), add("a#u")], READ),
    # Metadata and protocol.
    ("append / new schema", NOTHING, [add("n")], [SEEING, NEW_SCHEMA], METADATA),
    ("new schema / new schema", NOTHING, [NEW_SCHEMA], [SEEING, NEW_SCHEMA], METADATA),
    ("empty commit / new schema", NOTHING, [], [SEEING, NEW_SCHEMA], METADATA),
    ("append / identity values given out", IDENTITY, [add("n")], [SEEING, identity(9), add("w")], OK),
    ("both give out identity values", IDENTITY, [identity(7), add("n")], [SEEING, identity(9), add("w")], METADATA),
    ("append to a table with identity values / new schema", IDENTITY, [add("n")], [SEEING, NEW_SCHEMA], METADATA),
    ("append / upgrade", NOTHING, [add("n")], [SEEING, UPGRADE], PROTOCOL),
    ("upgrade / upgrade", NOTHING, [UPGRADE], [SEEING, UPGRADE], PROTOCOL),
    ("upgrade / append", NOTHING, [UPGRADE], [BLIND, add("w")], OK),
    ("delete / upgrade and new schema", P1, [remove("p1/a")], [SEEING, UPGRADE, NEW_SCHEMA], PROTOCOL),
    ("create / create", NOTHING, [UPGRADE, NEW_SCHEMA], [BLIND, UPGRADE, NEW_SCHEMA], PROTOCOL),
    # Application ids.
    ("same app, looked up", reads(apps=("x",)), [add("n")], [BLIND, app("x"), add("w")], APP),
    ("same app, staged", NOTHING, [app("x", 2), add("n")], [BLIND, app("x", 1), add("w")], APP),
    ("same app, both", reads(apps=("x",)), [app("x", 2)], [BLIND, app("x", 2)], APP),
    ("other app", reads(apps=("x",)), [app("x", 2), add("n")], [BLIND, app("y"), add("w")], OK),
    ("no app / app", NOTHING, [add("n")], [BLIND, app("y"), add("w")], OK),
    ("app / no app", reads(apps=("x",)), [app("x"), add("n")], [BLIND, add("w")], OK),
    ("app is asked before files", reads("*", apps=("x",)), [app("x")], [SEEING, app("x"), add("w")], APP),
    # Domains.
    ("same domain", NOTHING, [domain("d")], [SEEING, domain("d")], WRITE),
    ("other domain", NOTHING, [domain("d")], [SEEING, domain("e")], OK),
    ("row id marks never clash", NOTHING, [domain("delta.rowTracking"), add("n")],
     [BLIND, domain("delta.rowTracking"), add("w")], OK),
    ("no domain / domain", NOTHING, [add("n")], [SEEING, domain("delta.clustering")], OK),
]  # fmt: skip

LEVELS = (Isolation.SERIALIZABLE, Isolation.WRITE_SERIALIZABLE, Isolation.SNAPSHOT)
ROWS = [
    pytest.param(row[1], row[2], row[3], level, (row[4:] * 3)[i], id=f"{row[0]}-{level.value}")
    for row in CASES
    for i, level in enumerate(LEVELS)
]


def check(read_set, staged, winner, level):
    staged = Staged.of(staged)
    return find_conflict(
        reads=read_set,
        staged=staged,
        winner=WinningCommit.of(winner, version=7),
        level=staged.effective_level(level),
    )


def test_levels_are_spelt_as_tables_and_commits_spell_them():
    spelt = ("Serializable", "WriteSerializable", "SnapshotIsolation")
    assert tuple(Isolation(text) for text in spelt) == LEVELS


def test_the_table_has_a_row_for_each_situation_once():
    assert len(ROWS) > 240
    assert len({row[0] for row in CASES}) == len(CASES)


@pytest.mark.parametrize(("read_set", "staged", "winner", "level", "expected"), ROWS)
def test_conflict(read_set, staged, winner, level, expected):
    found = check(read_set, staged, winner, level)
    assert (found.kind if found else None) is expected


@pytest.mark.parametrize(("read_set", "staged", "winner", "level", "expected"), ROWS)
def test_a_stricter_level_lets_nothing_more_through(read_set, staged, winner, level, expected):
    if expected is not None and level is not Isolation.SERIALIZABLE:
        assert check(read_set, staged, winner, Isolation.SERIALIZABLE) is not None


@pytest.mark.parametrize(
    ("read_set", "staged", "winner", "words"),
    [
        (P1, [add("p1/n")], [SEEING, add("p1/w")], ["Version 7", "by MERGE", "partition [p=1]", "p1/w"]),
        (P1, [add("p1/n")], [SEEING, remove("p1/a")], ["Version 7", "by MERGE", "partition [p=1]", "p1/a"]),
        (NOTHING, [remove("a#v")], [BLIND, remove("a#v")], ["Version 7", "by WRITE", "unpartitioned", "a ", "uv"]),
        (NOTHING, [add("n")], [SEEING, NEW_SCHEMA], ["Version 7", "by MERGE", "metadata"]),
        (NOTHING, [add("n")], [UPGRADE], ["Version 7", "protocol", "(1, 2)"]),
        (reads(apps=("x",)), [add("n")], [SEEING, app("x", 41)], ["Version 7", "by MERGE", "'x'", "41"]),
        (NOTHING, [domain("d")], [SEEING, domain("d")], ["Version 7", "by MERGE", "'d'"]),
    ],
)
def test_the_error_names_winner_operation_and_place(read_set, staged, winner, words):
    found = check(read_set, staged, winner, Isolation.SERIALIZABLE)
    error = found.error(table="file:///t")
    for word in [*words, "file:///t", "Next:"]:
        assert word in str(error)
    assert error.winning_version == 7
    assert error.winning_operation == found.winning_operation
    assert error.retryable


def test_the_creation_of_a_table_by_two_is_told_apart():
    staged = Staged.of([UPGRADE, NEW_SCHEMA])
    winner = WinningCommit.of([BLIND, UPGRADE, NEW_SCHEMA], version=0)
    found = find_conflict(reads=NOTHING, staged=staged, winner=winner, level=Isolation.SERIALIZABLE)
    assert found.kind is PROTOCOL
    assert "created the table" in str(found.error())


def test_an_unpartitioned_scan_is_told_to_name_its_partition():
    found = check(ALL, [remove("p1/a")], [SEEING, add("p3/w")], Isolation.SERIALIZABLE)
    assert "name the partition" in found.hint
    found = check(reads("p=1", "*"), [remove("p1/a")], [SEEING, add("p3/w")], Isolation.SERIALIZABLE)
    assert "name the partition" in found.hint
    found = check(WHOLE, [remove("p1/a")], [SEEING, add("p1/w")], Isolation.SERIALIZABLE)
    assert "name the partition" in found.hint
    found = check(P1, [remove("p1/a")], [SEEING, add("p1/w")], Isolation.SERIALIZABLE)
    assert "name the partition" not in found.hint


def test_the_file_of_a_conflict_is_named_with_its_partition_and_its_vector():
    both = remove("p1/a").replace(partition_values={"p": "1", "q": None})
    for removed, text in (
        (remove("a"), "removed file a in the unpartitioned table, which this transaction removes too."),
        (remove("a#v"), "removed file a (deletion vector uv) in the unpartitioned table, which this transaction"),
        (both, "removed file p1/a in partition [p=1, q=None], which this transaction removes too."),
    ):
        found = check(NOTHING, [removed], [removed], Isolation.SERIALIZABLE)
        assert found.reason.startswith(text)
        assert found.error().message == f"Version 7, committed meanwhile, {found.reason}"


def test_only_the_careful_answer_is_given_without_a_matcher():
    careful = ReadSet(predicates=(ReadPredicate(partition_filters=("p=1",)),))
    assert check(careful, [add("p1/n")], [SEEING, add("p2/w")], Isolation.SERIALIZABLE).kind is APPEND
    assert check(careful, [add("p1/n")], [SEEING], Isolation.SERIALIZABLE) is None


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("a%20b", "a b"),
        ("file:///t/x", "/t/x"),
        ("/t/a%20b", "file:/t/a%20b"),
    ],
)
def test_two_spellings_of_a_path_are_one_file(ours, theirs):
    seen = ReadSet(files=key_frame([remove(ours).key]), root="file:///t")
    gone = [SEEING, RemoveFile(path=theirs, data_change=True)]
    assert check(seen, [add("n")], gone, Isolation.SNAPSHOT).kind is READ
    nothing = ReadSet(root="file:///t")
    assert check(nothing, [RemoveFile(path=ours, data_change=True)], gone, Isolation.SNAPSHOT).kind is BOTH
    again = AddFile(path=ours, partition_values={}, size=1, modification_time=0, data_change=True)
    assert check(nothing, [again], gone, Isolation.SNAPSHOT).kind is READ
