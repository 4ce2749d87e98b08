"""FSCK: what is wrong is found, nothing is changed without being told, and what can be repaired is."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from pydelta.api.cli.cli import main
from pydelta.errors import StorageError, TableNotFoundError, UnsafeOperationError
from pydelta.log import DeltaLog
from pydelta.log.vector_files import write_vectors
from pydelta.protocol.actions import Protocol
from pydelta.protocol.paths import decode_log_path
from pydelta.storage.local import LocalStore
from pydelta.storage.memory import MemoryStore
from pydelta.testing import Fault, FaultKind, FaultyStore
from pydelta.testing.commands import clone_table, fsck
from pydelta.testing.garbage import Yard

_NAMES = itertools.count()
HINT = "_delta_log/_last_checkpoint"

VECTORS = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=("deletionVectors",),
    writer_features=("deletionVectors",),
)  # fmt: skip


def grown(store=None, **properties):
    """Versions 0 to 3 of five files, one of them removed again."""
    yard = Yard(store or MemoryStore(f"memory://fsck{next(_NAMES)}/t"), partition_columns=("p",), properties=properties)
    yard.commit(yard.add("p=1/a", age=1), yard.add("p=a b/ä %", age=1), age=1)
    old = yard.add("p=1/old", age=1)
    yard.commit(old, age=1)
    yard.commit(yard.remove(old, age=0), yard.add("p=1/b", age=1), age=1)
    yard.commit(yard.add("p=1/c", age=1), yard.cdc("_change_data/cdc", age=1), age=1)
    return yard


def objects(yard):
    return {info.path: yard.store.read(info.path) for info in yard.store.list_all()}


def commit(version):
    return f"_delta_log/{version:020}.json"


def checkpoint(version):
    return f"_delta_log/{version:020}.checkpoint.parquet"


def test_a_good_table_is_ok_and_stray_files_are_named():
    yard = grown()
    assert fsck(yard.log).ok
    yard.put("p=2/aborted", age=0, size=33)
    yard.put("_pydelta/x", age=0)
    report = fsck(yard.log, repair=True)
    assert report.ok
    assert (report.version, report.checked_files, report.repaired_version) == (3, 4, None)
    assert report.stray_files.select("path", "size").rows() == [("p=2/aborted", 33)]
    assert "p=2/aborted" in yard.files()


def test_missing_files_are_named_and_leave_the_log_when_told_so():
    yard = grown()
    yard.store.delete_many(["p=1/b", "p=a b/ä %"])
    before = objects(yard)
    report = fsck(yard.log)
    assert objects(yard) == before
    assert not report.ok
    assert set(report.missing_files) == {"p=1/b", "p=a%20b/%C3%A4%20%25"}
    repaired = fsck(yard.log, repair=True)
    assert repaired.repaired_version == 4
    snapshot = yard.log.update()
    assert set(snapshot.files.core["path"]) == {"p=1/a", "p=1/c"}
    info = yard.log.history(1)[0].commit_info
    assert (info.operation, info.get("operationMetrics")) == ("FSCK", {"numMissingFiles": "2"})
    assert fsck(yard.log).ok


def test_an_append_only_table_keeps_its_entries():
    yard = grown(**{"delta.appendOnly": "true"})
    yard.store.delete_many(["p=1/b"])
    with pytest.raises(UnsafeOperationError):
        fsck(yard.log, repair=True)


def test_files_of_a_clones_source_are_looked_for_where_they_are():
    source = grown()
    clone = Yard(MemoryStore(f"memory://fsck{next(_NAMES)}/clone"), partition_columns=("p",))
    root = source.store.root
    clone.commit(*(clone.named(name).replace(path=f"{root}/{name}") for name in ("p=1/a", "p=1/never")), age=1)
    assert fsck(clone.log).missing_files == (f"{root}/p=1/never",)


def test_a_file_that_is_cut_short_is_named_and_left_alone():
    source = grown()
    clone = Yard(MemoryStore(f"memory://fsck{next(_NAMES)}/clone"), partition_columns=("p",))
    clone.commit(clone.named("p=1/a").replace(path=f"{source.store.root}/p=1/a"), age=1)
    for path in ("p=1/a", "p=a b/ä %"):
        source.store.put(path, b"x")
    said = "it has 1 bytes, but the log says 10"
    for _ in range(2):
        report = fsck(source.log, repair=True)
        assert set(report.damaged_files) == {("p=1/a", said), ("p=a%20b/%C3%A4%20%25", said)}
        assert (report.ok, report.missing_files, report.repaired_version) == (False, (), None)
    assert fsck(clone.log).damaged_files == ((f"{source.store.root}/p=1/a", said),)


@pytest.mark.parametrize("name", ["export-2024-01-01T10:00:00.parquet", "C:x.parquet", "file:x"])
def test_a_file_with_a_colon_in_its_name_is_a_file_of_the_table(name):
    yard = Yard(MemoryStore(f"memory://fsck{next(_NAMES)}/t"))
    yard.commit(yard.add(name, age=1).replace(path=name), age=1)
    report = fsck(yard.log)
    assert (report.ok, report.stray_files.height) == (True, 0)
    yard.store.delete_many([name])
    assert fsck(yard.log).missing_files == (name,)


@pytest.mark.parametrize("reason", ["not mounted", "no store", "store fails", "partly"])
def test_a_repair_is_refused_where_the_place_of_a_clones_files_cannot_be_looked_at(reason, tmp_path, monkeypatch):
    source = grown(LocalStore(str(tmp_path / "disk" / "p%25q")))
    clone = Yard(LocalStore(str(tmp_path / "clone")), partition_columns=("p",))
    root = source.store.root.replace("file:///", "file:/")
    elsewhere = {"no store": "nowhere:/t/x", "store fails": "s3a://b/t/x"}.get(reason, f"{root}/p=1/a")
    clone.commit(clone.add("p=1/own", age=1), clone.named("x").replace(path=elsewhere), age=1)
    clone.store.delete_many(["p=1/own"])
    if reason == "not mounted":
        (tmp_path / "disk").rename(tmp_path / "away")
        (tmp_path / "disk").mkdir()
    elif reason == "partly":
        (tmp_path / "disk" / "p%25q" / "_delta_log").rename(tmp_path / "away")
        source.store.delete_many(["p=1/a"])
    elif reason == "store fails":
        failing = FaultyStore(MemoryStore("memory://b/t"), Fault(kind=FaultKind.FAIL, call=0, times=99))
        monkeypatch.setattr("pydelta.log.vector_files.open_store", lambda folder, options: failing)
    before = objects(clone)
    report = fsck(clone.log)
    assert (report.ok, report.missing_files) == (False, ("p=1/own",))
    ((folder, why),) = report.unreachable
    assert why
    assert folder == decode_log_path(elsewhere).place(clone.store.root)[0]
    with pytest.raises(UnsafeOperationError, match="cannot be searched"):
        fsck(clone.log, repair=True)
    assert objects(clone) == before


def test_a_repair_takes_out_a_clones_file_that_is_gone_from_a_source_that_is_there(tmp_path):
    source = grown(LocalStore(str(tmp_path / "p%25q")))
    clone = Yard(LocalStore(str(tmp_path / "clone")), partition_columns=("p",))
    clone_table(source.log, clone.log, shallow=True)
    assert fsck(clone.log).ok
    source.store.delete_many(["p=a b/ä %"])
    report = fsck(clone.log, repair=True)
    assert [path.rpartition("/")[2] for path in report.missing_files] == ["%C3%A4%20%25"]
    assert report.repaired_version == 1
    assert fsck(clone.log).ok


def test_a_vectors_file_that_is_cut_short_is_named_and_left_alone():
    yard = Yard(MemoryStore(f"memory://fsck{next(_NAMES)}/t"))
    rows = [np.array([0], dtype=np.uint64), np.array([1], dtype=np.uint64)]
    vectors, (path,) = write_vectors(rows, store=yard.store)
    yard.builder.protocol = VECTORS
    yard.commit(*(yard.add(name, age=1, vector=dv) for name, dv in zip("xy", vectors, strict=True)), age=1)
    assert fsck(yard.log).ok
    whole = yard.store.read(path)
    yard.store.put(path, whole[:-1])
    report = fsck(yard.log, repair=True)
    ((name, why),) = report.damaged_vectors
    assert (name, report.ok, report.repaired_version, report.missing_vectors) == ("y", False, None, ())
    assert why == f"{path} has {len(whole) - 1} bytes, but the vector ends at {len(whole)}"


def test_a_missing_vector_is_named_and_left_alone():
    yard = Yard(MemoryStore(f"memory://fsck{next(_NAMES)}/t"))
    rows = [np.array([0], dtype=np.uint64)]
    (good,), _ = write_vectors(rows, store=yard.store)
    (lost,), (path,) = write_vectors(rows, store=yard.store, random_folders=True)
    yard.builder.protocol = VECTORS
    yard.add("x", age=1)
    yard.add("y", age=1)
    yard.commit(yard.named("x", vector=good), yard.named("y", vector=lost), age=1)
    assert fsck(yard.log).ok
    yard.store.delete_many([path])
    report = fsck(yard.log, repair=True)
    assert report.missing_vectors == ("y",)
    assert report.repaired_version is None
    assert not report.ok


def test_holes_and_damaged_commits_are_named():
    yard = grown()
    yard.log.checkpoint()
    yard.store.delete_many([commit(1)])
    report = fsck(yard.log)
    assert report.holes == (1,)
    assert report.unreadable is None
    yard.store.put(commit(2), b'{"add":{"path":1}}\n{')
    report = fsck(yard.log)
    assert [version for version, _ in report.damaged_commits] == [2]
    assert report.version == 3
    yard.store.delete_many([checkpoint(3)])
    report = fsck(yard.log, repair=True)
    assert report.version is None
    assert report.unreadable
    with pytest.raises(TableNotFoundError):
        fsck(DeltaLog(MemoryStore(f"memory://fsck{next(_NAMES)}/none")))


@pytest.mark.parametrize("damage", [b"", b"PAR1 nothing PAR1"])
@pytest.mark.parametrize("newest", [True, False])
def test_a_checkpoint_that_cannot_be_read_makes_way_for_one_that_can(damage, newest):
    yard = grown()
    yard.log.checkpoint()
    yard.store.put(checkpoint(3), damage)
    if not newest:
        yard.commit(yard.add("p=1/d", age=1), age=1)
    report = fsck(yard.log)
    assert [name for name, _ in report.damaged_checkpoints] == [checkpoint(3).rpartition("/")[2]]
    assert report.damaged_hint is (damage == b"")
    assert fsck(yard.log, repair=True).removed_checkpoints
    after = fsck(yard.log)
    assert after.ok
    assert yard.log.update().files.core.height == 4 + (not newest)
    assert yard.store.head(checkpoint(3 if newest else 4)) is not None


def test_parts_of_a_checkpoint_that_is_not_all_there_and_a_hint_that_leads_nowhere():
    yard = grown()
    part = "_delta_log/00000000000000000002.checkpoint.0000000001.0000000002.parquet"
    yard.store.put(part, b"x")
    yard.store.put(HINT, b"{")
    report = fsck(yard.log)
    assert report.damaged_checkpoints == ((part.rpartition("/")[2], "other parts of it are missing"),)
    assert report.damaged_hint
    fsck(yard.log, repair=True)
    assert yard.store.head(part) is not None, "somebody may be writing the other parts just now"
    yard.store.set_time(part, 1_600_000_000_000)
    fsck(yard.log, repair=True)
    assert fsck(yard.log).ok
    assert yard.store.head(part) is None


@pytest.mark.parametrize("newest", [True, False])
def test_nothing_of_a_checkpoint_goes_before_there_is_another(newest):
    yard = grown()
    yard.log.checkpoint()
    yard.store.put(checkpoint(3), b"PAR1 what may be mended by hand PAR1")
    if not newest:
        yard.commit(yard.add("p=1/d", age=1), age=1)
    before = objects(yard)
    full = Fault(kind=FaultKind.FAIL, call=0, verb="open_writer", path_contains=".checkpoint.", times=99)
    with pytest.raises(StorageError):
        fsck(DeltaLog(FaultyStore(yard.store, full)), repair=True)
    assert objects(yard) == before


def test_a_checkpoint_that_could_not_be_read_once_is_no_damage():
    yard = grown()
    yard.log.checkpoint()
    torn = Fault(kind=FaultKind.TEAR, call=0, verb="read", path_contains=".checkpoint.", times=99)
    with pytest.raises(StorageError, match="read in part"):
        fsck(DeltaLog(FaultyStore(yard.store, torn)), repair=True)
    assert yard.store.head(checkpoint(3)) is not None
    assert fsck(yard.log).ok


def test_the_command_line_says_it_all_and_ends_with_4(capsys, tmp_path):
    yard = grown(LocalStore(str(tmp_path)))

    def run(*argv):
        with pytest.raises(SystemExit) as stopped:
            main(["fsck", str(tmp_path), *argv])
        return int(stopped.value.code or 0), capsys.readouterr()

    yard.put("p=1/stray", age=1)
    code, said = run()
    assert code == 0
    assert "1 stray files (10 bytes)" in said.out
    yard.store.delete_many(["p=1/b"])
    DeltaLog.clear_cache()
    code, said = run()
    assert code == 4
    assert "missing file: p=1/b" in said.err
    assert "--repair" in said.err
    code, said = run("--json")
    assert json.loads(said.out)["missingFiles"] == ["p=1/b"]
    code, said = run("--repair")
    assert code == 0
    assert "version 4" in said.out
    assert run()[0] == 0
    DeltaLog.clear_cache()
