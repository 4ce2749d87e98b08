"""One fixture, three stores: local disk, memory, and S3 through obstore against a look-alike on this machine."""

from __future__ import annotations

import logging
import urllib.request
import uuid

import pytest

from pydelta.storage import open_store

S3_BUCKET = "contract"


@pytest.fixture(scope="session")
def s3_options():
    """An S3 look-alike on a free port of the loopback; the options that reach it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{S3_BUCKET}", method="PUT"), timeout=30).close()
    yield {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.access.key": "AKIDEXAMPLE",
        "spark.hadoop.fs.s3a.secret.key": "topsecretvalue",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    server.stop()


@pytest.fixture(params=["local", "memory", "s3"])
def store(request, tmp_path):
    if request.param == "local":
        return open_store(str(tmp_path / "a table"))
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4()}/table")
    return open_store(f"s3a://{S3_BUCKET}/{uuid.uuid4()}/a table", request.getfixturevalue("s3_options"))
