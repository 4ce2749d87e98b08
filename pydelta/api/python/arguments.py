"""Check the arguments of the Python API, before anything is read or sent.

Types and phrases of the errors are those that programs catch and match. A wrong type is a ``TypeError`` that says
"must be …", or, for versions, times, features and clones, a ``ValueError`` that says "needs to be …"; what is missing
is a ``ValueError`` that says "cannot be None". Each is a ``DeltaError``, too.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from pydelta.commands.engine import Assignments
from pydelta.commands.vacuum.inventory import Inventory
from pydelta.engines.spark.errors import to_spark
from pydelta.errors import DeltaError, InvalidArgumentError

__all__ = [
    "ArgumentTypeError",
    "check_clone",
    "check_columns",
    "check_condition",
    "check_fields",
    "check_flag",
    "check_needed",
    "check_session",
    "check_source",
    "check_store_options",
    "check_type",
    "check_vacuum",
    "given_values",
    "hours_of",
]

_NAMES: Final = {str: "a string", bool: "a boolean", int: "an int", dict: "a dict"}


class ArgumentTypeError(DeltaError, TypeError):
    """An argument of a type that its method does not take."""

    code = "DELTA_INVALID_ARGUMENT"


def _wrong_type(what: str, wanted: str, value: Any) -> DeltaError:
    found = f"found {reprlib.repr(value)} of type {type(value).__name__}"
    return to_spark(ArgumentTypeError(f"{what} must be {wanted}, {found}.", hint=f"Give {wanted}."))


def _unusable(message: str, hint: str) -> DeltaError:
    return to_spark(InvalidArgumentError(message, hint=hint))


def check_session(spark: Any) -> None:
    """Refuse what is not a session, classic or of a Spark Connect client.

    Raises:
        ArgumentTypeError: It is something else.
    """
    if type(spark).__name__ != "SparkSession" and not isinstance(spark, SparkSession):
        raise _wrong_type("sparkSession", "a SparkSession", spark)


def check_type(value: Any, *kinds: type, what: str) -> None:
    """Refuse a value of another type; a boolean is not an int.

    Raises:
        ArgumentTypeError: Says what was expected, and what it is.
    """
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = ("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise _wrong_type(what, " or ".join(names), value)


def check_needed(name: str, value: Any, *kinds: type) -> None:
    """Refuse a version, a time, a name of a feature or a part of a clone that has another type.

    Raises:
        InvalidArgumentError: It needs to be something else. It is a ``ValueError``.
    """
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        needed = _NAMES[kinds[0]]  # what programs match names the first alone
        text = f"{name} needs to be {needed} but got '{type(value)}'."
        raise _unusable(text, f"Give {name} as {needed}, not {reprlib.repr(value)}.")


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True, False nor None.

    Raises:
        InvalidArgumentError: See ``check_needed``.
    """
    if value is not None:
        check_needed(name, value, bool)


def check_clone(target: Any, shallow: Any, replace: Any, properties: Any) -> None:
    """Refuse what a clone cannot be made with.

    Raises:
        InvalidArgumentError: See ``check_needed``.
    """
    check_needed("target", target, str)
    check_needed("isShallow", shallow, bool)
    check_needed("replace", replace, bool)
    if properties is not None:
        check_needed("properties", properties, dict)
        for key, value in properties.items():
            check_needed(f"All property keys including {key}", key, str)
            check_needed(f"All property values including {value}", value, str)


def check_condition(value: Any) -> None:
    """Refuse a condition that is neither SQL text nor a Column; None is for none.

    Raises:
        ArgumentTypeError: It is something else.
    """
    if value is not None and not isinstance(value, (str, Column)):
        raise _wrong_type("'condition'", "a Spark SQL Column or a string (expression in SQL syntax)", value)


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
    check_condition(condition)


def check_columns(columns: tuple[Any, ...], what: str) -> list[str]:
    """Return the columns' names, given one by one or in lists.

    Raises:
        ArgumentTypeError: One of them is not text.
    """
    found: list[str] = []
    for item in columns:
        for name in item if isinstance(item, Iterable) and not isinstance(item, (str, Mapping, Column)) else [item]:
            check_type(name, str, what=what)
            found.append(name)
    return found


def check_store_options(options: Any) -> None:
    """Refuse settings of a store that are not a dict of text.

    Raises:
        ArgumentTypeError: See above; values may be secrets and are not shown.
    """
    check_type(options, Mapping, type(None), what="hadoopConf")
    for key, value in (options or {}).items():
        check_type(key, str, what="Key of hadoopConf")
        if not isinstance(value, str):
            text = f"Value of {key} in hadoopConf must be str, found one of type {type(value).__name__}."
            raise to_spark(ArgumentTypeError(text, hint="Give it as text."))


def check_fields(columns: Any) -> list[StructField]:
    """Return the fields of a schema, or of a list.

    Raises:
        ArgumentTypeError: It is something else.
    """
    if not isinstance(columns, (StructType, list, tuple)):
        raise _wrong_type("Schema", "StructType or a list of StructField", columns)
    for field in columns:
        check_type(field, StructField, what="Column in existing schema")
    return list(columns)


def check_vacuum(dry_run: Any, mode: Any, inventory: Any, where: Any) -> None:
    """Refuse what VACUUM cannot take beside its hours; an inventory that is text is a table's name.

    Raises:
        ArgumentTypeError: An argument of another type.
    """
    check_type(dry_run, bool, what="dryRun")
    check_type(mode, str, what="mode")
    check_type(where, str, type(None), what="where")
    check_type(inventory, str, DataFrame, Inventory, type(None), what="inventory")


def hours_of(value: Any) -> float | None:
    """Return a number of hours, also given as text; None for none.

    Raises:
        ArgumentTypeError: It is not a number.
        InvalidArgumentError: It is text that is not a number, or infinite. It is a ``ValueError``.
    """
    if value is None:
        return None
    if isinstance(value, (Column, DataFrame)) or (not hasattr(value, "__float__") and not isinstance(value, str)):
        raise _wrong_type("retentionHours", "a number", value)
    try:
        hours = float(value)
    except (ValueError, ArithmeticError):
        hours = math.nan
    if not math.isfinite(hours):
        text = f"retentionHours must be a number of hours, found {reprlib.repr(value)}."
        raise _unusable(text, "Give a number such as 168.")
    return hours


def given_values(values: Any, name: str) -> Assignments:
    """Return columns and what they are set to.

    Args:
        values: Column -> SQL text or a Column.
        name: What errors call the argument.

    Raises:
        InvalidArgumentError: It is None. It is a ``ValueError``.
        ArgumentTypeError: It is not a dict, a column is not named by text, a value is neither text nor a Column.
    """
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
            text = (
                f"Values of dict in {name} must contain only Spark SQL Columns or strings (expressions in SQL syntax)"
            )
            found = f"found {reprlib.repr(value)} of type {type(value).__name__}"
            hint = f"Give the value of {column!r} as SQL text or a Column, such as lit(…)."
            raise to_spark(ArgumentTypeError(f"{text}, {found}.", hint=hint))
    return tuple(values.items())
