"""A trial of catalog-managed commits (docs/adr/0027): what the engine would need is a store that asks a catalog.

The catalog says which staged commit is a version; the store shows those as if they had been published. Log, snapshots,
conflict check and the settling of lost replies are the engine's own and know nothing of it.
"""

from __future__ import annotations

import itertools
import re
import threading
import uuid

import pytest

from pydelta.errors import StorageError
from pydelta.log import DeltaLog
from pydelta.protocol.paths import commit_file
from pydelta.storage.interface import ObjectInfo, PutOutcome
from pydelta.storage.memory import MemoryStore
from pydelta.testing.operations import append, create_table, rows_of

_NAMES = itertools.count()
_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")


class Catalog:
    """Says which staged file is which version; the first proposal of the next version is it."""

    def __init__(self):
        self.ratified = {}
        self.lose_replies = 0
        self._lock = threading.Lock()

    @property
    def latest(self):
        return len(self.ratified) - 1

    def propose(self, version, staged):
        with self._lock:
            accepted = version == self.latest + 1
            if accepted:
                self.ratified[version] = staged
        if self.lose_replies:
            self.lose_replies -= 1
            raise StorageError("The catalog's reply was lost.", retryable=True)
        return accepted


class CatalogStore(MemoryStore):
    """A store whose commits are a catalog's: written beside the log, and seen as the catalog says."""

    catalog = None

    def _staged(self, path):
        found = _COMMIT.fullmatch(path)
        return self.catalog.ratified.get(int(found[1])) if found else None

    def put_if_absent(self, path, data):
        found = _COMMIT.fullmatch(path)
        if found is None:
            return super().put_if_absent(path, data)
        staged = f"_delta_log/_staged_commits/{found[1]}.{uuid.uuid4()}.json"
        super().put_if_absent(staged, data)
        try:
            return PutOutcome.CREATED if self.catalog.propose(int(found[1]), staged) else PutOutcome.ALREADY_EXISTS
        except StorageError:
            return PutOutcome.UNKNOWN

    def read(self, path):
        return super().read(self._staged(path) or path)

    def read_range(self, path, start, length):
        return super().read_range(self._staged(path) or path, start, length)

    def head(self, path):
        staged = self._staged(path)
        if _COMMIT.fullmatch(path) and staged is None:
            return None  # a version beyond the catalog's latest is none
        found = super().head(staged or path)
        return found and ObjectInfo(path=path, size=found.size, modification_time_ms=found.modification_time_ms)

    def list_from(self, start, *, prefix):
        listed = {
            item.path: item for item in super().list_from(start, prefix=prefix) if not _COMMIT.fullmatch(item.path)
        }
        if prefix == "_delta_log":
            for version in self.catalog.ratified:
                path = f"_delta_log/{commit_file(version)}"
                if commit_file(version) >= start:
                    listed[path] = self.head(path)
        return iter(sorted(listed.values(), key=lambda item: item.path))

    def publish(self):
        """Copy commits to where readers without a catalog look, in order; how many."""
        count = 0
        for version, staged in sorted(self.catalog.ratified.items()):
            data = super().read(staged)
            count += super().put_if_absent(f"_delta_log/{commit_file(version)}", data) is PutOutcome.CREATED
        return count


@pytest.fixture
def root():
    return f"memory://catalog{next(_NAMES)}/t"


@pytest.fixture
def opened(root):
    """Opens the table anew, as another process would."""
    catalog = Catalog()

    def make():
        store = CatalogStore(root)
        store.catalog = catalog
        return DeltaLog(store)

    make.catalog = catalog
    return make


def test_commits_are_seen_by_the_catalog_s_readers_at_once_and_by_others_when_published(opened, root):
    log = opened()
    create_table(log)
    append("a", [1]).run(log)
    append("b", [2]).run(log)
    assert rows_of(opened().update()) == rows_of(log.update())
    assert opened().update().version == 2
    plain = MemoryStore(root)
    assert DeltaLog(plain).update().version == -1
    assert log.store.publish() == 3
    assert log.store.publish() == 0
    assert rows_of(DeltaLog(plain).update()) == rows_of(log.update())


def test_writers_that_race_get_versions_one_after_the_other(opened):
    create_table(opened())
    logs = [opened() for _ in range(4)]
    for log in logs:
        log.update()
    threads = [
        threading.Thread(target=lambda log=log, n=n: [append(str(n), [k]).run(log) for k in range(5)])
        for n, log in enumerate(logs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot = opened().update()
    assert snapshot.version == 20
    assert sorted(opened.catalog.ratified) == list(range(21))
    assert len(rows_of(snapshot)) == 20


def test_a_staged_file_that_nobody_ratified_is_no_commit(opened):
    log = opened()
    create_table(log)
    MemoryStore.put(log.store, "_delta_log/_staged_commits/00000000000000000001.dead.json", b"{}")
    MemoryStore.put(log.store, f"_delta_log/{commit_file(1)}", b'{"commitInfo":{}}')
    assert opened().update().version == 0


def test_a_lost_reply_is_settled_by_reading_what_the_catalog_shows(opened):
    log = opened()
    create_table(log)
    opened.catalog.lose_replies = 1
    append("once", [1]).run(log)
    assert opened().update().version == 1
    assert len(rows_of(opened().update())) == 1
