"""A cluster whose workers lack the engine: what docs/guides/cluster.md tells to ship, and what is said without it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

from pydelta.log import DeltaLog

pytestmark = [pytest.mark.slow, pytest.mark.in_turn]
ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
BARE = getattr(sys, "_base_executable")  # noqa: B009  the interpreter that the environment was made from


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    file = tmp_path_factory.mktemp("archive") / "environment.tar.gz"
    command = [str(ROOT / "scripts/make-archive"), str(file)]
    said = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHON": BARE})
    assert said.returncode == 0, said.stderr
    assert "for workers with Python 3." in said.stdout
    return file


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """Starts Spark's own master and one worker on the loopback; yields the master's address."""
    folder = tmp_path_factory.mktemp("cluster")
    port = _free_port()
    address = f"spark://127.0.0.1:{port}"
    left_out = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
    environment = {key: value for key, value in os.environ.items() if key not in left_out}
    environment |= {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
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
                started.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
            while ready not in log.read_text():
                assert started[-1].poll() is None, log.read_text()
                time.sleep(0.2)
        yield address, environment
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def _submit(master, path, *options, workers):
    address, environment = master
    command = [str(HOME / "bin/spark-submit"), "--master", address, *options]
    command += [str(Path(__file__).with_name("archive_job.py")), str(path)]
    environment = environment | {
        "PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": workers, "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=path.parent)


def test_workers_without_the_engine_are_named(master, tmp_path):
    ended = _submit(master, tmp_path / "t", workers=BARE)
    assert ended.returncode != 0
    said = ended.stdout + ended.stderr
    assert re.search(r"The executors' Python \(\S+, 3\.\d+\.\d+\) lacks .*pydelta", said)
    assert "--archives" in said
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_an_archive_brings_it(master, archive, tmp_path):
    ended = _submit(master, tmp_path / "t", "--archives", f"{archive}#environment", workers="./environment/bin/python")
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert f"rows 902 on {master[0]}" in ended.stdout  # 900 left, 9 matched and deleted, 11 inserted
    assert DeltaLog.for_table(str(tmp_path / "t")).update().version == 4
