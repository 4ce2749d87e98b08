"""Errors that Spark users catch are of both families."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
    UnsupportedOperationException,
)

from pydelta import errors
from pydelta.engines.spark.errors import _BY_CONDITION, condition_of, raised_in, to_spark
from pydelta.errors.conditions import CONDITIONS, Condition


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (errors.TableNotFoundError("t", hint="h"), AnalysisException),
        (errors.TableAlreadyExistsError("t"), AnalysisException),
        (errors.SchemaMismatchError("s"), AnalysisException),
        (errors.BindError("b"), AnalysisException),
        (errors.ParseError("p", line=2, column=5), ParseException),
        (errors.VersionNotFoundError("v"), AnalysisException),
        (errors.UnsupportedFeatureError("u", features=("x",)), AnalysisException),
    ],
)
def test_a_user_error_is_also_what_spark_raises(error, base):
    error.table = "/data/t"
    twin = to_spark(error)
    assert isinstance(twin, type(error)) and isinstance(twin, base)
    assert str(twin) == str(error)
    assert twin.getCondition() == error.code
    assert (twin.hint, twin.table, twin.args) == (error.hint, error.table, error.args)
    assert to_spark(twin) is twin


def test_what_the_class_adds_is_kept():
    assert to_spark(errors.ParseError("p", line=2, column=5)).column == 5
    assert to_spark(errors.UnsupportedFeatureError("u", features=("x",))).features == ("x",)


@pytest.mark.parametrize(
    "error", [errors.ConcurrentAppendException("c"), errors.StorageError("s"), errors.LogCorruptedError("l")]
)
def test_conflicts_storage_and_corruption_are_exceptions_of_pyspark(error):
    twin = to_spark(error)
    assert isinstance(twin, type(error)) and isinstance(twin, PySparkException)
    assert not isinstance(twin, AnalysisException)
    assert (str(twin), twin.retryable, twin.exit_code) == (str(error), error.retryable, error.exit_code)


_MISMATCH = Condition.of("DELTA_REPLACE_WHERE_MISMATCH", replaceWhere="a = 1")


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (errors.InvalidArgumentError("i"), AnalysisException),
        (errors.InvalidArgumentError("i", condition=Condition.of("DELTA_ILLEGAL_OPTION")), IllegalArgumentException),
        (
            errors.UnsafeOperationError("u", condition=Condition.of("DELTA_CANNOT_MODIFY_APPEND_ONLY")),
            UnsupportedOperationException,
        ),
        (
            errors.ConstraintViolatedError("c", condition=Condition.of("DELTA_REPLACE_WHERE_MISMATCH")),
            AnalysisException,
        ),
    ],
)
def test_the_condition_decides_what_spark_users_catch(error, base):
    twin = to_spark(error)
    assert type(twin).__mro__[1:3] == (type(error), type(error).__mro__[1])
    assert isinstance(twin, base)
    assert isinstance(twin, AnalysisException) == (base is AnalysisException)
    assert twin.getCondition() == error.code
    assert twin.getSqlState() == CONDITIONS[error.code]


def test_every_condition_with_a_class_of_its_own_is_in_the_table():
    assert sorted(set(_BY_CONDITION) - set(CONDITIONS)) == []


def test_parameters_and_state_come_with_it():
    condition = Condition.of("DELTA_VERSION_NOT_FOUND", userVersion=9, earliest=0, latest=3)
    twin = to_spark(errors.VersionNotFoundError("v", condition=condition))
    assert twin.getMessageParameters() == {"userVersion": "9", "earliest": "0", "latest": "3"}
    assert (twin.getSqlState(), twin.getErrorClass()) == ("22003", "DELTA_VERSION_NOT_FOUND")
    assert twin.getQueryContext() == []
    assert twin.getBreakingChangeInfo() is None


def test_what_spark_calls_an_error_is_passed_on():
    spark = AnalysisException(
        "no", errorClass="UNRESOLVED_COLUMN.WITH_SUGGESTION", messageParameters={"objectName": "`x`"}
    )
    condition = condition_of(spark)
    assert (condition.name, condition.parameters) == ("UNRESOLVED_COLUMN.WITH_SUGGESTION", {"objectName": "`x`"})
    assert condition_of(ValueError("no")) is None
    assert condition_of(PySparkException("no")) is None


def test_an_error_that_spark_quotes_keeps_its_condition():
    error = errors.ConstraintViolatedError(
        "Column 'a' is null.",
        hint="Fill it.",
        condition=Condition.of("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", columnName="a"),
    )
    found = raised_in(f"Traceback\npydelta.errors.ConstraintViolatedError: {error}\n  at worker")
    assert type(found) is errors.ConstraintViolatedError
    assert (found.code, found.sql_state, found.message, found.hint) == (
        "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
        "23502",
        "Column 'a' is null.",
        "Fill it.",
    )


PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "conditions.md"
INTRODUCTION = """# Conditions

The values of an error's `getCondition()`, with their SQLSTATE, generated from `pydelta/errors/conditions.py`; a test
compares the two. All other conditions are Spark's, unchanged. [How to branch on them](../guides/errors.md).

| condition | SQLSTATE | additional class of `pydelta.errors` |
|---|---|---|
"""


def test_the_page_says_what_the_table_says():
    rows = (
        f"| `{name}` | {state} | {f'`{_BY_CONDITION[name].__name__}`' if name in _BY_CONDITION else ''} |\n"
        for name, state in sorted(CONDITIONS.items())
    )
    expected = INTRODUCTION + "".join(rows)
    assert PAGE.read_text() == expected, f"write this to {PAGE}:\n{expected}"
