"""HDFS as the stack's store: who may do what. Each user is a process of its own: HDFS takes the name it is told."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import DATABASE, ON_HDFS, PLACES, STORE_ROOT, WAREHOUSE

pytestmark = [pytest.mark.before_submit, pytest.mark.skipif(not ON_HDFS, reason="the stack's store is not HDFS")]

FOLDER = f"{WAREHOUSE}/{DATABASE}/rights"
WRITE = """
import sys
from pydelta.storage import open_store
from pydelta.errors import StoragePermissionError
store = open_store(sys.argv[1])
try:
    store.put(sys.argv[2], b"by " + sys.argv[2].encode())
    print("written")
except StoragePermissionError as error:
    print(error)
"""


def write_as(user, name):
    """Write a file in a folder; what the process says, in one line."""
    env = os.environ | {"HADOOP_USER_NAME": user}
    done = subprocess.run(
        [sys.executable, "-c", WRITE, FOLDER, name], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def client():
    from hdfs_native import Client

    return Client(STORE_ROOT.rstrip("/"))


def test_places_belong_to_spark_and_its_group(client):
    for place in PLACES:
        found = client.get_file_info(place.removeprefix(STORE_ROOT.rstrip("/")))
        assert (found.owner, found.group, oct(found.permission)) == ("spark", "lake", "0o775")


@pytest.mark.parametrize("user", ["hive", "trino"])
def test_the_stack_s_services_write_where_spark_made_the_directory(user):
    assert write_as("spark", "first/made by spark") == "written"
    assert write_as(user, f"first/made by {user}") == "written"
    assert write_as(user, f"of {user}/made by {user}") == "written"
    assert write_as("spark", f"of {user}/made by spark") == "written"


@pytest.mark.parametrize("user", ["page", "somebody"])
def test_others_read_and_are_refused_in_words_when_they_write(user, store_at):
    assert write_as("spark", "first/made by spark") == "written"
    said = write_as(user, "first/made by nobody")
    assert "permission denied" in said
    assert "HADOOP_USER_NAME" in said
    assert "Traceback" not in said
    read = "import sys; from pydelta.storage import open_store; print(open_store(sys.argv[1]).read(sys.argv[2]))"
    command = [sys.executable, "-c", read, FOLDER, "first/made by spark"]
    env = os.environ | {"HADOOP_USER_NAME": user}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "made by spark" in done.stdout


def test_a_file_has_as_many_copies_as_there_are_datanodes(client, store_at):
    store_at(FOLDER).put("copies", b"x")
    found = client.get_file_info(f"{FOLDER.removeprefix(STORE_ROOT.rstrip('/'))}/copies")
    assert found.replication == 1
