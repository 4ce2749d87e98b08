"""What each expression gives for each kind of value, and what cannot be built: as SQL says it, without Spark."""

from __future__ import annotations

import datetime as dt
import math
import warnings
from decimal import Decimal

import pyarrow as pa
import pytest

from pydelta.engines.arrow.evaluate import evaluate, true_rows
from pydelta.engines.arrow.exact import assigned, exact, simple_value
from pydelta.engines.arrow.expressions import (
    SOURCE,
    NotHere,
    arithmetic,
    both,
    cast,
    choice,
    coalesce,
    compare,
    concat,
    either,
    is_in,
    is_nan,
    is_null,
    like,
    negative,
    opposite,
    text_test,
)
from pydelta.predicate.expressions import (
    BOOLEAN,
    STRING,
    And,
    Column,
    Compare,
    In,
    IsNotNull,
    IsNull,
    Like,
    Literal,
    Not,
    Unknown,
    fields_of,
)
from pydelta.protocol.schema import to_arrow_type
from pydelta.protocol.types import ArrayType, DecimalType, PrimitiveType, StructField, StructType

BYTE, SHORT, INTEGER, LONG = (PrimitiveType(name) for name in ("byte", "short", "integer", "long"))
FLOAT, DOUBLE, BINARY, DATE = (PrimitiveType(name) for name in ("float", "double", "binary", "date"))
INSTANT, LOCAL = PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz")
MONEY = DecimalType(10, 2)
NAN, INF = math.nan, math.inf
T, F, N = True, False, None


def column(data_type, name="c"):
    return Column((name,), data_type)


def const(value, data_type):
    return Literal(value, data_type)


def result(expr, **columns):
    """Evaluate over columns given as (type, values)."""
    arrays = {name: pa.array(values, type=to_arrow_type(kind)) for name, (kind, values) in columns.items()}
    size = len(next(iter(arrays.values())))
    return evaluate(expr, lambda path: arrays[path[0]], size)


def of(expr, data_type, values):
    return result(expr, c=(data_type, values)).to_pylist()


FLOATS = [-INF, -1.5, -0.0, 0.0, 1.5, INF, NAN, None]


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE])
@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("=", NAN, [F, F, F, F, F, F, T, N]),
        ("=", 0.0, [F, F, T, T, F, F, F, N]),
        ("=", -0.0, [F, F, T, T, F, F, F, N]),
        ("<=>", NAN, [F, F, F, F, F, F, T, F]),
        ("<=>", 0.0, [F, F, T, T, F, F, F, F]),
        ("<=>", None, [F, F, F, F, F, F, F, T]),
        ("<", 0.0, [T, T, F, F, F, F, F, N]),
        ("<", NAN, [T, T, T, T, T, T, F, N]),
        ("<=", NAN, [T, T, T, T, T, T, T, N]),
        ("<=", INF, [T, T, T, T, T, T, F, N]),
        (">", INF, [F, F, F, F, F, F, T, N]),
        (">", NAN, [F, F, F, F, F, F, F, N]),
        (">=", NAN, [F, F, F, F, F, F, T, N]),
        (">=", -0.0, [F, F, T, T, T, T, T, N]),
        ("=", None, [N] * 8),
        ("<=", None, [N] * 8),
        (">", None, [N] * 8),
    ],
)
def test_floats_have_one_order_with_nan_on_top_and_one_zero(kind, op, value, expected):
    assert of(compare(op, column(kind), const(value, kind)), kind, FLOATS) == expected
    flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
    assert of(compare(flipped, const(value, kind), column(kind)), kind, FLOATS) == expected


@pytest.mark.parametrize("op", ["<=", ">=", "=", "<=>"])
def test_nan_beside_nan_in_two_columns_and_beside_null(op):
    expr = compare(op, column(DOUBLE, "a"), column(DOUBLE, "b"))
    found = result(expr, a=(DOUBLE, [NAN, NAN, None, None]), b=(DOUBLE, [NAN, None, NAN, None])).to_pylist()
    assert found == ([T, F, F, T] if op == "<=>" else [T, N, N, N])


@pytest.mark.parametrize(
    ("kind", "values", "constant", "less", "equal"),
    [
        (BOOLEAN, [F, T, N], T, [T, F, N], [F, T, N]),
        (BYTE, [-128, 127, N], 127, [T, F, N], [F, T, N]),
        (LONG, [-(2**63), 2**63 - 1, N], 2**63 - 1, [T, F, N], [F, T, N]),
        (MONEY, [Decimal("-99999999.99"), Decimal("0.01"), N], Decimal("0.01"), [T, F, N], [F, T, N]),
        (DecimalType(38, 0), [Decimal(10**38 - 1), Decimal(1 - 10**38)], Decimal(10**38 - 1), [F, T], [T, F]),
        (STRING, ["", "a", "é", "\uffff", "\U00010000", "aa", N], "b", [T, T, F, F, F, T, N], [F] * 6 + [N]),
        (STRING, ["\uffff", "\U00010000"], "\U00010000", [T, F], [F, T]),  # by bytes, not by UTF-16 units
        (BINARY, [b"", b"\x7f", b"\x80", b"\xff", N], b"\x80", [T, T, F, F, N], [F, F, T, F, N]),
    ],
)
def test_other_values_are_compared_as_they_are(kind, values, constant, less, equal):
    assert of(compare("<", column(kind), const(constant, kind)), kind, values) == less
    assert of(compare("=", column(kind), const(constant, kind)), kind, values) == equal
    assert of(opposite(compare(">=", column(kind), const(constant, kind))), kind, values) == less


@pytest.mark.parametrize(("kind", "arrow"), [(DATE, pa.int32()), (INSTANT, pa.int64()), (LOCAL, pa.int64())])
def test_times_are_compared_far_beyond_pythons_calendar(kind, arrow):
    far = 10**7 * (1 if kind == DATE else 86_400_000_000)  # after the year 29,000
    values = pa.array([-far, -1, 0, far, None], type=arrow).cast(to_arrow_type(kind))
    found = evaluate(compare(">=", column(kind), const(far, kind)), lambda path: values, 5).to_pylist()
    assert found == [F, F, F, T, N]


THREE = [T, F, N]


def test_and_or_not_have_three_values():
    pairs = [(a, b) for a in THREE for b in THREE]
    columns = {"a": (BOOLEAN, [a for a, _ in pairs]), "b": (BOOLEAN, [b for _, b in pairs])}
    a, b = column(BOOLEAN, "a"), column(BOOLEAN, "b")
    assert result(both(a, b), **columns).to_pylist() == [T, F, N, F, F, F, N, F, N]
    assert result(either(a, b), **columns).to_pylist() == [T, T, T, T, F, N, T, N, N]
    assert of(opposite(column(BOOLEAN)), BOOLEAN, THREE) == [F, T, N]


@pytest.mark.parametrize(
    ("kind", "rows", "values", "expected"),
    [
        (LONG, [1, 2, N], [1, 3], [T, F, N]),
        (LONG, [1, 2, N], [1, N], [T, N, N]),
        (LONG, [1, N], [N], [N, N]),
        (STRING, ["a", "A", "", N], ["a", ""], [T, F, T, N]),
        (BOOLEAN, [T, F, N], [F], [F, T, N]),
        (MONEY, [Decimal("1.50"), N], [Decimal("1.5")], [T, N]),
        (BINARY, [b"\xff", b"", N], [b""], [F, T, N]),
        (DOUBLE, [NAN, 0.0, -0.0, 1.0, N], [NAN, -0.0], [T, T, T, F, N]),
        (DOUBLE, [1.0, N], [N], [N, N]),
        (FLOAT, [NAN, 1.0], [N, 2.0], [N, N]),
    ],
)
def test_in_is_null_where_a_null_leaves_it_open(kind, rows, values, expected):
    assert of(is_in(column(kind), [const(value, kind) for value in values]), kind, rows) == expected


def test_null_and_nan_are_asked_for():
    assert of(is_null(column(DOUBLE)), DOUBLE, [1.0, NAN, N]) == [F, F, T]
    assert of(is_nan(column(DOUBLE)), DOUBLE, [1.0, NAN, N]) == [F, T, F]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("a%", [T, T, F, F, N]), ("%a", [T, F, F, F, N]), ("%a%", [T, T, T, F, N]), ("a", [T, F, F, F, N])],
)
def test_like_with_percent_at_the_ends(pattern, expected):
    expr = like(column(STRING), const(pattern, STRING), "\\")
    assert of(expr, STRING, ["a", "ab", "bab", "é\n", N]) == expected


@pytest.mark.parametrize("pattern", ["", "%", "%%", "a_", "a%b", "%a%b", "a\\%", "_", "%a_%"])
def test_other_patterns_are_left_to_spark(pattern):
    with pytest.raises(NotHere, match="LIKE"):
        like(column(STRING), const(pattern, STRING), "\\")


def test_text_is_searched_by_its_bytes():
    values = ["straße", "STRASSE", "ß", N]
    assert of(text_test("contains", column(STRING), const("ß", STRING)), STRING, values) == [T, F, T, N]
    assert of(text_test("ends", column(STRING), const("e", STRING)), STRING, values) == [T, F, F, N]


@pytest.mark.parametrize(
    ("source", "target", "values", "expected"),
    [
        (BYTE, LONG, [-128, 127, N], [-128, 127, N]),
        (INTEGER, DOUBLE, [2**31 - 1, N], [2147483647.0, N]),
        (FLOAT, DOUBLE, [0.5, NAN, N], [0.5, NAN, N]),
        (LONG, DecimalType(20, 0), [-(2**63), N], [Decimal(-(2**63)), N]),
        (INTEGER, DecimalType(12, 2), [7], [Decimal("7.00")]),
        (MONEY, DecimalType(12, 4), [Decimal("1.25"), N], [Decimal("1.2500"), N]),
    ],
)
def test_a_cast_keeps_every_value(source, target, values, expected):
    found = of(cast(column(source), target), source, values)
    assert [str(item) for item in found] == [str(item) for item in expected]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (LONG, INTEGER),
        (LONG, DOUBLE),
        (INTEGER, FLOAT),
        (DOUBLE, FLOAT),
        (LONG, DecimalType(18, 0)),
        (MONEY, DecimalType(10, 3)),
        (MONEY, DecimalType(9, 2)),
        (MONEY, DOUBLE),
        (STRING, LONG),
        (DATE, INSTANT),
        (INSTANT, DATE),
        (INSTANT, LOCAL),
        (LONG, STRING),
        (BINARY, STRING),
        (BOOLEAN, INTEGER),
    ],
)
def test_a_cast_that_may_round_fail_or_ask_for_a_zone_is_left_to_spark(source, target):
    with pytest.raises(NotHere, match="cast"):
        cast(column(source), target)


@pytest.mark.parametrize(
    ("op", "kind", "left", "right", "expected"),
    [
        ("+", LONG, [1, N], 2, [3, N]),
        ("-", BYTE, [-127, N], 1, [-128, N]),
        ("*", SHORT, [100], 300, [30000]),
        ("+", DOUBLE, [0.1, NAN, INF, N], 0.2, [0.1 + 0.2, NAN, INF, N]),
        ("/", DOUBLE, [1.0, -0.0, N], 3.0, [1 / 3, -0.0, N]),
        ("%", LONG, [7, -7, N, -(2**63)], 10, [7, -7, N, -8]),
    ],
)
def test_arithmetic(op, kind, left, right, expected):
    found = of(arithmetic(op, column(kind), const(right, kind)), kind, left)
    assert [str(item) for item in found] == [str(item) for item in expected]


def test_single_floats_are_computed_as_single_floats():
    found = result(arithmetic("+", column(FLOAT), const(0.2, FLOAT)), c=(FLOAT, [0.1]))
    assert found.type == pa.float32()
    assert found.to_pylist() == [0.30000001192092896]


@pytest.mark.parametrize(
    ("expr", "kind", "values"),
    [
        (arithmetic("+", column(LONG), const(1, LONG)), LONG, [2**63 - 1]),
        (arithmetic("-", column(BYTE), const(1, BYTE)), BYTE, [-128]),
        (arithmetic("*", column(INTEGER), const(2, INTEGER)), INTEGER, [2**30]),
        (negative(column(LONG)), LONG, [-(2**63)]),
        (arithmetic("/", const(1.0, DOUBLE), column(DOUBLE)), DOUBLE, [-0.0]),
    ],
)
def test_an_overflow_and_a_divisor_of_zero_are_left_to_spark(expr, kind, values):
    assert of(expr, kind, [1, N])[1] is None
    with pytest.raises(NotHere):
        of(expr, kind, [1, *values])


def test_the_sign_of_zero_changes():
    assert str(of(negative(column(DOUBLE)), DOUBLE, [0.0, NAN, N])) == "[-0.0, nan, None]"


def test_choices_take_the_first_that_is_true():
    at = compare(">", column(LONG), const(1, LONG))
    assert of(choice([(at, const("big", STRING))], const(None, STRING)), LONG, [0, 2, N]) == [N, "big", N]
    several = choice([(is_null(column(LONG)), const(-1, LONG)), (at, const(1, LONG))], column(LONG))
    assert of(several, LONG, [0, 2, N]) == [0, 1, -1]
    assert of(coalesce(column(LONG), const(5, LONG)), LONG, [1, N]) == [1, 5]


def test_texts_are_joined_and_null_wins():
    expr = concat(column(STRING, "a"), const("-", STRING), column(STRING, "b"))
    assert result(expr, a=(STRING, ["é", N, "x"]), b=(STRING, ["1", "2", N])).to_pylist() == ["é-1", N, N]


def test_a_constant_stands_for_every_row():
    assert evaluate(const(None, LONG), lambda path: None, 3).to_pylist() == [None] * 3
    assert evaluate(compare("<=>", const(NAN, DOUBLE), const(NAN, DOUBLE)), lambda path: None, 2).to_pylist() == [T, T]
    assert evaluate(is_in(const(1, LONG), [const(1, LONG)]), lambda path: None, 1).to_pylist() == [T]
    assert evaluate(is_in(const(2, LONG), [const(None, LONG)]), lambda path: None, 1).to_pylist() == [N]
    remainder = arithmetic("%", const(-7, LONG), const(4, LONG))
    assert evaluate(remainder, lambda path: None, 2).to_pylist() == [-3, -3]


def test_a_tree_that_is_too_deep_is_left_to_spark():
    expr = column(BOOLEAN)
    for _ in range(5000):
        expr = opposite(expr)
    with pytest.raises(NotHere, match="too deeply"):
        of(expr, BOOLEAN, [T])


def test_only_true_counts_and_null_does_not():
    values = pa.array([T, F, N])
    assert true_rows(column(BOOLEAN), lambda path: values, 3).tolist() == [True, False, False]
    assert true_rows(const(None, BOOLEAN), lambda path: values, 3).tolist() == [False] * 3


ARRAY = ArrayType(LONG)


@pytest.mark.parametrize(
    "build",
    [
        lambda: compare("=", column(LONG), const(1, INTEGER)),
        lambda: compare("=", column(ARRAY), column(ARRAY)),
        lambda: compare("=", column(PrimitiveType("variant")), column(PrimitiveType("variant"))),
        lambda: compare("=", column(PrimitiveType("string collate UNICODE")), const("a", STRING)),
        lambda: both(column(LONG), column(BOOLEAN)),
        lambda: is_in(column(DOUBLE), [const(float(n), DOUBLE) for n in range(11)]),
        lambda: is_in(column(LONG), [const(1.0, DOUBLE)]),
        lambda: is_null(column(ARRAY)),
        lambda: is_nan(column(LONG)),
        lambda: text_test("starts", column(STRING), column(STRING, "b")),
        lambda: text_test("starts", column(STRING), const("", STRING)),
        lambda: text_test("starts", column(BINARY), const(b"a", BINARY)),
        lambda: arithmetic("+", column(MONEY), column(MONEY)),
        lambda: arithmetic("/", column(LONG), column(LONG)),
        lambda: arithmetic("%", column(LONG), column(LONG)),
        lambda: arithmetic("%", column(LONG), const(0, LONG)),
        lambda: arithmetic("%", column(LONG), const(-3, LONG)),
        lambda: arithmetic("%", column(DOUBLE), const(3.0, DOUBLE)),
        lambda: negative(column(MONEY)),
        lambda: coalesce(column(LONG), const(1, INTEGER)),
        lambda: choice([(column(LONG), const(1, LONG))], const(1, LONG)),
        lambda: concat(column(BINARY), column(BINARY)),
    ],
)
def test_what_is_not_exact_cannot_be_built(build):
    with pytest.raises(NotHere) as caught:
        build()
    assert str(caught.value)


def test_the_columns_that_are_read_are_found_at_any_depth():
    inner = choice([(compare("<", column(LONG, "a"), const(1, LONG)), column(LONG, "b"))], column(LONG, "d"))
    assert {item.path for item in fields_of(is_in(inner, [const(1, LONG)]))} == {("a",), ("b",), ("d",)}


FIELDS = {"i": INTEGER, "l": LONG, "x": DOUBLE, "s": STRING, "b": BOOLEAN, "n": MONEY}
SCHEMA = StructType(tuple(StructField(name, kind) for name, kind in FIELDS.items()))
I, L, X, S, B = (column(FIELDS[name], name) for name in "ilxsb")  # noqa: E741


@pytest.mark.parametrize(
    "expr",
    [
        B,
        const(None, LONG),
        compare("<", L, const(1, LONG)),
        both(B, either(opposite(B), is_null(S))),
        is_in(S, [const("a", STRING), const(None, STRING)]),
        is_nan(X),
        *(text_test(kind, S, const("a", STRING)) for kind in ("starts", "ends", "contains")),
        cast(I, LONG),
        arithmetic("-", L, const(1, LONG)),
        negative(X),
        coalesce(S, const("", STRING)),
        choice([(B, L), (is_null(L), const(0, LONG))], const(None, LONG)),
        concat(S, S),
        compare("=", Column((SOURCE, "0"), LONG), L),
    ],
)
def test_a_tree_that_is_exact_stays_as_it_is(expr):
    assert exact(expr, SCHEMA) == expr


def test_a_tree_of_a_translator_gets_the_types_and_the_spelling_of_the_table():
    assert exact(Compare("=", Column(("L",)), Literal(None)), SCHEMA) == compare("=", L, const(None, LONG))
    assert exact(Compare("<", Literal(1, "long"), Column(("i",))), SCHEMA) == compare(
        ">", cast(I, LONG), const(1, LONG)
    )
    assert exact(IsNotNull(Column(("S",), STRING)), SCHEMA) == opposite(is_null(S))
    assert exact(Like(S, const("a%", STRING), "\\"), SCHEMA) == text_test("starts", S, const("a", STRING))
    assert exact(Not(Literal(None)), SCHEMA) == opposite(const(None, BOOLEAN))
    assert exact(In(X, (1, Decimal("0.5"))), SCHEMA) == is_in(X, [const(1.0, DOUBLE), const(0.5, DOUBLE)])


@pytest.mark.parametrize(
    ("expr", "why"),
    [
        (Unknown("f(i)"), "such a condition"),
        (And(B, Not(Unknown("upper(s)", reason="Upper"))), "Upper"),
        (IsNull(Column(("gone",))), "not the table's"),
        (IsNull(Column(("l",), INTEGER)), "another type"),
        (IsNull(Column(("l", "x"))), "not the table's"),
        (Compare("=", L, Literal(2**63, "long")), "beyond long"),
        (In(L, (-(2**63) - 1,)), "beyond long"),
        (Compare("=", L, Literal(1.0, "double")), "different types"),
        (Compare("=", L, X), "different types"),
        (Compare("=", Column(("n",)), Literal(Decimal("0.001"), MONEY)), "more digits"),
        (Compare("=", S, Literal(1, "string")), "such a constant"),
        (Literal(1, ARRAY), "type array"),
        (Literal(None, ARRAY), "type array"),
        (IsNull(Literal(None, ARRAY)), "type array"),
        (Compare("=", Column(("n",)), Literal("5", MONEY)), "such a constant"),
        (Compare("=", Literal(None), Literal(None)), "type none"),
    ],
)
def test_a_tree_that_is_not_exact_is_left_to_spark_with_the_reason(expr, why):
    with pytest.raises(NotHere, match=why):
        exact(expr, SCHEMA)


BOUNDS = {"byte": 127, "short": 32_767, "integer": 2_147_483_647, "long": 9_223_372_036_854_775_807}


@pytest.mark.parametrize("name", BOUNDS)
def test_whole_numbers_are_held_up_to_the_bounds_of_their_type(name):
    kind, most = PrimitiveType(name), BOUNDS[name]
    schema = StructType((StructField("c", kind),))
    for value in (-most - 1, most):
        assert exact(Compare("=", Column(("c",)), Literal(value, kind)), schema).right == Literal(value, kind)
        assert assigned("c", str(value), schema) == Literal(value, kind)
    for value in (-most - 2, most + 1):
        with pytest.raises(NotHere, match=f"a number beyond {name}"):
            exact(Compare("=", Column(("c",)), Literal(value, kind)), schema)


@pytest.mark.parametrize("name", ["byte", "short", "integer"])
def test_a_list_is_compared_in_long_where_a_value_is_beyond_the_column(name):
    kind, long = PrimitiveType(name), PrimitiveType("long")
    schema = StructType((StructField("c", kind),))
    within = exact(In(Column(("c",)), (BOUNDS[name], None)), schema)
    assert (within.child, within.values[0]) == (Column(("c",), kind), BOUNDS[name])
    beyond = exact(In(Column(("c",)), (BOUNDS[name] + 1,)), schema)
    assert (beyond.child.type, beyond.values) == (long, (BOUNDS[name] + 1,))


HERE = dt.timezone(dt.timedelta(hours=2))
NOON = dt.datetime(1970, 1, 1, 12)


@pytest.mark.parametrize(
    ("value", "name", "held"),
    [
        (dt.date(1970, 1, 3), "date", 2),
        (NOON, "date", None),
        (NOON.replace(tzinfo=dt.UTC), "timestamp", 12 * 3_600_000_000),
        (NOON.replace(tzinfo=HERE), "timestamp", 10 * 3_600_000_000),
        (NOON, "timestamp", None),
        (NOON, "timestamp_ntz", 12 * 3_600_000_000),
        (NOON.replace(tzinfo=HERE), "timestamp_ntz", None),
        (dt.date(1970, 1, 3), "timestamp_ntz", None),
        (True, "boolean", True),
        (1, "boolean", None),
        ("a", "string", "a"),
        ("a", "binary", None),
        (b"a", "binary", b"a"),
    ],
)
def test_a_value_is_held_as_its_type_stores_it_or_not_at_all(value, name, held):
    assert simple_value(value, name) == held
    assert type(simple_value(value, name)) is type(held)


@pytest.mark.parametrize("name", ["date", "timestamp", "timestamp_ntz"])
def test_days_and_microseconds_stay_but_are_not_assigned_as_numbers(name):
    kind = PrimitiveType(name)
    schema = StructType((StructField("c", kind),))
    assert exact(Compare("<", Column(("c",)), Literal(10**15, kind)), schema).right == Literal(10**15, kind)
    with pytest.raises(NotHere, match=f"such a constant for a column of type {name}"):
        assigned("c", "1", schema)


def test_a_time_without_a_zone_is_assigned_in_the_zone_that_is_given():
    schema = StructType((StructField("c", INSTANT),))
    for text in ("'1970-01-01 12:00:00'", "TIMESTAMP '1970-01-01 12:00:00'"):
        found = assigned("c", text, schema, time_zone="Etc/GMT-2")
        assert found == Literal(10 * 3_600_000_000, INSTANT)


def test_a_null_takes_the_type_of_what_it_meets_and_alone_is_a_condition():
    schema = StructType((StructField("c", LONG), StructField("b", BOOLEAN)))
    assert exact(Literal(None), schema) == Literal(None, BOOLEAN)
    assert exact(Compare("=", Column(("c",)), Literal(None)), schema).right == Literal(None, LONG)
    assert exact(Literal(None, LONG), schema) == Literal(None, LONG)
    assert exact(Column(("b",)), schema) == Column(("b",), BOOLEAN)
    with pytest.raises(NotHere):
        exact(Literal(1), schema)


def test_a_null_is_assigned_to_a_column_of_any_type():
    for kind in (FLOAT, LONG, MONEY, STRING, BOOLEAN, INSTANT):
        assert assigned("c", "NULL", StructType((StructField("c", kind),))) == Literal(None, kind)


def test_two_constants_keep_their_sides():
    found = exact(Compare("<", Literal(1, LONG), Literal(2, LONG)), StructType(()))
    assert (found.op, found.left, found.right) == ("<", Literal(1, LONG), Literal(2, LONG))


def test_a_decimal_column_takes_no_float_and_a_boolean_is_not_a_number():
    schema = StructType((StructField("c", MONEY), StructField("f", FLOAT), StructField("n", LONG)))
    assert exact(Compare("=", Column(("c",)), Literal(5, MONEY)), schema).right == Literal(Decimal(5), MONEY)
    for column_name, value, kind in (("c", 0.5, MONEY), ("c", True, MONEY), ("f", True, FLOAT), ("n", True, LONG)):
        with pytest.raises(NotHere):
            exact(Compare("=", Column((column_name,)), Literal(value, kind)), schema)


@pytest.mark.parametrize("text", ["1e39", "-1e308", "0.1D"])
def test_a_number_beyond_single_precision_is_refused_without_a_warning(text):
    with warnings.catch_warnings(), pytest.raises(NotHere, match="a float would round"):
        warnings.simplefilter("error")
        assigned("f", text, StructType((StructField("f", FLOAT),)))
