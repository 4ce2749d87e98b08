"""GENERATE and sync against changes of the table and against one another: their steps merged, and real threads.

Whatever the order, manifests and entry are of one version each, never go backwards, and the next sync brings both to
the newest version.
"""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog_sync.inspect import verify_sync
from catalog_sync.names import TableName
from catalog_sync.sync import SyncOptions, sync_table
from catalog_sync.thrift.client import found_partition, found_table
from catalog_sync.thrift.memory import MemoryMetastore
from pydelta.errors import DeltaConcurrentModificationException
from pydelta.log import DeltaLog
from pydelta.manifests import ManifestsBusyError, publish, read_state, verify_manifests
from pydelta.protocol.actions import AddFile
from pydelta.storage import open_store
from pydelta.storage.memory import MemoryStore
from pydelta.testing.lockstep import run_lockstep
from pydelta.testing.operations import (
    add_file,
    append,
    checkpoint,
    compact,
    create_table,
    delete_partition,
    delete_value,
    overwrite,
)
from pydelta.testing.publishing import ObservedStore, generate
from pydelta.testing.row_files import ROWS_TAG

TWIN = TableName(database="lake_symlink", name="orders")
CHANGES = {
    "append": append("1", [100]),
    "append to a new partition": append("9", [100]),
    "overwrite": overwrite("1", [101]),
    "delete value": delete_value(1),
    "delete partition": delete_partition("2"),
    "compact": compact("1"),
    "checkpoint": checkpoint(),
}
PUBLICATIONS = ("generate", "sync", "atomic sync")
_NAMES = itertools.count()


def prepared(*, atomic):
    """A table whose twin is two versions behind: its store, and its metastore."""
    store, content = MemoryStore(f"memory://publications{next(_NAMES)}/t"), MemoryMetastore()
    log = DeltaLog(store)
    create_table(log, [add_file("1", [1, 2]), add_file("1", [3]), add_file("2", [1, 5]), add_file("3", [6])])
    sync_table(log, content, TWIN, SyncOptions(atomic=atomic))
    append("1", [7]).run(log)
    delete_partition("3").run(log)
    return store, content


def body(name, store, content):
    """What a participant does, stopped at its steps."""
    if name in CHANGES:
        return lambda step: CHANGES[name].run(DeltaLog(store), step)
    if name == "generate":
        return lambda step: generate().run(DeltaLog(store), step)

    def sync(step):
        metastore = MemoryMetastore(content, before=step.at)
        log = DeltaLog(ObservedStore(store, step))
        options = SyncOptions(wait_seconds=0, atomic=True if name == "atomic sync" else None)
        try:
            return sync_table(log, metastore, TWIN, options).version
        except ManifestsBusyError:
            return None

    return sync


def lines_seen(store, content):
    """What a reader of the metastore gets now: partition -> files. A missing manifest is no rows, as for Trino."""
    found = {}
    for part in content.parts.get((TWIN.database, TWIN.name), {}).values():
        path = found_partition(part, ["p"]).location.removeprefix(f"{store.root}/") + "/manifest"
        lines = store.read(path).decode().splitlines() if store.head(path) is not None else []
        found[part.values[0]] = lines
    return found


def evenly(steps):
    """A dozen of the places from 0 to the last step, both of them among these."""
    return sorted({steps * number // 11 for number in range(12)})


def schedules(first, second, *, seed):
    """One inside the other at a dozen steps, and a dozen merges by chance: all of them are hundreds of millions."""
    chance = random.Random(seed)
    for at in evenly(first):
        yield ["one"] * at + ["two"] * second + ["one"] * (first - at)
    for at in evenly(second):
        yield ["two"] * at + ["one"] * first + ["two"] * (second - at)
    for _ in range(12):
        merged = ["one"] * first + ["two"] * second
        chance.shuffle(merged)
        yield merged


PAIRS = [(one, two) for one in PUBLICATIONS for two in (*CHANGES, *PUBLICATIONS)]


@pytest.mark.parametrize("atomic", [False, True], ids=["entry", "atomic entry"])
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_merged_steps_leave_what_the_next_sync_makes_right(one, two, atomic):
    turns = {"generate": 12, "sync": 28, "atomic sync": 32}
    for schedule in schedules(turns[one], turns.get(two, 5), seed=f"{one} {two}"):
        store, content = prepared(atomic=atomic)
        results = run_lockstep({"one": body(one, store, content), "two": body(two, store, content)}, schedule)
        for result in results.values():
            if isinstance(result, BaseException) and not isinstance(result, DeltaConcurrentModificationException):
                raise result
        log = DeltaLog(store)
        state = read_state(store)
        assert state.version <= log.update().version
        if not any(result is None for result in results.values()):
            assert verify_manifests(log, files=0).ok or two in CHANGES
        entry = found_table(content.table(TWIN.database, TWIN.name))
        assert entry.version is None or entry.version <= state.version
        for lines in lines_seen(store, content).values():
            assert len(lines) == len(set(lines))
        sync_table(log, content, TWIN, SyncOptions(wait_seconds=0))
        assert verify_sync(log, content, TWIN, files=0).ok
        snapshot = log.update()
        wanted = {}
        for add in snapshot.files.adds(snapshot.files.core):
            wanted.setdefault(add.partition_values["p"], []).append(f"{store.root}/{add.path}")
        seen = {name: lines for name, lines in lines_seen(store, content).items() if lines}
        assert seen == {name: sorted(lines) for name, lines in wanted.items()}


def test_readers_of_manifests_never_see_a_missing_file_a_doubled_row_or_an_older_version(tmp_path):
    """Writers whose hook publishes after each commit, one who compacts, and readers who look all the time."""
    root = tmp_path / "t"
    partitions, writers, commits = ("a", "b", "c"), 3, 10
    create_table(DeltaLog(open_store(str(root))), delta_compatibility_symlinkFormatManifest_enabled="true")
    over = threading.Event()

    def write(who):
        log = DeltaLog(open_store(str(root)))
        failures = []
        for number in range(commits):
            done = append(partitions[number % 3], [who * 1000 + number]).run(log)
            failures += done.hook_failures
        return failures

    def tidy():
        log, done = DeltaLog(open_store(str(root))), 0
        while not over.is_set():
            for name in partitions:
                try:
                    done += compact(name).run(log) is not None
                except DeltaConcurrentModificationException:
                    continue
        return done

    rows_of_file: dict[str, frozenset[int]] = {}

    def rows_in(lines):
        """The rows of files by the log, which is where these tests keep them."""
        missing = [line for line in lines if line not in rows_of_file]
        if missing:
            log = DeltaLog(open_store(str(root)))
            head = log.update().version
            for _, actions in log.changes(-1, head):
                for action in actions:
                    if isinstance(action, AddFile):
                        text = (action.tags or {})[ROWS_TAG]
                        values = frozenset(int(value) for value in text.split(",") if value)
                        rows_of_file[f"file://{root}/{action.path}"] = values
        return [value for line in lines for value in rows_of_file[line]]

    def read():
        seen = {name: set() for name in partitions}
        looks = 0
        while not over.is_set():
            for name in partitions:
                path = root / "_symlink_format_manifest" / f"p={name}" / "manifest"
                if not path.exists():
                    assert not seen[name], "a manifest that was there is gone"
                    continue
                rows = rows_in(path.read_text().splitlines())  # of a file that no commit added: KeyError
                assert len(rows) == len(set(rows)), "a row twice"
                assert seen[name] <= set(rows), "an older version than one seen before"
                seen[name] = set(rows)
                looks += 1
        return looks

    with ThreadPoolExecutor(writers + 3) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        tidier = pool.submit(tidy)
        try:
            written = [pool.submit(write, who) for who in range(writers)]
            failures = [failure for future in written for failure in future.result(timeout=200)]
        finally:
            over.set()
        assert [reader.result(timeout=60) for reader in readers] > [0, 0]
        assert tidier.result(timeout=60) >= 0
    assert failures == []
    log = DeltaLog(open_store(str(root)))
    publish(log)
    assert verify_manifests(log, files=0).ok
    everything = {value for name in partitions for value in rows_in(_lines(root, name))}
    assert everything == {who * 1000 + number for who in range(writers) for number in range(commits)}


def _lines(root, name):
    return (root / "_symlink_format_manifest" / f"p={name}" / "manifest").read_text().splitlines()
