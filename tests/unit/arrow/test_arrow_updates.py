"""New values of rows in this process: what is written, what goes to the feed, and what is left to Spark."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.commands.write.options import WriteMode, WriteOptions
from pydelta.engines.arrow.changes import FilePlace, find_rows, rewrite
from pydelta.engines.arrow.expressions import NotHere, arithmetic, compare
from pydelta.engines.arrow.layout import Session, TableShape, make_task
from pydelta.engines.arrow.tasks.old_files import NeedsSpark
from pydelta.engines.arrow.updates import update_rows
from pydelta.log import DeltaLog
from pydelta.predicate.expressions import Column, Literal
from pydelta.protocol.actions import Protocol
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.row_tracking import materialized_columns
from pydelta.protocol.types import PrimitiveType
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.tables import TableBuilder

_NAMES = itertools.count()
LONG, STRING = PrimitiveType("long"), PrimitiveType("string")
ID = Column(("id",), LONG)
PLUS = arithmetic("+", Column(("v",), LONG), Literal(1, LONG))
FEATURES = Protocol(
    min_reader_version=1,
    min_writer_version=7,
    writer_features=("changeDataFeed", "rowTracking", "domainMetadata", "checkConstraints", "appendOnly", "invariants"),
)
TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
}


def table(*, properties=None, fields=None, partition_columns=()):
    store = MemoryStore(f"memory://arrowupdates{next(_NAMES)}/t")
    columns = {"id": "long", "v": "long", "s": "string", "p": "long"}
    built = TableBuilder(
        store, columns=columns, partition_columns=partition_columns, properties=properties, protocol=FEATURES
    )
    schema = json.loads(built.metadata.schema_string)
    for name, changed in (fields or {}).items():
        next(item for item in schema["fields"] if item["name"] == name).update(changed)
    built.metadata = built.metadata.replace(schema_string=json.dumps(schema))
    rows = {"id": [0, 1, 2, 3], "v": [10, None, 30, 40], "s": ["a", "b", "c", None], "p": [5, 5, 5, 5]}
    partition = {name: str(rows.pop(name)[0]) for name in partition_columns}
    add = built.file(pa.table(rows), partition).replace(base_row_id=100, default_row_commit_version=0)
    built.commit(add)
    return store


def run(store, values, matched=(0, 1), *, copy_others=True, **session):
    snapshot = DeltaLog(store).update()
    task = make_task(
        TableShape.of(snapshot),
        WriteOptions(mode=WriteMode.APPEND),
        Session(settings=Settings(), store_options={}, **session),
        change_data=snapshot.properties.enable_change_data_feed,
        row_tracking=bool(materialized_columns(snapshot.properties)),
    )
    change = update_rows(snapshot, task, values, copy_others=copy_others)
    rows = None if matched is None else {0: RowSet.of(np.array(matched, dtype=np.uint64))}
    before = {item.path for item in store.list_all()}
    try:
        return rewrite(snapshot, snapshot.files.core, rows, change, task=task, place=FilePlace(store=store))
    except NotHere:
        assert {item.path for item in store.list_all()} == before, "nothing that was written is left"
        raise


def rows_of(store, action):
    return pq.read_table(pa.BufferReader(store.read(decode_log_path(action.path).text))).to_pylist()


@pytest.mark.parametrize(("matched", "batches"), [((0, 1), 2), ((0, 3), 4), ((2,), 3), ((0,), 1), ((), 1), (None, 4)])
def test_nothing_is_read_after_the_last_row_that_matched(monkeypatch, matched, batches):
    monkeypatch.setattr("pydelta.engines.arrow.tasks.old_files.BATCH_ROWS", 1)
    read = []
    monkeypatch.setattr(
        "pydelta.engines.arrow.changes.with_row_ids", lambda batch, *_, **__: read.append(batch) or batch
    )
    store = table()
    output = run(store, {"s": Literal("x", STRING)}, matched=matched, copy_others=False)
    assert len(read) == batches
    found = [row["id"] for add in output.adds for row in rows_of(store, add)]
    assert found == list(range(4) if matched is None else matched)
    read.clear()
    run(store, {"s": Literal("x", STRING)}, matched=matched)
    assert len(read) == 4, "the others are copied"


def test_rows_that_match_get_new_values_and_all_keep_their_order():
    store = table()
    output = run(store, {"v": PLUS, "s": Literal("x", STRING)}, matched=(1, 2))
    [add] = output.adds
    found = [(row["id"], row["v"], row["s"]) for row in rows_of(store, add)]
    assert found == [(0, 10, "a"), (1, None, "x"), (2, 31, "x"), (3, 40, None)]
    assert (output.num_rows, output.changes) == (4, ())
    assert json.loads(add.stats)["maxValues"]["v"] == 40


def test_without_the_others_only_new_rows_are_written():
    store = table()
    output = run(store, {"v": ID}, matched=(3,), copy_others=False)
    assert [(row["id"], row["v"]) for row in rows_of(store, output.adds[0])] == [(3, 3)]
    output = run(store, {"v": ID}, matched=None, copy_others=False)
    assert [row["v"] for row in rows_of(store, output.adds[0])] == [0, 1, 2, 3]


def test_the_feed_has_both_images():
    store = table(properties={"delta.enableChangeDataFeed": "true"})
    output = run(store, {"v": PLUS}, matched=(0,))
    found = [(row["id"], row["v"], row["_change_type"]) for row in rows_of(store, output.changes[0])]
    assert sorted(found, key=lambda row: row[2]) == [(0, 11, "update_postimage"), (0, 10, "update_preimage")]
    assert (output.num_rows, output.num_changes) == (4, 2)


def test_a_row_keeps_its_id_and_gets_the_version_of_the_commit():
    store = table(properties=TRACKED)
    output = run(store, {"v": PLUS}, matched=(0,))
    found = [(row["_id"], row["_version"]) for row in rows_of(store, output.adds[0])]
    assert found == [(100, None), (101, 0), (102, 0), (103, 0)]


def test_a_partition_column_can_be_read_and_set():
    store = table(partition_columns=["p"])
    output = run(store, {"v": Column(("p",), LONG)}, matched=(1,))
    assert [row["v"] for row in rows_of(store, output.adds[0])] == [10, 5, 30, 40]
    assert output.adds[0].partition_values == {"p": "5"}
    output = run(store, {"p": ID}, matched=(1, 2))
    found = {add.partition_values["p"]: [row["id"] for row in rows_of(store, add)] for add in output.adds}
    assert found == {"5": [0, 3], "1": [1], "2": [2]}
    assert output.num_rows == 4
    output = run(store, {"p": Literal(None, LONG)}, matched=(0,), copy_others=False)
    assert [(add.partition_values["p"], rows_of(store, add)[0]["id"]) for add in output.adds] == [(None, 0)]


def test_an_overflow_in_a_row_that_stays_is_none():
    store = table()
    big = arithmetic("*", Column(("v",), LONG), Literal(2**58, LONG))
    with pytest.raises(NotHere, match="outside the range of its type"):
        run(store, {"v": big}, matched=(0, 3))
    output = run(store, {"v": big}, matched=(1, 0))
    assert rows_of(store, output.adds[0])[0]["v"] == 10 * 2**58


@pytest.mark.parametrize(
    ("properties", "fields", "reason"),
    [
        ({"delta.constraints.c": "v > 0"}, {}, "CHECK"),
        ({}, {"s": {"metadata": {"delta.generationExpression": "CAST(v AS STRING)"}}}, "generated"),
        ({}, {"v": {"metadata": {"delta.invariants": "{}"}}}, "checked"),
        ({}, {"s": {"metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}}}, "char or varchar"),
        ({}, {"s": {"metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}}}, "char or varchar"),
        ({}, {"v": {"nullable": False}}, "NOT NULL"),
        (
            {},
            {"s": {"type": {"type": "array", "elementType": "string", "containsNull": False}}},
            "NOT NULL inside",
        ),
    ],
)
def test_what_spark_checks_is_left_to_spark(properties, fields, reason):
    store = table(properties=properties, fields=fields)
    with pytest.raises(NotHere, match=reason):
        run(store, {"v": PLUS}, matched=(1,))


def test_not_null_holds_where_no_null_comes():
    store = table(fields={"id": {"nullable": False}, "s": {"nullable": False}})
    assert run(store, {"id": PLUS}, matched=(0, 2)).num_rows == 4
    with pytest.raises(NotHere, match="NOT NULL"):
        run(store, {"id": PLUS}, matched=(1,))
    with pytest.raises(NotHere, match="NOT NULL"):  # of a column that is not set, in a row that changes
        run(store, {"v": ID}, matched=(3,))


def test_a_value_of_another_type_than_its_column_is_left_to_spark():
    with pytest.raises(NotHere, match="another type"):
        run(table(), {"s": ID})


def test_a_row_group_that_takes_too_much_memory_is_left_to_spark():
    store = table()
    snapshot = DeltaLog(store).update()
    is_one = compare("=", ID, Literal(1, LONG))
    for most_bytes in (None, 10**9):
        found = find_rows(snapshot, snapshot.files.core, is_one, FilePlace(store=store, most_bytes=most_bytes))
        assert found[0].positions().tolist() == [1]
    with pytest.raises(NeedsSpark, match="a row group of"):
        find_rows(snapshot, snapshot.files.core, is_one, FilePlace(store=store, most_bytes=10))
