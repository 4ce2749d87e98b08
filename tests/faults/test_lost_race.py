"""The calls of an operation that loses a race and is moved behind the winner go wrong one by one."""

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
from pydelta.testing.operations import add_file, append, compact, create_table, delete_partition, overwrite, rows_of
from pydelta.txn.commit import COMMIT, SILENT

_NAMES = itertools.count()
OPERATIONS = {
    "append": append("1", [1, 100]),
    "overwrite": overwrite("1", [1, 101]),
    "delete partition": delete_partition("1"),
    "compact": compact("1"),
}
RIVALS = 2


class Rivals:
    """Appends of another writer, right before the first put."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.came = False

    def at(self, phase: str) -> None:
        if phase == COMMIT and not self.came:
            self.came = True
            for number in range(RIVALS):
                append("8", [800 + number]).run(DeltaLog(self.store), SILENT)


def fresh() -> MemoryStore:
    store = MemoryStore(f"memory://race{next(_NAMES)}/t")
    files = [add_file("1", [1, 2]), add_file("1", [3]), add_file("2", [5])]
    # under Serializable an overwrite of the whole table conflicts with an append, so that nothing would be rebased
    create_table(DeltaLog(store), files, delta_checkpointInterval="4", delta_isolationLevel="WriteSerializable")
    return store


def txn_ids(store: MemoryStore) -> list[str]:
    commits = [item.path for item in store.list_from("", prefix="_delta_log") if item.path.endswith(".json")]
    assert commits == [f"_delta_log/{commit_file(version)}" for version in range(len(commits))]
    actions = [action for path in commits for action in decode_commit(store.read(path), source=path)]
    return [action.txn_id for action in actions if isinstance(action, CommitInfo)]


@pytest.mark.parametrize("kind", list(FaultKind), ids=lambda kind: kind.value)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_fault_while_being_rebased_leaves_the_table_before_or_after(name, kind):
    operation = OPERATIONS[name]
    store = fresh()
    before = rows_of(DeltaLog(store).update())
    theirs = Counter(("8", 800 + number) for number in range(RIVALS))
    counting = CountingStore(store)
    done = operation.run(DeltaLog(counting), Rivals(store))
    assert (done.version, done.attempts) == (1 + RIVALS, 2)
    expected = operation.model(before) + theirs
    assert rows_of(done.snapshot) == rows_of(DeltaLog(store).update()) == expected
    for number in range(len(counting.calls)):
        store = fresh()
        faulty = FaultyStore(store, Fault(kind=kind, call=number))
        rivals = Rivals(store)
        committed = None
        try:
            committed = operation.run(DeltaLog(faulty), rivals)
        except SimulatedCrash:
            assert kind in (FaultKind.DIE_BEFORE, FaultKind.DIE_AFTER)
        except DeltaError as error:
            assert not isinstance(error, CommitStateUnknownError)
            assert DeltaLog(store).update().version == (RIVALS if rivals.came else 0)
        assert faulty.fired
        ids = txn_ids(store)
        assert len(set(ids)) == len(ids)
        snapshot = DeltaLog(store).update()
        base = before + (theirs if rivals.came else Counter())
        landed = snapshot.version == 1 + (RIVALS if rivals.came else 0)
        assert rows_of(snapshot) == (operation.model(before) + theirs if landed else base)
        if committed is not None:
            assert landed
            assert rows_of(committed.snapshot) == expected
