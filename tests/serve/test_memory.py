"""A statement for which the driver's memory does not do: its client is told, and what was committed is there whole."""

from __future__ import annotations

import threading

import deltalake
import pytest
from live_server import Failed, LiveServer
from thrift.transport.TTransport import TTransportException

from pydelta.log import DeltaLog

pytestmark = pytest.mark.ci

GONE = (Failed, TTransportException, OSError, EOFError)
TOO_MUCH = {
    "to sort out": "INSERT INTO kept SELECT size(collect_list(repeat(id, 1000))) FROM range(0, 10000000, 1, 1)",
    "to hand over": "SELECT id, repeat(uuid(), 30000) FROM range(0, 2000, 1, 2)",
}


@pytest.fixture
def server(tmp_path):
    settings = {"spark.driver.memory": "512m", "spark.driver.maxResultSize": "0"}
    found = LiveServer(tmp_path / "small", settings=settings)
    yield found
    found.kill()


class Writer(threading.Thread):
    """A client that inserts one row after the other until it is told to end, or the server has ended."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.told, self.goes_on = client, 0, True
        self.begun = threading.Event()

    def run(self):
        while self.goes_on:
            try:
                self.client.run(f"INSERT INTO kept VALUES ({self.told})")
            except GONE:
                return
            self.told += 1
            self.begun.set()


@pytest.mark.parametrize("text", TOO_MUCH.values(), ids=TOO_MUCH.keys())
def test_a_statement_that_takes_more_than_the_driver_has_fails_and_commits_are_whole(server, text):
    client = server.client()
    client.run("CREATE TABLE kept (id BIGINT) USING delta")
    writer = Writer(server.client())
    writer.start()
    writer.begun.wait()
    with pytest.raises(GONE) as failed:
        client.run(text)
    writer.goes_on = False
    writer.join()
    if isinstance(failed.value, Failed):
        assert "OutOfMemoryError" in str(failed.value)
        assert client.run("SELECT count(*) >= 1 FROM kept") == [(True,)]
    else:  # the end of memory met Spark itself
        assert server.wait() == 1
        said = " ".join(server.said().split())
        assert "Error: [DELTA_ENVIRONMENT] Spark" in said
        assert "commits that were reported to clients are there" in said
    folder = str(server.warehouse / "kept")
    rows = deltalake.DeltaTable(folder).to_pyarrow_table()["id"].to_pylist()
    assert set(range(writer.told)) <= set(rows)
    assert len(rows) == len(set(rows)) <= writer.told + 1  # one more at most: that of which it was not told
    assert DeltaLog.for_table(folder).update().version == len(rows)
