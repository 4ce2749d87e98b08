"""What pruning understands of an expression with types: the rest is unknown, with the columns that it reads."""

from __future__ import annotations

import pytest

from pydelta.predicate.expressions import (
    BOOLEAN,
    TRUE,
    And,
    Arithmetic,
    Cast,
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
)
from pydelta.predicate.projection import is_beyond, prunable
from pydelta.protocol.types import PrimitiveType, parse_type

LONG, DATE, TEXT = PrimitiveType("long"), PrimitiveType("date"), PrimitiveType("string")
NTZ, TIME, INT = PrimitiveType("timestamp_ntz"), PrimitiveType("timestamp"), PrimitiveType("integer")
A, B, S = Column(("a",), LONG), Column(("b",), BOOLEAN), Column(("s",), TEXT)
PLAIN_A, ONE = Column(("a",)), Literal(1, LONG)
COLLATED = Column(("s",), parse_type("string collate unicode_ci"))
SUM = Arithmetic("+", A, ONE, LONG)
FAR = 10**6
UNKNOWN_A = Unknown("text", frozenset({("a",)}))

CASES = [
    (B, Compare("=", Column(("b",)), TRUE)),
    (A, UNKNOWN_A),
    (Literal(True, BOOLEAN), Literal(True, BOOLEAN)),
    (Literal(None, BOOLEAN), Literal(None)),
    (Literal(1, LONG), Unknown("text", frozenset())),
    (Compare("<", A, ONE), Compare("<", PLAIN_A, ONE)),
    (Compare("<", SUM, ONE), UNKNOWN_A),
    (Compare("<", ONE, SUM), UNKNOWN_A),
    (Compare("=", Column(("c", "d"), LONG), SUM), Unknown("text", frozenset({("c",), ("a",)}))),
    (Compare("=", A, Literal(None, LONG)), Compare("=", PLAIN_A, Literal(None))),
    (Compare("=", Column(("d",), DATE), Literal(FAR, DATE)), Unknown("text", frozenset({("d",)}))),
    (Compare("=", COLLATED, Literal("x", TEXT)), Unknown("text", frozenset({("s",)}))),
    (Compare("=", Column(("n",), None), ONE), Compare("=", Column(("n",)), ONE)),
    (Compare("=", Cast(Column(("a",), INT), LONG), ONE), Compare("=", PLAIN_A, ONE)),
    (Compare("=", Cast(A, INT), ONE), UNKNOWN_A),
    (Compare("=", Cast(SUM, LONG), ONE), UNKNOWN_A),
    (In(A, (1, None, 3)), In(PLAIN_A, (1, None, 3))),
    (In(SUM, (1,)), UNKNOWN_A),
    (In(Column(("d",), DATE), (FAR,)), Unknown("text", frozenset({("d",)}))),
    (In(Column(("d",), DATE), (None, FAR)), Unknown("text", frozenset({("d",)}))),
    (In(Column(("d",), DATE), ()), In(Column(("d",)), ())),
    (IsNull(A), IsNull(PLAIN_A)),
    (IsNotNull(A), IsNotNull(PLAIN_A)),
    (IsNull(ONE), Unknown("text", frozenset())),
    (TextTest("starts", S, "x"), TextTest("starts", Column(("s",)), "x")),
    (TextTest("ends", S, "x"), Unknown("text", frozenset({("s",)}))),
    (And(B, A), And(Compare("=", Column(("b",)), TRUE), UNKNOWN_A)),
    (Or(A, B), Or(UNKNOWN_A, Compare("=", Column(("b",)), TRUE))),
    (Not(Not(B)), Not(Not(Compare("=", Column(("b",)), TRUE)))),
    (SUM, UNKNOWN_A),
]


@pytest.mark.parametrize(("given", "expected"), CASES, ids=[str(place) for place in range(len(CASES))])
def test_what_pruning_understands_stays_and_the_rest_is_unknown(given, expected):
    assert prunable(given, lambda: "text") == expected


def test_a_text_is_asked_for_where_it_is_needed_alone():
    def never():
        raise AssertionError

    assert prunable(Compare("<", A, ONE), never) == Compare("<", PLAIN_A, ONE)


def test_a_day_or_time_that_is_a_number_is_beyond_pythons_calendar():
    assert [is_beyond(FAR, kind) for kind in (DATE, TIME, NTZ, LONG, None)] == [True, True, True, False, False]
    assert not is_beyond("2024-01-05", DATE)
