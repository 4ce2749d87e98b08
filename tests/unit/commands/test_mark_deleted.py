"""Rows hidden by deletion vectors: which actions come out, what statistics say, what a failure leaves behind."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from pydelta.commands.change.hidden_rows import loose_stats, mark_deleted, physical_rows
from pydelta.errors import LogCorruptedError, StorageFullError
from pydelta.log import DeltaLog
from pydelta.log.vector_files import read_deleted_rows, write_vectors
from pydelta.protocol.actions import Protocol
from pydelta.protocol.vectors import inline_vector
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore
from pydelta.testing.tables import TableBuilder

_NAMES = itertools.count()
PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors",),
)


def rows(*positions: int) -> np.ndarray:
    return np.array(positions, dtype=np.uint64)


@pytest.fixture
def table():
    """Three files of ten rows."""
    store = MemoryStore(f"memory://marked{next(_NAMES)}/t")
    built = TableBuilder(
        store, columns={"x": "long"}, properties={"delta.enableDeletionVectors": "true"}, protocol=PROTOCOL
    )
    adds = [built.file(pa.table({"x": range(start, start + 10)})) for start in (0, 10, 20)]
    built.commit(*adds)
    return store, DeltaLog(store).update(), adds


def hidden(store, snapshot, add) -> list[int]:
    if add.deletion_vector is None:
        return []
    return read_deleted_rows([add.deletion_vector], store=store, root=snapshot.table_uri, options=None)[0].tolist()


def test_many_files_share_one_vector_file_and_untouched_ones_are_left_alone(table):
    store, snapshot, adds = table
    output = mark_deleted(snapshot, DeltaLog(store), adds, {0: rows(3), 2: rows(9, 0), 1: rows()})
    assert len(output.files_written) == 1
    assert store.read(output.files_written[0])[:1] == b"\1"
    assert [remove.path for remove in output.removes] == [adds[0].path, adds[2].path]
    assert all(remove.deletion_vector is None and remove.extended_file_metadata for remove in output.removes)
    assert [hidden(store, snapshot, add) for add in output.adds] == [[3], [0, 9]]
    for add, old in zip(output.adds, (adds[0], adds[2]), strict=True):
        assert (add.path, add.size, add.data_change) == (old.path, old.size, True)
        assert msgspec.json.decode(add.stats) == {"numRecords": 10, "tightBounds": False}
    assert output.num_deleted_rows == 3
    assert output.metrics == {
        "numDeletionVectorsAdded": 2,
        "numDeletionVectorsRemoved": 0,
        "numDeletionVectorsUpdated": 0,
    }


def test_an_old_vector_is_united_with_the_new_rows(table):
    store, snapshot, adds = table
    marked = adds[0].replace(deletion_vector=inline_vector(rows(1, 2)))
    output = mark_deleted(snapshot, DeltaLog(store), [marked], {0: rows(2, 5)})
    assert hidden(store, snapshot, output.adds[0]) == [1, 2, 5]
    assert output.removes[0].deletion_vector == marked.deletion_vector
    assert output.num_deleted_rows == 1
    assert set(output.metrics.values()) == {1}


def test_a_file_without_a_live_row_left_is_removed_and_writes_no_vector(table):
    store, snapshot, adds = table
    marked = adds[1].replace(deletion_vector=inline_vector(rows(*range(5))))
    output = mark_deleted(snapshot, DeltaLog(store), [adds[0], marked], {0: rows(*range(10)), 1: rows(*range(5, 10))})
    assert (output.adds, output.files_written) == ((), ())
    assert (output.num_removed_files, output.removed_bytes) == (2, adds[0].size + adds[1].size)
    assert output.num_deleted_rows == 15
    assert output.metrics["numDeletionVectorsRemoved"] == 1
    assert output.metrics["numDeletionVectorsUpdated"] == 0


@pytest.mark.parametrize("said", [1, 2, 3, 9])
def test_a_file_goes_only_when_its_footer_agrees_with_the_log_that_no_live_row_is_left(table, said):
    store, snapshot, adds = table
    short = adds[0].replace(stats=f'{{"numRecords":{said}}}')
    counting = CountingStore(store)
    output = mark_deleted(
        snapshot, DeltaLog(counting), [short, adds[1], adds[2]], {0: rows(0, 8), 1: rows(*range(10)), 2: rows(4)}
    )
    assert [(add.path, hidden(store, snapshot, add)) for add in output.adds] == [
        (adds[0].path, [0, 8]),
        (adds[2].path, [4]),
    ]
    assert (output.num_deleted_rows, output.num_removed_files) == (13, 1)
    counted = 10 if said < 9 else 9  # it is asked where the rows show that the log cannot be right, or all would go
    assert msgspec.json.decode(output.adds[0].stats)["numRecords"] == counted
    asked = [path for verb, path in counting.calls if verb == "read_range"]
    assert asked == ([adds[0].path] if said < 9 else []) + [adds[1].path]


@pytest.mark.parametrize("stats", [None, "{}", '{"minValues":{"x":0}}', "{broken"])
def test_rows_are_counted_in_the_footer_where_statistics_do_not_say(table, stats):
    store, snapshot, adds = table
    add = adds[0].replace(stats=stats)
    counting = CountingStore(store)
    assert physical_rows(add, DeltaLog(counting)) == 10
    assert [verb for verb, _ in counting.calls] == ["read_range"]
    output = mark_deleted(snapshot, DeltaLog(store), [add], {0: rows(1)})
    assert msgspec.json.decode(output.adds[0].stats)["numRecords"] == 10


def test_statistics_keep_every_digit_and_say_that_bounds_are_not_tight():
    stats = '{"numRecords":3,"minValues":{"d":12345678901234567890.12,"s":"é"},"nullCount":{"d":0},"tightBounds":true}'
    assert loose_stats(stats, 3) == stats.replace("true", "false")
    assert loose_stats(None, 7) == '{"numRecords":7,"tightBounds":false}'


def test_a_damaged_old_vector_is_an_error_and_nothing_is_written(table):
    store, snapshot, adds = table
    before = {item.path for item in store.list_all()}
    marked = adds[0].replace(deletion_vector=inline_vector(rows(1)).replace(cardinality=2))
    with pytest.raises(LogCorruptedError, match="damaged"):
        mark_deleted(snapshot, DeltaLog(store), [marked], {0: rows(3)})
    assert {item.path for item in store.list_all()} == before


def test_vectors_that_are_too_many_for_one_file_go_to_several_and_a_failure_leaves_none():
    store = MemoryStore(f"memory://marked{next(_NAMES)}/t")
    vectors = [np.arange(0, 2 * count, 2, dtype=np.uint64) for count in (600_000, 600_000, 3)]
    described, written = write_vectors(vectors, store=store, random_folders=True)
    assert len(written) == 2
    assert all(len(path.split("/")[0]) == 2 for path in written)
    found = read_deleted_rows(described, store=store, root=store.root, options=None)
    assert all(np.array_equal(*pair) for pair in zip(found, vectors, strict=True))


def test_a_put_is_done_again_where_the_store_says_so_and_a_refusal_leaves_no_file():
    vectors = [np.arange(0, 2 * count, 2, dtype=np.uint64) for count in (600_000, 600_000)]
    store = MemoryStore(f"memory://marked{next(_NAMES)}/t")
    for kind in (FaultKind.FAIL, FaultKind.LOSE_REPLY):
        _, written = write_vectors(vectors, store=FaultyStore(store, Fault(kind=kind, call=1)))
        assert {item.path for item in store.list_all()} == set(written)
        store.delete_many(written)
    put = store.put

    def refuse(path, data):
        if list(store.list_all()):
            raise StorageFullError("no space left")
        put(path, data)

    store.put = refuse
    with pytest.raises(StorageFullError):
        write_vectors(vectors, store=store)
    assert list(store.list_all()) == []


def test_neighbours_in_one_file_are_read_with_one_request():
    store = MemoryStore(f"memory://marked{next(_NAMES)}/t")
    described, _ = write_vectors([rows(number) for number in range(50)], store=store)
    counting = CountingStore(store)
    found = read_deleted_rows(described[::-1], store=counting, root=store.root, options=None)
    assert [item.tolist() for item in found] == [[number] for number in reversed(range(50))]
    assert len(counting.calls) == 1
