"""Rows of Arrow and Polars as a table takes them: columns of each type, rules, conditions, names of any case."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import polars as pl
import pyarrow as pa
import pytest

from pydelta.api.python.local import LocalTable
from pydelta.engines.arrow import scans
from pydelta.engines.arrow.expressions import NotHere
from pydelta.engines.arrow.scans import Scan
from pydelta.engines.arrow.sources import (
    _has_objects,
    arrow_of,
    check_replaced,
    refuse_rules,
    schema_of_arrow,
    with_inserts,
)
from pydelta.errors import ConstraintViolatedError, SchemaMismatchError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.predicate.expressions import Arithmetic, Column, Compare, Literal
from pydelta.protocol.actions import Protocol
from pydelta.protocol.sized_texts import LENGTH
from pydelta.protocol.types import PrimitiveType, StructField, StructType, parse_type
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.testing.tables import TableBuilder

_NAMES = itertools.count()
LONG, STRING, VOID = PrimitiveType("long"), PrimitiveType("string"), PrimitiveType("void")
FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors", "columnMapping"),
    writer_features=("deletionVectors", "columnMapping", "invariants", "checkConstraints"),
)
VECTORS = {"delta.enableDeletionVectors": "true"}
MAPPING = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}


def table(*fields, partition_columns=(), **properties):
    """A table in memory, and its store."""
    store = MemoryStore(f"memory://sources{next(_NAMES)}/t")
    built = TableBuilder(
        store, columns={}, partition_columns=partition_columns, properties=properties, protocol=FEATURES
    )
    built.metadata = built.metadata.replace(schema_string=StructType(tuple(fields)).to_json())
    built.commit()
    return LocalTable(DeltaLog(store)), store


def rows_of(opened, *arguments, **options):
    return sorted(opened.scan(*arguments, **options).to_pylist(), key=str)


TYPES = [
    (pa.null(), "void"), (pa.bool_(), "boolean"), (pa.int8(), "byte"), (pa.int16(), "short"), (pa.int32(), "integer"),
    (pa.int64(), "long"), (pa.uint8(), "short"), (pa.uint16(), "integer"), (pa.uint32(), "long"),
    (pa.uint64(), "decimal(20,0)"), (pa.float16(), "float"), (pa.float32(), "float"), (pa.float64(), "double"),
    (pa.string(), "string"), (pa.large_string(), "string"), (pa.string_view(), "string"), (pa.binary(), "binary"),
    (pa.large_binary(), "binary"), (pa.binary_view(), "binary"), (pa.binary(2), "binary"), (pa.date32(), "date"),
    (pa.date64(), "date"), (pa.decimal128(5, 0), "decimal(5,0)"), (pa.decimal256(38, 38), "decimal(38,38)"),
    (pa.uuid(), "binary"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), TYPES, ids=[str(kind) for kind, _ in TYPES])
def test_an_arrow_type_has_the_column_type_that_holds_its_values(kind, name):
    assert schema_of_arrow(pa.schema([("c", kind)])) == StructType((StructField("c", parse_type(name)),))


@pytest.mark.parametrize(
    "kind", [pa.decimal256(39, 0), pa.decimal128(5, -1), pa.time32("s"), pa.month_day_nano_interval()]
)
def test_an_arrow_type_that_no_column_holds_is_refused(kind):
    with pytest.raises(UnsupportedFeatureError, match=r"Column 'c'.*no column of a table can hold"):
        schema_of_arrow(pa.schema([("c", kind)]))


def test_two_names_that_differ_in_case_are_refused():
    for names in (("A", "a"), ("a", "A"), ("x", "A", "y", "a")):
        with pytest.raises(SchemaMismatchError, match="twice"):
            schema_of_arrow(pa.schema([(name, pa.int64()) for name in names]))


OBJECTS = {
    "object": pl.Object,
    "list": pl.List(pl.Object),
    "array": pl.Array(pl.Object, 2),
    "struct": pl.Struct({"x": pl.Int64, "y": pl.List(pl.Object)}),
}
NESTED = [
    pl.Series("c", [[1]], dtype=pl.List(pl.Int64)),
    pl.Series("c", [{"x": 1, "y": "b"}]),
]


@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_of_python_is_found_wherever_it_is(kind):
    assert _has_objects(OBJECTS[kind])


def test_an_object_of_python_is_refused():
    with pytest.raises(SchemaMismatchError, match="Arrow has no objects of Python"):
        arrow_of(pl.DataFrame({"a": [1], "c": pl.Series([object()], dtype=pl.Object)}))


@pytest.mark.parametrize("series", NESTED, ids=["list", "struct"])
def test_nested_values_without_objects_are_those_of_arrow(series):
    assert arrow_of(pl.DataFrame([series]))["c"].to_pylist() == series.to_list()


RULES = {
    "delta.generationExpression": "k + 1",
    "delta.invariants": '{"expression": {"expression": "v > 0"}}',
    "CURRENT_DEFAULT": "7",
}


@pytest.mark.parametrize("key", RULES)
def test_a_rule_of_a_column_is_named(key):
    opened, _ = table(StructField("k", LONG), StructField("v", LONG, metadata={key: RULES[key]}))
    with pytest.raises(UnsupportedFeatureError, match=rf"v: {key}"):
        opened.append(pa.table({"k": [1]}))
    assert opened.version == 0


@pytest.mark.parametrize("key", ["delta.constraints.positive", "Delta.Constraints.Positive"])
def test_a_constraint_of_the_table_is_named(key):
    opened, _ = table(StructField("k", LONG), **{key: "k > 0"})
    with pytest.raises(UnsupportedFeatureError, match=key):
        opened.append(pa.table({"k": [1]}))


def test_a_schema_that_is_too_deep_is_refused():
    kind = LONG
    for _ in range(100):
        kind = StructType((StructField("s", kind),))
    snapshot = SimpleNamespace(schema=StructType((StructField("deep", kind),)), metadata=None, table_uri="memory://d/t")
    with pytest.raises(UnsupportedFeatureError, match="deep"):
        refuse_rules(snapshot)


def target(expr, *, predicate="given"):
    """A write whose rows must satisfy a condition."""
    snapshot = SimpleNamespace(table_uri="memory://c/t")
    return SimpleNamespace(predicate=predicate, condition=SimpleNamespace(native=expr), snapshot=snapshot)


INNER = pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.int64())]))])
K, X, Z = Column(("K",), LONG), Column(("s", "x"), LONG), Column(("s", "y", "z"), LONG)
ROWS = pa.table(
    {"c0": [1, 1], "c1": pa.array([{"x": 2, "y": {"z": 3}}, {"x": 2, "y": {"z": 4}}], INNER), "c2": pa.nulls(2)}
)
CONDITIONS = [
    (Compare("=", K, Literal(1, LONG)), 0),
    (Compare("=", K, Literal(2, LONG)), 2),
    (Compare("=", X, Literal(2, LONG)), 0),
    (Compare("=", Z, Literal(3, LONG)), 1),
    (Compare("<=>", Column(("v",), LONG), Literal(None, LONG)), 0),
    (Compare("=", Column(("v",), LONG), Literal(1, LONG)), 2),
]


@pytest.mark.parametrize("form", ["table", "chunks", "batch"])
@pytest.mark.parametrize(("condition", "wrong"), CONDITIONS, ids=[str(place) for place in range(len(CONDITIONS))])
def test_rows_that_do_not_satisfy_the_condition_of_what_they_replace_are_counted(condition, wrong, form):
    chunks = pa.concat_tables([ROWS[:1], ROWS[1:]])
    rows = {"table": ROWS, "chunks": chunks, "batch": ROWS.combine_chunks().to_batches()[0]}[form]
    for names in (("K", "s", "n"), ("k", "S", "n")):
        if wrong:
            with pytest.raises(ConstraintViolatedError, match=f"^(.* )?{wrong} rows do not satisfy"):
                check_replaced(target(condition), names, rows)
        else:
            check_replaced(target(condition), names, rows)
        check_replaced(target(condition, predicate=None), names, rows)


def test_a_condition_that_only_spark_evaluates_is_refused():
    overflow = Compare("=", Arithmetic("+", K, Literal(2**63 - 1, LONG), LONG), Literal(0, LONG))
    with pytest.raises(UnsupportedFeatureError):
        check_replaced(target(overflow), ("K", "s", "n"), ROWS)


def test_inserts_come_twice_once_for_the_change_feed():
    found = [(batch.schema.names, batch.to_pylist()) for batch in with_inserts(pa.table({"a": [1, 2]}))]
    assert found == [
        (["a", "kind"], [{"a": 1, "kind": None}, {"a": 2, "kind": None}]),
        (["a", "kind"], [{"a": 1, "kind": "insert"}, {"a": 2, "kind": "insert"}]),
    ]


def test_partition_columns_have_names_of_any_case():
    opened, store = table(StructField("k", LONG), StructField("P", STRING), partition_columns=("P",))
    opened.append(pa.table({"K": [1, 2], "p": ["", "x"]}))
    files = [item.path for item in store.list_all() if item.path.endswith(".parquet") and "_delta_log" not in item.path]
    assert sorted(path.split("/")[-1].split("-")[:2] for path in files) == [["part", "00000"]] * 2
    assert rows_of(opened) == [{"k": 1, "P": None}, {"k": 2, "P": "x"}]
    assert rows_of(opened, "p = 'x'", columns=["k"]) == [{"k": 2}]
    opened.merge(pa.table({"k": [3, 2], "P": ["", "x"]}), on=["k"])
    assert rows_of(opened) == [{"k": 1, "P": None}, {"k": 2, "P": "x"}, {"k": 3, "P": None}]
    assert opened.scan("P IS NULL", columns=["P"]).to_pylist() == [{"P": None}] * 2


def test_an_empty_text_is_a_missing_value_of_a_partition_column_whatever_its_name_s_case():
    opened, _ = table(StructField("k", LONG), StructField("P", STRING, nullable=False), partition_columns=("P",))
    rows = pa.table({"k": [1], "p": [""]})
    for write in (opened.append, lambda rows: opened.merge(rows, on=["k"])):
        with pytest.raises(ConstraintViolatedError, match="P"):
            write(rows)
    assert opened.version == 0


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["files", "vectors"])
def test_a_condition_on_a_field_reads_its_column_and_hidden_rows_stay_hidden(properties):
    fields = StructField("k", LONG), StructField("s", StructType((StructField("x", LONG),))), StructField("v", VOID)
    opened, _ = table(*fields, **properties)
    opened.append(pa.table({"k": [1, 2, 3], "s": [{"x": 5}, {"x": 6}, {"x": 6}]}))
    opened.delete("k = 3")
    assert rows_of(opened, "s.x = 6", columns=["k"]) == [{"k": 2}]
    assert rows_of(opened, "s.x >= 5", columns=["v", "k"]) == [{"v": None, "k": 1}, {"v": None, "k": 2}]
    assert opened.scan(columns=["v"]).num_rows == 2


def test_columns_are_read_by_their_physical_names():
    metadata = [
        {"delta.columnMapping.id": place, "delta.columnMapping.physicalName": f"col-{place}"} for place in (1, 2)
    ]
    fields = StructField("k", LONG, metadata=metadata[0]), StructField("P", STRING, metadata=metadata[1])
    opened, _ = table(*fields, partition_columns=("P",), **MAPPING)
    opened.append(pa.table({"k": [1, 2], "P": ["x", "y"]}))
    assert rows_of(opened, "P = 'y'") == [{"k": 2, "P": "y"}]


def test_physical_names_of_a_table_without_column_mapping_are_not_its_files_names():
    metadata = [{"delta.columnMapping.id": place, "delta.columnMapping.physicalName": f"c{place}"} for place in (1, 2)]
    fields = StructField("k", LONG, metadata=metadata[0]), StructField("P", STRING, metadata=metadata[1])
    opened, _ = table(*fields, partition_columns=("P",))
    opened.append(pa.table({"k": [1, 2], "P": ["x", "y"]}))
    assert rows_of(opened, "P = 'y'") == [{"k": 2, "P": "y"}]


def test_a_scan_without_columns_has_as_many_rows_as_the_table():
    log, snapshot = table_log()
    assert Scan(log, snapshot, (), None).run(snapshot.files.select()).num_rows == 3


def test_the_first_rows_are_those_of_the_whole_scan_and_no_file_is_opened_for_more():
    opened, store = table(StructField("k", LONG), **VECTORS)
    for first in (1, 4, 7):
        opened.append(pa.table({"k": [first, first + 1, first + 2]}))
    opened.append(pa.table({"k": list(range(10, 16))}))  # Of which a later batch has more rows than are left to read.
    opened.delete("k IN (1, 5, 10, 11)")
    snapshot = DeltaLog(store).update()
    unread, given = CountingStore(store), CountingStore(store)
    scan = Scan(DeltaLog(unread), snapshot, ("k",), None)
    files = snapshot.files.select().sort("size", "path", descending=[True, False])
    expected = scan.run(files)["k"].to_pylist()
    assert sorted(expected) == [2, 3, 4, 6, 7, 8, 9, 12, 13, 14, 15]
    paths = files["path"].to_list()
    sizes = [scan.run(files.filter(pl.col("path") == path)).num_rows for path in paths]
    unread.calls.clear()
    for rows in range(13):
        given.calls.clear()
        batches = list(scan.first(files, rows, given))
        assert [value for batch in batches for value in batch["k"].to_pylist()] == expected[:rows]
        needed = [path for at, path in enumerate(paths) if sum(sizes[:at]) < rows]
        assert {path for _, path in given.calls if path in paths} == set(needed), rows
    assert list(scan.first(files, -1, given)) == []
    assert unread.calls == [], "it reads from the store that it is given"


def test_of_a_large_file_no_more_pages_are_read_than_the_first_rows_need(monkeypatch):
    opened, store = table(StructField("k", LONG))
    opened.append(pa.table({"k": list(range(1000))}))
    log = DeltaLog(store)
    asked = []
    original = scans.read_batches

    def noted(*args, **kwargs):
        asked.append(kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(scans, "read_batches", noted)
    snapshot = log.update()
    [batch] = Scan(log, snapshot, ("k",), None).first(snapshot.files.select(), 10, store)
    assert (batch["k"].to_pylist(), asked) == (list(range(10)), [{"rows": 10}])


def test_a_table_that_only_spark_reads_is_not_scanned():
    _, store = table(StructField("k", STRING, metadata={LENGTH: "char(3)"}))
    log = DeltaLog(store)
    with pytest.raises(NotHere, match="a column of type char"):
        Scan(log, log.update(), ("k",), None)


def table_log():
    """The log and the newest version of a table of three rows."""
    opened, store = table(StructField("k", LONG))
    opened.append(pa.table({"k": [1, 2, 3]}))
    log = DeltaLog(store)
    return log, log.update()
