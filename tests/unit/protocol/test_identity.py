"""Identity columns: the next value, marks that only move on, and when two definitions differ in nothing else."""

from __future__ import annotations

import pytest

from pydelta.errors import InvalidArgumentError, SchemaError, UnsafeOperationError
from pydelta.protocol.actions import Metadata
from pydelta.protocol.identity import (
    check_identities,
    identities,
    identity_metadata,
    only_marks_moved,
    refuse_explicit,
    with_marks,
    with_marks_of,
)
from pydelta.protocol.types import PrimitiveType, StructField, StructType

LONG = PrimitiveType("long")


def schema(*, start=1, step=1, mark=None, explicit=False, data_type=LONG, **more):
    metadata = {**identity_metadata(start=start, step=step, explicit=explicit), **more}
    if mark is not None:
        metadata["delta.identity.highWaterMark"] = mark
    return StructType((StructField("key", data_type, True, metadata), StructField("v", LONG)))


def definition(of, **more):
    return Metadata(id="t", schema_string=of.to_json(), configuration=more)


@pytest.mark.parametrize(
    ("start", "step", "mark", "following"),
    [
        (1, 1, None, 1),
        (1, 1, 1, 2),
        (1, 1, 41, 42),
        (10, 5, 10, 15),
        (10, 5, 12, 15),
        (10, 5, 3, 10),
        (0, -3, None, 0),
        (0, -3, -6, -9),
        (0, -3, -7, -9),
        (0, -3, 50, 0),
        (-5, 7, 2, 9),
    ],
)
def test_the_next_value_is_the_nearest_of_the_series_beyond_the_mark(start, step, mark, following):
    (found,) = identities(schema(start=start, step=step, mark=mark))
    assert found.next == following


def test_marks_move_in_the_direction_of_the_step_and_never_back():
    up, down = schema(mark=7), schema(step=-1, mark=-7)
    assert identities(with_marks(up, {"key": 9}))[0].mark == 9
    assert identities(with_marks(up, {"key": 3}))[0].mark == 7
    assert identities(with_marks(down, {"key": -9}))[0].mark == -9
    assert identities(with_marks(down, {"key": -3}))[0].mark == -7
    assert with_marks(up, {}) == up
    assert with_marks(up, {"v": 5, "w": 6}) == up
    assert identities(with_marks_of(schema(), up))[0].mark == 7
    assert identities(with_marks_of(schema(mark=9), up))[0].mark == 9
    assert identities(with_marks_of(schema(start=5), up))[0].mark is None


def test_only_marks_moved():
    old = definition(schema(mark=3))
    assert only_marks_moved(old, old)
    assert only_marks_moved(old, definition(schema(mark=4)))
    assert only_marks_moved(definition(schema()), old)
    assert not only_marks_moved(old, definition(schema(mark=4), owner="me"))
    assert not only_marks_moved(old, definition(schema(mark=4, step=2)))
    assert not only_marks_moved(old, definition(StructType(schema(mark=4).fields[:1])))
    plain = StructType((StructField("v", LONG),))
    assert not only_marks_moved(definition(plain), definition(StructType((StructField("w", LONG),))))


@pytest.mark.parametrize(
    ("made", "partitions", "reason"),
    [
        (lambda: schema(data_type=PrimitiveType("integer")), (), "bigint"),
        (lambda: schema(CURRENT_DEFAULT="1"), (), "default"),
        (lambda: schema(**{"delta.generationExpression": "v"}), (), "generation"),
        (schema, ("KEY",), "partitioned"),
        (lambda: schema(**{"delta.identity.step": 0}), (), "step"),
    ],
)
def test_columns_that_cannot_be_identities(made, partitions, reason):
    with pytest.raises(SchemaError, match=reason):
        check_identities(made(), partitions)
    check_identities(schema(), ("v",))


def test_numbers_that_cannot_be():
    for start, step in ((1, 0), (2**63, 1), (1, -(2**63) - 1)):
        with pytest.raises(InvalidArgumentError):
            identity_metadata(start=start, step=step, explicit=False)


def test_values_of_the_rows_own():
    given = StructType((StructField("KEY", LONG),))
    with pytest.raises(UnsafeOperationError, match="GENERATED ALWAYS"):
        refuse_explicit(schema(), given)
    refuse_explicit(schema(explicit=True), given)
    refuse_explicit(schema(), StructType((StructField("v", LONG),)))
