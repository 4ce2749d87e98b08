"""What the data source's writer leaves behind: nothing of a failed job, everything that may be part of a version."""

from __future__ import annotations

import itertools

import pytest

from pydelta.api.routing.datasource_writer import DeltaArrowWriter, _Staged
from pydelta.log import DeltaLog
from pydelta.storage.memory import MemoryStore

_NAMES = itertools.count()


@pytest.fixture
def writer(monkeypatch):
    store = MemoryStore(f"memory://aborted{next(_NAMES)}/t")
    monkeypatch.setattr(DeltaArrowWriter, "_log", lambda self: DeltaLog(store))
    made = object.__new__(DeltaArrowWriter)
    store.put("a.parquet", b"rows")
    return made, store


def test_files_of_a_job_with_failed_tasks_go(writer):
    made, store = writer
    made.abort([_Staged(records=[{"path": "a.parquet"}]), None])
    assert list(store.list_all()) == []


def test_files_of_a_commit_that_failed_stay_since_it_may_have_landed(writer):
    made, store = writer
    made.abort([_Staged(records=[{"path": "a.parquet"}])])
    assert [item.path for item in store.list_all()] == ["a.parquet"]
