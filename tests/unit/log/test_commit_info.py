"""The time of a commit is that of a listing, whatever the store says of one object."""

from __future__ import annotations

import dataclasses

import pytest

from pydelta.log.load import commit_info
from pydelta.protocol.paths import LOG_DIR, commit_file
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore


class _WholeSeconds(MemoryStore):
    """Tells the time of one object in whole seconds, as an HTTP date does."""

    head_has_exact_time = False

    def head(self, path):
        found = super().head(path)
        if found is None:
            return None
        return dataclasses.replace(found, modification_time_ms=found.modification_time_ms // 1000 * 1000)


def _with_commits(store, *versions):
    for version in versions:
        store.put(f"{LOG_DIR}/{commit_file(version)}", b"{}")
    return store


def test_a_time_in_whole_seconds_gives_way_to_that_of_the_listing():
    store = _with_commits(_WholeSeconds("memory://commit-info/a"), 0, 1, 2)
    listed = {info.path: info for info in store.list_from("", prefix=LOG_DIR)}
    assert commit_info(store, 1) == listed[f"{LOG_DIR}/{commit_file(1)}"]


def test_a_commit_that_is_not_there_is_none_even_where_later_ones_are():
    assert commit_info(_with_commits(_WholeSeconds("memory://commit-info/b"), 2), 1) is None


class _SetTimes(MemoryStore):
    """Tells one time of every object."""

    def __init__(self, root, time_ms, *, exact):
        super().__init__(root)
        self._time_ms = time_ms
        self.head_has_exact_time = exact

    def head(self, path):
        found = super().head(path)
        return found and dataclasses.replace(found, modification_time_ms=self._time_ms)


@pytest.mark.parametrize(
    ("time_ms", "exact", "verbs"),
    [
        (1_700_000_000_001, False, ["head"]),
        (1_700_000_000_000, False, ["head", "list_from"]),
        (1_700_000_000_000, True, ["head"]),
    ],
)
def test_only_a_time_that_may_be_cut_costs_a_listing(time_ms, exact, verbs):
    store = CountingStore(_with_commits(_SetTimes("memory://commit-info/c", time_ms, exact=exact), 0))
    assert commit_info(store, 0) is not None
    assert [verb for verb, _ in store.calls] == verbs
