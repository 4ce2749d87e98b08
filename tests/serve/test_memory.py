"""A driver that runs out of memory: clients are told, and what was committed is there whole."""

from __future__ import annotations

import threading

import deltalake
import pytest
from live_server import Failed, LiveServer
from thrift.transport.TTransport import TTransportException

from pydelta.log import DeltaLog

pytestmark = pytest.mark.ci

GONE = (Failed, TTransportException, OSError, EOFError)
TOO_MUCH = "SELECT size(collect_list(repeat(uuid(), 1000))) AS id FROM range(0, 10000000, 1, 1)"


def test_commits_are_whole_when_the_driver_runs_out_of_memory(tmp_path):
    server = LiveServer(tmp_path / "small", settings={"spark.driver.memory": "512m"})
    try:
        client = server.client()
        client.run("CREATE TABLE kept (id BIGINT) USING delta")
        told, begun = [], threading.Event()

        def write():
            writer = server.client()
            while True:
                try:
                    writer.run(f"INSERT INTO kept VALUES ({len(told)})")
                except GONE:
                    return
                told.append(len(told))
                begun.set()

        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        begun.wait()
        with pytest.raises(GONE):
            client.run(f"INSERT INTO kept {TOO_MUCH}")
        assert server.wait() == 1
        writing.join()
        assert "Spark's process ended by itself" in server.said()
        assert "commits that clients were told of are there" in " ".join(server.said().split())
    finally:
        server.kill()
    folder = str(tmp_path / "small" / "warehouse" / "kept")
    rows = deltalake.DeltaTable(folder).to_pyarrow_table()["id"].to_pylist()
    assert set(told) <= set(rows)
    assert len(rows) == len(set(rows)) <= len(told) + 1  # one more at most: that of which the writer was not told
    assert DeltaLog.for_table(folder).update().version == len(rows)
