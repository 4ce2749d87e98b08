"""The process ends at any call of the store: no half delivery is taken for a whole one, no half load is a version."""

from __future__ import annotations

import contextlib
import io
import uuid

import polars as pl
import pytest

from pydelta.log import DeltaLog
from pydelta.storage import open_store, register_store
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash
from pydelta.tools.inventory import ListingOptions, find_deliveries, load_deliveries, read_manifest, write_delivery
from pydelta.tools.inventory.delivery import data_path

MADE = 1_900_000_000_000
KEYS = [f"t/p={number}/f" for number in range(6)]


@pytest.fixture
def lake(tmp_path):
    for key in KEYS:
        path = tmp_path / "lake" / key
        path.parent.mkdir(parents=True)
        path.write_bytes(b"12")
    return str(tmp_path / "lake")


@pytest.fixture
def deliver(lake):
    """Delivers the lake into a store that may be broken."""
    stores = {}
    register_store("faultyinventory", lambda uri, options: stores["now"])

    def run(store):
        stores["now"] = store
        how = ListingOptions(rows_per_file=5, keep=1)
        return write_delivery(lake, "faultyinventory://x/deliveries", how=how, now_ms=MADE)

    return run


def rows_of(log):
    files = log.update().files
    frames = [pl.read_parquet(io.BytesIO(log.store.read(add.path))) for add in files.adds(files.core)]
    return sorted(key for frame in frames for key in frame.filter(~pl.col("isDir"))["key"])


@pytest.mark.parametrize("kind", [FaultKind.DIE_BEFORE, FaultKind.DIE_AFTER])
def test_a_delivery_that_was_cut_off_is_not_complete_or_is_whole(deliver, kind):
    counted = CountingStore(MemoryStore(f"memory://{uuid.uuid4()}/deliveries"))
    deliver(counted)
    calls = len(counted.calls)
    assert calls > 6
    incomplete = 0
    for call in range(calls):
        inner = MemoryStore(f"memory://{uuid.uuid4()}/deliveries")
        with pytest.raises(SimulatedCrash):
            deliver(FaultyStore(inner, Fault(kind=kind, call=call)))
        complete = [item for item in find_deliveries(inner, "file") if item.complete]
        incomplete += not complete
        for item in complete:
            manifest = read_manifest(inner, item)
            assert sum(inner.head(data_path(inner, file, item)) is not None for file in manifest.files) > 1
        assert deliver(inner).objects > len(KEYS)
        (last,) = [item for item in find_deliveries(inner, "file") if item.complete]
        assert read_manifest(inner, last).created_ms == MADE
    assert incomplete > 3


@pytest.mark.parametrize("kind", [FaultKind.DIE_BEFORE, FaultKind.DIE_AFTER, FaultKind.LOSE_REPLY])
def test_a_load_that_was_cut_off_is_no_version_or_a_whole_one(lake, tmp_path, kind):
    write_delivery(lake, str(tmp_path / "deliveries"), now_ms=MADE)
    deliveries = open_store(str(tmp_path / "deliveries"))
    found = find_deliveries(deliveries, "file")

    def load(store):
        return load_deliveries(DeltaLog(store), deliveries, found, now_ms=MADE)

    counted = CountingStore(MemoryStore(f"memory://{uuid.uuid4()}/report"))
    load(counted)
    calls = len(counted.calls)
    wanted = sorted(f"{lake.strip('/')}/{key}" for key in KEYS)
    for call in range(calls):
        inner = MemoryStore(f"memory://{uuid.uuid4()}/report")
        with contextlib.suppress(SimulatedCrash, OSError):
            load(FaultyStore(inner, Fault(kind=kind, call=call)))
        log = DeltaLog(inner)
        if log.update().version >= 0:
            assert rows_of(log) == wanted
        load(inner)
        assert rows_of(DeltaLog(inner)) == wanted
        assert load(inner).version is None
