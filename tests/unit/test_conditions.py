"""The table of conditions: what the code raises is in it, and the reference's names are spelt as there."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from pydelta import errors
from pydelta.commands.stream import errors as stream_errors
from pydelta.errors.conditions import CONDITIONS, PHRASES, Condition

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = {
    name: (state, set(parameters))
    for name, state, *parameters in (
        line.split() for line in (Path(__file__).parent / "reference_conditions.txt").read_text().splitlines()
    )
}
"""What the reference publishes: names, SQLSTATEs and names of parameters."""
OURS = [
    "DELTA_ACCESS_DENIED",
    "DELTA_CATALOG_SYNC",
    "DELTA_COMMITTED",
    "DELTA_COMMIT_ERROR",
    "DELTA_COMMIT_STATE_UNKNOWN",
    "DELTA_CONCURRENT_MODIFICATION",
    "DELTA_ENVIRONMENT",
    "DELTA_ERROR",
    "DELTA_INVALID_ARGUMENT",
    "DELTA_INVALID_PROPERTY_VALUE",
    "DELTA_INVENTORY_UNUSABLE",
    "DELTA_LOG_CORRUPTED",
    "DELTA_PARSE_ERROR",
    "DELTA_PATH_NOT_SPECIFIED",
    "DELTA_PROTOCOL_ERROR",
    "DELTA_ROWS_DO_NOT_ADD_UP",
    "DELTA_SCHEMA_ERROR",
    "DELTA_SCHEMA_MISMATCH",
    "DELTA_SQL_ERROR",
    "DELTA_STORAGE_ERROR",
    "DELTA_STORAGE_FULL",
    "DELTA_STORAGE_PERMISSION_DENIED",
    "DELTA_STORAGE_READ_ONLY",
    "DELTA_STREAM_STOPPED",
    "DELTA_UNRESOLVED_COLUMN",
    "DELTA_UNSAFE_OPERATION",
    "DELTA_UNSAFE_STORE",
    "DELTA_UNSUPPORTED_FEATURES",
    "DELTA_VIOLATE_CONSTRAINT",
]


def _strings(node: ast.expr) -> Iterator[str | None]:
    """The texts that an expression may be; None for one that is not written out."""
    if isinstance(node, ast.IfExp):
        yield from _strings(node.body)
        yield from _strings(node.orelse)
    else:
        yield node.value if isinstance(node, ast.Constant) else None


def _raised() -> Iterator[tuple[str, str | None, set[str | None]]]:
    """Every ``Condition.of(…)`` of the code: where, the name, the names of its parameters."""
    for folder in ("pydelta", "catalog_sync", "jobs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "Condition.of":
                    given = {word.arg for word in node.keywords}
                    for name in _strings(node.args[0]):
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", name, given


RAISED = list(_raised())
CLASSES = [
    item
    for module in (errors, stream_errors)
    for item in vars(module).values()
    if isinstance(item, type) and issubclass(item, errors.DeltaError)
]


def test_every_condition_that_the_code_raises_is_in_the_table():
    assert len(RAISED) > 150
    assert [(where, name) for where, name, _ in RAISED if name not in CONDITIONS] == []
    assert [item.__name__ for item in CLASSES if item.code not in CONDITIONS] == []


def test_every_condition_of_the_table_is_raised():
    raised = {name for _, name, _ in RAISED} | {item.code for item in CLASSES}
    assert sorted(CONDITIONS.keys() - raised) == []


def test_names_of_delta_are_spelt_as_the_reference_spells_them():
    named = {name for name in CONDITIONS if name.startswith("DELTA_")}
    assert len(named & REFERENCE.keys()) > 130
    assert sorted(named - REFERENCE.keys()) == sorted(OURS)


def test_sqlstates_are_those_of_the_reference():
    both = CONDITIONS.keys() & REFERENCE.keys()
    assert {name: CONDITIONS[name] for name in both} == {name: REFERENCE[name][0] for name in both}
    assert [name for name, state in CONDITIONS.items() if len(state) != 5] == []


def test_parameters_have_the_names_that_the_reference_gives_them():
    other = [
        (where, name, sorted(given - REFERENCE[name][1] - {None}))
        for where, name, given in RAISED
        if name in REFERENCE and given - REFERENCE[name][1] - {None}
    ]
    assert other == []


def test_an_error_is_called_by_its_class_or_by_what_its_place_says():
    plain = errors.TableNotFoundError("gone", table="/data/t")
    assert (plain.getCondition(), plain.getSqlState()) == ("DELTA_TABLE_NOT_FOUND", "42P01")
    assert plain.getMessageParameters() == {"tableName": "/data/t"}
    condition = Condition.of("DELTA_CONFLICT_SET_COLUMN", columnList=["a", "a.b"])
    error = errors.InvalidArgumentError("a is set twice.", hint="Set it once.", condition=condition)
    assert (error.code, error.getErrorClass(), error.getSqlState()) == (condition.name, condition.name, "42701")
    assert error.getMessageParameters() == {"columnList": "a, a.b"}
    phrase = "There is a conflict from these SET columns"
    assert str(error) == f"[DELTA_CONFLICT_SET_COLUMN] a is set twice ({phrase}).\n  Next: Set it once."
    assert errors.InvalidArgumentError.code == "DELTA_INVALID_ARGUMENT"


def test_a_caller_may_call_it_more_exactly():
    error = errors.VersionNotFoundError("gone")
    assert error.called(Condition.of("DELTA_CANNOT_RESTORE_TABLE_VERSION", version=9)) is error
    assert (error.getCondition(), error.getMessageParameters()) == (
        "DELTA_CANNOT_RESTORE_TABLE_VERSION",
        {"version": "9"},
    )


def test_a_condition_that_is_not_in_the_table_cannot_be_made():
    with pytest.raises(KeyError, match="DELTA_MISSPELT"):
        Condition.of("DELTA_MISSPELT")


def test_a_conflict_tells_what_won():
    error = errors.ConcurrentAppendException("c", winning_version=7, winning_operation="MERGE", table="/data/t")
    assert error.getCondition() == "DELTA_CONCURRENT_APPEND.WITHOUT_HINT"
    assert error.getSqlState() == "2D521"
    assert error.getMessageParameters() == {"operation": "MERGE", "tableName": "/data/t", "version": "7"}


def test_each_phrase_belongs_to_a_condition_and_names_parameters_that_it_has():
    assert sorted(PHRASES.keys() - CONDITIONS.keys()) == []
    for name, phrase in PHRASES.items():
        named = {part for _, part, _, _ in string.Formatter().parse(phrase) if part}
        assert named <= REFERENCE.get(name, ("", set()))[1], name


@pytest.mark.parametrize("name", sorted(PHRASES))
def test_a_message_holds_the_phrase_of_its_condition_once_with_its_parameters(name):
    named = [part for _, part, _, _ in string.Formatter().parse(PHRASES[name]) if part]
    condition = Condition.of(name, **{part: f"<{part}>" for part in named})
    expected = PHRASES[name].format_map(condition.parameters)
    for message in ("Something of ours.", f"It says itself: {expected}."):
        assert str(errors.DeltaError(message, condition=condition)).count(expected) == 1
    if named:
        assert str(errors.DeltaError("Of ours.", condition=Condition.of(name))).startswith(f"[{name}] Of ours.")
