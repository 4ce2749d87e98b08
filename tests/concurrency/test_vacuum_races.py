"""VACUUM and another operation, merges of their phases evenly picked: what can be read stays, all garbage goes."""

from __future__ import annotations

import itertools

import pytest

from pydelta.commands.vacuum.command import Vacuum
from pydelta.errors import (
    ConcurrentDeleteReadException,
    DeltaConcurrentModificationException,
    UnsafeOperationError,
)
from pydelta.log import DeltaLog
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import restore, vacuum
from pydelta.testing.lockstep import interleavings, run_lockstep
from pydelta.testing.operations import (
    NO_PAUSE,
    add_file,
    append,
    checkpoint,
    clone_over,
    compact,
    create_table,
    delete_partition,
    delete_value,
    hide_value,
    optimize,
    overwrite,
    purge,
    rows_of,
    support,
    update_value,
    upsert_value,
)
from pydelta.testing.publishing import generate
from pydelta.testing.vacuuming import LONG_AGO_MS, litter, missing_files, vacuum_all
from pydelta.txn import start_transaction

_NAMES = itertools.count()
OTHERS = {
    "append": append("1", [1, 100]),
    "overwrite": overwrite("1", [1, 101]),
    "delete value": delete_value(1),
    "delete partition": delete_partition("1"),
    "hide value": hide_value(1),
    "update value": update_value(1, 300),
    "upsert value": upsert_value(1, 310, "3"),
    "compact": compact("1"),
    "optimize": optimize(),
    "purge": purge(),
    "checkpoint": checkpoint(),
    "support": support("vacuumProtocolCheck"),
    "clone over": clone_over("1", [1, 103]),
    "generate": generate(),
    "vacuum full": vacuum_all(),
    "vacuum lite": vacuum_all("lite"),
}
TURNS = 6  # begin, START, listing, deletion, END, and the end


def fresh():
    store = MemoryStore(f"memory://vacuumrace{next(_NAMES)}/t")
    files = [add_file("1", [1, 2]), add_file("1", [3, 4]), add_file("2", [1, 5]), add_file("3", [6])]
    create_table(DeltaLog(store), files, delta_enableDeletionVectors="true", delta_checkpointInterval="3")
    return store, litter(store)


@pytest.mark.parametrize("mode", ["full", "lite"])
@pytest.mark.parametrize("name", OTHERS)
def test_whatever_happens_meanwhile_only_garbage_goes(name, mode):
    other = OTHERS[name]
    schedules = list(interleavings("vacuum", TURNS, "other", 5))
    for schedule in schedules[:: 231 if mode == "lite" else 93]:
        store, garbage = fresh()
        known = {info.path for info in store.list_all()} - set(garbage)
        before = rows_of(DeltaLog(store).update())
        results = run_lockstep(
            {
                "vacuum": lambda step, store=store: vacuum_all(mode).run(DeltaLog(store), step),
                "other": lambda step, store=store: other.run(DeltaLog(store), step),
            },
            schedule,
        )
        failed = results["other"] if isinstance(results["other"], BaseException) else None
        assert not isinstance(results["vacuum"], BaseException), results["vacuum"]
        assert failed is None or isinstance(failed, DeltaConcurrentModificationException), failed
        assert missing_files(store, known) == [], schedule
        assert rows_of(DeltaLog(store).update()) == +(before if failed else other.model(before))
        left = {info.path for info in store.list_all()}
        if mode == "full":
            assert left.isdisjoint(garbage)
        vacuum(DeltaLog(store), Vacuum(retention_hours=1, enforce_retention=False))
        assert missing_files(store, known) == []
        assert {info.path for info in store.list_all()}.isdisjoint(garbage)


@pytest.mark.ci
def test_a_restore_never_brings_back_what_a_vacuum_deletes():
    """Version 0 has a file that was removed long ago; RESTORE and VACUUM meet in every merge of their phases."""
    came_back = refused = 0
    for schedule in interleavings("vacuum", TURNS, "restore", 4):
        store = MemoryStore(f"memory://vacuumrace{next(_NAMES)}/t")
        create_table(DeltaLog(store), [add_file("1", [1]), add_file("2", [2])])
        before = rows_of(DeltaLog(store).update())
        litter(store)
        delete_partition("2").run(DeltaLog(store))
        after = rows_of(DeltaLog(store).update())
        for info in list(store.list_all("_delta_log")):
            store.set_time(info.path, LONG_AGO_MS)
        known = {info.path for info in store.list_all()}
        results = run_lockstep(
            {
                "vacuum": lambda step, store=store: vacuum_all().run(DeltaLog(store), step),
                "restore": lambda step, store=store: restore(
                    DeltaLog(store),
                    version=0,
                    begin=lambda log: start_transaction(log, observer=step, backoff=NO_PAUSE),
                ),
            },
            schedule,
        )
        outcome = results["restore"]
        assert not isinstance(results["vacuum"], BaseException), results["vacuum"]
        assert missing_files(store, known) == [], schedule
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, (UnsafeOperationError, ConcurrentDeleteReadException)), outcome
            assert rows_of(DeltaLog(store).update()) == after
            refused += 1
        else:
            assert rows_of(DeltaLog(store).update()) == before
            came_back += 1
    assert came_back
    assert refused
