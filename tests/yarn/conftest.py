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

from guarded_hdfs import GuardedHdfs, Secured
from guarded_yarn import RENEWAL_SECONDS, GuardedLake, GuardedYarn
from hdfs_cluster import HdfsCluster
from kdc import Realm, lacking
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


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, archive):
    """Servers that ask for Kerberos."""
    if gone := lacking():
        missing(f"YARN WITH KERBEROS IS NOT TESTED HERE: not installed: {', '.join(gone)}")
    with ExitStack() as ends:
        realm = Realm(tmp_path_factory.mktemp("realm"))
        ends.callback(realm.stop)
        by = Secured(realm)
        soon = {"dfs.namenode.delegation.token.renew-interval": RENEWAL_SECONDS * 1000}
        hdfs = _started(ends, GuardedHdfs, tmp_path_factory.mktemp("guarded-hdfs"), by, soon)
        yarn = _started(ends, GuardedYarn, tmp_path_factory.mktemp("guarded-yarn"), hdfs, by)
        yield GuardedLake(hdfs, yarn, archive, by)


def _started(ends, server, *arguments):
    try:
        found = server(*arguments)
    except NotToBeHad as error:
        missing(f"YARN IS NOT TESTED HERE: {error}")
    ends.callback(found.stop)
    return found
