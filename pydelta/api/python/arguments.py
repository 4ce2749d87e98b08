"""Check the arguments of the Python API, before anything is read or sent: ``checked`` names a rule per argument.

Types and phrases of the errors are those that programs catch and match. A wrong type is a ``TypeError`` that says
"must be …", or, for versions, times, features and clones, a ``ValueError`` that says "needs to be …"; what is missing
is a ``ValueError`` that says "cannot be None". Each is a ``DeltaError``, too.
"""

from __future__ import annotations

import functools
import inspect
import math
import reprlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import NoneType
from typing import Any, Final, TypeVar, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from pydelta.commands.vacuum.inventory import Inventory
from pydelta.engines.spark.errors import to_spark
from pydelta.errors import DeltaError, InvalidArgumentError

__all__ = [
    "CLONE",
    "VACUUM",
    "ArgumentTypeError",
    "accepted",
    "check_columns",
    "check_condition",
    "check_fields",
    "check_session",
    "check_source",
    "check_store_options",
    "check_type",
    "checked",
    "given_values",
    "hours_of",
    "needed",
    "of_type",
]

Rule = Callable[[Any, str], Any]
"""What takes an argument and its name, and returns what the method gets in its place, or raises."""

_Method = TypeVar("_Method", bound=Callable[..., Any])
_NAMES: Final = {str: "a string", bool: "a boolean", int: "an int", dict: "a dict"}
_ACCEPT: Final[dict[Any, Callable[..., inspect.BoundArguments]]] = {}


def checked(whole: Callable[..., None] | None = None, **rules: Rule) -> Callable[[_Method], _Method]:
    """Check the arguments of a method before it runs, in the order of the rules.

    Args:
        whole: Checks all arguments together; it gets them by position.
        rules: Check and convert one argument each, given or not.
    """

    def decorate(method: _Method) -> _Method:
        accept = _accept(method, whole, rules)

        @functools.wraps(method)
        def run(*arguments: Any, **named: Any) -> Any:
            bound = accept(*arguments, **named)
            return method(*bound.args, **bound.kwargs)

        _ACCEPT[run] = accept
        return cast("_Method", run)

    return decorate


def accepted(method: Callable[..., Any], *arguments: Any, **named: Any) -> inspect.BoundArguments:
    """Return the arguments of a call, itself not made, as the method would get them.

    Raises:
        DeltaError: A rule of ``checked`` refuses one.
        TypeError: The method does not take such arguments.
    """
    return (_ACCEPT.get(method) or _accept(method, None, {}))(*arguments, **named)


def _accept(
    method: Callable[..., Any], whole: Callable[..., None] | None, rules: Mapping[str, Rule]
) -> Callable[..., inspect.BoundArguments]:
    signature = inspect.signature(method)

    def accept(*arguments: Any, **named: Any) -> inspect.BoundArguments:
        bound = None
        with suppress(TypeError):
            bound = signature.bind(*arguments, **named)
        if bound is None:
            method(*arguments, **named)  # Python refuses such a call in its own words.
        assert bound is not None
        complete = inspect.BoundArguments(signature, OrderedDict(bound.arguments))
        complete.apply_defaults()
        if whole is not None:
            whole(*complete.args[1:])
        for name, rule in rules.items():
            value = rule(complete.arguments[name], name)
            if name in bound.arguments:
                bound.arguments[name] = value
        return bound

    return accept


class ArgumentTypeError(DeltaError, TypeError):
    """An argument of a type that its method does not take."""

    code = "DELTA_INVALID_ARGUMENT"


def _wrong_type(what: str, wanted: str, value: Any) -> DeltaError:
    found = f"found {reprlib.repr(value)} of type {type(value).__name__}"
    return to_spark(ArgumentTypeError(f"{what} must be {wanted}, {found}.", hint=f"Give {wanted}."))


def _unusable(message: str, hint: str) -> DeltaError:
    return to_spark(InvalidArgumentError(message, hint=hint))


def check_type(value: Any, *kinds: type, what: str) -> None:
    """Refuse a value of another type; a boolean is not an int.

    Raises:
        ArgumentTypeError: Says what was expected, and what it is.
    """
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = ("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise _wrong_type(what, " or ".join(names), value)


def of_type(*kinds: type, what: str = "") -> Rule:
    """Return the rule of ``check_type``; errors call the argument by its name, or by ``what``."""

    def rule(value: Any, name: str) -> Any:
        check_type(value, *kinds, what=what or name)
        return value

    return rule


def needed(*kinds: type) -> Rule:
    """Return the rule of a version, a time, a name of a feature or a part of a clone.

    The error is an ``InvalidArgumentError``, which is a ``ValueError``; it names the first of the kinds alone.
    """

    def rule(value: Any, name: str) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            text = f"{name} needs to be {_NAMES[kinds[0]]} but got '{type(value)}'."
            raise _unusable(text, f"Give {name} as {_NAMES[kinds[0]]}, not {reprlib.repr(value)}.")
        return value

    return rule


def _check_properties(properties: Any, name: str) -> Any:
    needed(dict, NoneType)(properties, name)
    for key, value in (properties or {}).items():
        needed(str)(key, f"All property keys including {key}")
        needed(str)(value, f"All property values including {value}")
    return properties


CLONE: Final[Mapping[str, Rule]] = {
    "target": needed(str),
    "isShallow": needed(bool),
    "replace": needed(bool),
    "properties": _check_properties,
}
"""What a clone is made with."""


def check_session(spark: Any, name: str) -> Any:
    """Refuse what is not a session, classic or of a Spark Connect client.

    Raises:
        ArgumentTypeError: It is something else.
    """
    if type(spark).__name__ != "SparkSession" and not isinstance(spark, SparkSession):
        raise _wrong_type(name, "a SparkSession", spark)
    return spark


def check_condition(value: Any, name: str) -> Any:
    """Refuse a condition that is neither SQL text nor a Column; None is for none.

    Raises:
        ArgumentTypeError: It is something else.
    """
    if value is not None and not isinstance(value, (str, Column)):
        raise _wrong_type(f"'{name}'", "a Spark SQL Column or a string (expression in SQL syntax)", value)
    return value


def check_source(source: Any, condition: Any) -> None:
    """Refuse what a merge cannot take its rows from, or match them by.

    Raises:
        ArgumentTypeError: The source is not a DataFrame, the condition neither text nor a Column.
        InvalidArgumentError: One of them is None. It is a ``ValueError``.
    """
    if source is None:
        raise _unusable("'source' in merge cannot be None.", "Give the DataFrame to merge.")
    if not isinstance(source, DataFrame):
        raise _wrong_type("Type of 'source' in merge", "DataFrame", source)
    if condition is None:
        raise _unusable("'condition' in merge cannot be None.", "Say which rows go together: 't.id = s.id'.")
    check_condition(condition, "condition")


def check_columns(what: str) -> Rule:
    """Return the rule of names of columns, given one by one or in lists: one by one, each of them text."""

    def rule(columns: tuple[Any, ...], _: str) -> list[str]:
        found: list[str] = []
        for item in columns:
            listed = isinstance(item, Iterable) and not isinstance(item, (str, Mapping, Column))
            for name in item if listed else [item]:
                check_type(name, str, what=what)
                found.append(name)
        return found

    return rule


def check_store_options(options: Any, argument: str) -> Any:
    """Refuse settings of a store that are not a dict of text.

    Raises:
        ArgumentTypeError: See above; values may be secrets and are not shown.
    """
    check_type(options, Mapping, NoneType, what=argument)
    for key, value in (options or {}).items():
        check_type(key, str, what=f"Key of {argument}")
        if not isinstance(value, str):
            text = f"Value of {key} in {argument} must be str, found one of type {type(value).__name__}."
            raise to_spark(ArgumentTypeError(text, hint="Give it as text."))
    return options


def check_fields(columns: Any, _: str) -> list[StructField]:
    """Return the fields of a schema, or of a list.

    Raises:
        ArgumentTypeError: It is something else.
    """
    if not isinstance(columns, (StructType, list, tuple)):
        raise _wrong_type("Schema", "StructType or a list of StructField", columns)
    for field in columns:
        check_type(field, StructField, what="Column in existing schema")
    return list(columns)


def hours_of(value: Any, name: str) -> float | None:
    """Return a number of hours, also given as text; None for none.

    Raises:
        ArgumentTypeError: It is not a number.
        InvalidArgumentError: It is text that is not a number, or infinite. It is a ``ValueError``.
    """
    if value is None:
        return None
    if isinstance(value, (Column, DataFrame)) or (not hasattr(value, "__float__") and not isinstance(value, str)):
        raise _wrong_type(name, "a number", value)
    try:
        hours = float(value)
    except (ValueError, ArithmeticError):
        hours = math.nan
    if not math.isfinite(hours):
        text = f"{name} must be a number of hours, found {reprlib.repr(value)}."
        raise _unusable(text, "Give a number such as 168.")
    return hours


def given_values(where: str = "") -> Rule:
    """Return the rule of columns and what they are set to: a dict of SQL text or Columns, which may not be None.

    Args:
        where: What errors add to the argument's name: ``in whenMatchedUpdate``.
    """

    def rule(values: Any, argument: str) -> dict[str, Any]:
        name = f"'{argument}' {where}".rstrip()
        if values is None:
            raise _unusable(f"{name} cannot be None.", 'Give {"column": "value"}.')
        if not isinstance(values, Mapping):
            raise _wrong_type(name, "a dict", values)
        for column, value in values.items():
            if not isinstance(column, str):
                text = f"Keys of dict in {name} must contain only strings with column names"
                found = f"found {reprlib.repr(column)} of type {type(column).__name__}"
                raise to_spark(ArgumentTypeError(f"{text}, {found}.", hint="Name each column with text."))
            if not isinstance(value, (str, Column)):
                kinds = "Spark SQL Columns or strings (expressions in SQL syntax)"
                text = f"Values of dict in {name} must contain only {kinds}"
                found = f"found {reprlib.repr(value)} of type {type(value).__name__}"
                hint = f"Give the value of {column!r} as SQL text or a Column, such as lit(…)."
                raise to_spark(ArgumentTypeError(f"{text}, {found}.", hint=hint))
        return dict(values)

    return rule


VACUUM: Final[Mapping[str, Rule]] = {
    "dryRun": of_type(bool),
    "mode": of_type(str),
    "where": of_type(str, NoneType),
    "inventory": of_type(str, DataFrame, Inventory, NoneType),
    "retentionHours": hours_of,
}
"""What VACUUM takes; an inventory that is text is a table's name."""
