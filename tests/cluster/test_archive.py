"""A cluster whose workers lack the engine: what docs/guides/cluster.md tells to ship, and what is said without it."""

from __future__ import annotations

import re
import subprocess
import time

import pytest
from ports import free_ports
from submitting import (
    BARE,
    ENGINE_OF_THE_ARCHIVE,
    HOME,
    PACKED,
    Submission,
    bare_environment,
    pack,
    rows_in,
    rows_that_it_leaves,
)  # fmt: skip

from pydelta.log import DeltaLog

pytestmark = [pytest.mark.slow, pytest.mark.in_turn]


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return pack(tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """Starts Spark's own master and one worker on the loopback; yields the master's address."""
    folder = tmp_path_factory.mktemp("cluster")
    (port,) = free_ports(1)
    address = f"spark://127.0.0.1:{port}"
    begin = [str(HOME / "bin/spark-class")]
    own = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [
        [*begin, "org.apache.spark.deploy.master.Master", *own, "--port", str(port)],
        [*begin, "org.apache.spark.deploy.worker.Worker", *own, "-c", "1", "-m", "1g", "-d", str(folder), address],
    ]
    logs = [folder / "master.log", folder / "worker.log"]
    started = []
    try:
        for command, log, ready in zip(commands, logs, ["I have been elected leader", "registered with"], strict=True):
            with log.open("w") as out:
                started.append(subprocess.Popen(command, env=bare_environment(), stdout=out, stderr=out))
            while ready not in log.read_text():
                assert started[-1].poll() is None, log.read_text()
                time.sleep(0.2)
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def _run(master, path, *options, workers):
    with Submission([str(path)], "--master", master, *options, workers=workers, folder=path.parent) as submission:
        return submission.ended()


def test_workers_without_the_engine_are_named(master, tmp_path):
    code, said = _run(master, tmp_path / "t", workers=BARE)
    assert code != 0
    assert re.search(r"The executors' Python \(\S+, 3\.\d+\.\d+\) lacks .*pydelta", said)
    assert "--archives" in said
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_an_archive_brings_it(master, archive, tmp_path):
    code, said = _run(master, tmp_path / "t", "--archives", f"{archive}#environment", workers=PACKED)
    assert code == 0, said[-6000:]
    assert f"rows 902 on {master}" in said  # 900 left, 9 matched and deleted, 11 inserted
    assert re.search(ENGINE_OF_THE_ARCHIVE, said)
    log = DeltaLog.for_table(str(tmp_path / "t"))
    assert rows_in(log) == rows_that_it_leaves()
    assert log.update().version == 4
