"""Every comparison with every constant over every state of a file's statistics: what is kept is what may match.

What a file may hold is spelt out, value by value, from what its statistics say: each value between the bounds, NaN
where the column can hold it, null where nulls are counted. A condition keeps the file if one of them makes it true.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import polars as pl
import pytest

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
    partition_mask,
    skipping_mask,
)
from pydelta.predicate.masks import NotEvaluable
from tests.unit.predicate.row_by_row import evaluate, order_of

NAN, INF = float("nan"), float("inf")
OPERATORS = ("=", "<=>", "<", "<=", ">", ">=")
C = Column(("c",))
DAYS = [dt.date(2024, 1, day) for day in (1, 2, 3, 4, 5)]
TIMES = [dt.datetime(1500, 1, 1, 0, 0, 0, micros) for micros in (0, 1, 1000, 5000, 5001)]
FINE = [Decimal(text) for text in ("0.999999999999999999", "1", "1.000000000000000001", "2", "3.5")]


class Beyond:
    """A value beyond all others on one side: what a file without a bound there may hold."""

    def __init__(self, *, above: bool) -> None:
        self._above = above

    def startswith(self, prefix: str) -> bool:
        return not prefix

    @property
    def order(self) -> Any:
        return (2, 0) if self._above else (-1, 0)


BELOW, ABOVE = Beyond(above=False), Beyond(above=True)


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of column.

    Args:
        dtype: Of its bounds.
        bounds: Values that files begin and end with.
        values: Others that lie between and around them.
        constants: What the column is compared with; null is added.
        decimal: Whether the rows are decimals, whatever the bounds are.
    """

    dtype: Any
    bounds: tuple[Any, ...]
    values: tuple[Any, ...]
    constants: tuple[Any, ...]
    decimal: bool = False

    @property
    def floating(self) -> bool:
        """Whether a row may be NaN."""
        return self.dtype in (pl.Float32, pl.Float64) and not self.decimal


KINDS = {
    "integer": Kind(
        pl.Int32, (-3, 0, 2), (-4, -2, 1, 3),
        (-4, -3, 0, 1, 2, 3, 2.5, -0.5, -0.0, 2.0, NAN, INF, -INF, Decimal("2.0"), Decimal("1.5"), Decimal("-0.5")),
    ),
    "long": Kind(
        pl.Int64, (-(2**53) - 1, 2**53 + 1, 2**62), (0, 2**53, 2**53 + 2, 2**62 + 1, -(2**63)),
        (-(2**53) - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**62, 0, Decimal("9E+15"), Decimal("0.5")),
    ),
    "double": Kind(
        pl.Float64, (-1.5, -0.0, 2.0), (-INF, 0.0, 1.0, INF, -2.0),
        (-INF, -1.5, -0.0, 0.0, 1, 2, 2.0, INF, NAN, Decimal("2.0"), Decimal("-1.5"), Decimal("0.5")),
    ),
    "float": Kind(pl.Float32, (-1.5, 0.0, 2.5), (-INF, 1.0, INF, -2.0), (-1.5, 0.0, 1.0, 2.5, INF, NAN, 3)),
    "decimal(5,2)": Kind(
        pl.Decimal(5, 2), (Decimal("-1.50"), Decimal(0), Decimal("2.25")), (Decimal("-2"), Decimal(1), Decimal(3)),
        (Decimal("-1.5"), Decimal("-1.501"), Decimal(0), Decimal("2.25"), Decimal("2.26"), 1, 3, 2),
    ),
    "decimal(38,18)": Kind(pl.Decimal(38, 18), tuple(FINE[:3]), tuple(FINE), (1, Decimal(1), Decimal("2.0"), 2, 3)),
    "decimal(5,2) by its statistics": Kind(
        pl.Float64, (-1.5, 0.0, 2.25), (-2.0, 1.0, 3.0),
        (Decimal("-1.5"), Decimal("-1.51"), Decimal(0), Decimal("2.25"), Decimal("2.26"), Decimal(1), NAN, INF, -INF),
        decimal=True,
    ),
    "string": Kind(
        pl.String, ("", "ab", "é"), ("a", "aa", "abc", "b", "z", "\uffff", "\U0001f600"),
        ("", "a", "ab", "abc", "é", "\uffff", "\U0001f600"),
    ),
    "date": Kind(pl.Date, tuple(DAYS[1:4]), tuple(DAYS), tuple(DAYS)),
    "timestamp_ntz": Kind(pl.Datetime("us"), tuple(TIMES[1:4]), tuple(TIMES), tuple(TIMES)),
    "timestamp": Kind(
        pl.Datetime("us", "UTC"), *(tuple(time.replace(tzinfo=dt.UTC) for time in part)
                                    for part in (TIMES[1:4], TIMES, TIMES)),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class File:
    """What the statistics of a file say; None is not known."""

    low: Any
    high: Any
    nulls: int | None
    records: int | None

    def may_hold(self, value: Any, kind: Kind) -> bool:
        """Whether the file may hold a value, beside any other that it may hold."""
        if value is None:
            return self.nulls is None or self.nulls > 0
        if self.nulls is not None and self.nulls == self.records:
            return False
        if kind.floating and value != value:
            return True
        above = self.low is None or order_of(self.low) <= order_of(value)
        return above and (self.high is None or order_of(value) <= order_of(self.high))


class Files:
    """Every state of the statistics of a column, as the engine's frame of them and as what they allow."""

    def __init__(self, kind: Kind, known: Sequence[File] | None = None) -> None:
        self.kind = kind
        self.all = list(known) if known is not None else _states(kind)
        nans = [NAN] * kind.floating
        # Constants are among the values: a half may lie between whole numbers.
        self._values = [None, BELOW, ABOVE, *nans, *kind.bounds, *kind.values, *kind.constants]
        self._allowed = np.array([[file.may_hold(value, kind) for value in self._values] for file in self.all])
        columns: dict[str, tuple[list[Any], Any]] = {
            "numRecords": ([file.records for file in self.all], pl.Int64),
            "nullCount.c": ([file.nulls for file in self.all], pl.Int64),
            "min.c": ([file.low for file in self.all], kind.dtype),
            "max.c": ([file.high for file in self.all], kind.dtype),
        }
        self.frame = pl.DataFrame({name: pl.Series(values, dtype=dtype) for name, (values, dtype) in columns.items()})
        self.with_values = self.that_may_match(IsNotNull(C))
        self.every = [True] * len(self.all)

    def that_may_match(self, expr: Expr) -> list[bool]:
        matches = np.array([evaluate(expr, {"c": value}) is True for value in self._values])
        return list((self._allowed & matches).any(axis=1))

    def check(self, expr: Expr, meant: list[bool], frame: pl.DataFrame | None = None) -> None:
        decimals = [C.path] if self.kind.decimal else []
        kept = skipping_mask(expr, self.frame if frame is None else frame, decimals=decimals).to_list()
        wrong = [(file, keep) for file, keep, right in zip(self.all, kept, meant, strict=True) if keep != right]
        assert wrong == [], expr


def _states(kind: Kind) -> list[File]:
    bounds = [
        (low, high)
        for low, high in itertools.product((None, *kind.bounds), repeat=2)
        if low is None or high is None or order_of(low) <= order_of(high)
    ]
    return [
        File(low, high, nulls, records)
        for (low, high), nulls, records in itertools.product(bounds, (0, 1, 2, None), (2, None))
        if nulls != 2 or low is high is None
    ]


def typed(value: Any, name: str) -> Literal:
    if value is None:
        return Literal(None)
    kinds = {int: "long", float: "double", Decimal: "decimal(38,18)"}
    return Literal(value, kinds.get(type(value), name))


def comparisons(name: str) -> list[Compare]:
    literals = [typed(value, name) for value in (*KINDS[name].constants, None)]
    straight = [Compare(op, C, literal) for op in OPERATORS for literal in literals]
    return straight + [Compare(expr.op, expr.right, expr.left) for expr in straight]


def memberships(name: str) -> list[In]:
    floating = KINDS[name].floating  # whole numbers alone are no list that Spark would ask a float column for
    constants = [float(value) if floating and type(value) is int else value for value in KINDS[name].constants]
    pairs = [(first, second) for first, second in zip(constants, constants[2:], strict=False)]
    return [In(C, values) for values in [*pairs, *((value,) for value in constants), (constants[0], None), (None,), ()]]


@pytest.mark.parametrize("name", KINDS)
def test_a_comparison_keeps_the_files_that_may_hold_a_match_and_no_other(name):
    files = Files(KINDS[name])
    for expr in comparisons(name):
        constant = next(side for side in (expr.left, expr.right) if isinstance(side, Literal)).value
        for asked in (expr, Not(expr)):
            meant = files.that_may_match(asked)
            if files.kind.floating and constant != constant and expr.op != "<=>":
                meant = files.with_values  # whether a file holds NaN is not known
            elif expr.op == "<=>" and asked is not expr and constant is not None:
                meant = files.every  # not looked into: null-safe equality is rarely negated
            files.check(asked, meant)


@pytest.mark.parametrize("name", KINDS)
def test_membership_keeps_the_files_that_may_hold_one_of_the_values(name):
    files = Files(KINDS[name])
    for expr in memberships(name):
        nan = any(value is not None and value != value for value in expr.values)
        files.check(expr, files.with_values if nan else files.that_may_match(expr))
        if expr.values == (None,):
            files.check(Not(expr), [False] * len(files.all))  # a miss is unknown
        else:
            files.check(Not(expr), files.with_values if expr.values else files.every)


@pytest.mark.parametrize("name", KINDS)
def test_null_tests_go_by_the_counts(name):
    files = Files(KINDS[name])
    for expr in (IsNull(C), IsNotNull(C), Not(IsNull(C)), Not(IsNotNull(C))):
        files.check(expr, files.that_may_match(expr))


@pytest.mark.parametrize("name", KINDS)
def test_statistics_that_a_table_does_not_keep_rule_nothing_out(name):
    files = Files(KINDS[name])
    conditions = [expr for expr in (*comparisons(name)[::3], *memberships(name)) if _asks_for_values(expr)]
    for column in ("min.c", "max.c"):
        frame = files.frame.drop(column)
        for expr in conditions:
            files.check(expr, files.with_values, frame)
            undecided = isinstance(expr, Compare) and expr.op == "<=>"
            files.check(Not(expr), files.every if undecided else files.with_values, frame)
    uncounted = Files(KINDS[name], [File(file.low, file.high, file.nulls, None) for file in files.all])
    for expr in (IsNull(C), IsNotNull(C)):
        files.check(expr, files.every, files.frame.drop("nullCount.c"))
        files.check(expr, uncounted.that_may_match(expr), files.frame.drop("numRecords"))


def _asks_for_values(expr: Expr) -> bool:
    if isinstance(expr, In):
        return any(value is not None for value in expr.values)
    assert isinstance(expr, Compare)
    return not any(isinstance(side, Literal) and side.value is None for side in (expr.left, expr.right))


@pytest.mark.parametrize("name", KINDS)
def test_partition_values_are_decided_exactly(name):
    kind = KINDS[name]
    values = [None, *dict.fromkeys((*kind.bounds, *kind.values))]
    if kind.floating:
        values.append(NAN)
    frame = pl.DataFrame({"C": pl.Series(values, dtype=kind.dtype)})  # names ignore case
    for expr in (*comparisons(name), *memberships(name), IsNull(C), IsNotNull(C)):
        for asked in (expr, Not(expr)):
            exact = [evaluate(asked, {"c": value}) for value in values]
            assert partition_mask(asked, frame).to_list() == exact, asked


PREFIXES = ["".join(letters) for length in range(4) for letters in itertools.product("ab", repeat=length)]


def test_a_prefix_keeps_the_files_in_which_a_string_may_begin_so():
    files = Files(Kind(pl.String, tuple(PREFIXES), (), ()))
    for prefix in [text for text in PREFIXES if len(text) < 3]:
        expr = TextTest("starts", C, prefix)
        files.check(expr, files.that_may_match(expr))
        files.check(Not(expr), files.with_values)
    for column in ("min.c", "max.c"):
        files.check(TextTest("starts", C, "zz"), files.with_values, files.frame.drop(column))
    values = pl.DataFrame({"c": ["ab", "b", None]})
    assert partition_mask(TextTest("starts", C, "a"), values).to_list() == [True, False, None]


@pytest.mark.parametrize("kind", ["ends", "contains"])
def test_an_end_or_a_middle_of_a_string_rules_no_file_out(kind):
    files = Files(Kind(pl.String, tuple(PREFIXES), (), ()))
    for part in ("a", "b", "zz"):
        files.check(TextTest(kind, C, part), files.every)
        files.check(Not(TextTest(kind, C, part)), files.every)


def test_a_prefix_of_what_is_no_string_rules_nothing_out():
    files = Files(KINDS["integer"])
    files.check(TextTest("starts", C, "1"), files.with_values)


# Two files that hold the value 1 each: a condition that all rows of them meet, one that none meets, and so on.
ONE = Files(KINDS["integer"], [File(1, 1, 0, 2)] * 2).frame
MET, MISSED = Compare("=", C, Literal(1, "integer")), Compare("=", C, Literal(2, "integer"))
EITHER, NEITHER = Unknown("f(c)", frozenset({("c",)})), Literal(None)
OUTCOMES = {MET: {True}, MISSED: {False}, EITHER: {True, False}, NEITHER: set()}
"""What rows may make of a condition; null is left out, since it keeps no row, negated or not."""


def test_parts_of_a_condition_go_together_as_in_sql():
    for left, right in itertools.product(OUTCOMES, repeat=2):
        may = OUTCOMES[left], OUTCOMES[right]
        for both, whole in ((True, And(left, right)), (False, Or(left, right))):
            # "and" is true when both are, false when one is; "or" the other way round
            needs_both, needs_one = both in may[0] and both in may[1], (not both) in may[0] or (not both) in may[1]
            kept = {both: needs_both, not both: needs_one}
            assert skipping_mask(whole, ONE).to_list() == [kept[True]] * 2, whole
            assert skipping_mask(Not(whole), ONE).to_list() == [kept[False]] * 2, whole
            assert skipping_mask(Not(Not(whole)), ONE).to_list() == [kept[True]] * 2, whole


def test_constants_are_decided_and_what_is_no_condition_over_a_column_is_not():
    for value, may in ((True, {True}), (False, {False}), (None, set()), ("x", {True, False}), (1, {True, False})):
        expr = Literal(value)
        assert skipping_mask(expr, ONE).to_list() == [True in may] * 2
        assert skipping_mask(Not(expr), ONE).to_list() == [False in may] * 2
    other = Column(("d",))
    undecided = [
        Compare("<", C, other), Compare("=", Literal(1), Literal(2)), IsNull(MET), IsNotNull(MET), In(MET, (True,)),
        TextTest("starts", Literal("x"), "y"), Compare("=", other, Literal(1)), IsNull(other), In(other, (1,)),
        TextTest("starts", other, "x"), Column(("c",)), Compare("=", C, Literal(True)), Compare("=", C, Literal(b"1")),
        In(C, (2, True)), In(C, (2, b"1")), TextTest("ends", C, "x"), TextTest("contains", C, "x"),
    ]  # fmt: skip
    for expr in undecided:
        assert skipping_mask(expr, ONE).to_list() == [True, True], expr
        assert skipping_mask(Not(expr), ONE).to_list() == [True, True], expr
    fields = ONE.rename({name: f"{name}.f" for name in ONE.columns if name != "numRecords"})
    assert skipping_mask(Compare("=", Column(("c", "f")), Literal(2)), fields).to_list() == [False, False]


@pytest.mark.parametrize(("name", "kind", "searched"), [("integer", int, True), ("decimal(38,18)", Decimal, False)])
def test_a_long_list_is_searched_or_is_the_range_from_its_least_to_its_greatest(name, kind, searched):
    frame = Files(KINDS[name], [File(kind(low), kind(low), 0, 2) for low in (-1, 0, 501, 1000, 1001)]).frame
    spread = [kind(value) for value in (*range(0, 80, 2), *range(940, 1001, 2))]
    for values in (spread[:32] + spread[-32:], spread[:32] + spread[-33:]):
        between = len(values) == 65 and not searched
        kept = skipping_mask(In(C, (*values[::-1], None)), frame).to_list()
        assert kept == [False, True, between, True, False]
        assert skipping_mask(Not(In(C, tuple(values))), frame).all()


def test_a_decimal_counts_by_its_digits_that_are_not_padding():
    bounds = Kind(pl.Float64, (), (), ())  # as those of decimal columns are read from statistics
    frame = Files(bounds, [File(5.0, 5.0, 0, 2)]).frame
    for text, decided in [
        ("123456789012345", True), ("1234567890123456", False), ("0.123456789012345", True),
        ("1234567890123450000", True), ("-0.000123456789012345000", True), ("0.1234567890123456", False),
        ("10.0000000000000001", False), ("NaN", False), ("Infinity", False),
    ]:  # fmt: skip
        for expr in (Compare("=", C, Literal(Decimal(text), "decimal(38,18)")), In(C, (Decimal(text),))):
            assert skipping_mask(expr, frame).to_list() == [not decided], expr


def test_a_whole_decimal_is_compared_with_whole_numbers_digit_by_digit():
    files = [File(10**18 + 1, 10**18 + 1, 0, 2), File(2 * 10**18, 2 * 10**18, 0, 2)]
    frame = Files(KINDS["long"], files).frame
    for value, kept in (
        (Decimal("1000000000000000000"), [False, False]),
        (Decimal("1000000000000000000.0"), [False, False]),
        (Decimal("2E+18"), [False, True]),
    ):
        assert skipping_mask(Compare("=", C, Literal(value)), frame).to_list() == kept


def test_a_condition_on_partition_values_is_decided_part_by_part():
    frame = pl.DataFrame({"p": [1, 2, None], "q": ["a", None, "b"], "b": [True, False, None]})
    p, q, b = (Column((name,)) for name in "pqb")
    rows = frame.to_dicts()
    leaves = [
        Compare("=", p, Literal(1)),
        Compare("=", q, Literal("a")),
        b,
        Literal(True),
        Literal(False),
        Literal(None),
    ]
    nulls = [Compare(op, Literal(None), Literal(None)) for op in OPERATORS]
    for left, right in itertools.product(leaves, repeat=2):
        for expr in (
            And(left, right),
            Or(left, right),
            Not(And(left, right)),
            IsNull(left),
            IsNotNull(Or(left, right)),
        ):
            assert partition_mask(expr, frame).to_list() == [evaluate(expr, row) for row in rows], expr
    for expr in nulls:
        assert partition_mask(expr, frame).to_list() == [True if expr.op == "<=>" else None] * 3
    assert partition_mask(Compare("<", p, Column(("P",))), frame).to_list() == [False, False, None]
    for unknown in (EITHER, TextTest("ends", q, "a"), Column(("p", "f")), Column(("nope",)), IsNull(Column(("nope",)))):
        with pytest.raises(NotEvaluable):
            partition_mask(unknown, frame)
    with pytest.raises(NotEvaluable, match=r"\(p = 'x'\) cannot be compared") as caught:
        partition_mask(Compare("=", p, Literal("x")), frame)
    assert caught.value.code == "DELTA_NOT_EVALUABLE"
    for no_condition in (p, q, Literal(1)):
        with pytest.raises(NotEvaluable, match="cannot be compared"):
            partition_mask(no_condition, frame)


def is_shown(expr) -> bool:
    try:
        return bool(str(expr))
    except RecursionError:
        return False


def test_a_condition_that_is_too_deep_to_be_shown_is_still_refused_with_the_reason():
    never = Compare("=", Column(("p",)), Literal("x"))
    conditions = (reduce(And, [never] * depth) for depth in range(50, 5_000, 50))
    deep = next(condition for condition in conditions if not is_shown(condition))  # depends on the version of Python
    with pytest.raises(NotEvaluable, match=r"A deep condition cannot be compared|The condition is nested too deeply"):
        partition_mask(deep, pl.DataFrame({"p": [1]}))


def test_constants_at_the_edge_of_64_bits_are_compared_exactly():
    values = [None, -(2**63), -(2**63) + 1, -1, 0, 1, 2**62, 2**63 - 2, 2**63 - 1]
    frame = pl.DataFrame({"c": pl.Series(values, dtype=pl.Int64)})
    constants = [2**64, 2**63, 2**63 - 1, 2**62, 1, -1, -(2**63), -(2**63) - 1]
    for pair in itertools.product(constants, repeat=2):
        expr = In(C, pair)
        assert partition_mask(expr, frame).to_list() == [evaluate(expr, {"c": value}) for value in values], expr
