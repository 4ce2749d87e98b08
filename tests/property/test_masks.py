"""Masks over columns against one row at a time: a naive evaluator with SQL's three values."""

from __future__ import annotations

import datetime as dt
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
    StartsWith,
    partition_mask,
    skipping_mask,
)
from pydelta.protocol.schema import DecimalType, PrimitiveType, StructField, StructType
from pydelta.protocol.stats import json_bound, parse_stats_columns, truncate_max, truncate_min

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
OPERATORS = ("=", "<=>", "<", "<=", ">", ">=")
SCHEMA = StructType(tuple(StructField(name, kind) for name, kind in TYPES.items()))
TEXTS = st.text(alphabet="abzÿ\U0010ffff\ud7ff\ue000 ", max_size=40)
VALUES = {
    "i": st.integers(-5, 5),
    "x": st.sampled_from([float("nan"), float("inf"), -1.5, -0.0, 0.0, 2.0, 1e300]),
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


def leaves() -> st.SearchStrategy[Expr]:
    def for_column(name: str) -> st.SearchStrategy[Expr]:
        column = Column((name,))
        literal = (st.none() | VALUES[name]).map(
            lambda value: Literal(value, None if value is None else str(TYPES[name]))
        )
        compare = st.builds(Compare, st.sampled_from(OPERATORS), st.just(column), literal)
        flipped = st.builds(lambda c: Compare(c.op, c.right, c.left), compare)
        within = st.lists(st.none() | VALUES[name], min_size=1, max_size=4).map(lambda v: In(column, tuple(v)))
        options = [compare, flipped, within, st.just(IsNull(column)), st.just(IsNotNull(column))]
        if name == "s":
            options.append(TEXTS.map(lambda prefix: StartsWith(column, prefix)))
        return st.one_of(options)

    return st.one_of([for_column(name) for name in TYPES])


EXPRS = st.recursive(
    leaves(),
    lambda inner: st.one_of(st.builds(And, inner, inner), st.builds(Or, inner, inner), st.builds(Not, inner)),
    max_leaves=5,
)


def _order(value):
    """Spark's order: NaN equals itself and is greater than any number; strings by their UTF-8 bytes."""
    if isinstance(value, float):
        return (1, 0.0) if value != value else (0, value + 0.0)
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def evaluate(expr: Expr, row: dict):
    if isinstance(expr, Literal):
        return expr.value
    if isinstance(expr, Column):
        return row[expr.path[0]]
    if isinstance(expr, Not):
        value = evaluate(expr.child, row)
        return None if value is None else not value
    if isinstance(expr, (And, Or)):
        left, right = evaluate(expr.left, row), evaluate(expr.right, row)
        decisive = isinstance(expr, Or)
        if decisive in (left, right):
            return decisive
        return None if None in (left, right) else not decisive
    if isinstance(expr, IsNull):
        return evaluate(expr.child, row) is None
    if isinstance(expr, IsNotNull):
        return evaluate(expr.child, row) is not None
    if isinstance(expr, StartsWith):
        value = evaluate(expr.child, row)
        return None if value is None else value.startswith(expr.prefix)
    if isinstance(expr, In):
        value = evaluate(expr.child, row)
        if value is None:
            return None
        if any(item is not None and _order(item) == _order(value) for item in expr.values):
            return True
        return None if None in expr.values else False
    assert isinstance(expr, Compare)
    left, right = evaluate(expr.left, row), evaluate(expr.right, row)
    if expr.op == "<=>":
        return (left is None) == (right is None) and (left is None or _order(left) == _order(right))
    if left is None or right is None:
        return None
    left, right = _order(left), _order(right)
    results = {"=": left == right, "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
    return results[expr.op]


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
        values = sorted((v for v in values if v == v and v not in (float("inf"), float("-inf"))), key=_order)
        if name == "x" and any(row["x"] in (float("inf"), float("-inf")) for row in rows if row["x"] is not None):
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
    kept = skipping_mask(expr, stats).to_list()
    for keep, rows in zip(kept, files, strict=True):
        if any(evaluate(expr, row) is True for row in rows):
            assert keep, statistics_of(rows)


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
                kept = skipping_mask(asked, stats).to_list()
                assert [row for keep, row in zip(kept, rows, strict=True) if not keep and evaluate(asked, row)] == []


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60), st.integers(1, 32))
def test_a_cut_maximum_is_no_less_than_the_string_and_all_it_begins(text, length):
    bound = truncate_max(text, length)
    assert truncate_min(text, length).encode("utf-8", "surrogatepass") <= text.encode("utf-8", "surrogatepass")
    if bound is not None:
        assert bound.encode("utf-8", "surrogatepass") >= text.encode("utf-8", "surrogatepass")
        assert len(bound) <= max(length, min(len(text), length))
