"""How ``pydelta serve`` starts, is refused, stops and dies."""

from __future__ import annotations

import socket
import threading
import urllib.request

import deltalake
import pytest
from live_server import Failed, LiveServer, free_ports, serve, sleeping
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


def test_a_server_that_is_killed_has_kept_what_clients_were_told_of(live):
    server = live()
    server.client().run("CREATE TABLE t (id BIGINT) USING delta")
    told, ready = [], threading.Semaphore(0)

    def write(start):
        client = server.client()
        number = start
        while True:
            try:
                client.run(f"INSERT INTO t VALUES ({number})")
            except GONE:
                return
            told.append(number)
            ready.release()
            number += 1

    writers = [threading.Thread(target=write, args=(start,), daemon=True) for start in (0, 1_000_000)]
    for writer in writers:
        writer.start()
    for _ in range(8):
        ready.acquire()
    server.kill()
    for writer in writers:
        writer.join()
    rows = deltalake.DeltaTable(str(server.warehouse / "t")).to_pyarrow_table()["id"].to_pylist()
    assert set(told) <= set(rows)
    assert len(rows) == len(set(rows))
    assert len(rows) <= len(told) + 2  # each writer may have one more, of which it was not told


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
