"""Check the arguments of the Python API before anything is read or sent: ``checked`` has one rule per argument.

The errors have the types and phrases that programs catch and match. A wrong type is a ``TypeError`` that says
"must be …", or, for versions, times, features and clones, a ``ValueError`` that says "needs to be …". A missing
argument is a ``ValueError`` that says "cannot be None". All of them are also ``DeltaError``.
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

from pydelta.api.python.local_arguments import keys_of, object_versions_of, policy_of
from pydelta.commands.vacuum.inventory import Inventory
from pydelta.engines.spark.errors import to_spark
from pydelta.engines.spark.logs import user_errors
from pydelta.errors import DeltaError, InvalidArgumentError

__all__ = [
    "CLONE",
    "ERASE",
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
"""Takes an argument and its name, and returns the value for the method, or raises."""

_Method = TypeVar("_Method", bound=Callable[..., Any])
_NAMES: Final = {str: "a string", bool: "a boolean", int: "an int", dict: "a dict"}
_ACCEPT: Final[dict[Any, Callable[..., inspect.BoundArguments]]] = {}


def checked(whole: Callable[..., None] | None = None, **rules: Rule) -> Callable[[_Method], _Method]:
    """Check the arguments of a method before it runs, in the order of the rules.

    Args:
        whole: Checks all arguments together; it takes them by position.
        rules: Check and convert one argument each, whether it was given or not.
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
    """Return the arguments that a method would get, without calling it.

    Raises:
        DeltaError: A rule of ``checked`` refuses an argument.
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
            method(*arguments, **named)  # Python itself raises the error for such a call.
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
    """An argument of a type that its method does not accept."""

    code = "DELTA_INVALID_ARGUMENT"


def _wrong_type(what: str, wanted: str, value: Any) -> DeltaError:
    found = f"found {reprlib.repr(value)} of type {type(value).__name__}"
    return to_spark(ArgumentTypeError(f"{what} must be {wanted}, {found}.", hint=f"Give {wanted}."))


def _unusable(message: str, hint: str) -> DeltaError:
    return to_spark(InvalidArgumentError(message, hint=hint))


def check_type(value: Any, *kinds: type, what: str) -> None:
    """Check the type of a value; a boolean is not an int.

    Raises:
        ArgumentTypeError: It has another type; the error has both.
    """
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = ("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise _wrong_type(what, " or ".join(names), value)


def of_type(*kinds: type, what: str = "") -> Rule:
    """Return a rule that applies ``check_type``; errors name the argument, or ``what`` instead."""

    def rule(value: Any, name: str) -> Any:
        check_type(value, *kinds, what=what or name)
        return value

    return rule


def needed(*kinds: type) -> Rule:
    """Return the rule for a version, a time, the name of a feature or an argument of a clone.

    The error is an ``InvalidArgumentError``, which is a ``ValueError``, and names only the first of the kinds.
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
"""The arguments of a clone."""


def check_session(spark: Any, name: str) -> Any:
    """Check that a value is a session, classic or of a Spark Connect client.

    Raises:
        ArgumentTypeError: It is not a session.
    """
    if type(spark).__name__ != "SparkSession" and not isinstance(spark, SparkSession):
        raise _wrong_type(name, "a SparkSession", spark)
    return spark


def check_condition(value: Any, name: str) -> Any:
    """Check that a condition is SQL text, a Column or None.

    Raises:
        ArgumentTypeError: It has another type.
    """
    if value is not None and not isinstance(value, (str, Column)):
        raise _wrong_type(f"'{name}'", "a Spark SQL Column or a string (expression in SQL syntax)", value)
    return value


def check_source(source: Any, condition: Any) -> None:
    """Check the source and the condition of a merge.

    Raises:
        ArgumentTypeError: The source is not a DataFrame, or the condition is neither text nor a Column.
        InvalidArgumentError: One of them is None. It is a ``ValueError``.
    """
    if source is None:
        raise _unusable("'source' in merge cannot be None.", "Give the DataFrame to merge.")
    if not isinstance(source, DataFrame):
        raise _wrong_type("Type of 'source' in merge", "DataFrame", source)
    if condition is None:
        raise _unusable("'condition' in merge cannot be None.", "Give the condition that matches rows: 't.id = s.id'.")
    check_condition(condition, "condition")


def check_columns(what: str) -> Rule:
    """Return the rule for names of columns, which may be given one by one or in lists; it returns a flat list."""

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
    """Check that settings of a store are a dict of text.

    Raises:
        ArgumentTypeError: They are not. The error does not show values, which may be secrets.
    """
    check_type(options, Mapping, NoneType, what=argument)
    for key, value in (options or {}).items():
        check_type(key, str, what=f"Key of {argument}")
        if not isinstance(value, str):
            text = f"Value of {key} in {argument} must be str, found one of type {type(value).__name__}."
            raise to_spark(ArgumentTypeError(text, hint="Give it as text."))
    return options


def check_fields(columns: Any, _: str) -> list[StructField]:
    """Return the fields of a schema or of a list.

    Raises:
        ArgumentTypeError: It is neither.
    """
    if not isinstance(columns, (StructType, list, tuple)):
        raise _wrong_type("Schema", "StructType or a list of StructField", columns)
    for field in columns:
        check_type(field, StructField, what="Column in existing schema")
    return list(columns)


def hours_of(value: Any, name: str) -> float | None:
    """Return a number of hours, which may be given as text; None stays None.

    Raises:
        ArgumentTypeError: It is neither a number nor text.
        InvalidArgumentError: The text is not a number, or the number is not finite. It is a ``ValueError``.
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
    """Return the rule for assignments: a dict from columns to SQL text or Columns, not None.

    Args:
        where: A suffix for the argument's name in errors: ``in whenMatchedUpdate``.
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
"""The arguments of VACUUM. An inventory that is text is the name of a table."""


def _as_without_session(read: Callable[[Any], Any]) -> Rule:
    """Return the rule of an argument that ``pydelta.open`` has, too."""

    def rule(value: Any, _: str) -> Any:
        with user_errors():
            return read(value)

    return rule


ERASE: Final[Mapping[str, Rule]] = {
    "keys": _as_without_session(keys_of),
    "history": _as_without_session(policy_of),
    "objectVersions": _as_without_session(object_versions_of),
    "dryRun": of_type(bool),
}
"""The arguments of an erasure."""
