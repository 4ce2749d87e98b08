"""Real processes on a real disk: racing appends, and writers that are killed in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pydelta.log import DeltaLog
from pydelta.protocol.actions import CommitInfo
from pydelta.storage import open_store
from pydelta.testing.operations import append, create_table, rows_of
from pydelta.txn.commit import SILENT

WRITER = """
import sys
from pydelta.log import DeltaLog
from pydelta.testing.operations import append
log = DeltaLog.for_table(sys.argv[1])
who, count = int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    done = append(str(who), [who * 100_000 + number]).run(log)
    print(done.version, done.attempts, len(done.hook_failures), flush=True)
"""


def start(table: Path, who: int, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(table), str(who), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("\n")
    process.stdin.flush()


def txn_ids(table: Path) -> list[str]:
    log = DeltaLog(open_store(str(table)))
    head = log.update().version
    found = []
    for version in range(head + 1):
        infos = [action for action in log.actions(version) if isinstance(action, CommitInfo)]
        assert len(infos) == 1
        found.append(infos[0].txn_id)
    return found


@pytest.mark.ci
def test_eight_processes_append_and_every_append_stands_once(tmp_path):
    table, writers, each = tmp_path / "t", 8, 25
    create_table(DeltaLog.for_table(str(table)))
    processes = [start(table, who, each) for who in range(1, writers + 1)]
    for process in processes:
        go(process)
    acknowledged = []
    for process in processes:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        lines = [list(map(int, line.split())) for line in out.splitlines()]
        assert len(lines) == each
        assert [failures for _, _, failures in lines] == [0] * each
        acknowledged += [version for version, _, _ in lines]
    assert sorted(acknowledged) == list(range(1, writers * each + 1))
    snapshot = DeltaLog(open_store(str(table))).update()
    assert snapshot.version == writers * each
    expected = [(str(who), who * 100_000 + number) for who in range(1, writers + 1) for number in range(each)]
    assert rows_of(snapshot) == Counter(expected)
    ids = txn_ids(table)
    assert len(set(ids)) == len(ids)


def test_threads_that_share_a_log_append_and_every_append_stands_once(tmp_path):
    log, writers, each = DeltaLog.for_table(str(tmp_path / "t")), 8, 10
    create_table(log)

    def write(who: int) -> list[int]:
        return [append(str(who), [number]).run(log, SILENT).version for number in range(each)]

    with ThreadPoolExecutor(writers) as pool:
        acknowledged = [version for versions in pool.map(write, range(writers)) for version in versions]
    assert sorted(acknowledged) == list(range(1, writers * each + 1))
    expected = Counter((str(who), number) for who in range(writers) for number in range(each))
    assert rows_of(log.update()) == rows_of(DeltaLog(open_store(str(tmp_path / "t"))).update()) == expected


@pytest.mark.parametrize("after", [1, 9, 10, 11])
def test_a_writer_killed_at_any_time_leaves_whole_versions_and_what_it_acknowledged(tmp_path, after):
    table = tmp_path / "t"
    create_table(DeltaLog.for_table(str(table)))
    process = start(table, 1, 10_000)
    go(process)
    acknowledged = 0
    for _ in range(after):
        acknowledged = int(process.stdout.readline().split()[0])
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()  # by the stream that has read lines already: it may hold more of them
    process.wait(timeout=60)
    complete = [line for line in rest.split("\n")[:-1] if line]
    if complete:
        acknowledged = int(complete[-1].split()[0])
    assert process.returncode == -signal.SIGKILL
    log = DeltaLog(open_store(str(table)))
    snapshot = log.update()
    assert snapshot.version in (acknowledged, acknowledged + 1)
    assert rows_of(snapshot) == Counter(("1", 100_000 + number) for number in range(snapshot.version))
    for line in (table / "_delta_log").glob("*.json"):
        assert all(json.loads(text) for text in line.read_text().splitlines())
    for step in (1, 2, 3):
        assert append("2", [step]).run(log, SILENT).version == snapshot.version + step
