"""One broker and one Spark session for all tests of this folder; topics and tables of its own for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from java_servers import NotToBeHad
from kafka_broker import KafkaBroker
from missing import missing
from stream_session import Stream, StreamSession


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(600))  # the first one of all may have to wait for Maven's downloads


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    try:
        found = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    except NotToBeHad as error:
        missing(f"KAFKA IS NOT TESTED HERE: {error}")
    yield found
    found.stop()


@pytest.fixture(scope="session")
def session(broker, tmp_path_factory):
    try:
        found = StreamSession(tmp_path_factory.mktemp("session"), broker.address)
    except NotToBeHad as error:
        missing(f"KAFKA IS NOT TESTED HERE: {error}")
    yield found
    found.stop()


@pytest.fixture
def stream(session, broker, tmp_path):
    return Stream(session, broker, tmp_path, partitions=1)
