"""What a stream's checkpoint keeps, and when another run's settings are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pydelta.errors import InvalidArgumentError, LogCorruptedError
from pydelta.storage.memory import MemoryStore
from pydelta.tools.ingest.running import trigger_of
from pydelta.tools.ingest.stream_settings import KeptSettings, keep, kept_settings
from pydelta.tools.jobs import listed, pairs

FIRST = KeptSettings(source="kafka: a", target="/t", way="json, append", schema="{}", bad_records="/bad")


def never(*_):
    raise AssertionError("no batch is unfinished")


@pytest.fixture
def store(request):
    return MemoryStore(f"memory://ingest-settings-{request.node.name}")


def begun(store, *, planned, done):
    store.put("metadata", b'{"id":"q"}\n')
    for folder, last in (("offsets", planned), ("commits", done)):
        for number in range(last + 1):
            store.put(f"{folder}/{number}", b"v1")


def test_the_first_run_keeps_its_settings_and_the_same_ones_fit(store):
    assert kept_settings(store) is None
    keep(store, None, FIRST, never)
    assert kept_settings(store) == FIRST
    keep(store, kept_settings(store), FIRST, never)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": "kafka: b"}, "another source"),
        ({"target": "/u"}, "another table"),
        ({"way": "csv, append"}, "another way"),
    ],
)
def test_another_stream_is_refused_by_what_differs(store, change, said):
    keep(store, None, FIRST, never)
    with pytest.raises(InvalidArgumentError, match=said):
        keep(store, FIRST, replace(FIRST, **change), never)
    assert kept_settings(store) == FIRST


@pytest.mark.parametrize("change", [{"schema": "{1}"}, {"bad_records": "/other"}])
def test_another_schema_is_taken_over_unless_a_batch_is_half_written(store, change):
    keep(store, None, FIRST, never)
    now = replace(FIRST, **change)
    begun(store, planned=2, done=1)
    asked = []
    with pytest.raises(InvalidArgumentError, match="part of batch 2"):
        keep(store, FIRST, now, lambda *given: asked.append(given) is None)
    assert asked == [(FIRST, "q", 2)]
    assert kept_settings(store) == FIRST
    keep(store, FIRST, now, lambda *_: False)
    assert kept_settings(store) == now


def test_another_schema_is_taken_over_when_all_batches_are_done(store):
    keep(store, None, FIRST, never)
    begun(store, planned=11, done=11)
    keep(store, FIRST, replace(FIRST, schema="{1}"), never)


def test_a_checkpoint_of_another_program_and_a_damaged_file_are_refused(store):
    store.put("metadata", b'{"id":"q"}\n')
    with pytest.raises(InvalidArgumentError, match="made by another program"):
        kept_settings(store)
    store.put("ingest/settings.json", b"{}")
    with pytest.raises(LogCorruptedError, match="not what this job writes"):
        kept_settings(store)


def test_triggers_lists_and_pairs_are_read():
    assert trigger_of("available-now") == {"availableNow": True}
    assert trigger_of("once") == {"once": True}
    assert trigger_of("1.5") == {"processingTime": "1500 milliseconds"}
    for wrong in ("often", "-1", "nan", "inf"):
        with pytest.raises(InvalidArgumentError, match="--trigger"):
            trigger_of(wrong)
    assert (listed("a, b"), listed(None)) == (["a", "b"], None)
    assert pairs(["a=b=c"], "--option") == {"a": "b=c"}
    with pytest.raises(InvalidArgumentError, match="--option name=value"):
        pairs(["a"], "--option")
