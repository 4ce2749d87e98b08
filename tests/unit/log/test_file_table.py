"""The columnar file table: keys, spellings, pruning, and statistics read only where they are asked for."""

from __future__ import annotations

import datetime as dt
import json
import random
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from log_tables import add, commit, create, info, log_of, new_store, remove

from pydelta.log import DeltaLog
from pydelta.log.columns import adds_from_frame, adds_to_frame, canonical_path, map_values, spellings
from pydelta.log.snapshot import FileSums, change_of
from pydelta.predicate import And, Column, Compare, IsNull, Literal, Or, Unknown
from pydelta.protocol.actions import AddFile, DeletionVectorDescriptor, Metadata, Protocol
from pydelta.testing import CountingStore


def day_is(text: str) -> Compare:
    return Compare("=", Column(("day",)), Literal(dt.date.fromisoformat(text), "date"))


def id_is(value: int) -> Compare:
    return Compare("=", Column(("id",)), Literal(value, "long"))


def vector(number: int) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(storage_type="u", path_or_inline_dv=f"v{number}", size_in_bytes=1, cardinality=1)


def table(checkpointed: bool):
    """Files 1–6 over two days and the null day; 1–3 in the checkpoint, if there is one."""
    store = new_store()
    create(store, add(1, "2024-05-01"), add(2, "2024-05-02"), add(3, None))
    if checkpointed:
        log_of(store).checkpoint()
    commit(store, 1, [info(), add(4, "2024-05-01"), add(5, "2024-05-02")])
    commit(store, 2, [info(), add(6, None)])
    return store


def numbers(frame: pl.DataFrame) -> list[int]:
    return sorted(size - 100 for size in frame["size"])


@pytest.mark.parametrize("checkpointed", [False, True])
class TestSelect:
    def test_partition_values_decide(self, checkpointed: bool):
        files = log_of(table(checkpointed)).snapshot().files
        assert numbers(files.select(day_is("2024-05-01"))) == [1, 4]
        assert numbers(files.select(IsNull(Column(("day",))))) == [3, 6]
        assert numbers(files.select(day_is("2030-01-01"))) == []
        assert numbers(files.select(Or(day_is("2024-05-01"), day_is("2024-05-02")))) == [1, 2, 4, 5]

    def test_names_are_found_whatever_their_case(self, checkpointed: bool):
        files = log_of(table(checkpointed)).snapshot().files
        condition = Compare("=", Column(("DAY",)), Literal(dt.date(2024, 5, 1), "date"))
        assert numbers(files.select(condition, [Compare("=", Column(("ID",)), Literal(45, "long"))])) == [4]
        above = Compare(">", Column(("Id",)), Literal(40, "long"))
        assert numbers(files.select(condition, [above, Compare("<", Column(("iD",)), Literal(49, "long"))])) == [4]

    def test_statistics_decide_among_what_is_left(self, checkpointed: bool):
        files = log_of(table(checkpointed)).snapshot().files
        assert numbers(files.select(None, [id_is(25)])) == [2]
        assert numbers(files.select(None, [id_is(65)])) == [6]
        assert numbers(files.select(day_is("2024-05-01"), [id_is(25)])) == []
        assert numbers(files.select(None, [And(day_is("2024-05-02"), id_is(55))])) == [5]

    def test_both_bounds_of_a_decimal_column_count(self, checkpointed: bool):
        files = log_of(table(checkpointed)).snapshot().files
        for op, value, kept in (
            (">", "9.5", 0),
            (">=", "9.5", 6),
            ("<", "1.25", 0),
            ("<=", "1.25", 6),
            ("=", "9.51", 0),
        ):
            condition = Compare(op, Column(("PRICE",)), Literal(Decimal(value), "decimal(10,2)"))
            assert len(files.select(None, [condition])) == kept, condition

    def test_a_condition_over_both_kinds_of_columns_uses_both(self, checkpointed: bool):
        files = log_of(table(checkpointed)).snapshot().files
        assert numbers(files.select(None, [Or(day_is("2024-05-02"), id_is(15))])) == [1, 2, 5]

    def test_what_is_not_understood_keeps_everything(self, checkpointed: bool):
        files = log_of(table(checkpointed)).snapshot().files
        assert numbers(files.select(Unknown("day like '%'", frozenset({("day",)})))) == [1, 2, 3, 4, 5, 6]
        assert numbers(files.select(None, [Unknown("f(id)"), id_is(25)])) == [2]
        assert len(files.select(None, [Compare("=", Column(("missing",)), Literal(1, "long"))])) == 6

    def test_rows_keep_their_order_and_full_actions_come_back_in_it(self, checkpointed: bool):
        files = log_of(table(checkpointed)).snapshot().files
        rows = files.core.sort("size", descending=True)
        assert files.adds(rows) == [
            add(6, None),
            add(5, "2024-05-02"),
            add(4),
            add(3, None),
            add(2, "2024-05-02"),
            add(1),
        ]
        assert files.with_stats(rows)["stats"].to_list() == [add(number).stats for number in (6, 5, 4, 3, 2, 1)]
        assert files.adds(rows.clear()) == []


def test_a_file_without_statistics_is_never_skipped():
    store = new_store()
    create(store, add(1, stats=None), add(2))
    log_of(store).checkpoint()
    commit(store, 1, [info(), add(3, stats=None), add(4, stats="{}"), add(5)])
    assert numbers(log_of(store).snapshot().files.select(None, [id_is(25)])) == [1, 2, 3, 4]


def test_pruning_by_partition_reads_no_statistics_and_few_rows_read_only_their_row_group(monkeypatch):
    monkeypatch.setattr("pydelta.log.checkpoint.parquet_rows.WHOLE_READ_BYTES", 1_000)
    monkeypatch.setattr("pydelta.log.checkpoint.rows.BATCH_ROWS", 500)
    inner = new_store()
    noise = random.Random(1)
    create(inner, *(add(number, stats=f'{{"numRecords":1,"minValues":{{"name":"{noise.getrandbits(4000):x}"}}}}')
                    for number in range(2_000)))  # fmt: skip
    log_of(inner).checkpoint()
    store = CountingStore(inner)
    files = log_of(store).snapshot().files
    size = inner.head(files.layers()[0].name).size
    assert files.select(day_is("2024-05-01")).height == 2_000
    without = store.bytes_read
    assert without < size / 4
    few = files.core.filter(pl.col("size") == 100 + 1_999)
    assert len(files.with_stats(few)["stats"][0]) > 1_000
    assert store.bytes_read - without < size / 3


# -- in parts ---------------------------------------------------------------------------------------------------------


def in_parts(batches) -> list[tuple]:
    return sorted(row for batch in batches for row in batch.rows())


def rows_of(frame: pl.DataFrame) -> list[tuple]:
    return sorted(frame.rows())


def grown(monkeypatch):
    """Forty files by a checkpoint of several row groups; then some removed, replaced with vectors, spelt otherwise."""
    monkeypatch.setattr("pydelta.log.checkpoint.rows.BATCH_ROWS", 10)
    store = new_store()
    create(store, *(add(number) for number in range(40)))
    commit(store, 1, [info(), *(remove(add(number), at_ms=4_000_000_000_000) for number in range(3))])
    log_of(store).checkpoint()
    commit(store, 2, [info(), remove(add(3)), add(3, deletion_vector=vector(3)), add(0), add(50)])
    commit(store, 3, [info(), remove(add(50)), remove(add(4)), add(51)])
    return store


@pytest.mark.parametrize("kept", [False, True])
def test_the_parts_are_the_whole(monkeypatch, kept: bool):
    store = grown(monkeypatch)
    whole = log_of(store).snapshot().files
    expected = rows_of(whole.core.select("path", "dv_id")), rows_of(whole.tombstones().drop("row"))
    assert len(expected[0]) == 40 - 3 - 1 + 1 + 1
    assert {path for path, _, _, _ in expected[1]} == {add(number).path for number in (1, 2, 3, 4, 50)}
    DeltaLog.clear_cache()
    files = log_of(store).snapshot().files
    if kept:
        assert files.core.height == len(expected[0])
    assert in_parts(files.path_batches()) == expected[0]
    assert in_parts(batch.drop("row") for batch in files.tombstone_batches()) == expected[1]
    assert files.is_materialized is kept


def test_parts_of_a_table_without_a_checkpoint_and_of_one_whose_checkpoint_is_damaged(monkeypatch):
    store = table(checkpointed=False)
    files = log_of(store).snapshot().files
    assert len(in_parts(files.path_batches())) == 6
    assert in_parts(files.tombstone_batches()) == []

    store = grown(monkeypatch)
    expected = set(rows_of(log_of(store).snapshot().files.core.select("path", "dv_id")))
    DeltaLog.clear_cache()
    name = log_of(store).snapshot().files.layers()[0].name
    data = store.read(name)
    DeltaLog.clear_cache()
    store.put(name, data[:4] + b"\0" * 4_000 + data[4_004:])  # the footer is whole, pages are not
    files = log_of(store).snapshot().files
    found = in_parts(files.path_batches())
    assert files.layers()[0] is None  # the commits took its place
    assert sorted(set(found)) == sorted(expected)


# -- identity ---------------------------------------------------------------------------------------------------------


def test_one_path_with_two_vectors_is_two_files_and_replacing_one_leaves_one():
    store = new_store()
    create(store, add(1))
    log = log_of(store)
    log.checkpoint()
    commit(store, 1, [info(), remove(add(1)), add(1, deletion_vector=vector(1))])
    assert log.update().files.core["dv_id"].to_list() == ["uv1"]
    assert log.update().files.has_live_vectors()
    commit(store, 2, [info(), add(1, deletion_vector=vector(2)), remove(add(1, deletion_vector=vector(1)))])
    assert log.update().files.core["dv_id"].to_list() == ["uv2"]
    assert log_of(store).snapshot().files.core["dv_id"].to_list() == ["uv2"]
    log_of(store).checkpoint()
    assert log_of(store).snapshot().files.adds(log_of(store).snapshot().files.core)[0].deletion_vector == vector(2)


def test_an_add_of_a_live_file_refreshes_it():
    store = new_store()
    create(store, add(1))
    log = log_of(store)
    log.checkpoint()
    log.update()
    commit(store, 1, [info("COMPUTE STATS"), add(1, stats='{"numRecords":3}', data_change=False)])
    snapshot = log.update()
    assert snapshot.num_files == 1
    assert snapshot.files.adds(snapshot.files.core)[0].stats == '{"numRecords":3}'


def test_a_file_removed_and_added_again_is_live():
    store = new_store()
    create(store, add(1))
    commit(store, 1, [info(), remove(add(1))])
    commit(store, 2, [info("RESTORE"), add(1)])
    snapshot = log_of(store).snapshot()
    assert (snapshot.num_files, snapshot.tombstones().height) == (1, 0)


@pytest.mark.parametrize("in_checkpoint", [False, True])
@pytest.mark.parametrize(
    ("added", "removed"),
    [
        ("day=a%20b/x.parquet", "day=a b/x.parquet"),
        ("p%40%23h.parquet", "p@%23h.parquet"),
        ("day=%C3%A9/x.parquet", "day=é/x.parquet"),
        ("file:/data/t/x.parquet", "/data/t/x.parquet"),
        ("/data/t/x y.parquet", "file:///data/t/x%20y.parquet"),
        ("a%2520b", "a%2520b"),
    ],
)
def test_two_spellings_of_a_path_are_one_file(tmp_path, added: str, removed: str, in_checkpoint: bool):
    from pydelta.storage import LocalStore

    store = LocalStore(f"file://{tmp_path}")
    create(store, add(1, path=added), add(2))
    if in_checkpoint:
        log_of(store).checkpoint()
    commit(store, 1, [info(), remove(add(1, path=removed))])
    assert numbers(log_of(store).snapshot().files.core) == [2]


def test_different_files_stay_different():
    root = "file:///t"
    assert canonical_path("a%2520b", root) != canonical_path("a%20b", root)
    assert canonical_path("x", root) != canonical_path("/x", root)
    assert canonical_path("/x", "s3a://bucket/t") == "s3a://bucket/x"
    assert "s3a://bucket/a b" in spellings("/a%20b", "s3a://bucket/t")


# -- columns ----------------------------------------------------------------------------------------------------------


def test_actions_survive_the_columns():
    adds = [add(1), add(2, None), add(3, tags={"a": "b"}), add(4, deletion_vector=vector(1), base_row_id=3)]
    assert adds_from_frame(adds_to_frame(adds, ["day"], 5), ["day"]) == adds
    assert adds_to_frame(adds, ["day"], 5)["row"].to_list() == [5, 6, 7, 8]


def test_an_empty_partition_value_is_null():
    store = new_store()
    create(store, add(1, ""))
    log_of(store).checkpoint()
    commit(store, 1, [info(), add(2, "")])
    assert log_of(store).snapshot().files.core["pv:day"].to_list() == [None, None]


@pytest.mark.parametrize(
    "rows",
    [
        [[("a", "1"), ("b", "2")], [("a", "3"), ("b", None)]],
        [[("a", "1"), ("b", "2")], [("b", "x"), ("a", "3")]],
        [[("a", "1")], [], [("b", "5")], None, [("b", "2"), ("a", "9")]],
        [[], []],
        [],
    ],
)
def test_values_of_a_map_by_key(rows):
    array = pa.array(rows, pa.map_(pa.string(), pa.string()))
    expected = [[dict(row or []).get(key) for row in rows] for key in ("a", "b", "c")]
    assert [values.to_pylist() for values in map_values(array, ["a", "b", "c"])] == expected
    assert [values.to_pylist() for values in map_values(array[1:], ["a", "b", "c"])] == [part[1:] for part in expected]


def test_sums_change_by_what_a_commit_adds_and_removes():
    assert change_of([info(), add(1), add(2), remove(add(3))]) == FileSums(num_files=1, size_bytes=100)
    assert change_of([info()]) == FileSums(num_files=0, size_bytes=0)
    assert change_of([add(1, data_change=False)]) is None
    assert change_of([remove(add(1)).replace(size=None)]) is None
    assert change_of([add(1, data_change=False), remove(add(2))]) == FileSums(num_files=0, size_bytes=-1)


def test_the_sums_of_a_snapshot_follow_its_commits_without_the_columns():
    store = new_store()
    create(store, add(1))
    log = log_of(store)
    assert log.update().sums() is None
    assert log.update().num_files == 1
    commit(store, 1, [info(), add(5)])
    commit(store, 2, [info(), remove(add(1))])
    snapshot = log.update()
    assert not snapshot.files.is_materialized
    assert snapshot.sums() == FileSums(num_files=snapshot.files.num_files, size_bytes=snapshot.files.size_bytes)


def test_a_partition_column_named_as_another_is_stored_is_not_mistaken_for_it():
    def field(name: str, physical: str, number: int) -> dict:
        mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
        return {"name": name, "type": "long", "nullable": True, "metadata": mapping}

    store = new_store()
    # Column a was renamed to b, then partition column p to a.
    schema = json.dumps({"type": "struct", "fields": [field("b", "a", 1), field("a", "p", 2)]})
    of_table = Metadata(
        id="t", schema_string=schema, partition_columns=("a",), configuration={"delta.columnMapping.mode": "name"}
    )
    text = '{"numRecords":1,"minValues":{"a":1},"maxValues":{"a":1},"nullCount":{"a":0}}'
    file = AddFile(
        path="f.parquet", partition_values={"p": "7"}, size=1, modification_time=1, data_change=True, stats=text
    )
    commit(store, 0, [info(), Protocol(min_reader_version=2, min_writer_version=5), of_table, file])
    files = log_of(store).update().files
    stored = Compare("=", Column(("b",)), Literal(1, "long"))
    partition = Compare("=", Column(("a",)), Literal(8, "long"))
    assert files.select(data_filters=[Or(stored, partition)]).height == 1
    partition = Compare("=", Column(("a",)), Literal(7, "long"))
    assert files.select(data_filters=[Or(Compare("=", Column(("b",)), Literal(2, "long")), partition)]).height == 1
