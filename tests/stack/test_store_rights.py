"""The users of the stack's store, as their services have them: what each may not do is refused by the running store."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import DATABASE, ROOT, STORE_OPTIONS, STORE_ROOT, key_of

from pydelta.storage import open_store

sys.path.append("/opt/tests")
from rights_asked import DENIED, GRANTED, KEPT, LISTED, OBJECTS, USERS, attempt

pytestmark = [
    pytest.mark.before_submit,
    pytest.mark.skipif(
        os.environ["STORE_TRINO_KEY"] == os.environ["AWS_ACCESS_KEY_ID"], reason="the stack's store has one key for all"
    ),
]
FOLDER = f"{ROOT}/rights"


def store_as(user, uri):
    given = key_of(user)
    own = {"fs.s3a.access.key": given["AWS_ACCESS_KEY_ID"], "fs.s3a.secret.key": given["AWS_SECRET_ACCESS_KEY"]}
    return open_store(uri, STORE_OPTIONS | own)


@pytest.fixture
def objects(store_at):
    """A table's folder with an object of each kind, whole before each attempt."""
    store = store_at(FOLDER)
    for path in OBJECTS:
        store.put(path, b"kept")
    return store


@pytest.mark.parametrize(("user", "kind", "path"), DENIED)
def test_what_a_service_may_not_do_is_refused_and_changes_nothing(objects, user, kind, path):
    refused = attempt(store_as(user, FOLDER), kind, path)
    assert refused is not None and "AccessDenied" in refused
    assert objects.read(path) == b"kept"


@pytest.mark.parametrize(("user", "kind", "path"), GRANTED)
def test_what_a_service_does_is_granted(objects, user, kind, path):
    assert attempt(store_as(user, FOLDER), kind, path) is None
    if kind != "read":
        assert (objects.head(path) is None) == (kind == "delete")


@pytest.mark.parametrize("user", USERS)
def test_only_its_places_are_listed_and_written_beside_tables(user):
    places = ("warehouse", "inventory", "work")
    stores = {place: store_as(user, f"{STORE_ROOT}{place}/{DATABASE}") for place in places}
    assert [place for place in places if attempt(stores[place], "list", "") is None] == LISTED[user]
    tried = [(kind, place) for place in places[1:] for kind in ("write", "delete")]
    assert {(kind, place) for kind, place in tried if attempt(stores[place], kind, "rights") is None} == KEPT.get(
        user, set()
    )


def test_a_job_gets_the_key_of_its_user_and_none_beside_it():
    said = subprocess.run(["as-user", "sync", "env"], capture_output=True, text=True, check=True).stdout
    found = dict(line.partition("=")[::2] for line in said.splitlines())
    assert found["AWS_ACCESS_KEY_ID"] == os.environ["STORE_SYNC_KEY"]
    assert not [name for name in found if name.startswith("STORE_") and name.endswith(("_KEY", "_SECRET"))]


def test_vacuum_with_the_key_of_spark_is_refused_in_words_and_with_its_own_deletes(objects, submit, store_at):
    from pydelta.testing.tables import TableBuilder

    place = f"{ROOT}/rights_vacuumed"
    store = store_at(place)
    TableBuilder(store, columns={"id": "long"}).commit()
    store.put("part-stray.parquet", b"123")
    now = ("--retention-hours", "0", "--no-retention-check")
    refused = submit("vacuum", place, *now, user="spark")
    assert refused.code == 1, refused.errors
    (row,) = refused.result["tables"]
    assert row["error"] == "DELTA_STORAGE_PERMISSION_DENIED"
    assert "AS_USER=vacuum" in row["message"] + row.get("hint", "")
    assert store.head("part-stray.parquet") is not None
    done = submit("vacuum", place, *now)
    assert done.code == 0, done.errors
    assert store.head("part-stray.parquet") is None
