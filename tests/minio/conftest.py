"""One MinIO for all tests of this folder, with the stack's users; a database in its warehouse for each test."""

from __future__ import annotations

import shutil
import uuid

import pytest
from minio_server import MinioServer, NoServer
from missing import missing

from pydelta.storage import open_store


@pytest.fixture(scope="session")
def minio(tmp_path_factory):
    for tool in ("curl", "zip"):
        if shutil.which(tool) is None:
            missing(f"RIGHTS ARE NOT TESTED HERE: there is no {tool}")
    try:
        server = MinioServer(tmp_path_factory.mktemp("minio"))
    except NoServer as error:
        missing(f"RIGHTS ARE NOT TESTED HERE: {error}")
    made = server.run("make-users")
    assert made.returncode == 0, made.stderr + made.stdout
    server.said = made.stdout
    yield server
    server.stop()


@pytest.fixture
def database():
    """Name of a database that is this test's own."""
    return f"db_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def store(minio):
    """Opens a folder of the warehouse, or of another place, as a user."""

    def open_as(user, folder, place="warehouse"):
        return open_store(f"s3a://{place}/{folder}", minio.options(user))

    return open_as
