"""What must stay: each reason for which a file does, alone, and what is left when there is none."""

from __future__ import annotations

import dataclasses
import itertools
import json

import polars as pl
import pytest

from pydelta.commands.vacuum.needed import CommitTimeline, files_of_commits, find_needed
from pydelta.errors import LogCorruptedError, ObjectNotFoundError, StorageError
from pydelta.log import DeltaLog
from pydelta.manifests import publish
from pydelta.protocol.actions import DeletionVectorDescriptor, Protocol
from pydelta.protocol.paths import LOG_DIR, commit_file
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.testing.commands import clone_table
from pydelta.testing.garbage import HOUR_MS, Yard
from pydelta.txn import Operation, start_transaction

_NAMES = itertools.count()
VECTORS = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=("deletionVectors",),
    writer_features=("deletionVectors", "changeDataFeed"),
)  # fmt: skip


def yard(**how):
    return Yard(MemoryStore(f"memory://vacuumneeded{next(_NAMES)}/t"), **how)


def vector(name, *, kind="p", size=34):
    return DeletionVectorDescriptor(
        storage_type=kind, path_or_inline_dv=name, offset=1 if kind != "i" else None, size_in_bytes=size, cardinality=1
    )


def needed(yard, *, age):
    log = yard.log
    return find_needed(log, log.update(), cutoff_ms=yard.now_ms - round(age * HOUR_MS))


def held(index, *paths):
    """Those of some paths that an index may hold."""
    series = pl.Series(paths, dtype=pl.String)
    return set(series.filter(index.may_hold(series)))


def test_files_of_the_newest_version_and_their_vectors_stay_and_no_other():
    table = yard()
    table.builder.protocol = VECTORS
    root = table.store.root
    with_vector = table.named("b", vector=vector(f"{root}/b.bin"))
    table.commit(table.named("a"), with_vector, table.named("c d"), age=90)
    found = needed(table, age=10)
    asked = ("a", "b", "b.bin", "c d", "c%20d", "d", "")
    assert held(found.live, *asked) == {"a", "b", "b.bin", "c d", "c%20d"}
    assert held(found.others, *asked) == set()
    assert held(found, *asked) == held(found.live, *asked)
    # An id may end in an offset or look so by chance, and an escape may be none: both readings count.
    assert set(found.sample.paths) == {"a", "b", "b.bin", "b.bin@1", "c d", "c%20d"}
    assert (found.held_back, found.sample.count, found.timeline.newest) == (0, 6, 0)


def test_a_removed_file_and_its_vector_stay_until_their_removal_is_older_than_the_cut_off():
    table = yard()
    table.builder.protocol = VECTORS
    root = table.store.root
    ages = {"younger": 9, "at-it": 10, "older": 11, "timeless": None}
    adds = {name: table.named(name, vector=vector(f"{root}/{name}.bin")) for name in ages}
    table.commit(*adds.values(), age=90)
    table.commit(*(table.remove(adds[name], age=age) for name, age in ages.items()), age=80)
    found = needed(table, age=10)
    asked = [f"{name}{end}" for name in ages for end in ("", ".bin")]
    assert held(found.others, *asked) == {"younger", "younger.bin", "at-it", "at-it.bin"}
    assert held(found.live, *asked) == set()
    assert set(found.sample.paths) == {*asked, *(f"{name}.bin@1" for name in ages)}
    assert found.sample.count == 12, "each once, whether or not it stays"


def test_what_commits_since_the_cut_off_removed_or_tell_of_changes_stays():
    table = yard(properties={"delta.deletedFileRetentionDuration": "interval 1 hours"})
    table.builder.protocol = VECTORS
    root = table.store.root
    adds = {name: table.named(name, vector=vector(f"{root}/{name}.bin")) for name in ("then", "since", "later")}
    table.commit(*adds.values(), age=90)
    table.commit(table.remove(adds["then"], age=20.1), table.cdc("_change_data/then", age=20), age=20)
    table.commit(table.remove(adds["since"], age=50), table.cdc("_change_data/since", age=10), age=10)
    table.commit(table.remove(adds["later"], age=50), table.cdc("_change_data/later", age=5), age=5)
    table.log.checkpoint(now_ms=table.now_ms)
    assert table.log.update().tombstones().is_empty()
    found = needed(table, age=10)
    asked = [f"{name}{end}" for name in adds for end in ("", ".bin")] + [f"_change_data/{name}" for name in adds]
    assert held(found.others, *asked) == {
        "since", "since.bin", "_change_data/since", "later", "later.bin", "_change_data/later",
    }  # fmt: skip


def test_what_only_a_manifest_names_stays_and_is_counted():
    table = yard()
    old, other = table.named("old"), table.named("other")
    table.commit(old, other, age=90)
    publish(table.log)
    table.commit(table.remove(old, age=80), table.named("new"), age=80)
    found = needed(table, age=10)
    assert held(found.others, "old", "other", "new", "never") == {"old"}
    assert held(found.live, "old", "other", "new", "never") == {"other", "new"}
    assert found.held_back == 1
    young = needed(table, age=85)
    assert held(young.others, "old", "other", "new", "never") == {"old"}
    assert young.held_back == 0, "a retained version reads it, too"


def test_a_location_that_nobody_can_place_keeps_each_file_that_it_may_mean():
    table = yard()
    adds = {
        name: table.named("x").replace(path=f"viewfs://cluster/mnt/{name}")
        for name in ("live", "young", "old", "since")
    }
    table.commit(*adds.values(), age=90)
    table.commit(table.remove(adds["young"], age=5), table.remove(adds["old"], age=50), age=80)
    table.commit(table.remove(adds["since"], age=50), age=5)
    found = needed(table, age=10)
    assert held(found.others, "live", "mnt/live", "young", "old", "since", "mnt") == {
        "live", "mnt/live", "young", "since",
    }  # fmt: skip
    assert held(found.live, "live", "young", "old", "since") == set()
    table.store.put("_symlink_format_manifest/manifest", b"viewfs://cluster/mnt/named\n")
    assert held(needed(table, age=10), "named", "mnt/named", "mnt") == {"named", "mnt/named"}


def lines(*actions):
    return "\n".join(json.dumps(action) for action in actions).encode()


def raw(table, data):
    """A commit as somebody else wrote it."""
    table.builder.commit()
    table.store.put(f"{LOG_DIR}/{commit_file(table.builder.version)}", data)
    return table.builder.version


def file(path, **more):
    return {"path": path, "partitionValues": {}, "size": 7, "modificationTime": 0, "dataChange": True, **more}


DV = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40, "cardinality": 6}
ACTIONS = (
    {"commitInfo": {"operation": "MERGE"}},
    {"add": file("a", deletionVector=DV)},
    {"remove": {"path": "r", "dataChange": True, "size": 9, "deletionVector": DV}},
    {"remove": {"path": "without a size", "dataChange": True}},
    {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 5, "dataChange": False}},
)
ROWS = [
    ("add", "a", "uab^-aqEH.-t@S}K{vb[*k^", 7, 40),
    ("remove", "r", "uab^-aqEH.-t@S}K{vb[*k^", 9, 40),
    ("remove", "without a size", None, None, None),
    ("cdc", "_change_data/c", None, 5, None),
]


@pytest.mark.parametrize("indent", [None, 2])
def test_the_files_of_a_commit_are_the_same_on_one_line_each_and_spread_over_several(indent):
    """Some writers spread an action over several lines; the short way to read a commit cannot take that."""
    table = yard()
    data = "\n".join(json.dumps(action, indent=indent) for action in ACTIONS).encode()
    version = raw(table, data)
    (with_adds,) = files_of_commits(table.log, [version], adds=True)
    assert (with_adds.version, with_adds.files.rows()) == (version, ROWS)
    (without,) = files_of_commits(table.log, [version])
    assert without.files.rows() == ROWS[1:]
    assert without.files.schema == with_adds.files.schema
    assert without.files.columns == ["kind", "path", "vector", "size", "vector_size"]


def test_what_a_commit_that_is_spread_over_lines_removed_or_tells_of_changes_stays():
    table = yard()
    table.commit(table.named("x"), age=90)
    data = "\n".join(json.dumps(action, indent=1) for action in ACTIONS).encode()
    version = raw(table, data)
    table.backdate(f"{LOG_DIR}/{commit_file(version)}", age=5)
    found = needed(table, age=10)
    vector_file = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert held(found.others, "r", vector_file, "_change_data/c", "x") == {"r", vector_file, "_change_data/c"}


@pytest.mark.parametrize("adds", [False, True])
def test_numbers_as_text_and_missing_sizes_are_read(adds):
    table = yard()
    small = {key: DV[key] for key in ("storageType", "pathOrInlineDv")}
    version = raw(table, lines({"remove": {"path": "r", "size": "9", "deletionVector": small}}))
    (found,) = files_of_commits(table.log, [version], adds=adds)
    assert found.files.rows() == [("remove", "r", "uab^-aqEH.-t@S}K{vb[*k^", 9, 0)]


def test_commits_come_in_the_order_asked_for_and_those_cleaned_up_are_left_out_or_an_error():
    table = yard()
    versions = [raw(table, lines({"remove": {"path": f"r{number}"}})) for number in range(20)]
    found = files_of_commits(table.log, versions[::-1])
    assert [(item.version, item.files["path"].to_list()) for item in found] == [
        (version, [f"r{number}"]) for number, version in reversed(list(enumerate(versions)))
    ]
    table.store.delete_many([f"{LOG_DIR}/{commit_file(versions[3])}"])
    assert [item.version for item in files_of_commits(table.log, versions[2:5])] == [versions[2], versions[4]]
    with pytest.raises(ObjectNotFoundError):
        files_of_commits(table.log, versions[2:5], all_of_them=True)
    assert files_of_commits(table.log, []) == []


def test_nothing_goes_when_a_commit_is_damaged():
    table = yard()
    table.commit(table.named("x"), age=90)
    version = raw(table, b'{"remove":{"path":"r"}}\n{"remo')
    with pytest.raises(LogCorruptedError, match=str(version)):
        files_of_commits(table.log, [version])


def test_a_timeline_ends_at_the_version_asked_for_and_never_goes_back():
    table = yard()
    for age in (70, 40, 60, 30):
        table.commit(age=age)
    line = CommitTimeline.of(table.log, 2)
    start = table.now_ms - 70 * HOUR_MS
    assert (line.versions, line.newest) == ((0, 1, 2), 2)
    assert line.times_ms == (start, start + 30 * HOUR_MS, start + 30 * HOUR_MS + 1)
    assert CommitTimeline.of(table.log, 3).versions == (0, 1, 2, 3)


class HeldInAnyOrder:
    """A log that keeps what it found first at first."""

    def __init__(self, log):
        self.log = log

    def held(self):
        listing = self.log.held()
        return dataclasses.replace(listing, commits=dict(reversed(listing.commits.items())))


def test_a_timeline_is_in_the_order_of_versions():
    table = yard()
    for age in (70, 60):
        table.commit(age=age)
    assert CommitTimeline.of(HeldInAnyOrder(table.log), 1) == CommitTimeline.of(table.log, 1)


def test_a_version_is_retained_until_the_next_one_is_older_than_the_cut_off():
    line = CommitTimeline(versions=(3, 4, 6), times_ms=(10, 20, 40), newest=6)
    assert line.is_retained(6, 1_000) and not line.is_retained(7, 0)
    assert line.is_retained(3, 20) and not line.is_retained(3, 21)
    assert line.is_retained(2, 10) and not line.is_retained(2, 11)
    assert line.is_retained(5, 40) and not line.is_retained(5, 41)
    assert not line.is_retained(4, 0), "when version 5 came is not known"
    assert not line.is_retained(1, 0)


class Torn(CountingStore):
    """A store of which whole readings of some objects end early."""

    def __init__(self, inner, torn):
        super().__init__(inner)
        self.torn = torn

    def read(self, path):
        data = super().read(path)
        return data[: data.index(b"\n") + 1] if path == self.torn else data


@pytest.mark.parametrize("which", [0, 1])
def test_nothing_goes_when_a_commit_is_read_in_part_although_what_was_read_is_whole_lines(which):
    table = yard()
    versions = [raw(table, lines({"remove": {"path": f"r{number}"}}, {"cdc": file("c")})) for number in range(2)]
    log = DeltaLog(Torn(table.store, f"{LOG_DIR}/{commit_file(versions[which])}"))
    with pytest.raises(StorageError, match="in part"):
        files_of_commits(log, versions)


def test_what_two_clones_read_is_counted_once_and_what_is_their_own_not_at_all():
    table = yard()
    shared, gone = table.named("shared"), table.named("gone")
    table.commit(shared, gone, age=90)
    clones = [DeltaLog(MemoryStore(f"memory://vacuumneeded{next(_NAMES)}/clone")) for _ in range(2)]
    for clone in clones:
        clone_table(table.log, clone, shallow=True)
    start = start_transaction(clones[0])
    files = start.snapshot.files
    (old,) = [add for add in files.adds(files.core) if add.path.endswith("/gone")]
    start.commit([old.remove(deletion_timestamp=0), table.named("own")], Operation(name="WRITE"))
    clones[0].store.set_time(f"{LOG_DIR}/{commit_file(1)}", table.now_ms - 50 * HOUR_MS)
    table.commit(table.remove(shared, age=80), table.remove(gone, age=80), age=80)
    table.commit(age=70)
    log, cutoff_ms = table.log, table.now_ms - 10 * HOUR_MS
    both = find_needed(log, log.update(), cutoff_ms=cutoff_ms, clones=clones)
    assert held(both.others, "shared", "gone", "own") == {"shared", "gone"}
    assert both.held_back == 2
    first = find_needed(log, log.update(), cutoff_ms=cutoff_ms, clones=clones[:1])
    assert held(first.others, "shared", "gone", "own") == {"shared"}, "what it removed has expired there, too"
    assert first.held_back == 1
    earlier = find_needed(log, log.update(), cutoff_ms=table.now_ms - 85 * HOUR_MS, clones=clones)
    assert earlier.held_back == 0, "a version of the table itself reads both"
