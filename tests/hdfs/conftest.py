"""One HDFS for all tests of this folder; a directory for each."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest
from hdfs_cluster import HdfsCluster
from java_servers import NotToBeHad
from missing import missing

from pydelta.storage import open_store

sys.path.append(str(Path(__file__).parents[1] / "contracts"))  # for test_store, whose tests run here too


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(600))  # the first one of all may have to wait for Maven's download
    # Soon after a restart one write in many takes 15 seconds and fails: the DataNode does not report its block.
    items.sort(key=lambda item: item.path.name == "test_hdfs_outage.py")


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory):
    try:
        cluster = HdfsCluster(tmp_path_factory.mktemp("hdfs"))
    except NotToBeHad as error:
        missing(f"HDFS IS NOT TESTED HERE: {error}")
    yield cluster
    cluster.stop()


@pytest.fixture
def root(hdfs):
    """URI of a directory that is this test's own."""
    return f"{hdfs.uri}/lake/{uuid.uuid4()}/a table"


@pytest.fixture
def store(root):
    return open_store(root)
