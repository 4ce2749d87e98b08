"""The stack's store: what is put is there, and of many who create one object, one does.

The rest of the store's contract runs against it as well (scripts/test-stack: tests/contracts/test_store.py).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from conftest import DATABASE, PLACES, ROOT

from pydelta.storage import PutOutcome
from pydelta.storage.probe import probe_put_if_absent

pytestmark = pytest.mark.before_submit


@pytest.fixture(scope="module")
def folder(store_at):
    store = store_at(f"{ROOT}/objects")
    store.delete_many([info.path for info in store.list_all()])
    return store


@pytest.mark.parametrize("place", PLACES)
def test_every_place_takes_objects(store_at, place):
    store = store_at(f"{place}/{DATABASE}")
    store.put("put and read", b"bytes")
    assert store.read("put and read") == b"bytes"
    assert "put and read" in [info.path for info in store.list_all()]
    store.delete_many(["put and read"])
    assert "put and read" not in [info.path for info in store.list_all()]


def test_the_second_create_changes_nothing(folder):
    assert folder.put_if_absent("once", b"first") is PutOutcome.CREATED
    assert folder.put_if_absent("once", b"second") is PutOutcome.ALREADY_EXISTS
    assert folder.read("once") == b"first"


def test_of_64_who_create_one_object_one_does(folder):
    for round_number in range(5):
        barrier = Barrier(64)

        def create(number, key=f"race-{round_number}", barrier=barrier):
            barrier.wait(timeout=60)
            return number, folder.put_if_absent(key, b"%d" % number)

        with ThreadPoolExecutor(64) as pool:
            outcomes = dict(pool.map(create, range(64)))
        winners = [number for number, outcome in outcomes.items() if outcome is PutOutcome.CREATED]
        assert len(winners) == 1
        assert folder.read(f"race-{round_number}") == b"%d" % winners[0]


def test_the_probe_trusts_it(store_at):
    assert probe_put_if_absent(store_at(f"{ROOT}/probed"), writers=64).safe


def test_what_the_restart_has_to_keep(folder):
    folder.put("kept", b"through the restart")
    assert folder.read("kept") == b"through the restart"
