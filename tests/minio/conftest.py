"""One server for all tests of this folder, with the stack's users; a database in its warehouse for each test.

It is MinIO's, unless a test names another: ``@pytest.mark.parametrize("server", SERVERS, indirect=True)``.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

import pytest
from missing import missing
from store_servers import PLACES, SERVERS, NoServer

from catalog_sync.thrift.embedded import EmbeddedMetastore
from pydelta.storage import open_store

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


@pytest.fixture(scope="session")
def server(request, tmp_path_factory):
    name = getattr(request, "param", "minio")
    for tool in ("curl", "zip"):
        if shutil.which(tool) is None:
            missing(f"RIGHTS ARE NOT TESTED HERE: there is no {tool}")
    try:
        server = SERVERS[name](tmp_path_factory.mktemp(name))
    except NoServer as error:
        missing(f"RIGHTS ARE NOT TESTED HERE: {error}")
    try:
        made = [server.run("make-buckets", *PLACES), server.run("make-users")]
        assert [done.returncode for done in made] == [0, 0], [done.stderr for done in made]
        server.said = made[-1].stdout
        yield server
    finally:
        server.stop()


@pytest.fixture
def database():
    """Name of a database that is this test's own."""
    return f"db_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def store(server):
    """Opens a folder of the warehouse, or of another place, as a user."""

    def open_as(user, folder, place="warehouse"):
        return open_store(f"s3a://{place}/{folder}", server.options(user))

    return open_as


@pytest.fixture(scope="session")
def jars(tmp_path_factory):
    """The jars that the stack's image has."""
    maven = shutil.which("mvn")
    if maven is None:
        missing("S3A IS NOT TESTED HERE: there is no mvn to fetch hadoop-aws with")
    folder = tmp_path_factory.mktemp("jars")
    project = folder / "pom.xml"
    shutil.copy(ROOT / "images" / "spark" / "pom.xml", project)
    command = [maven, "-q", "-B", "-f", project, f"{PLUGIN}:copy-dependencies", "-DincludeScope=runtime"]
    done = subprocess.run([*command, f"-DoutputDirectory={folder}"], capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"S3A IS NOT TESTED HERE: Maven does not give the jars of images/spark/pom.xml: {done.stdout[-300:]}")
    return folder


@pytest.fixture
def metastore(server, jars, tmp_path):
    """A Hive Metastore whose databases are in the warehouse, with the metastore's own key."""
    # with another pool it would need a jar that Spark does not have, once a database is dropped
    settings = {"hive.metastore.warehouse.dir": "s3a://warehouse/", "datanucleus.connectionPoolingType": "none"}
    with EmbeddedMetastore(
        tmp_path / "hms", settings=settings, hadoop=server.options("metastore"), jars=jars
    ) as metastore:
        yield metastore.uri
