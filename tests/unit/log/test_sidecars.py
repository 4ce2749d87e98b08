"""Sidecars that are named again: which, that the table reads the same, and that no clean-up takes them away."""

from __future__ import annotations

import json
import time

import deltalake
import pytest
from log_tables import V2_PROTOCOL, add, commit, create, info, log_of, metadata, new_store, remove

from pydelta.log import DeltaLog
from pydelta.log.segment import read_listing
from pydelta.protocol.actions import Protocol
from pydelta.protocol.paths import LOG_DIR, SIDECAR_DIR
from pydelta.storage import LocalStore
from pydelta.testing.stores import CountingStore

pytestmark = pytest.mark.usefixtures("four_rows_are_many")
NOW = int(time.time() * 1000)
DAY_MS = 86_400_000


def table(store, files: int = 6):
    create(store, *(add(number) for number in range(files)), protocol=V2_PROTOCOL, checkpointPolicy="v2")
    return log_of(store).checkpoint(now_ms=NOW)


def state(log: DeltaLog) -> tuple[object, ...]:
    snapshot = log.snapshot()
    files = sorted(map(repr, snapshot.files.adds(snapshot.files.core)))
    return snapshot.version, files, sorted(snapshot.tombstones()["path"])


def statistics_of(log: DeltaLog) -> dict[str, str]:
    files = log.snapshot().files
    return dict(files.with_stats(files.core).select("path", "stats").iter_rows())


def by_commits(store) -> tuple[object, ...]:
    """The state as the commits alone say."""
    bare = new_store()
    for item in store.list_from("", prefix=LOG_DIR):
        if item.path.endswith(".json") and "checkpoint" not in item.path:
            bare.put(item.path, store.read(item.path))
    return state(log_of(bare))


def test_a_checkpoint_names_what_is_as_it_was_and_writes_what_is_new():
    store = new_store()
    first = table(store)
    for version in range(1, 12):
        files = [add(100 + version)]
        commit(store, version, [info(), *files] if version != 6 else [info(), remove(add(105), NOW + 1), *files])
    second = log_of(store).checkpoint(now_ms=NOW)
    assert set(first.sidecars) < set(second.sidecars)
    assert (second.num_adds, second.num_removes) == (16, 1)
    fresh = log_of(store)
    assert fresh.snapshot().segment.checkpoint.name == second.name
    assert state(fresh) == by_commits(store)
    named = json.loads(store.read(f"{LOG_DIR}/_last_checkpoint"))
    assert (named["version"], named["numOfAddFiles"], named["size"]) == (11, 16, second.num_actions)


@pytest.mark.parametrize(
    ("actions", "again"),
    [
        ([add(100)], True),
        ([remove(add(0), NOW + 1)], False),
        ([remove(add(0), NOW + 1), add(100)], False),
        ([add(3).replace(size=77)], False),  # its metadata is refreshed
        ([add(0).replace(path=add(0).path.replace("=", "%3D"))], False),
    ],
)
def test_a_sidecar_of_which_a_row_has_changed_is_written_again(actions, again):
    store = new_store()
    first = table(store, files=4)
    commit(store, 1, [info(), *actions])
    second = log_of(store).checkpoint(now_ms=NOW)
    assert (set(first.sidecars) <= set(second.sidecars)) is again
    assert state(log_of(store)) == by_commits(store)


def test_a_tombstone_whose_file_is_back_is_not_named_again():
    store = new_store()
    create(store, add(0), add(1), protocol=V2_PROTOCOL, checkpointPolicy="v2")
    commit(store, 1, [info(), *(remove(add(number), NOW + 1) for number in (0, 1)), add(2), add(3)])
    first = log_of(store).checkpoint(now_ms=NOW)
    commit(store, 2, [info(), add(0)])
    second = log_of(store).checkpoint(now_ms=NOW)
    assert not set(first.sidecars) & set(second.sidecars)
    assert state(log_of(store)) == by_commits(store)


def test_a_long_process_names_again_what_the_newest_checkpoint_names_too():
    store = new_store()
    first = table(store)
    log = log_of(store)
    seen = []
    for version in range(1, 25):
        commit(store, version, [info(), add(100 + version)])
        log.update()
        if version % 4 == 0:
            seen.append(log.checkpoint(now_ms=NOW))
            assert state(log_of(store)) == by_commits(store)
    assert all(set(first.sidecars) <= set(result.sidecars) for result in seen)


def test_what_is_in_memory_of_sidecars_that_stay_is_not_read_again_and_rows_are_found_in_their_new_places():
    inner = new_store()
    store = CountingStore(inner)
    table(store, files=40)
    log = log_of(store, max_snapshot_chain=3)
    assert state(log) == by_commits(store)
    read: list[str] = []
    for version in range(1, 40):
        actions = [add(100 + version)]
        if version % 7 == 0:  # a sidecar loses a row and is written again, so that later ones get other numbers
            actions.append(remove(add(version // 7), NOW + version))
        commit(store, version, [info(), *actions])
        store.reset()
        log.update()
        assert state(log) == by_commits(store)
        statistics = statistics_of(log)
        read += [path for path in store.paths("read", "read_range") if path.startswith(SIDECAR_DIR)]
        assert statistics == statistics_of(log_of(inner))
        log.checkpoint(now_ms=NOW)
        assert state(log_of(inner)) == by_commits(store)
    assert len(read) == len(set(read)) > 5


class _Meddling:
    """Does something once when a file of the log is written."""

    def __init__(self, store, when: str, what) -> None:
        self._store, self._when, self._what = store, when, what

    def __getattr__(self, name):
        return getattr(self._store, name)

    def open_writer(self, path):
        if self._when in path and self._what is not None:
            what, self._what = self._what, None
            what()
        return self._store.open_writer(path)


def test_where_another_checkpoint_comes_meanwhile_a_whole_one_is_written():
    store = new_store()
    first = table(store)
    commit(store, 1, [info(), add(100)])
    commit(store, 2, [info(), add(101)])
    log = log_of(store)

    def another() -> None:
        log.checkpoint(log.snapshot(version=1), now_ms=NOW)

    meddled = _Meddling(store, f"{LOG_DIR}/{2:020d}.checkpoint", another)
    second = log_of(meddled).checkpoint(now_ms=NOW)
    assert not set(first.sidecars) & set(second.sidecars)
    of_two = read_listing(store.list_from(f"{2:020d}", prefix=LOG_DIR)).checkpoints
    assert [item.name for item in of_two] == [second.name], "the one that may lose a sidecar is gone"
    assert state(log_of(store)) == by_commits(store)


@pytest.mark.parametrize(
    "why",
    [
        "no hint",
        "the hint is at another",
        "an old one",
        "a short retention",
        "a newer one",
        "of the same version",
        "asked",
    ],
)
def test_nothing_is_named_again_where_it_is_not_sure_to_stay(why):
    store = new_store()
    create(store, *(add(number) for number in range(6)), protocol=V2_PROTOCOL, checkpointPolicy="v2")
    first = log_of(store).checkpoint(now_ms=NOW)
    changed = metadata(checkpointPolicy="v2", logRetentionDuration="interval 0 days")
    commit(store, 1, [info(), changed if why == "a short retention" else add(100)])
    commit(store, 2, [info(), add(101)])
    log = log_of(store)
    snapshot = log.snapshot(version=0 if why == "of the same version" else 1)
    hint = f"{LOG_DIR}/_last_checkpoint"
    if why == "no hint":
        store.delete_many([hint])
    elif why == "the hint is at another":
        store.put(hint, store.read(hint).replace(b"0.checkpoint.", b"1.checkpoint."))
    elif why == "an old one":
        store.times[first.name.rpartition("/")[2]] = NOW - DAY_MS
    elif why == "a newer one":
        log_of(store).checkpoint(now_ms=NOW)
    again = log.checkpoint(snapshot, now_ms=NOW, whole=why == "asked")
    assert not set(first.sidecars) & set(again.sidecars)
    assert state(log_of(store)) == by_commits(store)


def test_a_sidecar_that_is_gone_is_not_named_again():
    store = new_store()
    first = table(store)
    commit(store, 1, [info(), add(100)])
    log = log_of(store)
    assert log.snapshot().num_files == 7
    log.snapshot().tombstones()
    meddled = _Meddling(store, f"{LOG_DIR}/{1:020d}.checkpoint", lambda: store.delete_many(first.sidecars[:1]))
    second = log_of(meddled).checkpoint(now_ms=NOW)
    assert not set(first.sidecars) & set(second.sidecars)
    assert state(log_of(store)) == by_commits(store)


def test_a_clean_up_leaves_what_a_checkpoint_that_stays_names_however_old_it_is():
    store = new_store()
    start = NOW // DAY_MS * DAY_MS - 70 * DAY_MS
    store.times[f"{0:020d}.json"] = start
    first = table(store)
    for version in range(1, 60):
        store.times[f"{version:020d}.json"] = start + version * DAY_MS
        commit(store, version, [info(), add(100 + version)])
        if version % 10 == 0:
            log_of(store).checkpoint(now_ms=NOW)
        for item in store.list_all(SIDECAR_DIR):
            store.times[item.path.rpartition("/")[2]] = start
        log_of(store).cleanup(start + version * DAY_MS + 5)
        assert {path for path in first.sidecars if store.head(path)} == set(first.sidecars)
        fresh = log_of(store).snapshot()
        assert (fresh.version, fresh.num_files) == (version, 6 + version)
    assert store.head(f"{LOG_DIR}/{0:020d}.json") is None, "the clean-up has deleted something"


def test_another_engine_reads_sidecars_of_two_checkpoints(tmp_path):
    store = LocalStore(f"file://{tmp_path}")
    features = ("v2Checkpoint",)
    protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=features, writer_features=features)
    create(store, *(add(number) for number in range(6)), protocol=protocol, checkpointPolicy="v2")
    first = log_of(store).checkpoint()
    commit(store, 1, [info(), add(100)])
    second = log_of(store).checkpoint()
    assert set(first.sidecars) < set(second.sidecars)
    store.delete_many([f"{LOG_DIR}/{0:020d}.json", first.name])
    found = {uri.rpartition("/")[2] for uri in deltalake.DeltaTable(str(tmp_path)).file_uris()}
    assert found == {path.rpartition("/")[2] for path in log_of(store).snapshot().files.core["path"]}
    assert len(found) == 7
