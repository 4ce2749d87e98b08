"""Masks over columns against one row at a time: a naive evaluator with SQL's three values."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    partition_mask,
    skipping_mask,
)
from pydelta.protocol.schema import DecimalType, PrimitiveType, StructField, StructType
from pydelta.protocol.stats import json_bound, parse_stats_columns, truncate_max, truncate_min
from tests.unit.predicate.row_by_row import evaluate, order_of

TYPES = {
    "i": PrimitiveType("integer"),
    "x": PrimitiveType("double"),
    "s": PrimitiveType("string"),
    "d": PrimitiveType("date"),
    "t": PrimitiveType("timestamp"),
    "n": DecimalType(20, 2),
    "f": PrimitiveType("float"),
    "m": DecimalType(38, 18),
}
DECIMALS = [(name,) for name, kind in TYPES.items() if isinstance(kind, DecimalType)]
OPERATORS = ("=", "<=>", "<", "<=", ">", ">=")
SCHEMA = StructType(tuple(StructField(name, kind) for name, kind in TYPES.items()))
TEXTS = st.text(alphabet="abzÿ\U0010ffff\ud7ff\ue000 ", max_size=40)
VALUES = {
    "i": st.integers(-5, 5),
    "x": st.sampled_from([float("nan"), float("inf"), float("-inf"), -1.5, -0.0, 0.0, 2.0, 1e300]),
    "s": TEXTS,
    "d": st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 6)),
    "t": st.datetimes(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 1)).map(
        lambda v: v.replace(tzinfo=dt.UTC)
    ),
    "n": st.decimals(Decimal("-999999999999999999.99"), Decimal("999999999999999999.99"), places=2),
    "f": st.sampled_from([float("nan"), 0.10000000149011612, 1.5, -0.0, 3.4028234663852886e38]),
    "m": st.sampled_from(  # neighbours that are one number as a float
        [Decimal(text) for text in ("1", "0.999999999999999999", "1.000000000000000001", "0", "0.000000000000000001")]
    ),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), min_size=1, max_size=6
)


NUMBERS = st.one_of(
    st.sampled_from([-1.5, -0.5, 2.5, 2.0, float("nan"), float("inf"), float("-inf")]).map(
        lambda v: Literal(v, "double")
    ),
    st.sampled_from([Decimal("-1.5"), Decimal("2.0"), Decimal("0.1")]).map(lambda v: Literal(v, "decimal(2,1)")),
    st.integers(-2, 3).map(lambda v: Literal(v, "integer")),
)


def leaves() -> st.SearchStrategy[Expr]:
    def for_column(name: str) -> st.SearchStrategy[Expr]:
        column = Column((name,))
        literal = st.one_of(
            st.just(Literal(None)),
            VALUES[name].map(lambda value: Literal(value, str(TYPES[name]))),
            *([NUMBERS] if name in "ix" else []),  # of another type than the column
        )
        compare = st.builds(Compare, st.sampled_from(OPERATORS), st.just(column), literal)
        flipped = st.builds(lambda c: Compare(c.op, c.right, c.left), compare)
        within = st.lists(st.none() | VALUES[name], min_size=1, max_size=4).map(lambda v: In(column, tuple(v)))
        options = [compare, flipped, within, st.just(IsNull(column)), st.just(IsNotNull(column))]
        if name == "s":
            options.append(TEXTS.map(lambda prefix: TextTest("starts", column, prefix)))
        return st.one_of(options)

    return st.one_of([for_column(name) for name in TYPES])


EXPRS = st.recursive(
    leaves(),
    lambda inner: st.one_of(st.builds(And, inner, inner), st.builds(Or, inner, inner), st.builds(Not, inner)),
    max_leaves=5,
)


def frame_of(rows: list[dict]) -> pl.DataFrame:
    dtypes = {
        "i": pl.Int32, "x": pl.Float64, "s": pl.String, "d": pl.Date, "t": pl.Datetime("us", "UTC"),
        "n": pl.Decimal(20, 2), "f": pl.Float32, "m": pl.Decimal(38, 18),
    }  # fmt: skip
    return pl.DataFrame({name: pl.Series([row[name] for row in rows], dtype=dtypes[name]) for name in TYPES})


def statistics_of(rows: list[dict]) -> str:
    """As a writer keeps them: NaN in no bound, strings cut, times cut to milliseconds."""
    lows, highs, nulls = {}, {}, {}
    for name in TYPES:
        values = [row[name] for row in rows if row[name] is not None]
        nulls[name] = len(rows) - len(values)
        values = sorted((v for v in values if v == v and v not in (float("inf"), float("-inf"))), key=order_of)
        if name in "xf" and any(row[name] in (float("inf"), float("-inf")) for row in rows if row[name] is not None):
            continue  # JSON has no infinity
        if not values:
            continue
        low, high = values[0], values[-1]
        if name == "s":
            low, high = truncate_min(low), truncate_max(high)
        lows[name] = json_bound(low)
        if high is not None:
            highs[name] = json_bound(high)
    document = {"numRecords": len(rows), "minValues": lows, "maxValues": highs, "nullCount": nulls}
    return msgspec.json.Encoder(decimal_format="number").encode(document).decode()


@settings(max_examples=400, deadline=None)
@given(EXPRS, ROWS)
def test_a_partition_mask_is_what_sql_says_row_by_row(expr, rows):
    assert partition_mask(expr, frame_of(rows)).to_list() == [evaluate(expr, row) for row in rows]


@settings(max_examples=600, deadline=None)
@given(EXPRS, st.lists(ROWS, min_size=1, max_size=3))
def test_a_file_that_holds_a_matching_row_is_never_skipped(expr, files):
    texts = pl.Series([statistics_of(rows) for rows in files], dtype=pl.String)
    stats = parse_stats_columns(texts, [((name,), kind) for name, kind in TYPES.items()])
    kept = skipping_mask(expr, stats, decimals=DECIMALS).to_list()
    for keep, rows in zip(kept, files, strict=True):
        if any(evaluate(expr, row) is True for row in rows):
            assert keep, statistics_of(rows)


SMALL = {
    "i": (None, -3, 0, 2),
    "x": (None, float("nan"), float("-inf"), -1.5, -0.0, 0.0, 2.0, float("inf")),
    "f": (None, float("nan"), -0.0, 0.10000000149011612, 1.5, float("inf")),
    "s": (None, "", "a", "ab", "b" * 40),
    "d": (None, dt.date(2024, 1, 1), dt.date(2024, 1, 2), dt.date(2024, 1, 4)),
    "t": (None, *(dt.datetime(2024, 1, 1, 0, 0, 0, micros, dt.UTC) for micros in (0, 999, 1000, 1001))),
    "n": (None, Decimal("-999999999999999999.99"), Decimal("0.10"), Decimal("0.11")),
    "m": (None, Decimal("0.999999999999999999"), Decimal(1), Decimal("1.000000000000000001")),
}
OTHERS = {
    "i": (-2.5, 0.5, 2.5, -0.0, float("nan"), float("inf"), Decimal("0.5"), Decimal("2.0")),
    "x": (1, 2, Decimal("-1.5"), Decimal("0.5"), 1.0),
    "f": (0.1, 1.0, 1),
    "s": ("aa", "b", "b" * 41),
}


@pytest.mark.parametrize("name", TYPES)
def test_of_every_file_of_up_to_three_rows_each_that_matches_is_kept(name):
    """All of them: two values and NaN, a value and null, zeros of both signs."""
    column, kind = Column((name,)), str(TYPES[name])
    files = [rows for count in (1, 2, 3) for rows in itertools.combinations_with_replacement(SMALL[name], count)]
    texts = [statistics_of([dict.fromkeys(TYPES) | {name: value} for value in rows]) for rows in files]
    stats = parse_stats_columns(pl.Series(texts, dtype=pl.String), [((name,), TYPES[name])])
    constants = [*SMALL[name], *OTHERS.get(name, ())]
    types = {int: "integer", float: "double", Decimal: "decimal(38,18)"}
    literals = [Literal(value, kind if value in SMALL[name] else types.get(type(value), kind)) for value in constants]
    found: list[Expr] = [
        Compare(op, *sides) for op in OPERATORS for one in literals for sides in ((column, one), (one, column))
    ]
    found += [In(column, pair) for pair in itertools.pairwise(constants)]
    found += [TextTest("starts", column, value) for value in constants if isinstance(value, str)]
    for expr in found:
        for asked in (expr, Not(expr)):
            matches = {value: evaluate(asked, {name: value}) is True for value in SMALL[name]}
            kept = skipping_mask(asked, stats, decimals=DECIMALS).to_list()
            lost = [rows for rows, keep in zip(files, kept, strict=True) if not keep and any(map(matches.get, rows))]
            assert lost == [], asked


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_the_bounds_of_one_row_never_skip_it_when_it_matches(name, data):
    """Once as a partition's value, which is both bounds exactly, once as statistics, which are text and looser."""
    column, kind = Column((name,)), TYPES[name]
    values = data.draw(st.lists(VALUES[name], min_size=2, max_size=6))
    constants = data.draw(st.lists(VALUES[name], min_size=1, max_size=3))
    rows = [dict.fromkeys(TYPES) | {name: value} for value in values]
    typed, count = frame_of(rows)[name], pl.repeat(1, len(rows), dtype=pl.Int64, eager=True)
    exact = pl.DataFrame(
        {"numRecords": count, f"min.{name}": typed, f"max.{name}": typed, f"nullCount.{name}": count - 1}
    )
    texts = pl.Series([statistics_of([row]) for row in rows], dtype=pl.String)
    found: list[Expr] = [Compare(op, column, Literal(constants[0], str(kind))) for op in OPERATORS]
    for expr in [*found, In(column, tuple(constants))]:
        for asked in (expr, Not(expr)):
            for stats in (exact, parse_stats_columns(texts, [((name,), kind)])):
                kept = skipping_mask(asked, stats, decimals=DECIMALS).to_list()
                assert [row for keep, row in zip(kept, rows, strict=True) if not keep and evaluate(asked, row)] == []


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60), st.integers(1, 32))
def test_a_cut_maximum_is_no_less_than_the_string_and_all_it_begins(text, length):
    bound = truncate_max(text, length)
    assert truncate_min(text, length).encode("utf-8", "surrogatepass") <= text.encode("utf-8", "surrogatepass")
    if bound is not None:
        assert bound.encode("utf-8", "surrogatepass") >= text.encode("utf-8", "surrogatepass")
        assert len(bound) <= max(length, min(len(text), length))
