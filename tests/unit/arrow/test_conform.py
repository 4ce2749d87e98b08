"""Arrow arrays of any type become columns of a table: each value as it is, or an error with the path of its field."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from pydelta.engines.arrow.conform import _offsets, arrow_type, conformed
from pydelta.errors import ConstraintViolatedError, SchemaMismatchError
from pydelta.protocol.types import ArrayType, DecimalType, MapType, PrimitiveType, StructField, StructType

LONG, INTEGER, STRING, BINARY = map(PrimitiveType, ("long", "integer", "string", "binary"))
FLOAT, DOUBLE, DATE, TIMESTAMP = map(PrimitiveType, ("float", "double", "date", "timestamp"))
LOCAL = PrimitiveType("timestamp_ntz")
UTC = dt.UTC


def struct(**fields):
    return StructType(tuple(StructField(name, kind) for name, kind in fields.items()))


def fit(array, kind, *, nullable=True, partition=False):
    column = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
    found = conformed(column, StructField("c", kind, nullable), partition=partition)
    found.validate(full=True)
    assert found.type.equals(arrow_type(StructField("c", kind)), check_metadata=True)
    return found.to_pylist()


def dictionary(values, kind):
    return pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], pa.int8()), pa.array(values, kind))


SAME = [
    (dictionary(["a", "b"], pa.string()), STRING, ["b", None, "a", "b"]),
    (dictionary(["a", None], pa.large_string()), STRING, [None, None, "a", None]),
    (dictionary(["a", "b"], pa.string_view()).slice(1), STRING, [None, "a", "b"]),
    (dictionary([5, 2**40], pa.int64()), DecimalType(20, 2), [Decimal(2**40), None, Decimal(5), Decimal(2**40)]),
    (dictionary([[1], None], pa.list_(pa.int8())), ArrayType(LONG), [None, None, [1], None]),
    (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None])), STRING, ["a", "a", None]),
    (pa.array(["a", "b" * 40, None], pa.string_view()), STRING, ["a", "b" * 40, None]),
    (pa.array([b"a", b"b" * 40], pa.binary_view()), BINARY, [b"a", b"b" * 40]),
    (pa.array([b"ab"], pa.binary(2)), BINARY, [b"ab"]),
    (pa.array([b"0" * 16], pa.uuid()), BINARY, [b"0" * 16]),
    (pa.nulls(2), struct(a=LONG), [None, None]),
    (pa.array([99_999_999, None]), DecimalType(10, 2), [Decimal("99999999.00"), None]),
    (pa.array([-(2**63), 2**63 - 1]), DecimalType(19, 0), [Decimal(-(2**63)), Decimal(2**63 - 1)]),
    (pa.array([2**64 - 1], pa.uint64()), DecimalType(38, 18), [Decimal(2**64 - 1)]),
    (pa.array([Decimal("1.50")], pa.decimal256(50, 2)), DecimalType(4, 1), [Decimal("1.5")]),
    (pa.array([Decimal("1.5")], pa.decimal32(3, 1)), DecimalType(38, 37), [Decimal("1.5")]),
    (pa.array([Decimal(1500)], pa.decimal128(5, -2)), DecimalType(4, 0), [Decimal(1500)]),
    (pa.array(np.array([1.5, np.inf], np.float16)), DOUBLE, [1.5, float("inf")]),
    (pa.array([0.5, -0.0, None]), FLOAT, [0.5, -0.0, None]),
    (pa.array([1.0, None]), INTEGER, [1, None]),
    (pa.array([86_400_000], pa.int64()).view(pa.date64()), DATE, [dt.date(1970, 1, 2)]),
    (pa.array([7], pa.timestamp("s", "Asia/Tokyo")), TIMESTAMP, [dt.datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)]),
    (pa.array([7000], pa.timestamp("ns")), LOCAL, [dt.datetime(1970, 1, 1, 0, 0, 0, 7)]),
    (pa.array([[1, 2], None, []], pa.large_list(pa.int8())).slice(1), ArrayType(LONG), [None, []]),
    (pa.array([[1, 2], None, [3, None]], pa.list_(pa.int8(), 2)), ArrayType(LONG), [[1, 2], None, [3, None]]),
    (pa.array([[1], None, [3]], pa.list_view(pa.int8())).slice(1), ArrayType(LONG), [None, [3]]),
    (pa.array([[1], None, [3]], pa.large_list_view(pa.int8())), ArrayType(LONG), [[1], None, [3]]),
    (
        pa.array([[("a", 1)], None, [("b", None)]], pa.map_(pa.large_string(), pa.int8())).slice(1),
        MapType(STRING, LONG),
        [None, [("b", None)]],
    ),
    (
        pa.array([{"B": "x", "a": 1}, None], pa.struct([("B", pa.large_string()), ("a", pa.int8())])),
        struct(a=LONG, b=STRING, c=DATE),
        [{"a": 1, "b": "x", "c": None}, None],
    ),
    (
        pa.array([[{"X": {"Y": 1}}]], pa.list_(pa.struct([("X", pa.struct([("Y", pa.int8())]))]))),
        ArrayType(struct(x=struct(y=LONG, z=LONG))),
        [[{"x": {"y": 1, "z": None}}]],
    ),
    (pl.Series(["a", None], dtype=pl.Categorical).to_arrow(), STRING, ["a", None]),
]


@pytest.mark.parametrize(("given", "kind", "found"), SAME, ids=[f"{item[0].type} to {item[1]}"[:60] for item in SAME])
def test_values_that_the_column_holds_are_the_same_in_it(given, kind, found):
    assert fit(given, kind) == found
    assert fit(pa.chunked_array([given, given]), kind) == found * 2
    assert fit(given.slice(1), kind) == found[1:]
    assert fit(pa.chunked_array([], given.type), kind) == []
    inside = pa.StructArray.from_arrays([given], names=["A"])
    assert fit(inside, struct(a=kind)) == [{"a": value} for value in found]
    elements = pa.ListArray.from_arrays(pa.array([0, len(given)], pa.int32()), given)
    assert fit(elements, ArrayType(kind)) == [found]


OTHER = [
    (pa.array(["1"]), LONG, "'c'"),
    (pa.array([1]), STRING, "'c'"),
    (pa.array([1.5]), LONG, "truncated"),
    (pa.array([0.1]), FLOAT, "rounded"),
    (pa.array([1e300]), FLOAT, "rounded"),
    (pa.array([2**53 + 1]), DOUBLE, "range"),
    (pa.array([2**31]), INTEGER, "range"),
    (pa.array([True]), LONG, "another kind"),
    (pa.array([1]), PrimitiveType("boolean"), "another kind"),
    (pa.array([100_000_000]), DecimalType(10, 2), "precision"),
    (pa.array([Decimal("1.55")]), DecimalType(10, 1), "data loss"),
    (pa.array([1.5]), DecimalType(10, 1), "another kind"),
    (pa.array([0], pa.timestamp("us")), TIMESTAMP, "another kind"),
    (pa.array([0], pa.timestamp("us", "UTC")), LOCAL, "another kind"),
    (pa.array([1001], pa.timestamp("ns", "UTC")), TIMESTAMP, "lose data"),
    (pa.array([2**62]).view(pa.timestamp("s", "UTC")), TIMESTAMP, "out of bounds"),
    (pa.array([0], pa.date32()), TIMESTAMP, "another kind"),
    (pa.array([0], pa.timestamp("us")), DATE, "another kind"),
    (pa.array([1], pa.int64()).view(pa.date64()), DATE, "lose data"),
    (pa.array([0], pa.time64("us")), LONG, "another kind"),
    (pa.array([0], pa.duration("us")), LONG, "another kind"),
    (pa.array([b"a"]), STRING, "another kind"),
    (pa.array(["a"]), BINARY, "another kind"),
    (pa.array([b"0" * 16], pa.uuid()), STRING, "another kind"),
    (pa.array([0], pa.date32()), PrimitiveType("boolean"), "another kind"),
    (pa.array([Decimal(1)], pa.decimal128(38, 0)), BINARY, "another kind"),
    (
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
        LONG,
        "is long in the table, and the rows have the extension type arrow.bool8",
    ),
    (pa.array([1]), PrimitiveType("void"), "another kind"),
    (pa.array([[1]]), LONG, "another kind"),
    (pa.array([1]), ArrayType(LONG), r"array<long>"),
    (pa.array([{"a": 1}]), MapType(STRING, LONG), r"map<string,long>"),
    (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), struct(a=LONG), "struct"),
    (pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), LONG, "another kind"),
    (dictionary(["1", "2"], pa.string()), LONG, "another kind"),
]


@pytest.mark.parametrize(("given", "kind", "word"), OTHER, ids=[f"{item[0].type} to {item[1]}"[:60] for item in OTHER])
def test_what_would_become_another_value_is_refused_with_its_path(given, kind, word):
    with pytest.raises(SchemaMismatchError, match=word):
        fit(given, kind)
    inside = pa.StructArray.from_arrays([given], names=["A"])
    with pytest.raises(SchemaMismatchError, match=r"c\.a'"):
        fit(inside, struct(a=kind))
    elements = pa.ListArray.from_arrays(pa.array([0, len(given)], pa.int32()), given)
    with pytest.raises(SchemaMismatchError, match=r"c\.element'"):
        fit(elements, ArrayType(kind))


@pytest.mark.parametrize(("given", "kind", "word"), [*OTHER[:2], *OTHER[-6:-2], OTHER[-1]])
def test_what_is_of_another_kind_is_refused_without_a_row_too(given, kind, word):
    with pytest.raises(SchemaMismatchError, match=word):
        fit(pa.chunked_array([], given.type), kind)


@pytest.mark.parametrize(
    ("names", "word"), [(["a", "x"], r"c\.x'.*not in the table"), (["a", "A"], r"c\.A'.*twice"), (["A.b"], r"c\.A\.b'")]
)
def test_a_field_too_many_is_named(names, word):
    given = pa.StructArray.from_arrays([pa.array([1])] * len(names), names=names)
    with pytest.raises(SchemaMismatchError, match=word):
        fit(given, struct(a=LONG, b=LONG))


def test_what_lies_below_a_null_is_neither_stored_nor_checked():
    bad = pa.StructArray.from_arrays([pa.array([2**40, 1])], names=["a"], mask=pa.array([True, False]))
    assert fit(bad, struct(a=INTEGER)) == [None, {"a": 1}]
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array([2**40, 1]), mask=pa.array([True, False])
    )
    assert fit(hidden, ArrayType(INTEGER)) == [None, [1]]
    bits = pa.py_buffer(bytes([0b10]))
    pairs = pa.StructArray.from_arrays([pa.array(["x", "y"]), pa.array([2**40, 1])], names=["key", "value"])
    kind = pa.map_(pa.string(), pa.int64())
    below = pa.Array.from_buffers(kind, 2, [bits, pa.array([0, 1, 2], pa.int32()).buffers()[1]], children=[pairs])
    assert fit(below, MapType(STRING, INTEGER)) == [None, [("y", 1)]]


REQUIRED = [
    (pa.array([1, None]), LONG, False, "'c'"),
    (dictionary(["a", None], pa.string()).slice(2), STRING, False, "'c'"),
    (pa.nulls(1), LONG, False, "'c'"),
    (pa.array([[1, None]]), ArrayType(LONG, contains_null=False), True, r"c\.element"),
    (pa.array([[("a", None)]], pa.map_(pa.string(), pa.int8())), MapType(STRING, LONG, False), True, r"c\.value"),
    (
        pa.array([{"a": None}], pa.struct([("a", pa.int8())])),
        StructType((StructField("a", LONG, False),)),
        True,
        r"c\.a",
    ),
]


@pytest.mark.parametrize(("given", "kind", "nullable", "path"), REQUIRED)
def test_a_null_that_must_not_be_is_refused_with_its_path(given, kind, nullable, path):
    with pytest.raises(ConstraintViolatedError, match=path):
        fit(given, kind, nullable=nullable)


def test_what_is_required_in_a_struct_may_be_missing_where_the_struct_is_null_and_must_be_given():
    kind = StructType((StructField("a", LONG, False), StructField("b", LONG)))
    rows = pa.array([None, {"a": 1, "b": None}], pa.struct([("a", pa.int8()), ("b", pa.int8())]))
    assert fit(rows, kind) == [None, {"a": 1, "b": None}]
    with pytest.raises(SchemaMismatchError, match=r"c\.a"):
        fit(pa.array([{"b": 1}]), kind)


def test_an_empty_text_is_null_in_a_partition_column():
    assert fit(pa.array(["", "a", None]), STRING, partition=True) == [None, "a", None]
    assert fit(pa.array([b"", b"a"]), BINARY, partition=True) == [None, b"a"]
    assert fit(pa.array([0]), LONG, partition=True) == [0]
    with pytest.raises(ConstraintViolatedError):
        fit(pa.array([""]), STRING, nullable=False, partition=True)


def test_variants_are_a_value_and_its_metadata_and_both_must_be_there():
    kind = PrimitiveType("variant")
    given = pa.array([{"METADATA": b"\x01", "value": b"\x00"}, None])
    assert fit(given, kind) == [{"value": b"\x00", "metadata": b"\x01"}, None]
    for name in ("value", "metadata"):
        rows = [{"value": b"\x00", "metadata": b"\x01"} | {name: None}]
        with pytest.raises(ConstraintViolatedError, match=rf"c\.{name}'"):
            fit(pa.array(rows, given.type), kind)
    with pytest.raises(SchemaMismatchError, match=r"c\.metadata'"):
        fit(pa.array([{"value": b"a"}]), kind)
    with pytest.raises(SchemaMismatchError, match="struct"):
        fit(pa.array(["{}"]), kind)
    for name in ("value", "metadata"):
        rows = [{"value": b"\x00", "metadata": b"\x01"} | {name: 1}]
        with pytest.raises(SchemaMismatchError, match=rf"'c\.{name}' is binary in the table"):
            fit(pa.array(rows), kind)


def test_columns_of_more_rows_than_a_slice_are_whole():
    count = 2 * 131_072 + 3
    numbers = pa.array(np.arange(count) % 100, pa.int8())
    assert fit(numbers, LONG) == numbers.to_pylist()
    assert fit(pa.array([str(n) for n in range(count)], pa.large_string()), STRING)[-1] == str(count - 1)


def test_json_of_arrow_is_text():
    assert fit(pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(["{}", None])), STRING) == ["{}", None]


def test_an_empty_text_stays_where_it_is_no_partition():
    assert fit(pa.array(["", None]), STRING) == ["", None]
    assert fit(pa.array(["", None], pa.large_string()), STRING) == ["", None]


def test_maps_that_begin_late_and_hide_entries_keep_their_own():
    kind = pa.map_(pa.string(), pa.int64())
    pairs = pa.StructArray.from_arrays([pa.array(list("abcdef")), pa.array(range(6))], names=["key", "value"])
    ends = pa.array([1, 2, 4, 4, 6], pa.int32())
    given = pa.Array.from_buffers(kind, 4, [pa.py_buffer(bytes([0b1101])), ends.buffers()[1]], children=[pairs])
    assert fit(given, MapType(STRING, INTEGER)) == [[("b", 1)], None, [], [("e", 4), ("f", 5)]]
    assert fit(given.slice(1), MapType(STRING, INTEGER)) == [None, [], [("e", 4), ("f", 5)]]
    full = pa.array([[("a", 1)], [("b", 2), ("c", 3)], []], kind)
    assert fit(full.slice(1), MapType(STRING, INTEGER)) == [[("b", 2), ("c", 3)], []]


@pytest.mark.parametrize(("part", "word"), [("key", r"c\.key'"), ("value", r"c\.value'")])
def test_what_does_not_fit_in_a_map_is_named(part, word):
    wrong = {"key": pa.map_(pa.int64(), pa.int64()), "value": pa.map_(pa.string(), pa.string())}
    rows = {"key": [[(1, 1)]], "value": [[("a", "b")]]}
    with pytest.raises(SchemaMismatchError, match=word):
        fit(pa.array(rows[part], wrong[part]), MapType(STRING, LONG))


def test_one_null_among_required_fields_and_elements_is_enough():
    kind = StructType((StructField("A", LONG, False),))
    assert fit(pa.array([{"a": 1}, {"a": 2}]), kind) == [{"A": 1}, {"A": 2}]
    with pytest.raises(ConstraintViolatedError, match=r"c\.A'"):
        fit(pa.array([{"a": 1}, {"a": None}]), kind)
    assert fit(pa.array([[1], [2]]), ArrayType(LONG, contains_null=False)) == [[1], [2]]
    assert fit(pa.array([1, 2]), LONG, nullable=False) == [1, 2]
    with pytest.raises(ConstraintViolatedError, match=r"c\.value'"):
        fit(pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int64())), MapType(STRING, LONG, False))


def test_a_struct_without_fields_is_refused_and_the_error_has_the_conditions_of_delta():
    with pytest.raises(SchemaMismatchError, match="without fields"):
        fit(pa.array([{}], pa.struct([])), StructType(()))
    with pytest.raises(SchemaMismatchError) as caught:
        fit(pa.array(["1"]), LONG)
    assert caught.value.condition.name == "DELTA_FAILED_TO_MERGE_FIELDS"
    assert dict(caught.value.condition.parameters) == {"currentField": "c", "updateField": "c"}


def test_a_dictionary_of_views_of_bytes_is_written_out():
    assert fit(dictionary([b"a", b"b"], pa.binary_view()), BINARY) == [b"b", None, b"a", b"b"]


def test_a_null_that_a_dictionary_hides_among_the_keys_of_a_map_is_refused():
    keys = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([None], pa.string()))
    given = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), keys, pa.array([1]))
    with pytest.raises(ConstraintViolatedError, match=r"'c\.key'"):
        fit(given, MapType(STRING, LONG))


def test_an_empty_text_stays_unless_the_column_is_said_to_be_a_partition():
    found = conformed(pa.chunked_array([pa.array(["", "a"])]), StructField("c", STRING))
    assert found.to_pylist() == ["", "a"]


def test_more_elements_than_offsets_of_32_bits_reach_are_refused():
    most = 2**31 - 1
    assert _offsets(np.array([most]), "c").to_pylist() == [0, most]
    assert _offsets(np.array([1, 0, 2]), "c").to_pylist() == [0, 1, 1, 3]
    with pytest.raises(SchemaMismatchError, match=r"'c' is at most 2147483647.*2147483648 elements in 2 rows"):
        _offsets(np.array([most, 1]), "c")
