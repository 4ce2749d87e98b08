"""VACUUM LITE: from the log alone, and still possible when the log's beginning is gone."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from pydelta.commands.vacuum.command import Vacuum
from pydelta.commands.vacuum.needed import CommitTimeline
from pydelta.commands.vacuum.notes import LAST_VACUUM, LiteRange, plan_lite, read_clean_version
from pydelta.errors import CannotVacuumLiteError
from pydelta.log import DeltaLog
from pydelta.log.vector_files import write_vectors
from pydelta.manifests import publish
from pydelta.protocol.actions import Protocol
from pydelta.storage.local import LocalStore
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.testing.commands import vacuum
from pydelta.testing.garbage import Yard

_NAMES = itertools.count()


def new_yard(*columns):
    return Yard(MemoryStore(f"memory://lite{next(_NAMES)}/t"), partition_columns=columns)


def run(yard, mode="lite", **request):
    return vacuum(yard.log, Vacuum(mode=mode, **request), now_ms=yard.now_ms)


def clean(yard):
    return read_clean_version(yard.store)


def grown():
    """Versions 0 and 1 are old, 2 is young; a file went in each of the last two."""
    yard = new_yard()
    one, two, three = (yard.add(name, age=900) for name in ("one", "two", "three"))
    yard.commit(one, two, three, age=900)
    yard.commit(yard.remove(one, age=800), age=800)
    yard.commit(yard.remove(two, age=5), age=5)
    yard.put("aborted", age=500)
    return yard


def test_what_the_log_says_was_removed_goes_without_a_listing():
    yard = grown()
    store = CountingStore(yard.store)
    planned = run(yard, dry_run=True)
    result = vacuum(DeltaLog(store), Vacuum(mode="lite"), now_ms=yard.now_ms)
    assert set(planned.files["path"]) == set(result.files["path"]) == {"one"}
    assert yard.files() - {"_pydelta/manifests.json"} == {"two", "three", "aborted"}
    assert (result.deleted, result.bytes, result.list_requests) == (1, 10, 0)
    assert not store.paths("list_page")
    assert json.loads(yard.store.read(LAST_VACUUM)) == {"latestCommitVersionOutsideOfRetentionWindow": 1}
    assert yard.store.read(LAST_VACUUM).endswith(b"}\n")
    assert [record.commit_info.operation for record in yard.log.history(2)] == ["VACUUM END", "VACUUM START"]
    assert run(yard).deleted == 0


def test_a_later_run_begins_where_the_last_one_ended():
    yard = grown()
    run(yard)
    yard.now_ms += 3_600_000 * 200
    store = CountingStore(yard.store)
    result = vacuum(DeltaLog(store), Vacuum(mode="lite"), now_ms=yard.now_ms)
    assert set(result.files["path"]) == {"two"}
    first = [path for path in store.paths("read") if path in (commit(0), commit(1))]
    assert len(first) == len(set(first)), "once to load the table, and not again"
    assert clean(yard) >= 2


def commit(version):
    return f"_delta_log/{version:020}.json"


def hole(yard, version):
    yard.store.delete_many([commit(version)])


def test_without_the_logs_beginning_a_full_run_makes_it_possible_again():
    yard = grown()
    yard.log.checkpoint(now_ms=yard.now_ms)
    hole(yard, 0)
    with pytest.raises(CannotVacuumLiteError, match="no longer has version 0") as caught:
        run(yard)
    assert caught.value.code == "DELTA_CANNOT_VACUUM_LITE"
    assert clean(yard) is None
    run(yard, mode="full", dry_run=True)
    assert clean(yard) is None
    assert run(yard, mode="full").deleted == 2
    assert clean(yard) == 1
    assert run(yard).deleted == 0
    hole(yard, 1)
    assert run(yard).deleted == 0


def test_a_run_over_a_part_of_the_table_records_nothing():
    yard = new_yard("p")
    old = yard.add("p=1/x", age=900)
    yard.commit(old, age=900)
    yard.commit(yard.remove(old, age=800), age=800)
    assert run(yard, where="p = '2'").deleted == 0
    assert clean(yard) is None
    assert run(yard, mode="full", where="p = '2'").deleted == 0
    assert clean(yard) is None
    assert run(yard).deleted == 1
    assert clean(yard) >= 1


def test_what_a_manifest_holds_back_is_not_forgotten():
    yard = new_yard("p")
    old = yard.add("p=1/old", age=900)
    yard.commit(old, age=900)
    publish(yard.log)
    new = yard.add("p=1/new", age=500)
    yard.commit(yard.remove(old, age=500), new, age=500)
    assert run(yard).deleted == 0
    assert clean(yard) == 0, "version 1 has to be looked at again"
    assert run(yard, mode="full").deleted == 0
    assert clean(yard) == 0
    publish(yard.log)
    assert set(run(yard).files["path"]) == {"p=1/old"}
    assert clean(yard) >= 1


def test_change_data_and_deletion_vectors_are_told_by_the_log():
    yard = new_yard()
    rows = [np.array([0], dtype=np.uint64)]
    (first,), (first_path,) = write_vectors(rows, store=yard.store)
    (second,), (second_path,) = write_vectors(rows, store=yard.store)
    features = ("deletionVectors",)
    yard.builder.protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=features, writer_features=features
    )
    change = yard.cdc("_change_data/cdc-0", age=900)
    plain = yard.add("x", age=900)
    one, two = yard.named("x", vector=first), yard.named("x", vector=second)
    yard.commit(plain, age=900)
    yard.commit(yard.remove(plain, age=800), one, change, age=800)
    yard.commit(yard.remove(one, age=700), two, age=700)
    result = run(yard)
    sizes = dict(result.files.select("path", "size").iter_rows())
    assert sizes == {first_path: first.size_in_bytes, "_change_data/cdc-0": 10}
    assert yard.files() == {"x", second_path}


def test_hadoops_checksums_go_with_their_files(tmp_path):
    yard = Yard(LocalStore(str(tmp_path)))
    old = yard.add("old", age=900)
    yard.commit(old, yard.add("live", age=900), age=900)
    yard.commit(yard.remove(old, age=800), age=800)
    for name in (".old.crc", ".live.crc"):
        yard.put(name, age=900)
    assert (run(yard).deleted, yard.files()) == (1, {"live", ".live.crc"})


def test_files_of_a_shallow_clones_source_are_not_its_own():
    yard = new_yard()
    theirs = yard.named("x").replace(path="memory://elsewhere/t/x")
    above = yard.named("x").replace(path="memory://lite/../x")
    own = yard.add("in here", age=900).replace(path=f"{yard.store.root}/in%20here")
    yard.commit(theirs, above, own, age=900)
    yard.commit(*(yard.remove(add, age=800) for add in (theirs, above, own)), age=800)
    assert set(run(yard).files["path"]) == {"in here"}


def test_a_record_that_cannot_be_right_is_passed_over():
    for text in (b"", b"[]", b'{"latestCommitVersionOutsideOfRetentionWindow":null}', b'{"a":1}', b"\xff"):
        yard = grown()
        yard.store.put(LAST_VACUUM, text)
        assert run(yard).deleted == 1
    yard = grown()  # of a table that lay here before
    yard.store.put(LAST_VACUUM, b'{"latestCommitVersionOutsideOfRetentionWindow":99}')
    assert run(yard).deleted == 1


LINE = CommitTimeline(versions=(3, 4, 5, 6), times_ms=(10, 20, 30, 40), newest=6)
PLANS = [
    # clean version, cutoff, first and last version to look at (None: impossible)
    (2, 25, (3, 4)),
    (3, 25, (4, 4)),
    (4, 25, (5, 4)),
    (5, 25, (6, 4)),
    (2, 100, (3, 6)),
    (1, 25, None),
    (None, 25, None),
    (2, 5, (3, -1)),
    (1, 5, None),
    (7, 25, None),
]


@pytest.mark.parametrize(("clean_version", "cutoff", "expected"), PLANS)
def test_which_commits_are_looked_at(clean_version, cutoff, expected):
    if expected is None:
        with pytest.raises(CannotVacuumLiteError):
            plan_lite(LINE, clean_version=clean_version, cutoff_ms=cutoff)
    else:
        found = plan_lite(LINE, clean_version=clean_version, cutoff_ms=cutoff)
        assert found == LiteRange(first=expected[0], last=expected[1])
