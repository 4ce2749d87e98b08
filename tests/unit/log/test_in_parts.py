"""A log of more files than are held in memory: each answer is that of one that is, and no column of all files is read.

A checkpoint of 40 files stands for one of millions: ``log.maxFilesInMemory`` is 1.
"""

from __future__ import annotations

import datetime as dt
import random
import time

import pytest
from log_tables import PROTOCOL, V2_PROTOCOL, add, commit, create, info, log_of, new_store, remove

from pydelta.log.files import FileTable
from pydelta.predicate import Column, Compare, In, IsNull, Literal

pytestmark = pytest.mark.usefixtures("four_rows_are_many")
NOW = int(time.time() * 1000)
DAYS = ("2024-05-01", "2024-05-02", None)
CONDITIONS = {
    "a partition": [Compare("=", Column(("day",)), Literal(dt.date(2024, 5, 2), "date"))],
    "no partition": [IsNull(Column(("day",)))],
    "a file": [Compare("=", Column(("id",)), Literal(75, "long"))],
    "some files": [In(Column(("id",)), (15, 75, 1005, 9999))],
    "both": [
        Compare("=", Column(("day",)), Literal("2024-05-01", "date")),
        Compare("<", Column(("id",)), Literal(200)),
    ],
    "none": [Compare(">", Column(("id",)), Literal(10**9, "long"))],
}


def added(number):
    return add(number, DAYS[number % 3])


@pytest.fixture
def refused(monkeypatch):
    """Makes reading the columns of all files an error, where a table is in parts."""
    whole = FileTable.core.fget

    def core(self):
        assert not self.in_parts, "the columns of all files were asked for"
        return whole(self)

    def switch(*, on):
        monkeypatch.setattr(FileTable, "core", property(core if on else whole))

    switch(on=True)
    return switch


def two_logs(store):
    """The log with its files in parts, and with all in memory."""
    in_parts = log_of(store, max_files_in_memory=1)
    return in_parts, log_of(store)


def found(snapshot, conditions):
    files = snapshot.files
    rows = files.select(data_filters=conditions)
    return sorted(map(repr, files.adds(rows)))


def history(store, seed, *, versions=18, policy="v2"):
    """Random commits over a checkpoint of 40 files; after some of them a checkpoint by the log in parts."""
    draw = random.Random(seed)
    protocol = V2_PROTOCOL if policy == "v2" else PROTOCOL
    create(store, *map(added, range(40)), protocol=protocol, checkpointPolicy=policy)
    log_of(store).checkpoint(now_ms=NOW)
    live, fresh = set(range(40)), 100
    for version in range(1, versions):
        gone = draw.sample(sorted(live), min(len(live), draw.choice((0, 0, 0, 1, 3))))
        new = range(fresh, fresh + draw.choice((1, 1, 5)))
        again = draw.sample(sorted(live - set(gone)), 1) if version % 6 == 0 else []
        actions = [remove(added(number), NOW + version) for number in gone]
        actions += [added(number) for number in new] + [added(number).replace(size=7) for number in again]
        commit(store, version, [info(), *actions])
        live, fresh = (live - set(gone)) | set(new), fresh + len(new)
        yield version


@pytest.mark.parametrize("policy", ["v2", "classic"])
@pytest.mark.parametrize("seed", range(2))
def test_answers_are_those_of_a_log_in_memory_and_so_are_its_checkpoints(refused, seed, policy):
    store = new_store()
    named_again = 0
    for version in history(store, seed, policy=policy, versions=26):
        in_parts, whole = (log.snapshot() for log in two_logs(store))
        assert in_parts.files.in_parts
        assert not whole.files.in_parts
        assert (in_parts.num_files, in_parts.size_bytes) == (whole.num_files, whole.size_bytes)
        for conditions in CONDITIONS.values() if version % 3 == 0 else ():
            assert found(in_parts, conditions) == found(whole, conditions)
        if version % 4 == 0:
            result = log_of(store, max_files_in_memory=1).checkpoint(now_ms=NOW, whole=version % 12 == 0)
            named_again += result.named_again
            assert result.num_adds == whole.num_files
            fresh = log_of(store).snapshot()
            assert fresh.segment.checkpoint.version == version
            refused(on=False)
            assert sorted(map(repr, fresh.files.adds(fresh.files.core))) == sorted(
                map(repr, whole.files.adds(whole.files.core))
            )
            assert sorted(fresh.tombstones()["path"]) == sorted(whole.tombstones()["path"])
            refused(on=True)
    assert bool(named_again) is (policy == "v2")


def test_the_conditions_tell_files_apart():
    store = new_store()
    list(history(store, 1))
    snapshot = log_of(store).snapshot()
    counts = {name: len(found(snapshot, conditions)) for name, conditions in CONDITIONS.items()}
    assert counts["none"] == 0
    assert 0 < counts["a file"] <= counts["some files"] < counts["both"] < counts["a partition"] < snapshot.num_files


@pytest.mark.parametrize("policy", ["v2", "classic"])
def test_a_checkpoint_without_a_commit_after_it_is_written_anew(refused, policy):
    store = new_store()
    list(history(store, 5, versions=3, policy=policy))
    log_of(store).checkpoint(now_ms=NOW)
    in_parts, whole = (log.snapshot() for log in two_logs(store))
    assert in_parts.files.in_parts
    assert in_parts.files.layers()[1] == ()
    assert (in_parts.num_files, in_parts.size_bytes) == (whole.num_files, whole.size_bytes)
    assert found(in_parts, CONDITIONS["both"]) == found(whole, CONDITIONS["both"])
    again = log_of(store, max_files_in_memory=1).checkpoint(now_ms=NOW, whole=True)
    assert (again.version, again.num_adds) == (2, whole.num_files)


def test_one_process_goes_on_for_long(refused):
    store = new_store()
    log, read = None, []
    for version in history(store, 7, versions=32):
        log = log or log_of(store, max_files_in_memory=1, max_snapshot_chain=5)
        snapshot = log.update()
        assert snapshot.version == version
        assert snapshot.num_files == log_of(store).snapshot().num_files
        if version % 10 == 0:
            read.append(log.checkpoint(now_ms=NOW).named_again)
    assert any(read)


@pytest.mark.parametrize("first", ["files", "bytes", "checkpoint", *CONDITIONS])
def test_a_damaged_checkpoint_gives_way_to_the_commits(first):
    store = new_store()
    list(history(store, 3, versions=6, policy="classic"))
    whole = log_of(store).snapshot()
    path = whole.segment.checkpoint.name
    data = store.read(path)
    store.put(path, data[:4] + b"\0" * 4_000 + data[4_004:])  # the footer is whole, pages are not
    broken = log_of(store, max_files_in_memory=1)
    if first in CONDITIONS:
        assert found(broken.snapshot(), CONDITIONS[first]) == found(whole, CONDITIONS[first])
    elif first == "checkpoint":
        assert broken.checkpoint(now_ms=NOW).num_adds == whole.num_files
    assert (broken.snapshot().size_bytes, broken.snapshot().num_files) == (whole.size_bytes, whole.num_files)
    assert broken.snapshot().files.layers()[0] is None or first == "checkpoint"
