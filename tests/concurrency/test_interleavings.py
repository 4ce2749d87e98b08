"""Two operations, in every order of their phases that can matter: what comes out is what some serial order gives."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from pydelta.errors import DeltaConcurrentModificationException
from pydelta.log import DeltaLog
from pydelta.manifests import verify_manifests
from pydelta.protocol.vectors import vector_path
from pydelta.settings import Settings
from pydelta.testing.lockstep import run_lockstep
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
from pydelta.testing.orders import WatchedStore, run_every_order
from pydelta.testing.publishing import generate
from pydelta.txn.commit import SILENT

# Each side adds rows of its own, and rows that the deletes of the other side would take.
FIRST = {
    "append": append("1", [1, 100]),
    "overwrite": overwrite("1", [1, 101]),
    "delete value": delete_value(1),
    "delete partition": delete_partition("1"),
    "compact": compact("1"),
    "append once": append_once("job", 1, "1", [1, 102]),
    "stream batch": stream_batch("query", 1, "1", [1, 104]),
    "checkpoint": checkpoint(),
    "hide value": hide_value(1),
    "update value": update_value(1, 300),
    "upsert value": upsert_value(1, 310, "3"),
    "optimize": optimize(),
    "support": support("domainMetadata"),
    "alter": alter("one"),
    "clone over": clone_over("1", [1, 103]),
    "generate": generate(),
}
SECOND = {
    "append": append("2", [1, 200]),
    "overwrite": overwrite("2", [1, 201]),
    "delete value": delete_value(1),
    "delete partition": delete_partition("2"),
    "compact": compact("1"),
    "append once": append_once("job", 1, "1", [1, 102]),
    "stream batch": stream_batch("query", 1, "1", [1, 104]),
    "checkpoint": checkpoint(),
    "optimize": optimize("1"),
    "hide value": hide_value(2),  # in a file of which the other hides another row
    "update value": update_value(2, 301),  # likewise
    "upsert value": upsert_value(7, 311, "1"),  # of no row that is there
    "support": support("vacuumProtocolCheck"),
    "alter": alter("two"),
    "clone over": clone_over("2", [1, 203]),
    "generate": generate(),
}
LEVELS = ("WriteSerializable", "Serializable")
ONCE = Settings(change_max_retries=0)


_NAMES = itertools.count()


@pytest.fixture(scope="module")
def templates() -> dict[tuple[str, bool], dict[str, bytes]]:
    """The log of the table by isolation level, and by whether each second version is checkpointed."""
    logs = {}
    files = [add_file("1", [1, 2]), add_file("1", [3, 4]), add_file("2", [1, 5]), add_file("3", [6])]
    for level, often in itertools.product(LEVELS, (True, False)):
        store = WatchedStore(f"memory://interleave{next(_NAMES)}/t")
        interval = "2" if often else "100"
        properties = {"delta_isolationLevel": level, "delta_checkpointInterval": interval}
        create_table(DeltaLog(store), files, **properties, delta_enableDeletionVectors="true")
        logs[level, often] = {item.path: store.read(item.path) for item in store.list_all()}
    return logs


def store_of(objects: dict[str, bytes]) -> WatchedStore:
    store = WatchedStore(f"memory://interleave{next(_NAMES)}/t")
    for path, data in objects.items():
        store.put(path, data)
    return store


def serial_outcomes(rows: Rows, stood: list[tuple[int | None, LogOperation]], *, in_log_order: bool) -> list[Rows]:
    """The rows after each serial order of what succeeded; ``in_log_order`` allows only those the versions follow."""
    outcomes = []
    for order in itertools.permutations(stood):
        versions = [version for version, _ in order if version is not None]
        if in_log_order and versions != sorted(versions):
            continue
        state = rows
        for _, operation in order:
            state = operation.model(state)
        outcomes.append(+state)
    return outcomes


# What changes the definition of the table, or none of its rows, asks for no isolation level.
OF_NO_LEVEL = {"alter", "support", "clone over", "checkpoint", "generate"}


def cases():
    for pair in itertools.combinations_with_replacement(FIRST, 2):
        for level in LEVELS[: 1 if OF_NO_LEVEL & {*pair} else 2]:
            yield pytest.param(*pair, level, id=f"{pair[0]}-{pair[1]}-{level}")


@pytest.mark.parametrize(("first", "second", "level"), list(cases()))
def test_every_interleaving_has_a_serial_outcome(first, second, level, templates):
    lost = run_both(first, second, level, templates, ONCE)
    assert bool(lost) == may_conflict(first, second, level)


# These commands run again by themselves: what their users see of a conflict over rows is its outcome.
STATEMENTS = ("update value", "upsert value")
OTHERS = ("append", "stream batch", "delete value", "hide value", "compact", "optimize", *STATEMENTS)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("first", "second"), list(itertools.product(OTHERS, STATEMENTS)))
def test_a_statement_that_loses_over_rows_runs_again_and_has_a_serial_outcome(first, second, level, templates):
    lost = run_both(first, second, level, templates, Settings())
    assert lost <= {first} - {*STATEMENTS}


def run_both(first, second, level, templates, settings) -> set[str]:
    """Run two operations in every order, and look at what came out; returns those that lost in some order."""
    one, two = FIRST[first], SECOND[second]
    beginning = Counter({("1", 1): 1, ("1", 2): 1, ("1", 3): 1, ("1", 4): 1, ("2", 1): 1, ("2", 5): 1, ("3", 6): 1})
    lost: set[str] = set()
    logs: dict[str, DeltaLog] = {}

    def start():
        store = store_of(templates[level, "checkpoint" in (first, second)])
        logs.update(one=DeltaLog(store, settings=settings), two=DeltaLog(store, settings=settings))
        return store, {"one": lambda step: one.run(logs["one"], step), "two": lambda step: two.run(logs["two"], step)}

    orders = 0
    for schedule, store, results in run_every_order(start):
        orders += 1
        stood = []
        for name, operation, of in (("one", one, first), ("two", two, second)):
            result = results[name]
            if isinstance(result, DeltaConcurrentModificationException):
                lost.add(of)
                assert result.winning_version == 1
            elif isinstance(result, BaseException):
                raise result
            else:
                assert result is None or result.hook_failures == ()
                stood.append((result.version if result else None, operation))
        assert stood, "one of the two always commits"
        reopened = DeltaLog(store).update()
        versions = sorted(version for version, _ in stood if version is not None)
        assert reopened.version == len(versions)
        assert versions == list(range(1, len(versions) + 1))
        outcomes = serial_outcomes(beginning, stood, in_log_order=level == "Serializable")
        assert rows_of(reopened) in outcomes, schedule
        if "generate" in (first, second):  # of one version, whichever it is; of none where vectors came first
            report = verify_manifests(DeltaLog(store), files=0)
            assert report.ok or report.version is None, schedule
        if orders % 8 == 0:  # what each keeps in memory is what a new reader reads
            assert rows_of(logs["one"].update()) == rows_of(logs["two"].update()) == rows_of(reopened)
    assert orders > 1, "their turns touch each other"
    return lost


def may_conflict(first: str, second: str, level: str) -> bool:
    """Whether some interleaving of the two has to fail."""
    pair = {first, second}
    if pair & {"checkpoint", "generate"}:
        return False
    if pair == {"alter"}:
        return False  # the one that lost is planned anew
    if pair & {"alter", "support", "clone over"}:
        return True  # the protocol or the definition of the table is another
    appends = {"append", "append once", "stream batch"}
    if "optimize" in pair and pair & appends:
        return False  # its rows are where they were, whatever came meanwhile
    if pair & appends:
        if pair in ({"append once"}, {"stream batch"}):
            return True  # the same application id
        if level == "WriteSerializable":
            return False
        over_all = bool(pair & {"overwrite", "delete value", "hide value", "update value", "upsert value"})
        return over_all or (first == "delete partition" and second in ("append once", "stream batch"))
    apart = {
        ("delete partition", "delete partition"),
        ("compact", "delete partition"),
        ("hide value", "hide value"),
        ("hide value", "update value"),
        ("update value", "update value"),
        ("optimize", "delete partition"),
    }
    # the second upsert reads no file, and what it adds is not what these read
    apart |= {
        (one, "upsert value") for one in ("delete value", "compact", "hide value", "update value", "upsert value")
    }
    return (first, second) not in apart


@pytest.mark.parametrize(("settings", "lost_in_some"), [(ONCE, True), (Settings(), False)], ids=["once", "again"])
@pytest.mark.parametrize("level", LEVELS)
def test_two_merges_that_insert_one_key_insert_it_once(level, settings, lost_in_some, templates):
    outcomes = set()

    def start():
        store, merge = store_of(templates[level, False]), upsert_value(7, 7, "3")
        return store, dict.fromkeys(("one", "two"), lambda step: merge.run(DeltaLog(store, settings=settings), step))

    for schedule, store, results in run_every_order(start):
        lost = [item for item in results.values() if isinstance(item, BaseException)]
        assert all(isinstance(item, DeltaConcurrentModificationException) for item in lost), lost
        assert rows_of(DeltaLog(store).update())["3", 7] == 1, schedule  # never two
        outcomes.add(len(lost))
    # one after the other, the second finds the row of the first and updates it
    assert outcomes == ({0, 1} if lost_in_some else {0})


@pytest.mark.parametrize("level", LEVELS)
def test_two_that_hide_one_row_conflict_and_nothing_is_hidden_twice(level, templates):
    conflicts = 0

    def start():
        store = store_of(templates[level, False])
        return store, dict.fromkeys(("one", "two"), lambda step: hide_value(1).run(DeltaLog(store), step))

    for _, store, results in run_every_order(start):
        lost = [item for item in results.values() if isinstance(item, DeltaConcurrentModificationException)]
        conflicts += len(lost)
        assert len(lost) <= 1
        reopened = DeltaLog(store).update()
        assert rows_of(reopened) == Counter({("1", 2): 1, ("1", 3): 1, ("1", 4): 1, ("2", 5): 1, ("3", 6): 1})
    assert conflicts > 0


def test_vectors_of_many_writers_are_united_and_no_file_is_left_over(templates):
    store = store_of(templates["WriteSerializable", False])
    steps = {
        f"w{value}": lambda step, value=value: hide_value(value).run(DeltaLog(store), step) for value in (1, 2, 3, 4)
    }
    schedule = [name for _ in range(4) for name in steps]
    results = run_lockstep(steps, schedule)
    assert sorted(result.version for result in results.values()) == [1, 2, 3, 4]
    snapshot = DeltaLog(store).update()
    assert rows_of(snapshot) == Counter({("2", 5): 1, ("3", 6): 1})
    named = set()
    for version in range(1, 5):
        for action in DeltaLog(store).actions(version):
            vector = getattr(action, "deletion_vector", None)
            if vector is not None:
                named.add(vector_path(vector))
    assert {item.path for item in store.list_all() if item.path.endswith(".bin")} == named


@pytest.mark.parametrize("level", LEVELS)
def test_a_purge_and_one_that_hides_another_row_never_both_change_a_file(level, templates):
    template = store_of(templates[level, False])
    hide_value(3).run(DeltaLog(template), SILENT)
    objects = {item.path: template.read(item.path) for item in template.list_all()}
    conflicts = 0

    def start():
        store = store_of(objects)
        return store, {
            "one": lambda step: purge().run(DeltaLog(store), step),
            "two": lambda step: hide_value(4).run(DeltaLog(store), step),
        }

    for _, store, results in run_every_order(start):
        lost = [item for item in results.values() if isinstance(item, DeltaConcurrentModificationException)]
        conflicts += len(lost)
        assert len(lost) <= 1
        left = Counter({("1", 1): 1, ("1", 2): 1, ("2", 1): 1, ("2", 5): 1, ("3", 6): 1})
        if results["two"] in lost:
            left[("1", 4)] = 1
        assert rows_of(DeltaLog(store).update()) == left
    assert conflicts > 0
