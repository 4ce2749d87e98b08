"""Sessions as a server's clients have them, in the JVM that the tests share; and servers in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_server import LiveServer
from served import Served


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def server(spark):
    found = Served(spark)
    yield found
    found.close()


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture(scope="session")
def live(tmp_path_factory):
    """One server with three cores for the tests that leave it as it was."""
    elsewhere = {"HIVE_SERVER2_THRIFT_PORT": "1", "HIVE_SERVER2_THRIFT_BIND_HOST": "0.0.0.0"}  # what Hive would obey
    found = LiveServer(tmp_path_factory.mktemp("live"), cores=3, environment=elsewhere)
    yield found
    found.stop()
