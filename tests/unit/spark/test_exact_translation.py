"""Catalyst's JSON -> expressions that this process computes. The JSON is as Spark 4.3 writes it; no session starts."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from pydelta.engines.arrow.expressions import NotHere
from pydelta.engines.spark.scan.filters import Tree
from pydelta.predicate.expressions import (
    And,
    Arithmetic,
    CaseWhen,
    Cast,
    Coalesce,
    Column,
    Compare,
    In,
    IsNull,
    Literal,
    Negative,
    Not,
    TextTest,
)
from pydelta.protocol.types import DecimalType, PrimitiveType, StructField, StructType

PREFIX = "org.apache.spark.sql.catalyst.expressions."
LONG, STRING, DOUBLE, DATE = (PrimitiveType(name) for name in ("long", "string", "double", "date"))
INNER = StructType((StructField("Deep", LONG),))
SCHEMA = StructType(
    tuple(
        StructField(name, kind)
        for name, kind in {
            "i": PrimitiveType("integer"), "l": LONG, "s": STRING, "d": DOUBLE, "m": DecimalType(10, 2), "day": DATE,
            "b": PrimitiveType("binary"), "t": PrimitiveType("timestamp"), "ok": PrimitiveType("boolean"), "St": INNER,
            "f": PrimitiveType("float"),
        }.items()
    )
)  # fmt: skip


def node(name: str, children: int = 0, /, **body: Any) -> dict[str, Any]:
    return {"class": PREFIX + name, "num-children": children, **body}


def attribute(name: str, data_type: Any) -> dict[str, Any]:
    return node("AttributeReference", name=name, dataType=data_type, nullable=True, metadata={})


def literal(value: str | None, data_type: str) -> dict[str, Any]:
    return node("Literal", value=value, dataType=data_type)


def translated(*nodes: dict[str, Any], fetched: dict[tuple[int, str], Any] | None = None) -> Any:
    return Tree.read(nodes, lambda position, what: (fetched or {})[position, what], lambda: "").exact(SCHEMA)


I, L = attribute("I", "integer"), attribute("l", "long")  # noqa: E741
FIELD_L = Column(("l",), LONG)


def test_a_comparison_names_the_column_as_the_table_does():
    found = translated(node("LessThan", 2), I, literal("3", "integer"))
    assert found == Compare("<", Column(("i",), PrimitiveType("integer")), Literal(3, PrimitiveType("integer")))


@pytest.mark.parametrize(
    ("name", "text", "data_type", "value"),
    [
        ("l", "-5", "long", -5),
        ("d", "-0.0", "double", -0.0),
        ("d", "Infinity", "double", math.inf),
        ("s", "a'é", "string", "a'é"),
        ("m", "1.50", "decimal(10,2)", Decimal("1.50")),
        ("day", "0001-01-01", "date", -719162),
        ("ok", "true", "boolean", True),
    ],
)
def test_constants_are_values_of_their_type(name, text, data_type, value):
    found = translated(node("EqualTo", 2), attribute(name, data_type), literal(text, data_type))
    assert repr(found.right.value) == repr(value)


def test_constants_whose_text_is_lost_are_fetched():
    nodes = [node("EqualTo", 2), attribute("t", "timestamp"), literal("2020-02-02 01:02:03.5", "timestamp")]
    assert translated(*nodes, fetched={(2, "micros"): -62_200_000_000_000_000}).right.value == -62_200_000_000_000_000
    nodes = [node("EqualTo", 2), attribute("b", "binary"), literal("[B@29124cab", "binary")]
    assert translated(*nodes, fetched={(2, "bytes"): b"\xff"}).right.value == b"\xff"


@pytest.mark.parametrize(
    ("text", "data_type"), [("+12000-01-01", "date"), ("-0044-03-15", "date"), ("a\ufffd", "string")]
)
def test_constants_that_python_cannot_hold_are_left_to_spark(text, data_type):
    name = "day" if data_type == "date" else "s"
    with pytest.raises(NotHere):
        translated(node("EqualTo", 2), attribute(name, data_type), literal(text, data_type))


def test_a_cast_of_a_constant_is_computed_by_the_jvm():
    nodes = [node("EqualTo", 2), L, node("Cast", 1, dataType="long"), literal("7", "string")]
    assert translated(*nodes, fetched={(2, "fold"): 7}).right == Literal(7, LONG)
    with pytest.raises(NotHere, match="cannot be computed"):
        translated(*nodes)  # it fails there: the query is to say so


def test_a_cast_of_a_column_only_widens():
    assert translated(node("IsNull", 1), node("Cast", 1, dataType="long"), L) == IsNull(FIELD_L)  # as IN has it
    nodes = [node("EqualTo", 2), node("Cast", 1, dataType="long"), I, L]
    assert translated(*nodes).left == Cast(Column(("i",), PrimitiveType("integer")), LONG)
    with pytest.raises(NotHere, match="cast"):
        translated(node("EqualTo", 2), node("Cast", 1, dataType="integer"), L, I)


def test_a_field_in_a_struct_goes_by_its_ordinal():
    struct = {"type": "struct", "fields": [{"name": "Deep", "type": "long", "nullable": True, "metadata": {}}]}
    nodes = [node("IsNull", 1), node("GetStructField", 1, ordinal=0, name="deep"), attribute("st", struct)]
    assert translated(*nodes) == IsNull(Column(("St", "Deep"), LONG))


def test_joined_conditions_and_in():
    nodes = [node("And", 2), node("Not", 1), node("In", 3), L, literal("1", "long"), literal(None, "long"),
             node("IsNotNull", 1), L]  # fmt: skip
    assert translated(*nodes) == And(Not(In(FIELD_L, (1, None))), Not(IsNull(FIELD_L)))


def test_a_large_set_is_fetched():
    nodes = [node("InSet", 1, hset=None), L]
    assert translated(*nodes, fetched={(0, "set"): ["1", "null"]}) == In(FIELD_L, (1, None))
    nodes = [node("InSet", 1, hset=None), attribute("s", "string")]
    assert translated(*nodes, fetched={(0, "set"): ["a", ""]}).values == ("a", "")
    for texts in (None, ["a", "null"]):
        with pytest.raises(NotHere, match="set"):
            translated(*nodes, fetched={(0, "set"): texts})
    with pytest.raises(NotHere, match="set"):
        translated(node("InSet", 1, hset=None), attribute("d", "double"), fetched={(0, "set"): ["1.0"]})


def test_like_asks_for_its_escape():
    nodes = [node("Like", 2), attribute("s", "string"), literal("a%", "string")]
    assert translated(*nodes, fetched={(0, "escape"): "\\"}) == TextTest("starts", Column(("s",), STRING), "a")
    with pytest.raises(NotHere, match="LIKE"):
        translated(*nodes, fetched={(0, "escape"): "a"})


def test_between_names_its_value_once():
    nodes = [
        node("With", 2), node("And", 2),
        node("GreaterThanOrEqual", 2), node("CommonExpressionRef"), literal("1", "long"),
        node("LessThanOrEqual", 2), node("CommonExpressionRef"), literal("3", "long"),
        node("CommonExpressionDef", 1), L,
    ]  # fmt: skip
    fetched = {(3, "common"): "a", (6, "common"): "a", (8, "common"): "a"}
    low, high = (Compare(op, FIELD_L, Literal(value, LONG)) for op, value in ((">=", 1), ("<=", 3)))
    assert translated(*nodes, fetched=fetched) == And(low, high)
    with pytest.raises(NotHere, match="CommonExpressionRef"):
        translated(*nodes, fetched={**fetched, (6, "common"): "b"})


def test_values():
    one = literal("1", "long")
    assert translated(node("Add", 2), L, one) == Arithmetic("+", FIELD_L, Literal(1, LONG), LONG)
    assert translated(node("UnaryMinus", 1), L) == Negative(FIELD_L, LONG)
    assert translated(node("Coalesce", 2), L, one) == Coalesce((FIELD_L, Literal(1, LONG)), LONG)
    case = [node("CaseWhen", 2), node("IsNull", 1), L, one]
    assert translated(*case) == CaseWhen(((IsNull(FIELD_L), Literal(1, LONG)),), Literal(None, LONG), LONG)
    assert translated(node("CaseWhen", 3), *case[1:], L).otherwise == FIELD_L
    assert translated(node("If", 3), *case[1:], L).otherwise == FIELD_L
    checked = [node("CheckOverflowInTableInsert", 1), node("Cast", 1, dataType="long"), I]
    assert translated(*checked).type == LONG


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Upper", 1), attribute("s", "string")],
        [node("Rand", 0)],
        [node("PythonUDF", 1), L],
        [node("EqualTo", 2), node("Upper", 1), attribute("s", "string"), literal("A", "string")],
        [node("EqualTo", 2), attribute("l", "string"), literal("A", "string")],  # another column of that name
        [node("EqualTo", 2), attribute("gone", "long"), literal("1", "long")],
        [node("EqualTo", 2), attribute("s", "string collate UTF8_LCASE"), literal("A", "string collate UTF8_LCASE")],
        [node("IsNull", 1), node("GetStructField", 1, ordinal=0), node("CreateNamedStruct", 0)],
        [node("In", 2), L, L],
        [node("EqualTo", 2), literal(None, "void"), literal(None, "void")],
        [node("Lower", 1), attribute("_metadata", "string")],
        [node("IsNull", 1), node("Cast", 1, dataType="string collate X"), attribute("s", "string")],
    ],
)
def test_anything_else_is_left_to_spark_and_named(nodes):
    with pytest.raises(NotHere) as caught:
        translated(*nodes)
    assert str(caught.value)


def test_a_tree_that_is_too_deep_is_left_to_spark():
    with pytest.raises(NotHere, match="too deeply"):
        translated(*[node("Not", 1)] * 800, node("IsNull", 1), L)
