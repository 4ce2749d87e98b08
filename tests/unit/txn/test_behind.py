"""Checkpoints behind commits: in turn, the newest of a table only, all done at the end, and failing without harm."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

from pydelta.log import DeltaLog
from pydelta.log.segment import read_listing
from pydelta.protocol.actions import AddFile, Metadata, Protocol
from pydelta.protocol.paths import LOG_DIR
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.txn import Operation, start_transaction
from pydelta.txn.hooks import Behind, behind_commits

SCHEMA = '{"type":"struct","fields":[]}'


def test_work_of_a_table_that_waits_gives_way_to_newer_work():
    behind = Behind()
    done: list[str] = []
    may_end, has_begun = threading.Event(), threading.Event()

    def first() -> None:
        has_begun.set()
        assert may_end.wait(60)
        done.append("a1")

    behind.follow("a", "first", first)
    assert has_begun.wait(60)
    for table, name in (("a", "a2"), ("b", "b1"), ("a", "a3"), ("b", "b2")):
        behind.follow(table, name, lambda name=name: done.append(name))
    assert not behind.join(0)
    may_end.set()
    assert behind.join(60)
    assert done == ["a1", "a3", "b2"]
    behind.follow("a", "later", lambda: done.append("a4"))
    assert behind.join(60)
    assert done[3:] == ["a4"]


def test_work_that_fails_is_logged_and_stops_nothing(caplog):
    behind = Behind()
    done: list[int] = []
    caplog.set_level(logging.INFO, logger="pydelta.txn.hooks")
    behind.follow("t", "The checkpoint of version 10", lambda: 1 // 0)
    assert behind.join(60)
    behind.follow("t", "The checkpoint of version 20", lambda: done.append(20))
    assert behind.join(60)
    assert done == [20]
    said = [(record.levelname, record.message.partition(" took")[0], record.table) for record in caplog.records]
    assert said == [
        ("WARNING", "The checkpoint of version 10 failed", "t"),
        ("INFO", "The checkpoint of version 20", "t"),
    ]
    assert caplog.records[0].exc_info is not None


def test_a_process_ends_only_when_the_work_is_done():
    code = (
        "import time\nfrom pydelta.txn.hooks import behind_commits\n"
        "behind_commits.follow('t', 'x', lambda: (time.sleep(0.2), print('written', flush=True)))\n"
        "print('main ends', flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["main ends", "written", ""]


class _SlowCheckpoints(MemoryStore):
    """Writes no checkpoint before it may; the writer of the 11th version sees none of the 10th."""

    may_write = threading.Event()

    def open_writer(self, path):
        assert self.may_write.wait(60)
        return super().open_writer(path)


class _NoCheckpoints(MemoryStore):
    def open_writer(self, path):
        raise OSError("no room")


def _append(log: DeltaLog, first: int, last: int):
    for number in range(first, last + 1):
        name = Operation(name="WRITE")
        add = AddFile(path=f"{number}", partition_values={}, size=1, modification_time=0, data_change=True)
        definition = [Protocol(min_reader_version=1, min_writer_version=2), Metadata(id="t", schema_string=SCHEMA)]
        committed = start_transaction(log).commit([*(definition if number == 0 else []), add], name)
        assert committed.hook_failures == ()


def _checkpoints(store) -> list[int]:
    return [found.version for found in read_listing(store.list_from("", prefix=LOG_DIR)).checkpoints]


def test_commits_do_not_wait_for_the_checkpoint_of_a_large_table_which_comes_all_the_same():
    store = _SlowCheckpoints("memory://behind/a")
    log = DeltaLog(store, settings=Settings(checkpoint_behind_files=5))
    _append(log, 0, 11)
    assert _checkpoints(store) == []
    store.may_write.set()
    assert behind_commits.join(60)
    assert _checkpoints(store) == [10]
    fresh = DeltaLog(store).snapshot()
    assert (fresh.version, fresh.num_files, fresh.segment.checkpoint_version) == (11, 12, 10)


def test_a_checkpoint_of_a_small_table_is_there_when_the_commit_is():
    store = MemoryStore("memory://behind/b")
    _append(DeltaLog(store, settings=Settings(checkpoint_behind_files=12)), 0, 10)
    assert _checkpoints(store) == [10]


def test_a_failing_checkpoint_behind_a_commit_fails_none(caplog):
    store = _NoCheckpoints("memory://behind/c")
    log = DeltaLog(store, settings=Settings(checkpoint_behind_files=1))
    _append(log, 0, 21)
    assert behind_commits.join(60)
    assert _checkpoints(store) == []
    assert "The checkpoint of version 20 failed" in [record.message for record in caplog.records]
    assert DeltaLog(store).snapshot().num_files == 22
