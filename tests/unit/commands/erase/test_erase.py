"""Rows of keys leave the files, the history and the log of tables of every kind; rows of others do not."""

from __future__ import annotations

import uuid
from collections import Counter

import pyarrow as pa
import pytest

from pydelta.api.python.local import LocalTable
from pydelta.commands.erase.command import Erase
from pydelta.commands.run import Context, run
from pydelta.errors import (
    BindError,
    InvalidArgumentError,
    UnsafeOperationError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pydelta.log import DeltaLog
from pydelta.storage.memory import MemoryStore
from tests.erased import names_of_key

KEY = "ann é@example.org"
KINDS = {
    "plain": ({}, ()),
    "vectors": ({"delta.enableDeletionVectors": "true"}, ()),
    "a change feed": ({"delta.enableChangeDataFeed": "true"}, ()),
    "partitions of the key": ({}, ("who",)),
    "other partitions": ({}, ("part",)),
    "mapped columns": ({"delta.columnMapping.mode": "name"}, ("who",)),
    "row tracking": ({"delta.enableRowTracking": "true"}, ()),
    "v2 checkpoints": ({"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "3"}, ("who",)),
    "times in commits": ({"delta.enableInCommitTimestamps": "true"}, ()),
    "no statistics": ({"delta.dataSkippingNumIndexedCols": "0"}, ()),
    "compacted commits": ({"pydelta.log.compactionInterval": "2", "delta.checkpointInterval": "100"}, ()),
}


def rows(*who: str, part: str = "p", first: int = 0) -> pa.Table:
    return pa.table({"who": list(who), "n": list(range(first, first + len(who))), "part": [part] * len(who)})


def made(kind: str) -> LocalTable:
    """A table with a history in which the key is everywhere: rewritten, hidden, moved, and in conditions."""
    properties, partition_by = KINDS[kind]
    log = DeltaLog(MemoryStore(f"memory://erase{uuid.uuid4().hex}/t"))
    table = opened(log)
    definition = {"who": "string", "n": "long", "part": "string"}
    LocalTable.create(log.uri, definition, partition_by=partition_by, properties=properties)
    table.append(rows("bob", KEY, "eve", first=0))
    table.append(rows("zoe", "dan", first=10))
    table.append(rows(KEY, KEY, part="q", first=20))
    table.append(rows("bob", KEY, "ivy", first=30, part="q"))
    table.delete("n = 20")
    table.update(f"who = '{KEY}' AND n = 31", {"n": "99"})
    table.optimize()
    table.delete(f"who = '{KEY}' AND n = 1")
    return table


def opened(log: DeltaLog) -> LocalTable:
    return LocalTable(log)


def erase(table: LocalTable, keys=None, **how):
    return run(Erase(keys=keys or {"who": [KEY]}, **{"history": "drop", **how}), table._context)


def counted(table: LocalTable) -> Counter:
    return Counter((row["who"], row["n"], row["part"]) for row in table.scan().to_pylist())


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_key_is_left_and_nothing_of_another_is_lost(kind):
    table = made(kind)
    store = table._log.store
    before = counted(table)
    kept = Counter({row: count for row, count in before.items() if row[0] != KEY})
    assert before - kept == Counter({(KEY, 21, "q"): 1, (KEY, 99, "q"): 1})
    assert len(names_of_key(store, KEY)) >= 3

    done = erase(table)

    assert done.is_proven, done.left
    assert names_of_key(store, KEY) == []
    assert counted(table) == kept
    assert counted(LocalTable(DeltaLog(store))) == kept
    assert sum(rows.num_rows for rows in done.rows) == 2
    assert done.given_up == (0, table.version - 2)
    assert done.deleted_files >= 2

    table.append(rows("new", first=50))
    assert counted(LocalTable(DeltaLog(store))) == kept + Counter({("new", 50, "p"): 1})
    assert [row["operation"] for row in table.history()][:4] == ["WRITE", "ERASE END", "ERASE START", "ERASE"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_run_finds_nothing_and_makes_no_version(kind):
    table = made(kind)
    erase(table)
    version = table.version
    again = erase(table)
    assert again.is_proven
    assert not again.plan.is_needed
    assert table.version == version


def test_versions_that_were_given_up_are_refused_by_every_reader():
    table = made("a change feed")
    erase(table)
    for version in (0, 3):
        with pytest.raises(VersionNotFoundError, match="given up"):
            table.scan(version=version)
        with pytest.raises(VersionNotFoundError, match="given up"):
            table.restore(version)
        with pytest.raises(VersionNotFoundError, match="given up"):
            table._log.actions(version)


def test_a_dry_run_changes_nothing_and_counts_what_would_go():
    table = made("plain")
    store = table._log.store
    before = {info.path: store.read(info.path) for info in store.list_all()}
    found = erase(table, dry_run=True)
    assert {info.path: store.read(info.path) for info in store.list_all()} == before
    assert found.plan.gives_up == (0, table.version)
    assert set(found.plan.look.files["state"]) == {"live", "earlier"}
    assert not found.is_proven


def test_versions_are_given_up_with_consent_alone():
    table = made("plain")
    with pytest.raises(UnsafeOperationError, match=r"Versions 0 to \d+ .* given up"):
        erase(table, history=None)
    assert counted(table)[(KEY, 99, "q")] == 1


def test_a_key_that_is_nowhere_needs_no_consent():
    table = made("plain")
    version = table.version
    assert erase(table, {"who": ["nobody at all"]}, history=None).is_proven
    assert table.version == version


def test_numbers_and_days_are_keys_too():
    log = DeltaLog(MemoryStore(f"memory://erase{uuid.uuid4().hex}/t"))
    table = LocalTable(log)
    LocalTable.create(log.uri, {"id": "long", "day": "date", "price": "decimal(10,2)", "x": "integer"})
    days = pa.array([0, 1, 2, 3], pa.int32()).cast(pa.date32())
    prices = pa.array(["1.50", "2.50", "3.50", "4.50"]).cast(pa.decimal128(10, 2))
    table.append(pa.table({"id": [1, 2, 3, 4], "day": days, "price": prices, "x": pa.array([1, 2, 3, 4], pa.int32())}))
    done = erase(table, {"id": ["1"], "day": ["1970-01-02"], "price": ["3.5"], "x": ["77"]})
    assert done.is_proven
    assert table.scan().to_pydict()["id"] == [4]


def test_a_key_in_a_struct():
    log = DeltaLog(MemoryStore(f"memory://erase{uuid.uuid4().hex}/t"))
    table = LocalTable(log)
    LocalTable.create(log.uri, pa.schema({"u": pa.struct({"id": pa.string(), "n": pa.int64()})}))
    table.append(pa.table({"u": [{"id": KEY, "n": 1}, {"id": "bob", "n": 2}, None]}))
    assert erase(table, {"U.Id": [KEY]}).is_proven
    assert table.scan().to_pydict()["u"] == [{"id": "bob", "n": 2}, None]


REFUSED = {
    "no such column": ({"whom": ["x"]}, BindError, "no column whom"),
    "a list": ({"tags": ["x"]}, UnsupportedFeatureError, "not compared in one way"),
    "a double": ({"d": ["1.5"]}, UnsupportedFeatureError, "not compared in one way"),
    "no value of the type": ({"n": ["12x"]}, InvalidArgumentError, "not a value of its type"),
    "too large": ({"n": ["9223372036854775808"]}, InvalidArgumentError, "not a value of its type"),
    "an empty key": ({"who": ["a", ""]}, InvalidArgumentError, "is empty"),
    "no key": ({"who": []}, InvalidArgumentError, "no key"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_keys_that_do_not_fit_are_refused_without_being_shown(case):
    keys, kind, message = REFUSED[case]
    log = DeltaLog(MemoryStore(f"memory://erase{uuid.uuid4().hex}/t"))
    columns = {"who": pa.string(), "n": pa.int64(), "d": pa.float64(), "tags": pa.list_(pa.string())}
    LocalTable.create(log.uri, pa.schema(columns))
    with pytest.raises(kind, match=message) as refused:
        run(Erase(keys=keys, history="drop"), Context(log))
    assert "12x" not in str(refused.value)


def test_an_append_only_table_is_refused():
    log = DeltaLog(MemoryStore(f"memory://erase{uuid.uuid4().hex}/t"))
    LocalTable.create(log.uri, {"who": "string"}, properties={"delta.appendOnly": "true"})
    with pytest.raises(UnsafeOperationError, match="append-only"):
        run(Erase(keys={"who": [KEY]}, history="drop"), Context(log))


def test_files_of_no_version_and_other_tables():
    table = made("plain")
    store = table._log.store
    nested = LocalTable.create(f"{table._log.uri}/inner", rows(KEY))
    stray = next(store.read(info.path) for info in store.list_all("inner") if info.path.endswith(".parquet"))
    store.put("young.parquet", stray)
    store.put("_temporary/0/hidden.parquet", stray)
    done = erase(table)
    assert dict(done.left.files.select("path", "state").iter_rows()) == {
        "young.parquet": "young",
        "_temporary/0/hidden.parquet": "foreign",
    }
    assert not done.is_proven
    assert store.head("young.parquet") is not None
    assert nested.scan().num_rows == 1


def test_a_shallow_clone_keeps_its_files_until_it_has_its_own():
    table = made("plain")
    clone = table.clone(f"memory://clone{uuid.uuid4().hex}/t", shallow=True)
    held = sorted(clone._log.update().files.core["path"])
    with pytest.raises(UnsafeOperationError, match="still read by others: memory://clone"):
        erase(table)
    assert all(clone._log.file_exists(path) for path in held)
    assert (KEY, 99, "q") not in counted(table)
    for info in list(clone._log.store.list_all()):
        clone._log.store.delete_many([info.path])
    assert erase(table).is_proven
    assert names_of_key(table._log.store, KEY) == []


def test_a_key_of_its_own_for_deletions_leaves_nothing_in_memory_of_what_was_given_up():
    table = made("plain")
    log = table._log
    assert log.update().tombstones().height
    assert log.snapshot(1).version == 1
    done = erase(table, deleting=DeltaLog(log.store))
    assert done.is_proven
    assert log.update().tombstones().is_empty()
    with pytest.raises(VersionNotFoundError):
        log.snapshot(1)
