"""Every storage call of VACUUM goes wrong once: nothing that is needed is gone, and the next run finishes the work."""

from __future__ import annotations

import itertools

import polars as pl
import pytest

from pydelta.commands.vacuum.command import Vacuum, VacuumOptions
from pydelta.commands.vacuum.inventory_sources import from_frame
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.manifests import publish
from pydelta.protocol.actions import CommitInfo, decode_commit
from pydelta.protocol.paths import commit_file
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash
from pydelta.testing.commands import vacuum
from pydelta.testing.garbage import Yard

_NAMES = itertools.count()


def prepared(name):
    """One live file, one that is needed by a retained version, one that a manifest names, and garbage."""
    yard = Yard(MemoryStore(f"memory://vacuumfault{next(_NAMES)}/t"), partition_columns=("p",))
    live, lately, long_ago, told = (yard.add(f"p=1/{part}", age=900) for part in ("live", "lately", "long ago", "told"))
    yard.commit(live, lately, long_ago, told, age=900)
    publish(yard.log)
    yard.commit(yard.remove(long_ago, age=800), yard.remove(told, age=800), age=800)
    yard.commit(yard.remove(lately, age=10), age=10)
    if name != "lite":
        yard.put("p=1/aborted", age=500)
    yard.put("p=1/under way", age=1)
    yard.store.put("_symlink_format_manifest/p=1/manifest", f"{yard.store.root}/p=1/told\n".encode())
    return yard


def copy_of(yard):
    twin = Yard(MemoryStore(f"memory://vacuumfault{next(_NAMES)}/t"), partition_columns=("p",))
    for info in yard.store.list_all():
        twin.store.put(
            info.path, yard.store.read(info.path).replace(yard.store.root.encode(), twin.store.root.encode())
        )
        twin.store.set_time(info.path, info.modification_time_ms)
    return twin


def run(yard, store, name):
    inventory = None
    if name == "inventory":
        found = [info for info in yard.store.list_all() if not info.path.startswith("_")]
        inventory = from_frame(
            pl.DataFrame(
                [(info.path, info.size, False, info.modification_time_ms) for info in found],
                schema={"path": pl.String, "length": pl.Int64, "isDir": pl.Boolean, "modificationTime": pl.Int64},
                orient="row",
            )
        )
    options = VacuumOptions(list_workers=1, delete_workers=1, sleep=lambda seconds: None)
    mode = "lite" if name == "lite" else "full"
    return vacuum(DeltaLog(store), Vacuum(mode=mode, inventory=inventory), now_ms=yard.now_ms, options=options)


KEPT = {"p=1/live", "p=1/lately", "p=1/told", "p=1/under way"}


def data(yard):
    return {path for path in yard.files() if path.startswith("p=")}


def operations(yard):
    """What the history says; every commit is whole and none is missing."""
    head = DeltaLog(yard.store).update().version
    found = []
    for version in range(head + 1):
        path = f"_delta_log/{commit_file(version)}"
        infos = [a for a in decode_commit(yard.store.read(path), source=path) if isinstance(a, CommitInfo)]
        found.append((infos[0].operation, (infos[0].get("operationParameters") or {}).get("status")))
    return found


@pytest.mark.parametrize("kind", list(FaultKind), ids=lambda kind: kind.value)
@pytest.mark.parametrize("name", ["full", "lite", "inventory"])
def test_a_fault_at_any_call_loses_nothing_that_is_needed(name, kind):
    template = prepared(name)
    counted = copy_of(template)
    counting = CountingStore(counted.store)
    run(counted, counting, name)
    assert data(counted) == KEPT
    assert operations(counted)[-2:] == [("VACUUM START", None), ("VACUUM END", "COMPLETED")]
    for number in range(len(counting.calls)):
        yard = copy_of(template)
        faulty = FaultyStore(yard.store, Fault(kind=kind, call=number))
        done = crashed = refused = None
        try:
            done = run(yard, faulty, name)
        except SimulatedCrash as error:
            crashed = error
        except DeltaError as error:
            refused = error
        what = f"{kind.value} at call {number}, {faulty.calls[number]}"
        assert faulty.fired, what
        assert data(yard) >= KEPT, what
        told = operations(yard)
        if done is not None:
            assert data(yard) == KEPT, what
            assert told[-1] == ("VACUUM END", "COMPLETED"), what
        if crashed is not None:
            assert kind in (FaultKind.DIE_BEFORE, FaultKind.DIE_AFTER), what
        if refused is not None and ("VACUUM START", None) in told and told[-1][0] == "VACUUM END":
            assert told[-1][1] == "FAILED" or data(yard) == KEPT, what
        again = run(yard, yard.store, name)
        assert data(yard) == KEPT, what
        assert again.deleted <= 2, what
        assert operations(yard)[-1] == ("VACUUM END", "COMPLETED"), what
