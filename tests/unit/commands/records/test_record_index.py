"""A MERGE by key with a record index changes the same rows as without, whatever the state of the index."""

from __future__ import annotations

import itertools
from collections import Counter
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from pydelta.api.python.local import LocalTable
from pydelta.commands.records.index import FEWEST_FILES, FOLDER, MOST_HASHES, list_segments
from pydelta.engines.arrow.merge.merging import ArrowMerge
from pydelta.errors import ConcurrentAppendException, DeltaConcurrentModificationException
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.testing.parquet_rows import parquet_rows
from pydelta.testing.tables import TableBuilder

_NAMES = itertools.count()
NO_RETRY = Settings.resolve({"spark.pydelta.change.maxRetries": "0"})
FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors", "columnMapping"),
    writer_features=("deletionVectors", "changeDataFeed", "columnMapping"),
)
VECTORS = {"delta.enableDeletionVectors": "true"}
COLUMNS = {"k": "long", "s": "string", "d": "decimal(9,2)", "v": "long"}
FILES = FEWEST_FILES + 4


def new_store():
    return MemoryStore(f"memory://recordindex{next(_NAMES)}/t")


def rows(keys, value=0):
    return pa.table({
        "k": pa.array(keys, pa.int64()),
        "s": pa.array([None if key is None else f"key number {key}" for key in keys], pa.string()),
        "d": pa.array([None if key is None else Decimal(key) / 4 for key in keys], pa.decimal128(9, 2)),
        "v": pa.array([value] * len(keys), pa.int64()),
    })  # fmt: skip


def table_of(files, *, properties=None, store=None):
    """A table of files with these keys. Their entries have no bounds, so that all of them are candidates."""
    store = store or new_store()
    built = TableBuilder(store, columns=COLUMNS, properties=properties, protocol=FEATURES)
    built.commit(*[built.file(rows(keys)) for keys in files])
    return opened(store)


def opened(store, settings=None):
    return LocalTable(DeltaLog(store, settings=settings))


def copy_of(store):
    twin = new_store()
    for item in store.list_all():
        twin.put(item.path, store.read(item.path))
    return twin


def store_of(table):
    return table._log.store


def now(table):
    store = store_of(table)
    return parquet_rows(DeltaLog(store).update(), store)


def numbered(count=FILES, each=3):
    return [list(range(number * each, number * each + each)) for number in range(count)]


# --- the same rows with and without --------------------------------------------------------------------------


def spoiled(random, store):
    """Damage, cut off or delete a segment, or leave it."""
    for info in list_segments(store):
        what = random.random()
        data = bytearray(store.read(info.path))
        if what < 0.3:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            store.put(info.path, bytes(data))
        elif what < 0.4:
            store.put(info.path, bytes(data[: random.randrange(len(data))]))
        elif what < 0.5:
            store.delete_many([info.path])


def random_step(random, table, pool, key):
    """Change the table without a MERGE, now and then refresh the index, or spoil it."""
    what = random.random()
    if what < 0.25:
        table.append(rows(random.choices(pool, k=4), value=random.randrange(9)))
    elif what < 0.45:
        table.delete(f"k = {random.choice(pool)}")
    elif what < 0.55:
        table.restore(random.randrange(table.version + 1))
    elif what < 0.6:
        table.optimize()
        for number in range(FILES):
            table.append(rows([number]))
    elif what < 0.85:
        table.index_records(key)
    else:
        spoiled(random, store_of(table))


def compared_merge(random, table, pool, key):
    """Merge at random, and into a copy without the index. Returns whether the index left out files."""
    words = {
        "matched": random.choice(["update", "delete", None]),
        "not_matched": random.choice(["insert", None]),
        "not_matched_by_source": "delete" if random.random() < 0.1 else None,
    }
    if not any(words.values()):
        return False
    source = rows(random.sample(pool, random.randrange(4)) + random.choice([[], [None], [99]]), value=77)
    on = key if random.random() < 0.7 else random.choice([["k"], ["s", "k"], ["d", "s"]])
    plain = copy_of(store_of(table))
    plain.delete_many([info.path for info in plain.list_all(FOLDER)])
    expected = opened(plain).merge(source, on, **words)
    given = opened(store_of(table)).merge(source, on, **words)
    assert given.num_candidate_files <= expected.num_candidate_files
    assert now(table) == now(opened(plain))
    for name in ("num_updated_rows", "num_deleted_rows", "num_inserted_rows", "num_copied_rows", "version"):
        assert getattr(given, name) == getattr(expected, name)
    assert shapes(table, given.version) == shapes(opened(plain), given.version)
    return given.num_candidate_files < expected.num_candidate_files


@pytest.mark.parametrize("properties", [None, VECTORS], ids=["rewrite", "hide"])
def test_random_merges_change_the_same_rows_as_without_an_index(properties):
    narrowed = 0
    for seed in range(12):
        random = Random(seed * 2 + bool(properties))
        pool = list(range(30))
        files = [[random.choice([None, *pool]) for _ in range(random.randrange(1, 4))] for _ in range(FILES)]
        table = table_of(files, properties=properties)
        key = random.choice([["k"], ["s"], ["d"], ["s", "k"], ["k", "d"]])
        table.index_records(key)
        for _ in range(12):
            if random.random() < 0.5:
                random_step(random, table, pool, key)
            else:
                narrowed += compared_merge(random, table, pool, key)
    assert narrowed >= 10


def shapes(table, version):
    """What a version's commit says, but for names, times and how long it took."""
    if version is None:
        return None
    found = Counter()
    for action in DeltaLog(store_of(table)).actions(version):
        if action.kind in ("add", "remove"):
            vector = action.deletion_vector
            found[action.kind, getattr(action, "stats", None), None if vector is None else vector.cardinality] += 1
        elif action.kind == "commitInfo":
            metrics = {
                name: value
                for name, value in action.fields["operationMetrics"].items()
                if not name.endswith("TimeMs") and "Bytes" not in name
            }
            found[action.fields["operation"], str(action.fields["operationParameters"]), str(metrics)] += 1
        else:
            found[action.kind] += 1
    return found


# --- what is left out --------------------------------------------------------------------------------------------


def test_only_the_file_of_a_key_is_opened():
    table = table_of(numbered())
    assert table.merge(rows([7], 1), "k", not_matched=None).num_candidate_files == FILES
    table.index_records("k")
    counting = CountingStore(store_of(table))
    result = opened(counting).merge(rows([10], 5), "k")
    assert (result.num_candidate_files, result.num_updated_rows) == (1, 1)
    data = {path for path in counting.paths("read", "read_range") if path.endswith(".parquet") and path[0] != "_"}
    assert len(data) == 1
    assert [verb for verb, path in counting.calls if path.startswith(FOLDER)] == ["list_from", *["read_range"] * 2]
    assert now(table)[10, "key number 10", Decimal("2.5"), 5] == 1


def test_files_that_were_added_since_stay_candidates_until_a_refresh():
    table = table_of(numbered())
    table.index_records(["k"])
    table.append(rows([-5, 501, 900]))
    assert table.merge(rows([501], 3), "k").num_candidate_files == 1
    assert table.merge(rows([4], 3), "k").num_candidate_files == 2  # The file of the row, and the added one.
    done = table.index_records()
    assert (done.columns, done.num_indexed_files, done.num_covered_files) == (("k",), 2, FILES + 1)
    assert table.merge(rows([4], 4), "k").num_candidate_files == 1
    assert now(table)[4, "key number 4", Decimal("1"), 4] == 1


def test_a_key_of_more_columns_and_an_index_of_more_columns():
    table = table_of(numbered())
    table.index_records(["s", "k"])
    assert table.merge(rows([4], 1), ["k", "s", "d"]).num_candidate_files == 1
    assert table.merge(rows([4], 2), ["k"]).num_candidate_files == FILES  # The index needs both.


@pytest.mark.parametrize("words", [{"not_matched_by_source": "delete"}, {"matched": None}], ids=str)
def test_rows_without_a_match_are_still_decided_over_all_files(words):
    table = table_of(numbered())
    table.index_records("k")
    result = table.merge(rows([4, 900], 1), "k", **words)
    assert result.num_inserted_rows == 1
    assert sum(now(table).values()) == (2 if "not_matched_by_source" in words else FILES * 3 + 1)


def test_few_files_or_many_rows_ask_no_index():
    few = table_of(numbered(FEWEST_FILES - 1))
    few.index_records("k")
    counting = CountingStore(store_of(few))
    opened(counting).merge(rows([1]), "k")
    assert not [path for path in counting.paths("list_from", "read_range") if path.startswith(FOLDER)]
    many = table_of(numbered())
    many.index_records("k")
    counting = CountingStore(store_of(many))
    opened(counting).merge(rows(list(range(1000, 1001 + MOST_HASHES))), "k", not_matched=None)
    assert not [path for path in counting.paths("list_from", "read_range") if path.startswith(FOLDER)]


def test_an_integer_key_of_another_width_in_the_source_is_found():
    table = table_of(numbered())
    table.index_records("k")
    source = pa.table({"k": pa.array([10], pa.int16()), "v": pa.array([5], pa.int64())})
    assert table.merge(source, "k").num_candidate_files == 1


# --- conflicts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(("key", "conflicts"), [(10, True), (5000, False)])
def test_a_concurrent_append_of_the_key_is_a_conflict_as_without_an_index(indexed, key, conflicts, monkeypatch):
    """The other commit lands after the candidates were chosen and before this one commits."""
    table = table_of(numbered())
    if indexed:
        table.index_records("k")
    store = store_of(table)
    merging = opened(store, NO_RETRY)
    find = ArrowMerge.find

    def find_late(self, files):
        assert files.height == (1 if indexed else FILES)
        opened(store).append(rows([key]))
        return find(self, files)

    monkeypatch.setattr(ArrowMerge, "find", find_late)
    if conflicts:
        with pytest.raises(ConcurrentAppendException):
            merging.merge(rows([10], 5), "k")
        assert now(table)[10, "key number 10", Decimal("2.5"), 0] == 2
    else:
        assert merging.merge(rows([10], 5), "k").num_updated_rows == 1


@pytest.mark.parametrize("indexed", [True, False])
def test_a_concurrent_delete_in_a_file_that_was_left_out_is_decided_as_without_an_index(indexed, monkeypatch):
    table = table_of(numbered())
    if indexed:
        table.index_records("k")
    store, find = store_of(table), ArrowMerge.find

    def find_late(self, files):
        monkeypatch.setattr(ArrowMerge, "find", find)
        opened(store).delete("k = 40")
        return find(self, files)

    monkeypatch.setattr(ArrowMerge, "find", find_late)
    with pytest.raises(DeltaConcurrentModificationException):
        opened(store, NO_RETRY).merge(rows([10], 5), "k")


def test_a_merge_that_is_run_again_asks_the_index_over_the_new_version(monkeypatch):
    table = table_of(numbered())
    table.index_records("k")
    store, find, seen = store_of(table), ArrowMerge.find, []

    def find_late(self, files):
        seen.append(files.height)
        if len(seen) == 1:
            opened(store).append(rows([10], 1))
        return find(self, files)

    monkeypatch.setattr(ArrowMerge, "find", find_late)
    again = Settings.resolve({"spark.pydelta.change.retryOn": "any"})
    result = opened(store, again).merge(rows([10], 5), "k")
    assert (seen, result.num_updated_rows) == ([1, 2], 2)
