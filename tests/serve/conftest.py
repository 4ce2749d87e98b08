"""Sessions as a server's clients have them, in the JVM that the tests share; and servers in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from served import Served


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="module")
def server(spark):
    found = Served(spark)
    yield found
    found.close()


@pytest.fixture
def client(server):
    return server.client()
