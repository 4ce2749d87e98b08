"""The calls of a remote DeltaTable, written and read again."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from pydelta.api.python.wire import (
    Call,
    Expression,
    Schema,
    WireIdentity,
    WirePlan,
    packed,
    result_of,
    result_text,
    rewritten,
    unpacked,
)
from pydelta.commands.change.delete import DeleteResult
from pydelta.commands.change.update import UpdateResult
from pydelta.commands.optimize.reorg import PurgeResult
from pydelta.log import CheckpointResult, CleanupResult

VALUES = [
    None, True, 0, -1, 1.5, "é `x`", WirePlan(b"\x00\xff"), Expression(b""), Schema('"long"'), WireIdentity(5, -2),
    dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC), dt.datetime(1582, 10, 4), Decimal("1.20"),
    ["a", [WirePlan(b"1")]], {"identity": Expression(b"1"), "plan": "text", 3: None},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_every_kind_of_argument_comes_back_as_it_was(value):
    calls = [Call("forName", ("t",)), Call("m", (value,), {"named": value})]
    assert unpacked(packed(calls)) == [Call("forName", ["t"]), Call("m", [value], {"named": value})]


def test_what_cannot_be_sent_is_named():
    with pytest.raises(TypeError, match=r"object .* of type object cannot be sent"):
        packed([Call("m", (object(),))])


def test_messages_are_changed_wherever_they_are():
    calls = [Call("m", (WirePlan(b"p"), [Expression(b"e")]), {"set": {"a": Expression(b"e")}})]
    found = unpacked(rewritten(packed(calls), lambda data: data + b"!", lambda data: data + b"?"))
    assert found == [Call("m", [WirePlan(b"p!"), [Expression(b"e?")]], {"set": {"a": Expression(b"e?")}})]


def test_what_is_not_well_formed_is_a_value_error():
    for data in (b"", b"[1]", b'[["m", [{"nope": 1}], []]]'):
        with pytest.raises(ValueError, match=r"."):
            unpacked(data)


@pytest.mark.parametrize(
    "result",
    [
        DeleteResult(
            condition="(id = 1)",
            num_files_total=3,
            num_touched_files=1,
            num_rewritten_files=1,
            num_deleted_rows=None,
            num_copied_rows=2,
            scan_time_ms=1,
            rewrite_time_ms=2,
            execution_time_ms=3,
            version=4,
        ),
        UpdateResult(
            condition=None,
            num_touched_files=0,
            num_updated_rows=0,
            num_copied_rows=0,
            execution_time_ms=9,
            version=None,
        ),
        PurgeResult(version=7, num_deletion_vectors_removed=2),
        CheckpointResult(
            version=3, name="c", num_actions=4, num_adds=1, num_removes=1, size_bytes=9, sidecars=("a", "b")
        ),
        CleanupResult(deleted=2, cutoff_ms=5, oldest_version=1, failed=(("x.json", "denied"),)),
    ],
    ids=lambda result: type(result).__name__,
)
def test_what_a_command_counted_comes_back_as_it_was(result):
    assert result_of(result_text(result)) == result


@pytest.mark.parametrize(
    "text", ["", "[]", '["MergeResult", {}]', '["PurgeResult", {"version": 1, "new": 2}]', '["PurgeResult", {}]', "{"]
)
def test_counts_of_another_version_are_no_counts(text):
    with pytest.raises(ValueError, match="not the counts of a command"):
        result_of(text)
