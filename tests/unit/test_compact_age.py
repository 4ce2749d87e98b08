"""How ``jobs/compact.py`` tells old data from new."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest

from jobs.compact import Age
from pydelta.log import DeltaLog
from pydelta.storage.memory import MemoryStore
from pydelta.testing.tables import TableBuilder

NOW = dt.datetime(2026, 3, 10, 2, 30, tzinfo=dt.UTC)
_NAMES = itertools.count()


def age(columns, partitions, *, days=7, zone="UTC"):
    store = MemoryStore(f"memory://age{next(_NAMES)}/t")
    TableBuilder(store, columns=columns, partition_columns=partitions).commit()
    return Age.of(DeltaLog(store).update(), days=days, now=NOW, zone=zone)


def test_a_date_among_the_partition_columns_decides():
    found = age({"x": "long", "r": "string", "day": "date"}, ["r", "day"])
    assert found == Age(by="partition day", older_than="2026-03-03", condition="`day` < DATE'2026-03-03'")


def test_days_begin_at_midnight_of_the_session():
    found = age({"x": "long", "d`y": "date"}, ["d`y"], zone="America/New_York")
    assert found.condition == "`d``y` < DATE'2026-03-02'"


@pytest.mark.parametrize("partitions", [[], ["r"]])
def test_without_one_the_times_of_files_decide(partitions):
    found = age({"x": "long", "r": "string", "day": "date"}, partitions, days=1)
    assert found.by == "modification time"
    assert found.older_than == "2026-03-09T02:30:00.000+00:00"
    assert found.modified_before_ms == int(dt.datetime(2026, 3, 9, 2, 30, tzinfo=dt.UTC).timestamp() * 1000)
    assert found.condition is None


def test_without_days_everything_is_taken():
    assert age({"x": "long", "day": "date"}, ["day"], days=None) == Age()
