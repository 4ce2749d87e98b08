"""The commit landed, its reply was lost, and all that is ever read of it is a part: whoever wrote files keeps them.

Every command that writes files before its commit is here; each of them deletes its files when the commit is lost.
"""

from __future__ import annotations

import itertools
import uuid

import pytest

from pydelta.commands.engine import BoundCondition, RewriteOutput
from pydelta.commands.write.command import WriteMode, WriteOptions
from pydelta.errors import CommitStateUnknownError, StorageError
from pydelta.log import DeltaLog
from pydelta.predicate import Column, Compare, Literal
from pydelta.protocol.actions import AddFile, CommitInfo, decode_commit
from pydelta.protocol.paths import commit_file, decode_log_path
from pydelta.protocol.vectors import vector_path
from pydelta.settings import Settings
from pydelta.storage import open_store
from pydelta.storage.memory import MemoryStore
from pydelta.testing import Fault, FaultKind, FaultyStore
from pydelta.testing.commands import clone_table, delete, write_table
from pydelta.testing.operations import (
    add_file,
    create_table,
    hide_value,
    optimize,
    purge,
    update_value,
    upsert_value,
)
from pydelta.testing.row_files import LogEngine
from pydelta.tools.inventory import find_deliveries, load_deliveries, write_delivery
from pydelta.txn.commit import SILENT

_NAMES = itertools.count()
KEPT = {
    "0 bytes": lambda size: 0,
    "1 byte": lambda size: 1,
    "half": lambda size: size // 2,
    "all but one byte": lambda size: size - 1,
}


def put(store, add):
    store.put(decode_log_path(add.path).text, b"x" * add.size)
    return add


def x_is(value):
    return BoundCondition(
        sql=f"x = {value}",
        conjuncts=(Compare("=", Column(("x",)), Literal(value, "long")),),
        references=frozenset({"x"}),
        native=value,
    )


class Engine(LogEngine):
    """Writes real (empty) files, and deletes what is discarded."""

    def __init__(self, store):
        self.store = store

    def bind_condition(self, snapshot, condition):
        return x_is(condition)

    def write_without(self, snapshot, files, rows):
        written = super().write_without(snapshot, files, rows)
        for add in written.adds:
            put(self.store, add)
        return written

    def discard(self, snapshot, adds):
        self.store.delete_many([decode_log_path(add.path).text for add in adds])


class Rows:
    """Claims to have written one file."""

    def __init__(self, store, schema):
        self.store, self.schema = store, schema

    def write(self, target):
        return RewriteOutput(adds=(put(self.store, add_file("9", [9])),), num_rows=1)


def write(log, inner):
    how = WriteOptions.parse({}, mode=WriteMode.OVERWRITE, settings=Settings())
    return write_table(log, Rows(inner, log.update().schema), how, Engine(inner), Settings())


def clone(log, inner):
    source = DeltaLog(MemoryStore(f"memory://unknown{next(_NAMES)}/source"))
    create_table(source, [put(source.store, add_file("1", [1]))])
    return clone_table(source, log, shallow=False, replace=True)


COMMANDS = {
    "delete": lambda log, inner: delete(log, Engine(inner), 1),
    "hide": lambda log, inner: hide_value(1).run(log, SILENT),
    "update": lambda log, inner: update_value(1, 300).run(log, SILENT),
    "merge": lambda log, inner: upsert_value(1, 310, "3").run(log, SILENT),
    "purge": lambda log, inner: purge().run(log, SILENT),
    "optimize": lambda log, inner: optimize().run(log, SILENT),
    "write": write,
    "clone": clone,
}


CASES = [
    pytest.param(name, vectors, id=f"{name}{' with vectors' if vectors else ''}")
    for name in COMMANDS
    for vectors in ((True,) if name in ("update", "purge") else (False, True))
]


def prepared(*, vectors):
    store = MemoryStore(f"memory://unknown{next(_NAMES)}/t")
    files = [put(store, add_file("1", [1, 2])), put(store, add_file("1", [3])), put(store, add_file("2", [1, 5]))]
    create_table(DeltaLog(store), files, delta_enableDeletionVectors="true" if vectors else "false")
    return store


def torn_commit(version, kept):
    """The put of a version lands, and no reading of it is whole."""
    name = commit_file(version)
    return (
        Fault(kind=FaultKind.LOSE_REPLY, call=0, verb="put_if_absent", path_contains=name),
        Fault(kind=FaultKind.TEAR, call=0, verb="read", path_contains=name, times=10**6, kept=kept),
    )


def assert_whole(store, version):
    """The version is there, and so is every file that it adds."""
    path = f"_delta_log/{commit_file(version)}"
    actions = decode_commit(store.read(path), source=path)
    assert any(isinstance(action, CommitInfo) for action in actions)
    there = {info.path for info in store.list_all()}
    adds = [action for action in actions if isinstance(action, AddFile)]
    vectors = [vector_path(add.deletion_vector) for add in adds if add.deletion_vector is not None]
    assert adds
    assert {decode_log_path(path).text for path in vectors} <= there
    return {decode_log_path(add.path).text for add in adds}, there


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize(("name", "vectors"), CASES)
def test_a_command_whose_commit_is_never_read_whole_keeps_its_files(name, vectors, kept, monkeypatch):
    store = prepared(vectors=vectors)
    if name == "purge":
        hide_value(1).run(DeltaLog(store), SILENT)
    head = DeltaLog(store).update().version
    discarded = []
    monkeypatch.setattr(LogEngine, "discard", lambda self, snapshot, adds: discarded.extend(adds))
    faulty = FaultyStore(store, *torn_commit(head + 1, kept))
    with pytest.raises(CommitStateUnknownError):
        COMMANDS[name](DeltaLog(faulty), store)
    assert faulty.fired
    assert discarded == []
    assert [path for verb, path in faulty.calls if verb == "delete_many"] == []
    added, there = assert_whole(store, head + 1)
    if name in ("delete", "write", "clone"):
        assert added <= there


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_a_load_of_an_inventory_keeps_its_files(kept, tmp_path):
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "a").write_bytes(b"1")
    write_delivery(str(tmp_path / "lake"), str(tmp_path / "deliveries"))
    deliveries = open_store(str(tmp_path / "deliveries"))
    store = MemoryStore(f"memory://{uuid.uuid4()}/report")
    with pytest.raises(CommitStateUnknownError):
        load_deliveries(
            DeltaLog(FaultyStore(store, *torn_commit(0, kept))), deliveries, find_deliveries(deliveries, "file")
        )
    added, there = assert_whole(store, 0)
    assert added <= there


def test_a_commit_that_is_surely_lost_gives_its_files_back():
    """The other side: what is kept above is kept for the doubt, not because nothing is ever deleted."""
    for name in ("delete", "write", "clone"):
        store = prepared(vectors=False)
        before = {info.path for info in store.list_all() if info.path.startswith("p=")}
        refused = Fault(kind=FaultKind.FAIL, call=0, verb="put_if_absent", times=10**6)
        store_that_loses = Refusing(store, refused)
        with pytest.raises(StorageError):
            COMMANDS[name](DeltaLog(store_that_loses), store)
        assert {info.path for info in store.list_all() if info.path.startswith("p=")} == before, name


class Refusing(FaultyStore):
    def put_if_absent(self, path, data):
        raise StorageError("read-only")


def test_a_delivery_whose_last_reply_was_lost_keeps_its_data(tmp_path):
    from pydelta.storage import register_store

    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "a").write_bytes(b"1")
    inner = MemoryStore(f"memory://{uuid.uuid4()}/deliveries")
    lost = Fault(kind=FaultKind.LOSE_REPLY, call=0, verb="put", path_contains="manifest.checksum")
    register_store("unknowninventory", lambda uri, options: FaultyStore(inner, lost))
    with pytest.raises(StorageError):
        write_delivery(str(tmp_path / "lake"), "unknowninventory://x/deliveries")
    (found,) = find_deliveries(inner, "file")
    assert found.complete
    loaded = load_deliveries(DeltaLog(MemoryStore(f"memory://{uuid.uuid4()}/report")), inner, [found])
    assert loaded.buckets[0].rows > 0
