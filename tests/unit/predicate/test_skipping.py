"""What statistics rule out: one row a case, so that a mask that keeps everything fails."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce

import polars as pl
import pytest

from pydelta.errors import BindError, InvalidArgumentError, ParseError
from pydelta.predicate import (
    And,
    Column,
    Compare,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Or,
    TextTest,
    Unknown,
    columns,
    is_partition_only,
    parse_predicate,
    rename_columns,
    skipping_mask,
    skipping_masks,
    split_conjuncts,
)
from pydelta.predicate.expressions import (
    Arithmetic,
    CaseWhen,
    Cast,
    Coalesce,
    Concat,
    IsNan,
    Like,
    Negative,
    fields_of,
    walk,
)
from pydelta.predicate.masks import NotEvaluable, partition_mask
from pydelta.protocol.partitions import typed_frame
from pydelta.protocol.schema import ArrayType, DecimalType, PrimitiveType, StructField, StructType
from pydelta.protocol.stats import parse_stats_columns, stat_column
from pydelta.protocol.types import parse_type

LONG = PrimitiveType("long")

SCHEMA = StructType(
    (
        StructField("i", PrimitiveType("integer")),
        StructField("x", PrimitiveType("double")),
        StructField("s", PrimitiveType("string")),
        StructField("d", PrimitiveType("date")),
        StructField("t", PrimitiveType("timestamp")),
        StructField("n", DecimalType(10, 2)),
        StructField("o", StructType((StructField("k", PrimitiveType("long")),))),
        StructField("with.dot", PrimitiveType("long")),
    )
)
STATS = (
    '{"numRecords":10,"minValues":{"i":5,"x":1.5,"s":"bb","d":"2024-01-05","t":"2024-01-05T10:00:00.123Z","n":1.50,'
    '"o":{"k":100},"with.dot":7},"maxValues":{"i":9,"x":2.5,"s":"dd","d":"2024-01-09","t":"2024-01-05T11:00:00.456Z",'
    '"n":9.50,"o":{"k":200},"with.dot":8},"nullCount":{"i":0,"x":1,"s":0,"d":10,"t":0,"n":0,"o":{"k":0},"with.dot":0}}'
)
LEAVES = [((f.name,), f.data_type) for f in SCHEMA if f.name != "o"] + [(("o", "k"), PrimitiveType("long"))]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("i = 5", True), ("i = 4", False), ("i = 10", False), ("6 = i", True), ("4 >= i", False),
        ("i < 5", False), ("i <= 5", True), ("i > 9", False), ("i >= 9", True),
        ("NOT i < 10", False), ("NOT i >= 5", False), ("i != 7", True),
        ("i IN (1, 2)", False), ("i IN (1, 9)", True), ("i NOT IN (6)", True), ("i IN (1, NULL)", False),
        ("i IS NULL", False), ("i IS NOT NULL", True), ("x IS NULL", True), ("d IS NOT NULL", False),
        ("d = '2024-01-06'", False), ("i <=> NULL", False), ("i = NULL", False), ("d <=> NULL", True),
        ("x = 3.0", False), ("x > 100.0", True), ("x < 1.0", False),
        ("s = 'bb'", True), ("s < 'bb'", False), ("s LIKE 'c%'", True), ("s LIKE 'e%'", False), ("s LIKE 'a%'", False),
        ("t < TIMESTAMP '2024-01-05 10:00:00.123Z'", False), ("t > TIMESTAMP '2024-01-05 11:00:00.4565Z'", True),
        ("t > TIMESTAMP '2024-01-05 11:00:00.458Z'", False),
        ("n = 1.50", True), ("n < 1.49", False), ("n > 9", True), ("n > 9.50", False), ("n >= 9.51", False),
        ("NOT n <= 9.5", False), ("n >= 9.5", True),
        ("o.k = 99", False), ("o.k = 150", True), ("`with.dot` = 9", False), ("`with.dot` = 7", True),
        ("i = 4 OR s = 'bb'", True), ("i = 4 OR s = 'zz'", False), ("i = 5 AND s = 'zz'", False),
        ("NOT (i = 5 OR i = 6)", True), ("NOT (i >= 5 OR s = 'zz')", False), ("TRUE", True), ("FALSE", False),
        ("i BETWEEN 6 AND 7", True), ("i BETWEEN 1 AND 4", False),
        ("i NOT BETWEEN 5 AND 9", False), ("i NOT BETWEEN 5 AND 8", True), ("s NOT LIKE 'c%'", True),
    ],
)  # fmt: skip
def test_a_file_is_kept_or_skipped(text, kept):
    stats = parse_stats_columns(pl.Series([STATS, None, "{truncated"]), LEAVES)
    mask = skipping_mask(parse_predicate(text, SCHEMA), stats, decimals=[("n",)]).to_list()
    assert mask[0] is kept
    decidable_without = text in ("FALSE", "i = NULL", "i IN (1, NULL)")
    assert mask[1:] == [True, True] or decidable_without or text == "FALSE"


def test_what_is_not_understood_skips_nothing():
    stats = parse_stats_columns(pl.Series([STATS]), LEAVES)
    assert skipping_mask(Unknown("udf(i)", frozenset({("i",)})), stats).to_list() == [True]
    assert skipping_mask(In(Column(("i",)), ("text",)), stats).to_list() == [True]  # types that do not compare


def test_a_long_list_keeps_a_file_if_one_of_it_lies_within_its_bounds():
    stats = parse_stats_columns(pl.Series([STATS]), LEAVES)
    days = [dt.date(2024, 2, 1) + dt.timedelta(days=more) for more in range(100)]
    outside = {"i": [*range(5), *range(10, 300)], "s": [*map(str, range(90)), "e"], "d": [dt.date(2024, 1, 4), *days]}
    for (column, values), within in zip(outside.items(), (5, "cc", dt.date(2024, 1, 9)), strict=True):
        for found, kept in ((values, False), ([*values, within], True), ([*values, None], False)):
            stats_of = stats.with_columns(pl.lit(0, pl.Int64).alias(stat_column("nullCount", (column,))))
            assert skipping_mask(In(Column((column,)), tuple(found)), stats_of).to_list() == [kept]


def test_a_list_of_whole_numbers_is_no_list_of_floats_nor_one_of_days_of_moments():
    bounds = {"x": (2.25, 2.75), "t": (dt.datetime(2024, 1, 9, 1), dt.datetime(2024, 1, 9, 23)), "n": (0, 0)}
    stats = pl.DataFrame(
        {stat_column(kind, (c,)): [bounds[c][kind == "max"]] for c in bounds for kind in ("min", "max")}
    )
    for column, values in (("x", (2, 7)), ("t", (dt.date(2024, 1, 9), dt.date(2024, 3, 1)))):
        assert skipping_mask(In(Column((column,)), values), stats).to_list() == [False]
    assert skipping_mask(In(Column(("x",)), (7, 2.5)), stats).to_list() == [True]
    assert skipping_mask(In(Column(("n",)), (0, 2**63 - 1)), stats).to_list() == [True]


def test_one_condition_that_does_not_compare_keeps_no_other_from_ruling_out():
    stats = parse_stats_columns(pl.Series([STATS, None]), LEAVES)
    strange, above = (
        In(Column(("i",)), ("text",)),
        Compare(">", Column(("n",)), Literal(Decimal("9.50"), "decimal(9,2)")),
    )
    for text, kept in (("i = 5", True), ("i = 50", False)):
        plain = parse_predicate(text, SCHEMA)
        for order in ([strange, plain], [plain, strange], [plain]):
            assert skipping_masks(order, stats).to_list() == [kept, True]
    assert skipping_masks([strange], stats).to_list() == [True, True]
    assert skipping_masks([], stats).to_list() == [True, True]
    assert skipping_masks([strange, above], stats, decimals=[("n",)]).to_list() == [False, True]
    assert skipping_masks([strange, above], stats).to_list() == [True, True]  # of floats one may be NaN


@pytest.mark.parametrize("values", [(1, 2**70), (2**64 + 1,), (2**63, 3), (2**63, 7), (-(2**63) - 1, 7)])
def test_numbers_beyond_any_column_are_no_error(values):
    stats = parse_stats_columns(pl.Series([STATS]), LEAVES)
    listed = In(Column(("i",)), values)
    for mask in (skipping_mask(listed, stats), skipping_masks([listed, listed], stats)):
        assert mask.to_list()[0] or 7 not in values
    assert partition_mask(listed, pl.DataFrame({"i": [7, 4]})).to_list() == [7 in values, False]


def test_a_long_list_keeps_a_file_of_which_a_bound_is_missing():
    low, high = stat_column("min", ("i",)), stat_column("max", ("i",))
    bounds = {low: [500, None, 200, None, 2, None], high: [None, 1, None, 200, 3, None]}
    stats = pl.DataFrame(bounds, schema={low: pl.Int32, high: pl.Int32})
    kept = skipping_mask(In(Column(("i",)), tuple(range(100, 300))), stats).to_list()
    assert kept == [False, False, True, True, False, True]


def test_a_long_list_of_what_is_not_searched_for_is_a_range():
    stats = parse_stats_columns(pl.Series([STATS]), LEAVES)
    above, around = range(10, 300), [0, 1, *range(10, 300)]
    for values, kept in ((above, False), (around, True)):
        listed = In(Column(("n",)), tuple(map(Decimal, values)))
        assert skipping_mask(listed, stats, decimals=[("n",)]).to_list() == [kept]
    nothing = stats.with_columns(pl.col("numRecords").cast(pl.Int64).alias(stat_column("nullCount", ("n",))))
    assert skipping_mask(listed, nothing, decimals=[("n",)]).to_list() == [False]


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("i = ", 1, 4),
        ("i =\n = 3", 2, 2),
        ("", 1, 1),
        ("i IN ()", 1, 7),
        ("i ~ 3", 1, 3),
        ("i = 1\nAND (s = ", 2, 9),
    ],
)
def test_a_condition_that_does_not_parse_shows_where(text, line, column):
    with pytest.raises(ParseError) as caught:
        parse_predicate(text, SCHEMA)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert "^" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nope = 1", ["nope", "i, x, s"]),
        ("o.z = 1", ["o.z"]),
        ("I2 = 1", ["I2"]),
        ("i = 'x'", ["'x'", "integer"]),
        ("s = 5", ["'s'", "string"]),
        ("d = 'no date'", ["no date", "2024-05-01"]),
        ("d = TIMESTAMP '2024-01-05 00:00:00Z'", ["'d'", "date"]),
        ("o.z = 1", ["fields are: k"]),
        ("i.z = 1", ["'i' is integer", "no fields"]),
        ("i", ["i is not a condition"]),
        ("NOT s", ["s is not a condition"]),
        ("i = 1 OR 5", ["5 is not a condition"]),
    ],
)
def test_a_name_or_constant_that_does_not_fit_is_named(text, words):
    with pytest.raises(BindError) as caught:
        parse_predicate(text, SCHEMA)
    for word in words:
        assert word in str(caught.value)


def test_a_pattern_that_needs_spark_is_refused():
    with pytest.raises(InvalidArgumentError, match="LIKE"):
        parse_predicate("s LIKE '%a'", SCHEMA)


def test_names_are_bound_ignoring_case_and_conjuncts_are_split():
    bound = parse_predicate("I = 1 AND (S = 'a' OR s = 'b') AND d IS NULL", SCHEMA)
    assert columns(bound) == {("i",), ("s",), ("d",)}
    parts = split_conjuncts(bound)
    assert [is_partition_only(part, ["I", "D"]) for part in parts] == [True, False, True]


@pytest.mark.parametrize("name", ["date", "timestamp", "Date", "`date`", "order", "index", "nullable", "inner"])
def test_a_column_may_be_called_as_a_type_or_begin_as_a_keyword(name):
    schema = StructType((StructField(name.strip("`").lower(), PrimitiveType("date")),))
    day = dt.date(2024, 1, 5)
    for constant in ("'2024-01-05'", "DATE '2024-01-05'", "date'2024-01-05'"):
        bound = parse_predicate(f"{name} >= {constant} AND {name} IS NOT NULL", schema)
        assert split_conjuncts(bound)[0] == Compare(">=", Column(schema.names), Literal(day, "date"))


def test_a_column_that_is_not_at_hand_is_not_evaluable():
    with pytest.raises(NotEvaluable):
        partition_mask(parse_predicate("i = 1", SCHEMA), pl.DataFrame({"s": ["a"]}))


def test_arrays_have_counts_and_no_bounds():
    leaves = [(("a",), ArrayType(PrimitiveType("long")))]
    frame = parse_stats_columns(pl.Series(['{"numRecords":2,"nullCount":{"a":2}}']), leaves)
    assert frame.columns == ["numRecords", "nullCount.a"]


@pytest.mark.parametrize("bound", ["0.1", "0.10000000149011612"])  # either is what a writer makes of the float 0.1
@pytest.mark.parametrize("value", [0.1, 0.10000000149011612])
@pytest.mark.parametrize("op", ["=", "<=", ">="])
def test_both_spellings_of_a_float_meet(bound, value, op):
    stats = pl.Series(
        [f'{{"numRecords":2,"minValues":{{"f":{bound}}},"maxValues":{{"f":{bound}}},"nullCount":{{"f":0}}}}']
    )
    frame = parse_stats_columns(stats, [(("f",), PrimitiveType("float"))])
    column = Column(("f",))
    assert skipping_mask(Compare(op, column, Literal(value, "float")), frame).to_list() == [True]
    assert skipping_mask(In(column, (value,)), frame).to_list() == [True]
    assert skipping_mask(Compare("=", column, Literal(0.1001, "float")), frame).to_list() == [False]
    partitions = typed_frame(pl.DataFrame({"f": ["0.1"]}), StructType((StructField("f", PrimitiveType("float")),)))
    assert partition_mask(Compare(op, column, Literal(value, "float")), partitions).to_list() == [True]


def test_a_decimal_that_no_float_holds_rules_nothing_out_by_its_rounding():
    leaf = (("n",), DecimalType(10, 2))
    stats = parse_stats_columns(pl.Series(['{"numRecords":1,"minValues":{"n":0.1},"maxValues":{"n":0.1}}']), [leaf])
    just_above = Literal(Decimal("0.1000000000000000001"), "decimal")
    assert skipping_mask(Compare("<", Column(("n",)), just_above), stats).to_list() == [True]
    assert skipping_mask(Compare("<", Column(("n",)), Literal(Decimal("0.09"), "decimal")), stats).to_list() == [False]


@pytest.mark.parametrize("op", ["<", "<=", "=", ">=", ">"])
@pytest.mark.parametrize("value", [Decimal(1), Decimal("1.0"), 1])
def test_a_fine_decimal_partition_counts_with_all_its_digits(op, value):
    values = [Decimal("0.999999999999999999"), Decimal(1), Decimal("1.000000000000000001")]
    column = pl.Series(values, dtype=pl.Decimal(38, 18))
    stats = pl.DataFrame({"min.p": column, "max.p": column, "nullCount.p": [0] * 3, "numRecords": [1] * 3})
    condition = Compare(op, Column(("p",)), Literal(value, "decimal(38,18)"))
    exact = partition_mask(condition, pl.DataFrame({"p": column}))
    assert skipping_mask(condition, stats).to_list() == exact.to_list()
    assert skipping_mask(Not(condition), stats).to_list() == (~exact).to_list()


def test_a_whole_decimal_meets_a_long_column_without_a_rounding():
    bound = '{"numRecords":1,"minValues":{"a":1000000000000000001},"maxValues":{"a":1000000000000000001}}'
    stats = parse_stats_columns(pl.Series([bound]), [(("a",), PrimitiveType("long"))])
    for value, kept in ((Decimal("1000000000000000000.0"), True), (Decimal("2000000000000000000.0"), False)):
        assert skipping_mask(Compare(">", Column(("a",)), Literal(value)), stats).to_list() == [kept]


def test_a_double_is_not_rounded_to_a_column_of_single_precision():
    frame = pl.DataFrame({"f": pl.Series([0.1], dtype=pl.Float32)})
    assert partition_mask(Compare("=", Column(("f",)), Literal(0.1, "double")), frame).to_list() == [False]
    assert partition_mask(Compare(">", Column(("f",)), Literal(0.1, "double")), frame).to_list() == [True]


def test_constants_of_kinds_without_a_common_order_rule_nothing_out():
    stats = parse_stats_columns(pl.Series([STATS]), LEAVES)
    assert skipping_mask(In(Column(("i",)), (*range(100, 200), "x")), stats).to_list() == [True]


def test_a_number_beyond_any_column_is_no_crash():
    stats = parse_stats_columns(pl.Series([STATS]), LEAVES)
    assert skipping_mask(Compare("<", Column(("i",)), Literal(10**40, "long")), stats).to_list() == [True]
    with pytest.raises(NotEvaluable):
        partition_mask(In(Column(("i",)), (10**40,)), pl.DataFrame({"i": [1]}))


def test_no_value_is_in_an_empty_list_not_even_null():
    stats = parse_stats_columns(pl.Series([STATS]), LEAVES)
    assert skipping_mask(Not(In(Column(("d",)), ())), stats).to_list() == [True]


@pytest.mark.parametrize(
    ("kind", "texts", "values", "expected"),
    [
        ("byte", ["1", "7", None], [1, 300], [True, False, None]),
        ("long", ["1", "7", None], [*range(2, 20_000), None], [None, True, None]),
        ("string", ["a", "b", None], ["a"], [True, False, None]),
        ("date", ["2024-01-01", "2024-01-02", None], [dt.date(2024, 1, 2)], [False, True, None]),
        ("decimal(4,2)", ["1.50", "2.00", None], [Decimal("1.5"), 7], [True, False, None]),
        ("double", ["1.5", "2", None], [1.5, 2], [True, True, None]),
        ("boolean", ["true", "false", None], [True], [True, False, None]),
        ("timestamp", ["2024-01-01 00:00:00", "2024-01-02 00:00:00", None],
         [dt.datetime(2024, 1, day, tzinfo=dt.UTC) for day in range(2, 30)], [False, True, None]),
        ("long", ["1"], [], [False]),
    ],
)  # fmt: skip
def test_membership_of_partition_values(kind, texts, values, expected):
    frame = typed_frame(pl.DataFrame({"p": texts}), StructType((StructField("p", parse_type(kind)),)))
    assert partition_mask(In(Column(("p",)), tuple(values)), frame).to_list() == expected


def test_a_condition_of_any_depth_is_no_crash():
    deep = reduce(Or, [Compare("=", Column(("i",)), Literal(number, "long")) for number in range(5_000)])
    assert columns(deep) == {("i",)}
    assert len(split_conjuncts(reduce(And, [deep] * 5_000))) == 5_000
    assert skipping_mask(deep, parse_stats_columns(pl.Series([STATS]), LEAVES)).to_list() == [True]
    assert columns(rename_columns(deep, {("i",): ("col-1",)})) == {("col-1",)}
    with pytest.raises(NotEvaluable, match="deeply"):
        partition_mask(deep, pl.DataFrame({"i": [1]}))
    wide = parse_predicate(" OR ".join(f"i = {number}" for number in range(20_000)), SCHEMA)
    assert len(list(walk(wide))) == 4 * 20_000 - 1
    assert skipping_mask(wide, parse_stats_columns(pl.Series([STATS]), LEAVES)).to_list() == [True]
    left = "(" * 5_000 + "i = 0" + "".join(f" OR i = {number})" for number in range(5_000))
    assert len(str(parse_predicate(left, SCHEMA))) > 5_000
    assert parse_predicate("(" * 5_000 + "NOT " * 5_000 + "i = 1" + ")" * 5_000, SCHEMA) == parse_predicate(
        "i = 1", SCHEMA
    )
    with pytest.raises(ParseError, match="deeply"):
        parse_predicate("i = 1 AND (i = 2 OR (" * 100 + "i = 3" + "))" * 100, SCHEMA)


def test_renaming_keeps_the_shape_and_the_sides_of_every_kind_of_part():
    a, b, c = Column(("a",)), Column(("s", "b")), Column(("c",))

    def tree(a, b, c, extra):
        left = And(Compare("<", a, Literal(1)), Not(Or(In(b, (1, 2)), Compare(">", Literal(3), c))))
        return And(
            left, Or(And(IsNull(a), IsNotNull(b)), And(TextTest("starts", c, "x"), Unknown("f", frozenset({extra}))))
        )

    renamed = rename_columns(tree(a, b, c, ("a",)), {("a",): ("A", "1"), ("s", "b"): ("B",)})
    assert renamed == tree(Column(("A", "1")), Column(("B",)), c, ("A", "1"))


def test_renaming_reaches_the_values_that_rows_are_computed_of_too():
    def tree(name):
        column = Column((name,), LONG)
        case = CaseWhen(((IsNan(column), Negative(column, LONG)), (IsNull(column), Literal(1))), column, LONG)
        joined = Concat((column, Coalesce((Cast(column, LONG), column), LONG)))
        return Or(Like(joined, case, "!"), Compare("=", Arithmetic("+", column, Literal(2), LONG), column))

    assert rename_columns(tree("a"), {("a",): ("b",)}) == tree("b")
    assert columns(tree("a")) == {("a",)}
    assert [part.type for part in fields_of(tree("a"))] == [LONG] * 9


@pytest.mark.parametrize("kind", ["starts", "ends", "contains"])
def test_a_condition_that_pruning_does_not_read_is_not_one_over_partitions_alone(kind):
    assert is_partition_only(TextTest(kind, Column(("P",)), "x"), ["p"]) == (kind == "starts")
    assert not is_partition_only(IsNan(Column(("p",))), ["p"])


def bounds_of(low, high, *, nulls=0):
    """Statistics of one file of three rows with one column ``c``."""
    stats = {
        stat_column(kind, ("c",)): value for kind, value in {"min": low, "max": high, "nullCount": [nulls]}.items()
    }
    return pl.DataFrame({"numRecords": [3], **stats})


def test_a_decimal_is_not_rounded_to_the_single_precision_of_a_column():
    single = pl.Series([0.1], dtype=pl.Float32)  # 0.100000001490116: more than 0.1
    stats = bounds_of(single, single)
    above, below = (Compare(op, Column(("c",)), Literal(Decimal("0.1"), "decimal(1,1)")) for op in (">", "<="))
    assert skipping_mask(above, stats, decimals=[("c",)]).to_list() == [True]
    assert skipping_mask(below, stats, decimals=[("c",)]).to_list() == [False]


def test_of_many_constants_none_is_in_a_file_without_values():
    nothing = pl.Series([None], dtype=pl.Int64)
    among = In(Column(("c",)), tuple(range(100)))
    assert skipping_mask(among, bounds_of(nothing, nothing, nulls=3)).to_list() == [False]
    assert skipping_mask(among, bounds_of(nothing, nothing, nulls=2)).to_list() == [True]


def test_bounds_count_where_the_number_of_rows_is_not_known():
    stats = bounds_of([1], [5]).drop("numRecords")
    assert skipping_mask(Compare(">", Column(("c",)), Literal(5, "long")), stats).to_list() == [False]
    assert skipping_mask(Compare(">", Column(("c",)), Literal(4, "long")), stats).to_list() == [True]
