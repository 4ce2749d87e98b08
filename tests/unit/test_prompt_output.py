"""Errors as a prompt shows them: one line, a caret for syntax errors, never a stack; and the exit codes."""

from __future__ import annotations

import io

import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException

from pydelta.api.console.terminal import Terminal
from pydelta.api.prompt.output import exit_code, explained
from pydelta.api.prompt.statements import Prompt
from pydelta.api.sql.grammar import parse_statement
from pydelta.engines.spark.errors import to_spark
from pydelta.errors import (
    BindError,
    CommitStateUnknownError,
    ConcurrentAppendException,
    InvalidArgumentError,
    ObjectNotFoundError,
    StorageError,
)


def of_spark(kind: type[PySparkException], text: str) -> PySparkException:
    return kind(text)


def test_an_error_of_ours_and_what_to_do_next():
    error = to_spark(BindError("There is no column tax.", hint="The columns are: a, b."))
    assert explained(error) == "[DELTA_UNRESOLVED_COLUMN] There is no column tax.\n  Next: The columns are: a, b."


def test_a_syntax_error_of_ours_has_a_caret_below_its_token():
    with pytest.raises(Exception, match="Syntax error") as caught:
        parse_statement("OPTIMIZE lake.t\n  ZORDR BY (x)")
    first, line, caret = explained(to_spark(caught.value)).splitlines()
    assert first.startswith("[PARSE_SYNTAX_ERROR] Syntax error at or near 'ZORDR'")
    assert line[caret.index("^") :].startswith("ZORDR")
    assert set(caret) == {" ", "^"}


def test_a_syntax_error_of_spark_has_a_caret_below_its_token():
    text = (
        "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'FRM'. SQLSTATE: 42601 (line 1, pos 9)\n\n== SQL ==\n"
        "SELECT * FRM t\n---------^^^\n"
    )
    assert explained(of_spark(ParseException, text)) == (
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FRM'. (line 1, pos 9)\nSELECT * FRM t\n         ^^^"
    )


def test_a_plan_is_left_out():
    text = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `a` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n"
        "'Project ['a]\n+- SubqueryAlias t\n"
    )
    found = explained(of_spark(AnalysisException, text))
    assert found == "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `a` cannot be resolved. (line 1, pos 7)"


def test_what_an_error_of_ours_quotes_of_spark_has_no_codes_either():
    error = BindError("`x` cannot be resolved. SQLSTATE: 42703; line 1 pos 91;", table="file:///t", hint="Columns: a.")
    assert explained(error).splitlines() == [
        "[DELTA_UNRESOLVED_COLUMN] `x` cannot be resolved. (line 1, pos 91) (table file:///t)", "  Next: Columns: a."
    ]  # fmt: skip


def test_a_failed_job_shows_its_cause_and_no_stack():
    text = (
        "Job aborted due to stage failure: Task 0 failed.\n\tat org.apache.spark.Some.method(Some.scala:1)\n"
        "Caused by: java.io.IOException: disk gone\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
    )
    assert explained(of_spark(PySparkException, text)).endswith("Task 0 failed.: disk gone")


def test_an_error_of_ours_that_spark_quotes_is_shown_alone():
    text = (
        '[PYTHON_DATA_SOURCE_ERROR] Failed to generate: Traceback (most recent call last):\n  File "x.py", line 1\n'
        "pydelta.errors.InvalidArgumentError: [DELTA_INVALID_ARGUMENT] It has no path.\n  Next: Use spark.sql.\n\n"
    )
    found = explained(of_spark(AnalysisException, text))
    assert found == "[DELTA_INVALID_ARGUMENT] It has no path.\n  Next: Use spark.sql."


def test_control_characters_do_not_reach_the_terminal():
    assert "\x1b" not in explained(InvalidArgumentError("what \x1b[31m is this"))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BindError("no"), 1),
        (of_spark(AnalysisException, "no"), 1),
        (ConcurrentAppendException("again"), 2),
        (ObjectNotFoundError("gone"), 1),
        (CommitStateUnknownError("perhaps", txn_id="1"), 3),
    ],
)
def test_exit_codes(error, code):
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("DELTA_CONCURRENT_APPEND", 2), ("DELTA_CONCURRENT_APPEND.WITHOUT_HINT", 2),
        ("DELTA_CONCURRENT_WRITE", 2), ("DELTA_VERSION_NOT_FOUND", 1),
        ("DELTA_COMMIT_STATE_UNKNOWN", 3), ("DELTA_COMMITTED", 3),
    ],
)  # fmt: skip
def test_what_a_server_sends_has_the_exit_code_of_its_condition_and_says_what_to_do_next(condition, code):
    told = "It is so. SQLSTATE: 2D521\n  Next: Try again.\n\nJVM stacktrace:\n\tat x.y(z)"
    error = PySparkException(told, errorClass=condition, messageParameters={})
    error.getCondition = lambda: condition
    assert exit_code(error) == code
    assert explained(error) == f"[{condition}] It is so.\n  Next: Try again."


def test_storage_that_may_be_tried_again_is_two():
    assert exit_code(StorageError("slow down", retryable=True)) == 2


class Failing:
    """A session whose statements all fail; counts them."""

    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, []

    def sql(self, text: str) -> None:
        self.asked.append(text)
        raise self.error


def run(session: Failing, text: str, name: str | None = None) -> tuple[int, str]:
    err = io.StringIO()
    prompt = Prompt(session, out=Terminal(file=io.StringIO()), err=Terminal(file=err, width=200))
    return prompt.script(text, name=name), err.getvalue()


def test_a_script_ends_at_its_first_error_and_says_where():
    session = Failing(ConcurrentAppendException("Somebody else was first."))
    code, said = run(session, "-- two\nSELECT 1;\nSELECT 2", "all.sql")
    assert (code, session.asked) == (2, ["-- two\nSELECT 1"])
    assert said.startswith("all.sql, line 1: Error: [DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Somebody else was first (")


@pytest.mark.parametrize("text", ["SELECT 1; SELECT 'two;", "SELECT 1;\n/* open", "SELECT 1; BEGIN SELECT 2;"])
def test_nothing_runs_of_a_script_that_is_cut_off(text):
    session = Failing(BindError("never"))
    code, said = run(session, text)
    assert (code, session.asked) == (1, [])
    assert "not closed" in said
    assert "line" in said


@pytest.mark.parametrize("text", ["", "\n\n", "-- only this", ";;"])
def test_a_script_without_statements_is_done(text):
    assert run(Failing(BindError("never")), text) == (0, "")
