"""Check the arguments of the Python API: ``TypeError`` for a wrong type, ``ValueError`` for what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame

from pydelta.commands.engine import Assignments
from pydelta.errors import InvalidArgumentError
from pydelta.spark.logs import user_errors

__all__ = ["check_columns", "check_condition", "check_source", "check_type", "given_values"]

_NAMES = {str: "text", bool: "True or False", int: "a whole number", Column: "a Column", DataFrame: "a DataFrame"}


def check_type(value: Any, *kinds: type, what: str) -> None:
    """Refuse a value of another type.

    Raises:
        TypeError: Says what was expected, and what it is.
    """
    if not isinstance(value, kinds):
        wanted = " or ".join(_NAMES.get(kind, kind.__name__) for kind in kinds)
        raise TypeError(f"{what} is {wanted}, not {value!r} of type {type(value).__name__}.")


def check_condition(value: Any, what: str) -> None:
    """Refuse a condition that is neither SQL text nor a Column; None is for none.

    Raises:
        TypeError: See above.
    """
    if value is not None:
        check_type(value, str, Column, what=what)


def check_source(source: Any, condition: Any) -> None:
    """Refuse what a merge cannot take its rows from, or match them by.

    Raises:
        TypeError: The source is not a DataFrame, the condition neither text nor a Column.
        ValueError: One of them is None.
    """
    for value, name in ((source, "source"), (condition, "condition")):
        if value is None:
            raise ValueError(f"merge needs a {name}.")
    check_type(source, DataFrame, what="The source of merge")
    check_condition(condition, "The condition of merge")


def check_columns(columns: Iterable[Any], what: str) -> list[str]:
    """Return the columns' names, given one by one or in lists.

    Raises:
        TypeError: One of them is not text.
    """
    found: list[str] = []
    for item in columns:
        for name in item if isinstance(item, Iterable) and not isinstance(item, str) else [item]:
            check_type(name, str, what=what)
            found.append(name)
    return found


def given_values(values: Mapping[str, Any] | None, what: str, *, needed: bool = True) -> Assignments:
    """Return columns and what they are set to.

    Args:
        values: Column -> SQL text or a Column.
        what: The argument's name.
        needed: Whether none at all is refused here.

    Raises:
        InvalidArgumentError: There is none. It is a ``ValueError``.
        TypeError: It is not a dict, a column is not named by text, a value is neither text nor a Column.
    """
    if values is not None and not isinstance(values, Mapping):
        raise TypeError(f"{what} is a dict of columns and values, not {values!r} of type {type(values).__name__}.")
    if not values and needed:
        with user_errors():
            raise InvalidArgumentError(
                f"The clause has no {what}.", hint=f'Give {what}={{"column": "value"}}, or use …All.'
            )
    for column, value in (values or {}).items():
        check_type(column, str, what=f"A column in {what}")
        check_type(value, str, Column, what=f"The value of {column!r} in {what}")
    return tuple((values or {}).items())
