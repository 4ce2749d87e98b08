"""One fixture, three stores: local disk, memory, and S3 through obstore.

S3 is a look-alike on this machine; inside the stack (``make test-stack``) the third is the stack's own, whatever it is.
"""

from __future__ import annotations

import os
import urllib.request
import uuid

import pytest

from pydelta.storage import open_store

S3_BUCKET = "contract"
STACK = os.environ.get("STORE_ROOT")
"""What the places of the stack's store begin with; None outside of it."""


@pytest.fixture(scope="session")
def s3_server():
    """An S3 look-alike on a free port of the loopback, with one bucket."""
    from s3_server import S3Server

    os.environ["NO_PROXY"] = ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1"]))
    server = S3Server()
    urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/{S3_BUCKET}", method="PUT"), timeout=30).close()
    server.requests.clear()
    yield server
    server.stop()


@pytest.fixture
def s3_settings(s3_server):
    """The options that reach it."""
    return s3_server.options()


@pytest.fixture
def s3_store(request):
    if STACK:
        store = open_store(f"{STACK}work/stack_tests/{uuid.uuid4()}/a table")  # how to reach it is in the environment
        yield store
        store.delete_many([info.path for info in store.list_all()])
    else:
        settings = request.getfixturevalue("s3_settings")
        yield open_store(f"s3a://{S3_BUCKET}/{uuid.uuid4()}/a table", settings)


@pytest.fixture(params=["local", "memory", "stack" if STACK else "s3"])
def store(request, tmp_path):
    if request.param == "local":
        return open_store(str(tmp_path / "a table"))
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4()}/table")
    return request.getfixturevalue("s3_store")
