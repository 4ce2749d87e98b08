"""Which casts of a merge key can be looked through: a table of types against what their values are."""

from __future__ import annotations

import itertools
from decimal import Decimal

import pytest

from pydelta.engines.spark.change.merge_keys import keeps_order
from pydelta.engines.spark.scan.filters import literal_of

WHOLE = {"byte": 8, "short": 16, "integer": 32, "long": 64}
DECIMALS = ["decimal(1,0)", "decimal(3,0)", "decimal(3,3)", "decimal(5,0)", "decimal(10,0)", "decimal(10,2)"]
DECIMALS += ["decimal(12,2)", "decimal(12,4)", "decimal(19,0)", "decimal(20,0)", "decimal(38,18)", "decimal(38,0)"]
OTHERS = ["float", "double", "string", "date", "timestamp", "timestamp_ntz", "boolean", "binary", "string collate X"]


def extremes(kind):
    """The values of a type that are hardest to hold; None where the type is no exact number."""
    if kind in WHOLE:
        return [Decimal(-(2 ** (WHOLE[kind] - 1))), Decimal(2 ** (WHOLE[kind] - 1) - 1)]
    if kind.startswith("decimal"):
        precision, scale = map(int, kind[8:-1].split(","))
        return [Decimal((sign, (9,) * precision, -scale)) for sign in (0, 1)]
    return None


def holds(kind, value):
    low, high = sorted(extremes(kind))
    scale = int(kind[8:-1].split(",")[1]) if kind.startswith("decimal") else 0
    return low <= value <= high and value.as_tuple().exponent >= -scale


@pytest.mark.parametrize("source", [*WHOLE, *DECIMALS, *OTHERS])
@pytest.mark.parametrize("target", [*WHOLE, *DECIMALS, *OTHERS])
def test_a_cast_is_looked_through_where_each_value_stays_itself(source, target):
    if source == target:
        assert keeps_order(source, target)
    elif extremes(source) is None or extremes(target) is None or (target in WHOLE and source not in WHOLE):
        assert not keeps_order(source, target)
    else:
        assert keeps_order(source, target) == all(holds(target, value) for value in extremes(source))


def test_the_table_has_both_answers():
    pairs = list(itertools.product([*WHOLE, *DECIMALS], repeat=2))
    wide = {pair for pair in pairs if keeps_order(*pair)}
    assert {("integer", "long"), ("byte", "decimal(3,0)"), ("long", "decimal(20,0)")} < wide
    assert not wide & {("long", "byte"), ("long", "integer"), ("integer", "decimal(5,0)"), ("long", "decimal(38,38)")}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**63 - 1, "timestamp"),
        (-62_135_596_800_000_001, "timestamp_ntz"),
        (2_932_897, "date"),
        (-719_163, "date"),
        ("x", "string collate UNICODE"),
    ],
)
def test_what_python_has_no_value_for_is_no_literal(value, kind):
    assert literal_of(value, kind) is None


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (-62_135_596_800_000_000, "timestamp", "0001-01-01 00:00:00+00:00"),
        (253_402_300_799_999_999, "timestamp_ntz", "9999-12-31 23:59:59.999999"),
        (-719_162, "date", "0001-01-01"),
        (2_932_896, "date", "9999-12-31"),
    ],
)
def test_days_and_microseconds_are_exact_at_the_ends_of_the_calendar(value, kind, shown):
    literal = literal_of(value, kind)
    assert literal is not None
    assert str(literal.value) == shown
