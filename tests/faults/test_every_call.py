"""Every storage call of every operation goes wrong once; the table is opened again and has to be whole.

For each operation the calls are counted first. Then it runs again and again on the same table, and each time
another of its calls fails, loses its reply, or ends the process before or after it took effect.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from pydelta.errors import CommitStateUnknownError, DeltaError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import CommitInfo, decode_commit
from pydelta.protocol.paths import commit_file
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash
from pydelta.testing.operations import (
    LogOperation,
    Rows,
    add_file,
    alter,
    append,
    append_once,
    checkpoint,
    clone_over,
    compact,
    create_table,
    delete_partition,
    delete_value,
    drop,
    hide_value,
    optimize,
    overwrite,
    purge,
    rows_of,
    stream_batch,
    support,
    update_value,
    upsert_value,
)
from pydelta.txn.commit import SILENT

_NAMES = itertools.count()
BEGINNING: Rows = Counter({("1", 1): 1, ("1", 2): 1, ("1", 3): 1, ("2", 1): 1, ("2", 5): 1, ("3", 6): 1})


def create() -> LogOperation:
    def run(log, observer=SILENT):
        if log.update().version >= 0:
            return None
        return create_table(log, [add_file("9", [9])])

    return LogOperation(name="create", run=run, model=lambda rows: Counter({("9", 9): 1}))


OPERATIONS = {
    "append": append("1", [1, 100]),
    "overwrite": overwrite("1", [1, 101]),
    "delete value": delete_value(1),
    "delete partition": delete_partition("1"),
    "hide value": hide_value(1),
    "update value": update_value(1, 300),
    "upsert value": upsert_value(1, 310, "3"),
    "purge": purge(),
    "support": support("domainMetadata"),
    "drop": drop("domainMetadata"),
    "alter": alter("more"),
    "clone over": clone_over("1", [1, 103]),
    "compact": compact("1"),
    "optimize": optimize(),
    "append once": append_once("job", 1, "1", [1, 102]),
    "stream batch": stream_batch("query", 1, "1", [1, 104]),
    "checkpoint": checkpoint(),
    "create": create(),
}


def prepared(name: str, *, before_checkpoint: bool) -> MemoryStore:
    """A table (for ``create``: none) whose next version is, or is not, one that is checkpointed."""
    store = MemoryStore(f"memory://fault{next(_NAMES)}/t")
    if name == "create":
        return store
    files = [add_file("1", [1, 2]), add_file("1", [3]), add_file("2", [1, 5]), add_file("3", [6])]
    log = DeltaLog(store)
    create_table(log, files, delta_checkpointInterval="3", delta_enableDeletionVectors="true")
    commits = [append("0", [value]) for value in range(2 if before_checkpoint else 3)]
    if name == "purge":
        commits[-1] = hide_value(1)
    if name == "drop":
        commits[-1] = support("domainMetadata")
    for operation in commits:
        operation.run(log, SILENT)
    return store


def copy_of(store: MemoryStore) -> MemoryStore:
    twin = MemoryStore(f"memory://fault{next(_NAMES)}/t")
    for item in store.list_all():
        twin.put(item.path, store.read(item.path))
    return twin


def reopen(store: MemoryStore):
    return DeltaLog(store).update()


def check_whole(store: MemoryStore) -> list[str]:
    """Versions without a hole, each one whole; returns their transaction ids."""
    ids = []
    commits = [item.path for item in store.list_from("", prefix="_delta_log") if item.path.endswith(".json")]
    assert commits == [f"_delta_log/{commit_file(version)}" for version in range(len(commits))]
    for path in commits:
        actions = decode_commit(store.read(path), source=path)
        infos = [action for action in actions if isinstance(action, CommitInfo)]
        assert len(infos) == 1
        ids.append(infos[0].txn_id)
    assert len(set(ids)) == len(ids)
    return ids


def cases():
    for name, before_checkpoint in itertools.product(OPERATIONS, (True, False)):
        if name in ("create", "checkpoint") and before_checkpoint:
            continue
        yield pytest.param(name, before_checkpoint, id=f"{name}{' and its checkpoint' if before_checkpoint else ''}")


@pytest.mark.parametrize("kind", list(FaultKind), ids=lambda kind: kind.value)
@pytest.mark.parametrize(("name", "before_checkpoint"), list(cases()))
def test_a_fault_at_any_call_leaves_the_table_before_or_after(name, before_checkpoint, kind):
    operation = OPERATIONS[name]
    template = prepared(name, before_checkpoint=before_checkpoint)
    head, rows = reopen(template).version, rows_of(reopen(template))
    after = +operation.model(rows)
    counting = CountingStore(copy_of(template))
    done = operation.run(DeltaLog(counting), SILENT)
    total = len(counting.calls)
    assert total >= 2
    assert name == "checkpoint" or done.version == head + 1

    for number in range(total):
        store = copy_of(template)
        faulty = FaultyStore(store, Fault(kind=kind, call=number))
        committed = crashed = refused = None
        try:
            committed = operation.run(DeltaLog(faulty), SILENT)
        except SimulatedCrash as error:
            crashed = error
        except DeltaError as error:
            refused = error
        what = f"{kind.value} at call {number}, {faulty.calls[number]}"
        assert faulty.fired, what
        ids = check_whole(store)
        snapshot = reopen(store)
        landed = snapshot.version == head + 1
        assert landed or snapshot.version == head, what
        assert rows_of(snapshot) == (after if landed else rows), what
        if committed is not None:
            assert landed, what
            assert committed.version == snapshot.version
            assert rows_of(committed.snapshot) == after, what
        if refused is not None:
            assert not isinstance(refused, CommitStateUnknownError), what
            assert not landed, what
        if crashed is not None:
            assert kind in (FaultKind.DIE_BEFORE, FaultKind.DIE_AFTER), what
        # Whoever comes next can write, and the operation can be done again.
        again = append("7", [7]).run(DeltaLog(store), SILENT) if head >= 0 else None
        assert again is None or again.version == snapshot.version + 1
        if not landed and name != "checkpoint":
            operation.run(DeltaLog(store), SILENT)
            assert len(check_whole(store)) == len(ids) + (2 if again else 1)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "checkpoint"])
def test_a_lost_reply_to_any_put_does_not_fail_the_commit(name):
    operation = OPERATIONS[name]
    template = prepared(name, before_checkpoint=True)
    rows = rows_of(reopen(template))
    counting = CountingStore(copy_of(template))
    operation.run(DeltaLog(counting), SILENT)
    for verb in ("put_if_absent", "put"):
        for number in range(len(counting.paths(verb))):
            store = copy_of(template)
            faulty = FaultyStore(store, Fault(kind=FaultKind.LOSE_REPLY, call=number, verb=verb))
            done = operation.run(DeltaLog(faulty), SILENT)
            assert faulty.fired
            assert done.version == reopen(store).version
            assert rows_of(reopen(store)) == +operation.model(rows)
            check_whole(store)
