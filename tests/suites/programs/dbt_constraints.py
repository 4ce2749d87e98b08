"""Say in Spark's words what dbt's tests of contracts and constraints expect: types, statements, errors."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.constraints import fixtures

TYPES = {"data_type: text": "data_type: string"}
HEADER = {"set session time zone": "set time zone", "current_setting('timezone')": "current_timezone()"}
QUOTES = {"('\"from\"')": "('`from`')", '("from" =': "(`from` =", "'\"from\"'": "'`from`'"}
CASES = [
    ("1", "int", "INT"),
    ("'1'", "string", "STRING"),
    ("true", "boolean", "BOOLEAN"),
    ("1L", "bigint", "BIGINT"),
    ("1.5D", "double", "DOUBLE"),
    ("1.50BD", "decimal", "DECIMAL"),
    ("DATE'2013-11-03'", "date", "DATE"),
    ("TIMESTAMP'2013-11-03 00:00:00'", "timestamp", "TIMESTAMP"),
    ("X'01'", "binary", "BINARY"),
    ("array('a')", "array<string>", "ARRAY"),
    ("map('a', 1)", "map<string, int>", "MAP"),
    ("named_struct('a', 1)", "struct<a:int>", "STRUCT"),
]
"""A value, its type in a contract, and the type in the message of a mismatch."""
CREATE = "create or replace table <model_identifier> using delta as "
IN_ORDER = f"""{CREATE} select id, color, date_day from (
    -- depends_on: <foreign_key_model_identifier>
    select 'blue' as color, 1 as id, '2019-01-01' as date_day
) as model_subq"""
QUOTED = f"""{CREATE} select id, `from`, date_day from (
    select 'blue' as `from`, 1 as id, '2019-01-01' as date_day
) as model_subq"""
NO_NULLS, NO_NULL = ("DELTA_NEW_NOT_NULL_VIOLATION",), ("DELTA_NOT_NULL_CONSTRAINT_VIOLATED",)


def speak_spark() -> None:
    """Replace types, functions and quotes of other databases in the models that the tests share."""
    for name, text in vars(fixtures).items():
        if isinstance(text, str) and not name.startswith("__"):
            for old, new in {**TYPES, **HEADER, **QUOTES}.items():
                text = text.replace(old, new)
            setattr(fixtures, name, text)


def fixed(value: Any, scope: str = "class") -> Any:
    """Make a fixture of a value."""
    return pytest.fixture(scope=scope)(lambda self: value)


_COLUMNS = {
    "string_type": fixed("STRING", "function"),
    "data_types": fixed(CASES, "function"),
}
_STATEMENTS = {"expected_sql": fixed(IN_ORDER)}
# Spark takes a constraint only when the table has its rows, so that a table that breaks it has replaced the former one.
_ROLLBACK = {"expected_color": fixed("red"), "expected_error_messages": fixed(NO_NULLS)}
CHANGED: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("TestTableConstraintsColumnsEqual", "TestViewConstraintsColumnsEqual",
         "TestIncrementalConstraintsColumnsEqual"), _COLUMNS,
    ),
    **dict.fromkeys(
        ("TestTableConstraintsRuntimeDdlEnforcement", "TestIncrementalConstraintsRuntimeDdlEnforcement",
         "TestModelConstraintsRuntimeEnforcement"), _STATEMENTS,
    ),
    "TestConstraintQuotedColumn": {"expected_sql": fixed(QUOTED)},
    "TestTableConstraintsRollback": _ROLLBACK,
    "TestIncrementalConstraintsRollback": {"expected_error_messages": fixed(NO_NULL)},
}  # fmt: skip
"""Fixtures by the name of the class."""
