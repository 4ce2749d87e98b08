"""Two commits over rows of the same files: what can stand beside what, as one table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pydelta.log.vector_files import read_deleted_rows, write_vectors
from pydelta.protocol.actions import AddFile, CommitInfo, Metadata, RemoveFile, SetTransaction
from pydelta.protocol.vectors import inline_vector
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.txn.conflicts import find_conflict
from pydelta.txn.footprint import Isolation, ReadPredicate, ReadSet, Staged, WinningCommit, key_frame
from pydelta.txn.rows import hidden_rows, rebase, reconcile, vector_reader

_NAMES = itertools.count()
INFO = CommitInfo({"operation": "DELETE", "isBlindAppend": False})
ANY = ReadPredicate()


def _vector(rows):
    return inline_vector(np.array(sorted(rows), dtype=np.uint64)) if rows else None


def add(path, *rows, data_change=True):
    return AddFile(
        path=path,
        partition_values={},
        size=1,
        modification_time=0,
        data_change=data_change,
        deletion_vector=_vector(rows),
        base_row_id=7,
    )


def remove(path, *rows):
    return RemoveFile(
        path=path, partition_values={}, data_change=True, deletion_timestamp=5, deletion_vector=_vector(rows)
    )


def hides(path, before, after):
    """The two actions that put a vector on a file."""
    return [remove(path, *before), add(path, *after)]


def rows_of(vector):
    (rows,) = read_deleted_rows([vector], store=None, root="memory://none", options=None)
    return rows


def reads(*files, alone=True, predicates=(ANY,), **others) -> ReadSet:
    return ReadSet(
        predicates=predicates, files=key_frame([item.key for item in files]), rows_stand_alone=alone, **others
    )


A, B = remove("a"), remove("b")
UPDATED = add("new")

# situation, reads, staged, winner, and what comes of it: the vectors to be written, or None for a conflict
CASES = [
    ("other rows of one file", reads(A), hides("a", (), (1,)), hides("a", (), (2,)), {"a": [1, 2]}),
    ("the same row", reads(A), hides("a", (), (1, 3)), hides("a", (), (2, 3)), None),
    ("over the same old vector", reads(remove("a", 9)), hides("a", (9,), (1, 9)), hides("a", (9,), (2, 9)),
     {"a": [1, 2, 9]}),
    ("the same row over an old vector", reads(remove("a", 9)), hides("a", (9,), (1, 9)), hides("a", (9,), (1, 2, 9)),
     None),
    ("over another old vector", reads(remove("a", 9)), hides("a", (9,), (1, 9)), hides("a", (8,), (2, 8)), None),
    ("a file that was only read", reads(A, B), hides("a", (), (1,)), hides("b", (), (1,)), {}),
    ("a file read, and one changed by both", reads(A, B), hides("a", (), (1,)),
     [*hides("b", (), (1,)), *hides("a", (), (4,))], {"a": [1, 4]}),
    ("two files changed by both", reads(A, B), [*hides("a", (), (1,)), *hides("b", (), (1,))],
     [*hides("b", (), (2,)), *hides("a", (), (2,))], {"a": [1, 2], "b": [1, 2]}),
    ("two files, the same row in the second", reads(A, B), [*hides("a", (), (1,)), *hides("b", (), (1,))],
     [*hides("b", (), (1,)), *hides("a", (), (2,))], None),
    ("rows that came back", reads(remove("a", 1, 2)), hides("a", (1, 2), (1, 2, 3)), hides("a", (1, 2), (1,)), None),
    ("rows that came back in a file only read", reads(remove("a", 1, 2)), [add("n")], hides("a", (1, 2), (1,)), None),
    ("all vectors taken off", reads(remove("a", 1)), hides("a", (1,), (1, 2)), [remove("a", 1), add("a")], None),
    ("we removed the file", reads(A), [A], hides("a", (), (1,)), None),
    ("we rewrote the file", reads(A), [A, add("n")], hides("a", (), (1,)), None),
    ("we added the file again as it is", reads(A), [add("a", data_change=False)], hides("a", (), (1,)), None),
    ("the winner removed the file", reads(A), hides("a", (), (1,)), [A], None),
    ("the winner rewrote the file", reads(A), hides("a", (), (1,)), [A, add("n", data_change=False)], None),
    ("the winner removed a file only read", reads(A, B), hides("a", (), (1,)), [B], None),
    ("the winner updated another row", reads(A, predicates=()), hides("a", (), (1,)), [*hides("a", (), (2,)), UPDATED],
     {"a": [1, 2]}),
    ("the winner updated a row into what was read", reads(A), hides("a", (), (1,)), [*hides("a", (), (2,)), UPDATED],
     None),
    ("rows do not stand alone", reads(A, alone=False), hides("a", (), (1,)), hides("a", (), (2,)), None),
    ("everything was read", reads(A, whole_table=True), hides("a", (), (1,)), hides("a", (), (2,)), None),
    ("what was read must be all there is", reads(A, predicates=(), exactly=True), hides("a", (), (1,)),
     hides("a", (), (2,)), None),
    ("rows that came back in a file that is none of ours", reads(B, predicates=()), hides("b", (), (1,)),
     [*hides("a", (1, 2), (1,)), *hides("b", (), (2,))], {"b": [1, 2]}),
    ("with a new schema", reads(A), [*hides("a", (), (1,)), Metadata(id="t")], hides("a", (), (2,)), None),
    ("the winner changed the schema", reads(A), hides("a", (), (1,)), [*hides("a", (), (2,)), Metadata(id="t")], None),
    ("another spelling of the path", reads(A), hides("a", (), (1,)), hides("%61", (), (2,)), {"a": [1, 2]}),
    ("a file we did not read", reads(B), hides("b", (), (1,)), hides("a", (), (2,)), {}),
]  # fmt: skip


@pytest.mark.parametrize("level", [Isolation.SERIALIZABLE, Isolation.WRITE_SERIALIZABLE], ids=lambda level: level.value)
@pytest.mark.parametrize(
    ("read", "ours", "theirs", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_what_stands_beside_what(read, ours, theirs, expected, level):
    staged, winner = Staged.of(ours), WinningCommit.of([INFO, *theirs], version=4)
    found = reconcile(reads=read, staged=staged, winner=winner, rows_of=rows_of)
    conflict = find_conflict(reads=read, staged=staged, winner=found.winner, level=level)
    assert (conflict is None) == (expected is not None), conflict
    assert found.winner.version == 4
    if expected is not None:
        assert {item.path: item.rows.tolist() for item in found.rewrites} == expected


def test_a_transaction_is_moved_behind_one_winner_and_another():
    store = MemoryStore(f"memory://rows{next(_NAMES)}/t")
    read = reads(A, B, root=store.root)
    staged = Staged.of([*hides("a", (), (1,)), add("other")])
    steps = [(hides("a", (), (2,)), [1, 2]), (None, [1, 2, 3])]
    base: tuple[int, ...] = ()
    superseded, written = [], []
    for _, expected in steps:
        last = expected[-1]
        winner = WinningCommit.of([INFO, *hides("a", base, (*base, last)), *hides("b", (), (9,))], version=4)
        if base:
            winner = WinningCommit.of([INFO, *hides("a", base, (*base, last))], version=5)

        def rows(vector):
            return read_deleted_rows([vector], store=store, root=store.root, options=None)[0]

        found = reconcile(reads=read, staged=staged, winner=winner, rows_of=rows)
        assert find_conflict(reads=read, staged=staged, winner=found.winner, level=Isolation.SERIALIZABLE) is None
        moved = rebase(staged, read, found, store=store)
        staged, read = moved.staged, moved.reads
        base = (*base, last)
        (gone,) = [item for item in staged.removes if item.path == "a"]
        (new,) = [item for item in staged.adds if item.path == "a"]
        assert gone.deletion_vector == _vector(base)
        assert gone.deletion_timestamp == 5
        assert rows(new.deletion_vector).tolist() == expected
        assert new.base_row_id == 7
        assert [item.path for item in staged.adds] == ["a", "other"]
        assert all(store.head(path) is not None for path in moved.written)
        superseded.append(moved.superseded)
        written.append(moved.written)
    assert superseded == [(), written[0]]  # what the log held itself is no file; the first move's has no name any more


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (hides("a", (9,), (1, 9)), hides("a", (8,), (2, 8))),
        (hides("a", (), (1,)), hides("a", (), (1,))),
        ([A, add("n")], hides("a", (), (1,))),
    ],
    ids=["over another old vector", "the same row", "we rewrote the file"],
)
def test_a_conflict_names_the_file_in_which_it_is_and_none_that_only_lost_rows(ours, theirs):
    read = reads(B, predicates=())
    winner = WinningCommit.of([INFO, *theirs, *hides("b", (), (5,))], version=4)
    left = reconcile(reads=read, staged=Staged.of(ours), winner=winner, rows_of=rows_of).winner
    conflict = find_conflict(reads=read, staged=Staged.of(ours), winner=left, level=Isolation.SERIALIZABLE)
    assert "file a" in conflict.reason


def test_a_moved_file_keeps_what_its_transaction_says_of_it():
    store = MemoryStore(f"memory://rows{next(_NAMES)}/t")
    read = reads(A, root=store.root)
    other = SetTransaction(app_id="job", version=1)
    staged = Staged.of([A.replace(data_change=False, deletion_timestamp=None), add("a", 1, data_change=False), other])
    winner = WinningCommit.of([INFO, *hides("a", (), (2,))], version=4)
    found = reconcile(reads=read, staged=staged, winner=winner, rows_of=rows_of)
    (gone, new, last) = rebase(staged, read, found, store=store).staged.actions
    assert (gone.data_change, gone.deletion_timestamp, new.data_change, last) == (False, 0, False, other)


def test_of_the_vector_files_of_ours_those_go_that_nothing_names_any_more():
    store = MemoryStore(f"memory://rows{next(_NAMES)}/t")
    names = [f"old{number}" for number in range(9)]
    own = {name: write_vectors([np.array([1], dtype=np.uint64)], store=store) for name in names}
    (one, other), (shared,) = write_vectors([np.array([row], dtype=np.uint64) for row in (1, 2)], store=store)
    vectors = {name: vector for name, ((vector,), _) in own.items()} | {"one": one}
    hidden = [action for name, vector in vectors.items()
              for action in (remove(name), add(name).replace(deletion_vector=vector))]  # fmt: skip
    staged = Staged.of([*hidden, remove("other"), add("other").replace(deletion_vector=other)])
    winner = WinningCommit.of([INFO, *(action for name in vectors for action in hides(name, (), (7,)))], version=4)
    read = reads(*map(remove, [*vectors, "other"]), root=store.root)
    rows = vector_reader((staged, winner), read, store=store, options=None)
    moved = rebase(staged, read, reconcile(reads=read, staged=staged, winner=winner, rows_of=rows), store=store)
    assert moved.superseded == tuple(sorted(path for _, (path,) in own.values()))
    assert shared not in moved.superseded


def test_the_vectors_of_both_commits_are_read_at_once_those_of_before_too():
    store = MemoryStore(f"memory://rows{next(_NAMES)}/t")
    before, after, theirs = ([9], [1, 9], [2, 9])
    (old, ours, other), (path,) = write_vectors(
        [np.array(rows, dtype=np.uint64) for rows in (before, after, theirs)], store=store
    )
    kept = add("plain", 4)
    staged = Staged.of(
        [remove("a").replace(deletion_vector=old), add("a").replace(deletion_vector=ours), CommitInfo({})]
    )
    winner = Staged.of([remove("a").replace(deletion_vector=old), add("a").replace(deletion_vector=other), kept,
                        *hides("b", (), (3,))])  # fmt: skip
    read = reads(A, B, root=store.root)
    rows = vector_reader((staged, winner), read, store=store, options=None)
    assert [rows(vector).tolist() for vector in (old, ours, other, _vector([3]))] == [before, after, theirs, [3]]
    (found,) = [item for path, item in hidden_rows(winner, read).items() if path == "b"]
    assert (found.before(rows).tolist(), found.before(rows).dtype) == ([], np.uint64)
    store.delete_many([path])
    assert vector_reader((staged, winner), read, store=store, options=None) is None


def test_nothing_is_written_where_only_files_that_were_read_have_changed():
    store = CountingStore(MemoryStore(f"memory://rows{next(_NAMES)}/t"))
    read = reads(A, B)
    staged = Staged.of(hides("a", (), (1,)))
    winner = WinningCommit.of([INFO, *hides("b", (), (1,))], version=4)
    moved = rebase(staged, read, reconcile(reads=read, staged=staged, winner=winner, rows_of=rows_of), store=store)
    assert moved.staged == staged
    assert store.calls == []
    # The file is known as the winner left it: whoever removes it then is a conflict.
    later = WinningCommit.of([INFO, remove("b", 1)], version=5)
    assert find_conflict(reads=moved.reads, staged=staged, winner=later, level=Isolation.SERIALIZABLE) is not None
