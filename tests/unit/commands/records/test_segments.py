"""Segments of a record index: what was written is found, damage is noticed anywhere, and merging loses nothing."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import numpy as np
import polars as pl
import pytest

from pydelta.commands.records import segments as format_of
from pydelta.commands.records.index import merge_segments, new_segment_path
from pydelta.commands.records.segments import (
    FILES_SCHEMA,
    BadSegmentError,
    IndexedColumn,
    SegmentContents,
    open_segment,
    write_segment,
)
from pydelta.errors import ObjectNotFoundError
from pydelta.storage.memory import MemoryStore
from pydelta.testing.stores import CountingStore

_NAMES = itertools.count()
KEY = (IndexedColumn(name="id", kind="integer"),)
HASH = "test-1"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of few entries and short ends, so that small segments have many of them."""
    monkeypatch.setattr(format_of, "_BLOCK_ENTRIES", 8)
    monkeypatch.setattr(format_of, "_END_BYTES", 1500)


def new_store():
    return MemoryStore(f"memory://segments{next(_NAMES)}/t")


def files_named(names):
    return pl.DataFrame({"path": list(names), "size": [len(name) for name in names]}, schema=FILES_SCHEMA)


def written(store, holds, *, hash_name=HASH, key=KEY):
    """Write a segment of path -> its hashes, in parts of random size."""
    pairs = sorted((value, number) for number, values in enumerate(holds.values()) for value in set(values))
    contents = SegmentContents(key=key, hash_name=hash_name, table_id="t", files=files_named(holds))
    cuts = sorted(Random(len(pairs)).choices(range(len(pairs) + 1), k=3))
    parts = [pairs[low:high] for low, high in itertools.pairwise([0, *cuts, len(pairs)])]
    entries = [
        (np.array([pair[0] for pair in part], np.uint64), np.array([pair[1] for pair in part], np.uint32))
        for part in parts
    ]
    return write_segment(store, new_segment_path(), contents, entries)


def drawn(random, count, *, most=60):
    """Path -> hashes; some of them are in several files, and a few in all."""
    pool = [random.getrandbits(64) for _ in range(40)] + [0, (1 << 64) - 1, 5, 6, 7]
    return {f"f-{random.random()}": random.choices(pool, k=random.randrange(most)) for _ in range(count)}


def found_in(segment, wanted):
    hit = segment.find(np.array(sorted(wanted), np.uint64))
    return set(segment.files["path"].filter(pl.Series(hit)))


@pytest.mark.parametrize("seed", range(30))
def test_a_segment_finds_exactly_the_files_with_a_hash(seed):
    random = Random(seed)
    store, holds = new_store(), drawn(random, random.randrange(12))
    info = written(store, holds)
    assert store.head(info.path).size == info.size
    segment = open_segment(store, info, hash_name=HASH)
    assert (segment.key, segment.files.height) == (KEY, len(holds))
    assert segment.num_entries == sum(len(set(values)) for values in holds.values())
    pool = [value for values in holds.values() for value in values] + [random.getrandbits(64) for _ in range(9)]
    for _ in range(20):
        wanted = set(random.choices(pool, k=random.choice([0, 1, 1, 2, 30])))
        assert found_in(segment, wanted) == {path for path, values in holds.items() if wanted & set(values)}


@pytest.mark.parametrize("seed", range(8))
def test_damage_at_any_byte_is_noticed_or_changes_no_answer(seed):
    random = Random(seed)
    store, holds = new_store(), drawn(random, 6)
    info = written(store, holds)
    whole = store.read(info.path)
    wanted = {value for values in holds.values() for value in values[:3]}
    expected = {path for path, values in holds.items() if wanted & set(values)}
    noticed = 0
    offsets = range(len(whole)) if seed == 0 else random.sample(range(len(whole)), 150)
    for offset in offsets:
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << random.randrange(8)
        store.put(info.path, bytes(damaged))
        try:
            segment = open_segment(store, info, hash_name=HASH)
            assert found_in(segment, wanted) == expected
            assert segment.key == KEY
            assert segment.files.equals(files_named(holds))
        except BadSegmentError:
            noticed += 1
    assert noticed > len(offsets) // 2


@pytest.mark.parametrize("seed", range(8))
def test_a_segment_that_is_cut_off_or_longer_is_refused(seed):
    random = Random(seed)
    store, holds = new_store(), drawn(random, 6)
    info = written(store, holds)
    whole = store.read(info.path)
    for _ in range(40):
        other = whole[: random.randrange(len(whole))] if random.random() < 0.7 else whole + random.randbytes(9)
        store.put(info.path, other)
        with pytest.raises(BadSegmentError):
            open_segment(store, replace(info, size=len(other)), hash_name=HASH)
        if len(other) < len(whole):  # It was listed before it was cut off.
            with pytest.raises(BadSegmentError):
                open_segment(store, info, hash_name=HASH)


def test_bytes_of_blocks_that_end_early_are_noticed():
    store = new_store()
    info = written(store, {"f": range(100)})

    class Short(CountingStore):
        def read_range(self, path, start, length):
            return super().read_range(path, start, length)[:-1]

    segment = replace(open_segment(store, info, hash_name=HASH), store=Short(store))
    with pytest.raises(BadSegmentError, match="missing"):
        segment.find(np.array([5], np.uint64))


def test_another_hash_is_refused_and_a_missing_object_is_the_stores_error():
    store = new_store()
    info = written(store, {"f": [1]}, hash_name="other-2")
    with pytest.raises(BadSegmentError, match="other-2"):
        open_segment(store, info, hash_name=HASH)
    assert open_segment(store, info, hash_name=None).num_entries == 1
    store.delete_many([info.path])
    with pytest.raises(ObjectNotFoundError):
        open_segment(store, info, hash_name=HASH)


def test_a_block_with_a_file_that_is_not_covered_is_refused():
    store = new_store()
    contents = SegmentContents(key=KEY, hash_name=HASH, table_id="t", files=files_named(["f"]))
    entries = [(np.array([1], np.uint64), np.array([1], np.uint32))]
    segment = open_segment(store, write_segment(store, new_segment_path(), contents, entries), hash_name=HASH)
    with pytest.raises(BadSegmentError, match="not covered"):
        segment.find(np.array([1], np.uint64))


def test_a_failed_write_leaves_nothing():
    store = new_store()

    def entries():
        yield np.arange(20, dtype=np.uint64), np.zeros(20, np.uint32)
        raise OSError("no more")

    contents = SegmentContents(key=KEY, hash_name=HASH, table_id="t", files=files_named(["f"]))
    with pytest.raises(OSError, match="no more"):
        write_segment(store, new_segment_path(), contents, entries())
    assert list(store.list_all()) == []


def test_one_key_costs_one_request_for_the_end_and_one_for_its_block():
    store = new_store()
    info = written(store, {f"f{number}": range(number * 30, number * 30 + 30) for number in range(8)})
    assert info.size > 1500
    counting = CountingStore(store)
    segment = open_segment(counting, info, hash_name=HASH)
    assert found_in(segment, [70]) == {"f2"}
    assert found_in(segment, []) == set()
    assert [verb for verb, _ in counting.calls] == ["read_range"] * 2


@pytest.mark.parametrize("seed", range(25))
def test_merging_keeps_the_entries_of_live_files_and_no_others(seed, monkeypatch):
    monkeypatch.setattr("pydelta.commands.records.index._MERGED_FENCES", 3)
    random = Random(seed)
    store = new_store()
    each = [drawn(random, random.randrange(7)) for _ in range(random.randrange(1, 6))]
    twice = next((holds for holds in each if holds), {})
    if twice and random.random() < 0.5:
        each.append(dict(list(twice.items())[:2]))  # Two processes covered the same files.
    together = {path: values for holds in each for path, values in holds.items()}
    live = {path: values for path, values in together.items() if random.random() < 0.7}
    other = pl.DataFrame({"path": ["f-other"], "size": [9]}, schema=FILES_SCHEMA)
    opened = [open_segment(store, written(store, holds), hash_name=HASH) for holds in each]
    merged = merge_segments(store, opened, pl.concat([files_named(live), other]), HASH)
    assert sorted(merged.files["path"]) == sorted(live)
    assert merged.num_entries == sum(len(set(values)) for values in live.values())
    for value in {value for values in together.values() for value in values}:
        assert found_in(merged, [value]) == {path for path, values in live.items() if value in values}
