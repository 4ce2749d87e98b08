"""Rows come in without a JVM: nested columns, odd partitions, identities; what is refused leaves nothing."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

from pydelta.api.python.local import LocalTable
from pydelta.errors import (
    ConstraintViolatedError,
    DeltaError,
    InvalidArgumentError,
    SchemaMismatchError,
    UnsafeOperationError,
    UnsupportedFeatureError,
)
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.protocol.identity import identity_metadata
from pydelta.protocol.types import ArrayType, MapType, PrimitiveType, StructField, StructType, parse_type
from pydelta.storage.memory import MemoryStore
from pydelta.testing.tables import TableBuilder

_NAMES = itertools.count()
LONG, STRING = PrimitiveType("long"), PrimitiveType("string")
FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors", "columnMapping", "timestampNtz"),
    writer_features=("deletionVectors", "columnMapping", "timestampNtz", "changeDataFeed", "identityColumns"),
)
VECTORS = {"delta_enableDeletionVectors": "true"}
MAPPED = {"delta_columnMapping_mode": "name", "delta_columnMapping_maxColumnId": "9"}
INNER = StructType((StructField("X", LONG), StructField("y", STRING)))
NESTED = [
    StructField("k", LONG),
    StructField("s", INNER),
    StructField("a", ArrayType(INNER)),
    StructField("m", MapType(STRING, INNER)),
]


def table(*fields, partition_columns=(), **properties):
    store = MemoryStore(f"memory://rowsin{next(_NAMES)}/t")
    own = {name.replace("_", "."): value for name, value in properties.items()}
    built = TableBuilder(store, columns={}, partition_columns=partition_columns, properties=own, protocol=FEATURES)
    built.metadata = built.metadata.replace(schema_string=StructType(tuple(fields)).to_json())
    built.commit()
    return LocalTable(DeltaLog(store)), store


def data_files(store):
    return [item.path for item in store.list_all() if item.path.endswith(".parquet") and "_delta_log" not in item.path]


def refused(opened, store, error, match, run):
    version, before = opened.version, data_files(store)
    with pytest.raises(error, match=match) as caught:
        run()
    assert isinstance(caught.value, DeltaError) and caught.value.hint
    assert (opened.version, data_files(store)) == (version, before)


def nested(keys, number, *, case=str):
    inner = {case("x"): number, case("Y"): str(number)}
    kind = pa.struct([(case("Y"), pa.large_string()), (case("x"), pa.int16())])
    return pa.table({
        "K": keys,
        "S": pa.array([inner] * len(keys), kind),
        "A": pa.array([[inner, None]] * len(keys), pa.large_list(kind)),
        "M": pa.array([[("e", inner)]] * len(keys), pa.map_(pa.string(), kind)),
    })  # fmt: skip


def told(number):
    inner = {"X": number, "y": str(number)}
    return {"s": inner, "a": [inner, None], "m": [("e", inner)]}


def mapped(data_type, ids=None):
    ids = ids or itertools.count(1)
    if isinstance(data_type, StructType):
        fields = [
            item.replace(
                data_type=mapped(item.data_type, ids),
                metadata={
                    "delta.columnMapping.id": (number := next(ids)),
                    "delta.columnMapping.physicalName": f"col-{number}",
                },
            )
            for item in data_type.fields
        ]
        return StructType(tuple(fields))
    if isinstance(data_type, ArrayType):
        return ArrayType(mapped(data_type.element_type, ids))
    if isinstance(data_type, MapType):
        return MapType(data_type.key_type, mapped(data_type.value_type, ids))
    return data_type


@pytest.mark.parametrize("case", [str, str.upper])
@pytest.mark.parametrize("properties", [{}, VECTORS | {"delta_enableChangeDataFeed": "true"}, MAPPED], ids=str)
def test_structs_lists_and_maps_are_appended_and_merged_by_name(properties, case):
    fields = mapped(StructType(tuple(NESTED))).fields if properties is MAPPED else NESTED
    opened, _ = table(*fields, **properties)
    opened.append(nested([1, 2, 3], 1, case=case))
    result = opened.merge(nested([2, 9], 7, case=case), on="k")
    assert (result.num_updated_rows, result.num_inserted_rows, result.num_copied_rows) == (1, 1, result.num_copied_rows)
    found = sorted(opened.scan().to_pylist(), key=lambda row: row["k"])
    assert found == [{"k": key, **told(number)} for key, number in ((1, 1), (2, 7), (3, 1), (9, 7))]
    again = pl.from_arrow(opened.scan(columns=["k", "s", "a"]))
    opened.append(again)
    assert opened.scan().num_rows == 8


@pytest.mark.parametrize(
    ("inner", "error", "match"),
    [
        ({"x": 1, "z": 2}, SchemaMismatchError, r"s\.z"),
        ({"x": "1"}, SchemaMismatchError, r"s\.X"),
        ({"y": dt.datetime(2024, 1, 1)}, SchemaMismatchError, r"s\.y"),
    ],
)
def test_what_a_struct_cannot_hold_is_refused_by_append_and_merge(inner, error, match):
    opened, store = table(*NESTED)
    opened.append(nested([1], 1))
    rows = pa.table({"k": [1], "s": [inner]})
    refused(opened, store, error, match, lambda: opened.append(rows))
    refused(opened, store, error, match, lambda: opened.merge(rows, on="k"))


def test_a_required_field_of_a_struct_is_checked_by_append():
    opened, store = table(StructField("s", StructType((StructField("x", LONG, False), StructField("y", LONG)))))
    opened.append(pa.table({"s": [{"X": 1}, None]}))
    refused(
        opened, store, ConstraintViolatedError, r"s\.x", lambda: opened.append(pa.table({"s": [{"x": None, "y": 1}]}))
    )
    refused(opened, store, SchemaMismatchError, r"s\.x", lambda: opened.append(pa.table({"s": [{"y": 1}]})))
    assert opened.scan().to_pylist() == [{"s": {"x": 1, "y": None}}, {"s": None}]


DAYS = [
    dt.datetime(2024, 1, 1),
    None,
    dt.datetime(1, 1, 1, 0, 0, 0, 1),
    dt.datetime(9999, 12, 31),
    dt.datetime(1582, 10, 10),
]
PARTITIONS = [
    ("float", pa.array([0.1, None, float("nan"), float("-inf"), -0.0], pa.float32())),
    ("double", pa.array([0.1, 1e300, None, float("inf"), 5e-324], pa.float64())),
    ("binary", pa.array([b"a", None, b"\xc3\xa9", b" ", b"%/"])),
    ("timestamp_ntz", pa.array(DAYS, pa.timestamp("us"))),
    ("timestamp", pa.array(DAYS, pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))),
    ("decimal(10,2)", pa.array([Decimal("1.50"), None, Decimal("-1.00"), Decimal("99999999.99"), Decimal(0)])),
    ("boolean", pa.array([True, None, False, True, False])),
    ("date", pa.array(DAYS, pa.timestamp("us")).cast(pa.date32(), safe=False)),
]


@pytest.mark.parametrize(("kind", "values"), PARTITIONS, ids=[kind for kind, _ in PARTITIONS])
def test_every_type_of_partition_is_written_read_and_merged(kind, values):
    opened, _ = table(
        StructField("id", LONG), StructField("v", LONG), StructField("p", parse_type(kind)), partition_columns=["p"]
    )
    opened.append(pa.table({"id": range(5), "v": range(5), "p": values}))
    assert repr(opened.scan(columns=["p", "id"]).sort_by("id")["p"].to_pylist()) == repr(values.to_pylist())
    opened.merge(pa.table({"id": [3, 7], "v": [30, 70], "p": values.take([0, 0])}), on="id")
    found = opened.scan().sort_by("id")
    assert found["v"].to_pylist() == [0, 1, 2, 30, 4, 70]
    assert repr(found["p"].to_pylist()) == repr(values.take([0, 1, 2, 0, 4, 0]).to_pylist())
    assert opened.delete("id >= 0 AND p IS NULL").num_deleted_rows == 1


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=str)
def test_a_merge_by_a_partition_column_alone_finds_its_rows(properties):
    opened, _ = table(
        StructField("s", INNER), StructField("v", LONG), StructField("p", STRING), partition_columns=["p"], **properties
    )
    opened.append(pa.table({"v": [1, 2, 3], "p": ["a", "b", None]}))
    result = opened.merge(pa.table({"p": ["a", "c", None], "v": [10, 30, 40]}), on="p")
    assert (result.num_updated_rows, result.num_inserted_rows) == (1, 2)
    rows = sorted(((row["p"], row["v"]) for row in opened.scan().to_pylist()), key=str)
    assert rows == sorted([("a", 10), ("b", 2), (None, 3), ("c", 30), (None, 40)], key=str)
    assert opened.merge(pa.table({"p": ["a"]}), on="p", matched="delete", not_matched=None).num_deleted_rows == 1


@pytest.mark.parametrize("explicit", [False, True])
def test_an_identity_is_never_set_in_a_row_that_is_there(explicit):
    identity = StructField("id", LONG, metadata=identity_metadata(explicit=explicit))
    opened, store = table(identity, StructField("k", LONG), StructField("v", LONG))
    refused(opened, store, UnsafeOperationError, "'id'", lambda: opened.update(set={"ID": "5"}))
    rows = pa.table({"id": [5], "k": [1], "v": [1]})
    refused(opened, store, UnsafeOperationError, "'id'", lambda: opened.merge(rows, on="k", not_matched=None))
    both = UnsafeOperationError if not explicit else UnsupportedFeatureError
    refused(opened, store, both, "id", lambda: opened.merge(rows, on="id", matched=None))
    refused(opened, store, UnsupportedFeatureError, "identity", lambda: opened.append(rows))
    assert opened.update(set={"v": "k"}).version is None


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_an_empty_text_is_null_before_a_partition_column_is_checked(kind):
    empty = "" if kind == "string" else b""
    opened, store = table(StructField("v", LONG), StructField("p", PrimitiveType(kind), False), partition_columns=["p"])
    opened.append(pa.table({"v": [1], "p": ["a" if kind == "string" else b"a"]}))
    rows = pa.table({"v": [1], "p": [empty]})
    refused(opened, store, ConstraintViolatedError, "'p'", lambda: opened.append(rows))
    refused(opened, store, ConstraintViolatedError, "'p'", lambda: opened.merge(rows, on="v"))
    if kind == "string":
        refused(opened, store, UnsupportedFeatureError, "NOT NULL", lambda: opened.update(set={"p": "''"}))
    assert opened.scan().num_rows == 1


def test_columns_that_arrow_does_not_have_are_refused_by_name():
    opened, store = table(StructField("a", PrimitiveType("binary")), StructField("b", LONG))
    for column in (
        pl.Series([object()], dtype=pl.Object),
        pl.Series([2**100], dtype=pl.Int128),
        pl.Series([dt.time(1)]),
    ):
        rows = pl.DataFrame({"b": [1], "a": column})
        refused(opened, store, SchemaMismatchError, "'a'", lambda rows=rows: opened.append(rows))
    refused(
        opened, store, SchemaMismatchError, "'a'", lambda: opened.append(pa.table([[b""], [b""]], names=["a", "a"]))
    )
    refused(
        opened, store, SchemaMismatchError, "'A'", lambda: opened.append(pa.table([[b""], [b""]], names=["a", "A"]))
    )


def test_a_value_for_a_void_column_and_broken_arrow_tables_are_refused():
    opened, store = table(StructField("k", LONG), StructField("s", STRING), StructField("n", PrimitiveType("void")))
    opened.append(pa.table({"k": [1], "n": pa.nulls(1)}))
    refused(opened, store, SchemaMismatchError, "'n'", lambda: opened.append(pa.table({"k": [1], "n": [1]})))
    refused(opened, store, SchemaMismatchError, "'n'", lambda: opened.merge(pa.table({"k": [1], "n": [1]}), on="k"))
    beyond = pa.DictionaryArray.from_arrays(pa.array([5]), pa.array(["a"]), safe=False)
    for column in (beyond, pa.array([b"\xff"]).view(pa.string())):
        rows = pa.table([column], names=["s"])
        refused(opened, store, InvalidArgumentError, "not a valid", lambda rows=rows: opened.append(rows))
    assert opened.scan().num_rows == 1


def test_a_category_of_pandas_is_appended_and_merged():
    opened, _ = table(
        StructField("k", LONG), StructField("s", STRING), StructField("p", STRING), partition_columns=["p"]
    )
    rows = pa.table(
        {
            "k": [1, 2, 3],
            "s": pa.array(["a", None, "a"]).dictionary_encode(),
            "p": pa.array(["", "x", "x"]).dictionary_encode(),
        }
    )
    opened.append(rows)
    opened.merge(rows.slice(1), on=["k", "p"])
    assert sorted((row["k"], row["s"], row["p"]) for row in opened.scan().to_pylist()) == [
        (1, "a", None),
        (2, None, "x"),
        (3, "a", "x"),
    ]


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=str)
def test_files_whose_arrow_schema_says_dictionary_or_a_list_of_a_fixed_size_are_read_and_rewritten(properties):
    store = MemoryStore(f"memory://rowsin{next(_NAMES)}/t")
    own = {name.replace("_", "."): value for name, value in properties.items()}
    built = TableBuilder(store, columns={}, properties=own, protocol=FEATURES)
    words = StructType((StructField("w", STRING),))
    fields = [StructField("k", LONG), StructField("s", STRING), StructField("b", PrimitiveType("binary"))]
    fields += [StructField("l", ArrayType(LONG)), StructField("v", ArrayType(LONG)), StructField("i", words)]
    built.metadata = built.metadata.replace(schema_string=StructType(tuple(fields)).to_json())
    words_given = pa.StructArray.from_arrays([pa.array(["x", None, "y"]).dictionary_encode()], names=["w"])
    given = pa.table({
        "k": [1, 2, 3],
        "s": pa.array(["a", None, "b"]).dictionary_encode(),
        "b": pa.array([b"a", None, b""]).dictionary_encode(),
        "l": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2)),
        "v": pa.array([[1], None, []], pa.large_list(pa.int64())),
        "i": words_given,
    })  # fmt: skip
    built.commit(built.file(given))
    opened = LocalTable(DeltaLog(store))
    rows = given.to_pylist()
    assert opened.scan().to_pylist() == rows
    assert [row["k"] for row in opened.scan("s = 'a' OR b IS NULL").to_pylist()] == [1, 2]
    opened.update("k = 2", {"s": "'new'"})
    opened.delete("k = 1")
    assert opened.merge(pa.table({"s": ["b"], "v": [[9]]}), on="s").num_updated_rows == 1
    opened.optimize()
    opened.purge()
    expected = [{**rows[1], "s": "new"}, {**rows[2], "v": [9]}]
    assert sorted(opened.scan().to_pylist(), key=lambda row: row["k"]) == expected


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=str)
def test_columns_that_files_do_not_hold_have_as_many_rows_as_the_others(properties):
    fields = (StructField("k", LONG), StructField("p", STRING), StructField("v", PrimitiveType("void")))
    opened, _ = table(*fields, partition_columns=("p",), **properties)
    opened.append(pa.table({"k": [1, 2, 3, 4], "p": ["x", "x", "y", None]}))
    opened.delete("k = 2")
    assert sorted(opened.scan(columns=["p"])["p"].to_pylist(), key=str) == [None, "x", "y"]
    assert opened.scan("p = 'x'", columns=["p"]).to_pylist() == [{"p": "x"}]
    assert opened.scan("p IS NULL", columns=["p", "v"]).to_pylist() == [{"p": None, "v": None}]
    assert opened.scan(columns=["v"]).num_rows == 3
