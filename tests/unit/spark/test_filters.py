"""Catalyst's JSON -> predicate trees. The JSON is as Spark 4.3 writes it; no session is started."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest

from pydelta.engines.arrow.expressions import NotHere
from pydelta.engines.spark.scan.filters import Tree
from pydelta.predicate import (
    And,
    Column,
    Compare,
    Expr,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Or,
    TextTest,
    Unknown,
    conjunction,
)
from pydelta.protocol.types import PrimitiveType, StructField, StructType

PREFIX = "org.apache.spark.sql.catalyst.expressions."


def node(name: str, children: int = 0, /, **body: Any) -> dict[str, Any]:
    return {"class": PREFIX + name, "num-children": children, **body}


def attribute(name: str, data_type: Any = "integer") -> dict[str, Any]:
    return node("AttributeReference", name=name, dataType=data_type, nullable=True, metadata={})


def literal(value: str | None, data_type: str) -> dict[str, Any]:
    return node("Literal", value=value, dataType=data_type)


def convert(nodes: list[dict[str, Any]], fetch: Any, *, text: Any = lambda: "") -> Expr:
    return conjunction(Tree.read(nodes, fetch, text).conjuncts())


def nothing(position: int, what: str) -> Any:
    raise AssertionError(f"{what} of node {position} was fetched")


def fetching(expected: dict[tuple[int, str], Any]) -> Any:
    return lambda position, what: expected[position, what]


@pytest.mark.parametrize(
    ("spark_name", "op"),
    [
        ("EqualTo", "="),
        ("EqualNullSafe", "<=>"),
        ("LessThan", "<"),
        ("LessThanOrEqual", "<="),
        ("GreaterThan", ">"),
        ("GreaterThanOrEqual", ">="),
    ],
)
def test_a_comparison_keeps_its_sides(spark_name, op):
    nodes = [node(spark_name, 2), literal("3", "integer"), attribute("i")]
    assert convert(nodes, nothing) == Compare(op, Literal(3, "integer"), Column(("i",)))


@pytest.mark.parametrize(
    ("text", "data_type", "value"),
    [
        ("12", "long", 12),
        ("1.5", "double", 1.5),
        ("-1E-7", "decimal(7,7)", Decimal("-1E-7")),
        ("true", "boolean", True),
        ("false", "boolean", False),
        ("a'b", "string", "a'b"),
        ("", "string", ""),
        ("2020-02-29", "date", dt.date(2020, 2, 29)),
    ],
)
def test_a_literal_becomes_the_python_value_of_its_type(text, data_type, value):
    nodes = [node("EqualTo", 2), attribute("c", data_type), literal(text, data_type)]
    assert convert(nodes, nothing) == Compare("=", Column(("c",)), Literal(value, data_type))


def test_nan_stays_nan():
    found = convert([node("EqualTo", 2), attribute("c", "double"), literal("NaN", "double")], nothing)
    assert isinstance(found, Compare) and isinstance(found.right, Literal) and math.isnan(found.right.value)


def test_a_timestamp_is_taken_from_the_node_because_its_text_has_no_zone():
    nodes = [node("GreaterThan", 2), attribute("t", "timestamp"), literal("2020-02-02 01:02:03.5", "timestamp")]
    found = convert(nodes, fetching({(2, "micros"): 1_580_605_323_500_000}))
    instant = dt.datetime(2020, 2, 2, 1, 2, 3, 500_000, tzinfo=dt.UTC)
    assert found == Compare(">", Column(("t",)), Literal(instant, "timestamp"))


def test_a_timestamp_without_zone_becomes_a_naive_value():
    nodes = [node("LessThan", 2), attribute("n", "timestamp_ntz"), literal("1577923200000000", "timestamp_ntz")]
    found = convert(nodes, fetching({(2, "micros"): 1_577_923_200_000_000}))
    assert found == Compare("<", Column(("n",)), Literal(dt.datetime(2020, 1, 2), "timestamp_ntz"))


def test_a_binary_literal_is_taken_from_the_node():
    nodes = [node("EqualTo", 2), attribute("b", "binary"), literal("[B@29124cab", "binary")]
    found = convert(nodes, fetching({(2, "bytes"): b"\x00\xff"}))
    assert found == Compare("=", Column(("b",)), Literal(b"\x00\xff", "binary"))


def test_a_null_literal_has_no_value():
    nodes = [node("EqualNullSafe", 2), attribute("i"), literal(None, "integer")]
    assert convert(nodes, nothing) == Compare("<=>", Column(("i",)), Literal(None))


def test_a_date_beyond_pythons_calendar_is_unknown():
    nodes = [node("EqualTo", 2), attribute("d", "date"), literal("+12000-01-01", "date")]
    assert isinstance(convert(nodes, nothing), Unknown)


@pytest.mark.parametrize(("data_type", "far"), [("timestamp", 10**18), ("timestamp_ntz", -(10**18))])
def test_a_time_beyond_pythons_calendar_is_unknown_and_still_decides_rows(data_type, far):
    schema = StructType((StructField("t", PrimitiveType(data_type)),))
    equal = [node("EqualTo", 2), attribute("t", data_type), literal("shown", data_type)]
    among = [node("In", 2), attribute("t", data_type), literal("shown", data_type)]
    fetched = {(2, "micros"): far, (0, "list"): [str(far)]}
    assert isinstance(convert(equal, fetching(fetched)), Unknown)
    assert isinstance(convert(among, fetching(fetched)), Unknown)
    assert Tree.read(equal, fetching(fetched), str).exact(schema).right.value == far
    assert Tree.read(among, fetching(fetched), str).exact(schema).values == (far,)


def test_what_only_rows_are_computed_of_is_unknown_as_a_whole():
    for nodes in (
        [node("IsNaN", 1), attribute("x", "double")],
        [node("Contains", 2), attribute("s", "string"), literal("a", "string")],
        [node("Like", 2), attribute("s", "string"), literal("a%", "string")],
        [node("IsNull", 1), node("Coalesce", 2), attribute("s", "string"), literal("a", "string")],
        [node("Coalesce", 2), attribute("b", "boolean"), literal("true", "boolean")],
        [node("Rand", 0)],
        [literal("a", "string")],
        [attribute("i")],
    ):
        found = convert(nodes, fetching({(0, "escape"): "\\"}), text=lambda: "text")
        assert (str(found), type(found)) == ("text", Unknown)


def test_a_constant_that_is_not_sure_rules_files_out_and_decides_no_row():
    nodes = [node("InSet", 1, hset=None), attribute("s", "string")]
    assert convert(nodes, fetching({(0, "set"): ["a", "null"]})) == In(Column(("s",)), ("a", "null"))
    lost = [node("EqualTo", 2), attribute("s", "string"), literal("a\ufffd", "string")]
    assert convert(lost, nothing) == Compare("=", Column(("s",)), Literal("a\ufffd", "string"))
    cast = [*lost[:2], node("Cast", 1, dataType="string"), literal("shown", "binary")]
    schema = StructType((StructField("s", PrimitiveType("string")),))
    for wrong in (lost, cast, nodes):
        fetched = {(0, "set"): ["a", "a\ufffd"], (2, "fold"): "a\ufffd"}
        with pytest.raises(NotHere, match="cannot be read"):
            Tree.read(wrong, fetching(fetched), str).exact(schema)


def test_an_in_list_and_a_large_in_set_give_the_same_tree():
    small = [node("In", 3), attribute("i"), literal("1", "integer"), literal("2", "integer")]
    large = [node("InSet", 1, hset=None), attribute("i")]
    expected = In(Column(("i",)), (1, 2))
    assert convert(small, nothing) == expected
    assert convert(large, fetching({(0, "set"): ["1", "2"]})) == expected


def test_dates_in_a_set_are_days_since_1970():
    nodes = [node("InSet", 1, hset=None), attribute("d", "date")]
    found = convert(nodes, fetching({(0, "set"): ["0", "18262"]}))
    assert found == In(Column(("d",)), (dt.date(1970, 1, 1), dt.date(2020, 1, 1)))


def test_a_set_whose_values_cannot_be_told_apart_is_unknown():
    nodes = [node("InSet", 1, hset=None), attribute("s", "string")]
    assert isinstance(convert(nodes, fetching({(0, "set"): None})), Unknown)


def test_nested_fields_are_named_by_their_ordinal():
    inner = {"type": "struct", "fields": [{"name": "Z", "type": "string", "nullable": True, "metadata": {}}]}
    outer = {
        "type": "struct",
        "fields": [
            {"name": "x", "type": "integer", "nullable": True, "metadata": {}},
            {"name": "Y", "type": inner, "nullable": True, "metadata": {}},
        ],
    }
    nodes = [
        node("EqualTo", 2),
        node("GetStructField", 1, ordinal=0, name="z"),
        node("GetStructField", 1, ordinal=1, name="y"),
        attribute("st", outer),
        literal("k", "string"),
    ]
    assert convert(nodes, nothing) == Compare("=", Column(("st", "Y", "Z")), Literal("k", "string"))


def test_null_checks_prefixes_and_boolean_columns():
    assert convert([node("IsNull", 1), attribute("s")], nothing) == IsNull(Column(("s",)))
    assert convert([node("IsNotNull", 1), attribute("s")], nothing) == IsNotNull(Column(("s",)))
    prefix = [node("StartsWith", 2), attribute("s", "string"), literal("ab", "string")]
    assert convert(prefix, nothing) == TextTest("starts", Column(("s",)), "ab")
    assert convert([attribute("b", "boolean")], nothing) == Compare("=", Column(("b",)), Literal(True, "boolean"))


def test_a_part_without_counterpart_is_unknown_alone():
    plus = [node("GreaterThan", 2), node("Add", 2), attribute("i"), literal("1", "integer"), literal("4", "integer")]
    equal = [node("EqualTo", 2), attribute("j"), literal("4", "integer")]
    known = Compare("=", Column(("j",)), Literal(4, "integer"))
    unknown = Unknown("text", frozenset({("i",)}))
    assert convert([node("And", 2), *plus, *equal], nothing, text=lambda: "text") == And(unknown, known)
    assert convert([node("Or", 2), *equal, *plus], nothing, text=lambda: "text") == Or(known, unknown)
    assert convert([node("Not", 1), *plus], nothing, text=lambda: "text") == Not(unknown)


def test_a_cast_of_a_column_to_a_wider_integer_is_the_column():
    nodes = [node("EqualTo", 2), node("Cast", 1, dataType="long"), attribute("i"), literal("5", "long")]
    assert convert(nodes, nothing) == Compare("=", Column(("i",)), Literal(5, "long"))


@pytest.mark.parametrize(("source", "target"), [("string", "integer"), ("long", "integer"), ("double", "long")])
def test_any_other_cast_of_a_column_is_unknown(source, target):
    nodes = [node("EqualTo", 2), node("Cast", 1, dataType=target), attribute("c", source), literal("5", target)]
    assert isinstance(convert(nodes, nothing), Unknown)


def test_a_cast_of_a_constant_is_evaluated_by_spark():
    nodes = [
        node("GreaterThan", 2),
        attribute("d", "date"),
        node("Cast", 1, dataType="date"),
        literal("2020-01-01", "string"),
    ]
    found = convert(nodes, fetching({(2, "fold"): 18262}))
    assert found == Compare(">", Column(("d",)), Literal(dt.date(2020, 1, 1), "date"))


def test_a_cast_that_fails_is_left_to_the_query():
    def failing(position: int, what: str) -> Any:
        raise RuntimeError("CAST_INVALID_INPUT")

    nodes = [node("GreaterThan", 2), attribute("i"), node("Cast", 1, dataType="integer"), literal("x", "string")]
    assert isinstance(convert(nodes, failing), Unknown)


def test_a_collated_column_is_unknown_because_its_order_is_not_the_bytes():
    nodes = [node("EqualTo", 2), attribute("s", "string collate UTF8_LCASE"), literal("a", "string collate UTF8_LCASE")]
    assert isinstance(convert(nodes, nothing), Unknown)


def test_between_is_two_comparisons():
    nodes = [
        node("With", 2), node("And", 2),
        node("GreaterThanOrEqual", 2), node("CommonExpressionRef"), literal("1", "integer"),
        node("LessThanOrEqual", 2), node("CommonExpressionRef"), literal("3", "integer"),
        node("CommonExpressionDef", 1), attribute("i"),
    ]  # fmt: skip
    found = convert(nodes, fetching({(3, "common"): "a", (6, "common"): "a", (8, "common"): "a"}))
    low, high = (Compare(op, Column(("i",)), Literal(value, "integer")) for op, value in ((">=", 1), ("<=", 3)))
    assert found == And(low, high)
