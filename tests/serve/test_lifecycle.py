"""How ``pydelta serve`` starts, is refused, stops and dies."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import threading
import urllib.request
from pathlib import Path

import deltalake
import pytest
from live_server import Failed, LiveServer, serve, sleeping
from ports import free_ports
from thrift.transport.TTransport import TTransportException

from pydelta.log import DeltaLog

pytestmark = pytest.mark.ci

GONE = (Failed, TTransportException, OSError, EOFError)


@pytest.fixture
def live(tmp_path):
    started = []

    def start(*options):
        started.append(LiveServer(tmp_path / "live", *options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def test_sigterm_lets_a_running_commit_end_and_takes_no_new_statement(live):
    server = live()
    client, other = server.client(), server.client()
    client.run("CREATE TABLE t (id BIGINT) USING delta")
    running = client.start(f"INSERT INTO t {sleeping('ends', 20_000)}")
    other.await_begin("ends")
    server.terminate()
    while "Stopping" not in server.said():
        assert server.process.poll() is None
    with pytest.raises(GONE) as refused:
        other.run("DELETE FROM t")
    assert not isinstance(refused.value, Failed) or "stopping" in str(refused.value)
    assert server.wait() == 0
    rows = deltalake.DeltaTable(str(server.warehouse / "t")).to_pyarrow_table().num_rows
    assert (rows, DeltaLog.for_table(str(server.warehouse / "t")).update().version) == (1, 1)
    assert running is not None


def test_sigterm_cancels_what_outlasts_the_grace(live):
    server = live("--grace", "0")
    client = server.client()
    client.run("CREATE TABLE t (id BIGINT) USING delta")
    client.start(f"INSERT INTO t {sleeping('hangs')}")
    server.client().await_begin("hangs")
    server.terminate()
    assert server.wait() == 0
    assert DeltaLog.for_table(str(server.warehouse / "t")).update().version == 0


class Ledger(threading.Thread):
    """A client that changes rows of its own until the server is gone: ``told`` is what it was told of, ``asked`` what
    there would be if the statement that got no answer has been committed, too.
    """

    def __init__(self, server, number):
        super().__init__(daemon=True)
        self.server, self.number = server, number
        self.told, self.asked, self.wrong = {}, {}, None
        self.rounds = threading.Semaphore(0)

    def run(self):
        client = self.server.client(f"client{self.number}")
        try:
            for turn in itertools.count():
                self._change(client, turn)
                self.rounds.release()
        except GONE as error:
            if self.server.process.poll() is None:
                self.wrong = error

    def _change(self, client, turn):
        first, new, one = 3 * turn, {3 * turn + item: turn for item in range(2)}, self.number
        values = ", ".join(f"({one}, {key}, {value})" for key, value in new.items())
        self._step(client, f"INSERT INTO t VALUES {values}", self.told | new)
        source = f"SELECT * FROM VALUES ({one}, {first}, -1), ({one}, {first + 2}, -2) AS s(client, id, v)"
        merge = f"MERGE INTO t USING ({source}) s ON t.client = {one} AND t.client = s.client AND t.id = s.id "
        merge += "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        self._step(client, merge, self.told | {first: -1, first + 2: -2})
        left = {key: value for key, value in self.told.items() if key != first + 1}
        self._step(client, f"DELETE FROM t WHERE client = {one} AND id = {first + 1}", left)

    def _step(self, client, text, rows):
        while True:
            self.asked = rows
            try:
                client.run(text)
            except Failed as error:
                if "CONCURRENT" not in str(error):
                    raise
                continue  # a conflict: nothing was changed
            self.told = rows
            return


def test_a_server_that_is_killed_amid_the_commits_of_many_has_kept_what_they_were_told_of(live):
    server = live()
    server.client().run("CREATE TABLE t (client INT, id INT, v INT) USING delta PARTITIONED BY (client)")
    clients = [Ledger(server, number) for number in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        while not client.rounds.acquire(timeout=1):
            assert client.wrong is None
    server.kill()
    for client in clients:
        client.join()
    table = deltalake.DeltaTable(str(server.warehouse / "t")).to_pyarrow_table().to_pylist()
    for client in clients:
        rows = sorted((row["id"], row["v"]) for row in table if row["client"] == client.number)
        assert len(client.told) >= 2
        assert rows in (sorted(client.told.items()), sorted(client.asked.items()))
    assert DeltaLog.for_table(str(server.warehouse / "t")).update().version >= 3 * len(clients)


def test_a_jvm_that_dies_ends_the_server_with_one_clear_line(live):
    server = live()
    client = server.client()
    client.run("CREATE TABLE t (id BIGINT) USING delta")
    client.start(f"INSERT INTO t {sleeping('dies')}")
    other = server.client()
    other.await_begin("dies")
    (jvm,) = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    os.kill(int(jvm), signal.SIGKILL)
    assert server.wait() == 1
    lines = server.said().splitlines()
    (told,) = [line for line in lines if line.startswith("Error: ")]
    assert "Spark's process ended by itself, with code -9." in told
    assert not [line for line in lines if "Traceback" in line or line.startswith("  File ")]
    with pytest.raises(GONE):
        other.run("SELECT 1")
    assert DeltaLog.for_table(str(server.warehouse / "t")).update().version == 0


def test_metrics_count_statements_by_their_outcome(live):
    (port,) = free_ports(1)
    client = live("--metrics", port).client()
    client.run("CREATE TABLE t (id INT NOT NULL) USING delta")
    client.run("INSERT INTO t VALUES (1), (2)")
    with pytest.raises(Failed):
        client.run("INSERT INTO t VALUES (NULL)")
    client.run("SELECT * FROM t")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    told = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert told['pydelta_statements_total{outcome="done"}'] == "2.0"
    assert told['pydelta_statements_total{outcome="failed"}'] == "1.0"
    assert told['pydelta_statements_total{outcome="conflict"}'] == "0.0"
    assert told["pydelta_statement_seconds_count"] == "3.0"
    assert told["pydelta_statements_running"] == "0.0"
    assert float(told["pydelta_texts_total"]) >= 4
    assert float(told["pydelta_jvm_process_resident_memory_bytes"]) > 100e6


@pytest.mark.parametrize("option", ["--thrift", "--metrics"])
def test_a_port_that_is_taken_is_said_before_spark_starts(tmp_path, option):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = serve("--thrift", *free_ports(1), option, port, "--warehouse", tmp_path)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert f"Choose another port with {option}" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_another_address_is_refused_without_a_login(tmp_path):
    done = serve("--thrift", *free_ports(1), "--host", "0.0.0.0", "--warehouse", tmp_path, "--master", "local[1]")
    assert done.returncode == 1
    assert "without a log-in: hive.server2.authentication is NONE" in done.stderr
    assert "Traceback" not in done.stderr
