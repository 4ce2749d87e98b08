"""A checkpoint that names sidecars again, and clean-ups that stop before each of their calls and go on behind it."""

from __future__ import annotations

import threading
import time

import pytest
from log_tables import V2_PROTOCOL, add, commit, create, info, log_of, new_store

from pydelta.log.checkpoint.read import read_checkpoint
from pydelta.log.segment import read_listing
from pydelta.log.side_files import read_hint
from pydelta.protocol.paths import LOG_DIR, SIDECAR_DIR, commit_file, parse_log_name
from pydelta.storage import readers
from pydelta.testing.stores import _Wrapper

_SEEN = {"list_from", "delete_many", "put", "close_writer"}
pytestmark = pytest.mark.usefixtures("four_rows_are_many")
LONG_AGO = 1_600_000_000_000


class Stepped(_Wrapper):
    """A store that waits for its turn before each call that others may see, or that sees what others do."""

    def __init__(self, inner, pause) -> None:
        super().__init__(inner)
        self._pause = pause

    def _call(self, verb, path, run):
        if verb in _SEEN or path.endswith("_last_checkpoint"):
            self._pause()
        return run()


class Actor:
    """Work on a table in a thread, one call of the store at a time."""

    def __init__(self, store, work) -> None:
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.done, self.error, self.calls = False, None, 0
        threading.Thread(target=self._run, args=(Stepped(store, self._pause), work), daemon=True).start()

    def _run(self, store, work) -> None:
        self._go.acquire()
        readers._own.reads = True  # reads side by side are done one by one, on this thread
        try:
            work(store)
        except Exception as error:  # noqa: BLE001 -- judged by whoever started it
            self.error = error
        finally:
            self.done = True
            self._stopped.release()

    def _pause(self) -> None:
        self._stopped.release()
        self._go.acquire()

    def step(self, calls: int) -> None:
        """Go on by so many calls, or to the end."""
        for _ in range(calls):
            if self.done:
                return
            self._go.release()
            self._stopped.acquire()
            self.calls += 1

    def finish(self) -> None:
        while not self.done:
            self.step(1)


def checkpoint(store, version: int | None = None, *, whole: bool = False) -> None:
    log = log_of(store)
    log.checkpoint(log.snapshot(version=version), whole=whole)


def our_cleanup(store) -> None:
    """With no log kept."""
    log_of(store).cleanup(int(time.time() * 1000), retention_ms=0)


def reference_cleanup(store) -> None:
    """As the reference engine: before the hint, then a new listing tells which sidecars are named."""
    hint = read_hint(store)
    listed = list(store.list_from("", prefix=LOG_DIR))
    old = [item.path for item in listed if (file := parse_log_name(item.path.rpartition("/")[2])) is not None
           and file.version < hint.version]  # fmt: skip
    for path in old:
        store.delete_many([path])
    sweep(store, read_listing(store.list_from("", prefix=LOG_DIR)))


def careless_cleanup(store) -> None:
    """One listing for both, and no hint."""
    listing = read_listing(store.list_from("", prefix=LOG_DIR))
    newest = listing.checkpoints[0]
    kept = [item for item in listing.checkpoints if item.version >= newest.version]
    for item in listing.checkpoints:
        if item.version < newest.version:
            store.delete_many([item.name])
    sweep(store, listing, kept)


def sweep(store, listing, kept=None) -> None:
    used: set[str] = set()
    for files in listing.checkpoints if kept is None else kept:
        used |= set(read_checkpoint(store, files, unopened=None).sidecar_names)
    for item in list(store.list_from("", prefix=SIDECAR_DIR)):
        if item.modification_time_ms == LONG_AGO and item.path.rpartition("/")[2] not in used:
            store.delete_many([item.path])


CLEANUPS = [our_cleanup, reference_cleanup, careless_cleanup]
WAYS = [
    pytest.param(cleanup, another, marks=[] if cleanup is our_cleanup and another else [pytest.mark.in_turn])
    for cleanup in CLEANUPS
    for another in (False, True)
]


def table():
    """Version 1 has a checkpoint with sidecars of long ago; three more versions have none."""
    store = new_store()
    create(store, *(add(number) for number in range(6)), protocol=V2_PROTOCOL, checkpointPolicy="v2")
    commit(store, 1, [info(), add(100)])
    checkpoint(store)
    first = [item.path for item in store.list_all(SIDECAR_DIR)]
    for version in (2, 3, 4):
        commit(store, version, [info(), add(100 + version)])
    for path in first:
        store.times[path.rpartition("/")[2]] = LONG_AGO
    for version in range(5):
        store.times[commit_file(version)] = LONG_AGO + version
    return store, first


def damage(store, *, rows: int) -> str:
    """What is wrong with the newest version, and with what the hint is at; empty if nothing is."""
    try:
        snapshot = log_of(store).snapshot()
        if (snapshot.version, snapshot.files.num_files) != (4, rows):
            return f"version {snapshot.version} has {snapshot.files.num_files} files"
        snapshot.files.with_stats(snapshot.files.core)
        hint = read_hint(store)
        checkpoints = read_listing(store.list_from("", prefix=LOG_DIR)).checkpoints
        for files in checkpoints:
            if hint is not None and hint.v2 is not None and files.name.endswith(hint.v2.name):
                read_checkpoint(store, files)
    except Exception as error:  # noqa: BLE001 -- whatever comes out is wrong
        return str(error)
    return ""


def interleaved(cleanup, before: int, within: int, *, another: bool) -> tuple[str, bool, bool]:
    """What is wrong after a writer, another one and a clean-up; whether writer and clean-up made so many calls.

    The writer makes some calls, then another one writes a whole checkpoint, then the clean-up makes some calls; the
    writer goes on to its end, then the clean-up.
    """
    store, _ = table()
    writer, sweeper = Actor(store, checkpoint), Actor(store, cleanup)
    writer.step(before)
    if another:
        checkpoint(store, 2, whole=True)
    sweeper.step(within)
    reached = (not writer.done, not sweeper.done)
    writer.finish()
    sweeper.finish()
    return damage(store, rows=10), *reached


def all_ways(cleanup, *, another: bool):
    """Each point of the writer with each point of the clean-up."""
    before = 0
    while True:
        within = 0
        while True:
            wrong, writer_goes_on, sweeper_goes_on = interleaved(cleanup, before, within, another=another)
            yield before, within, wrong
            if not sweeper_goes_on:
                break
            within += 1
        if not writer_goes_on:
            return
        before += 1


@pytest.mark.parametrize(
    ("cleanup", "another"),
    WAYS,
    ids=lambda value: value.__name__ if callable(value) else "two writers" if value else "one writer",
)
def test_whatever_stops_where_the_table_is_read_as_it_was(cleanup, another):
    ways = list(all_ways(cleanup, another=another))
    assert [way for way in ways if way[2]] == []
    assert len(ways) > 30


@pytest.mark.parametrize(
    "cleanup",
    [pytest.param(each, marks=[] if each is careless_cleanup else [pytest.mark.in_turn]) for each in CLEANUPS],
    ids=lambda cleanup: cleanup.__name__,
)
def test_without_the_second_listing_a_sidecar_is_lost(cleanup, monkeypatch):
    monkeypatch.setattr("pydelta.log.checkpoint.write.is_newest_but_for", lambda *given: True)
    assert any(wrong for _, _, wrong in all_ways(cleanup, another=True))


def test_sidecars_are_named_again_where_nobody_is_in_the_way():
    store, first = table()
    checkpoint(store)
    newest = read_listing(store.list_from("", prefix=LOG_DIR)).checkpoints[0]
    named = {f"{SIDECAR_DIR}/{name}" for name in read_checkpoint(store, newest).sidecar_names}
    assert set(first) & named
    our_cleanup(store)
    assert {path for path in first if store.head(path)} == set(first) & named
