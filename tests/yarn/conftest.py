"""One YARN with its HDFS for all tests of this folder and the packed environment."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from java_servers import NotToBeHad
from missing import missing
from submitting import pack

sys.path.append(str(Path(__file__).parents[1] / "hdfs"))  # for hdfs_cluster, whose servers are beside YARN's

from hdfs_cluster import HdfsCluster
from lake_on_yarn import Lake
from yarn_cluster import YarnCluster


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def archive(tmp_path_factory):
    return pack(tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="session")
def lake(tmp_path_factory, archive):
    """Servers without log-ins."""
    with ExitStack() as ends:
        hdfs = _started(ends, HdfsCluster, tmp_path_factory.mktemp("hdfs"))
        yarn = _started(ends, YarnCluster, tmp_path_factory.mktemp("yarn"), hdfs)
        yield Lake(hdfs, yarn, archive)


def _started(ends, server, *arguments):
    try:
        found = server(*arguments)
    except NotToBeHad as error:
        missing(f"YARN IS NOT TESTED HERE: {error}")
    ends.callback(found.stop)
    return found
