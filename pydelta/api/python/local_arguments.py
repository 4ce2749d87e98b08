"""Check the arguments of ``pydelta.open`` and of the table that it returns, before anything is read or written.

Each function returns the argument as the commands expect it, or raises ``InvalidArgumentError`` with its name and type.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, cast, get_args

import pyarrow as pa

from pydelta.commands.erase.command import History, KeptObjects
from pydelta.engines.arrow.sources import schema_of_arrow
from pydelta.errors import InvalidArgumentError
from pydelta.protocol.types import StructField, StructType, parse_type

__all__ = [
    "columns_of",
    "flag_of",
    "hours_of",
    "keys_of",
    "location_of",
    "names_of",
    "object_versions_of",
    "optional_text",
    "options_of",
    "policy_of",
    "properties_of",
    "values_of",
    "version_of",
    "whole_of",
]


def _wrong(what: str, wanted: str, value: Any) -> InvalidArgumentError:
    return InvalidArgumentError(f"{what} must be {wanted}, not {type(value).__name__}.", hint=f"Give {wanted}.")


def location_of(uri: Any) -> str:
    """Return a location as text; a ``pathlib.Path`` is a local path.

    Raises:
        InvalidArgumentError: It is something else.
    """
    found = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
    if not isinstance(found, str):
        raise _wrong("The location", "a URI or a local path as text", uri)
    return found


def optional_text(value: Any, what: str) -> str | None:
    """Return text or None.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if value is None or isinstance(value, str):
        return value
    raise _wrong(what, "text", value)


def options_of(options: Any) -> Mapping[str, str] | None:
    """Return storage options as a dict of strings. No error shows a value, which may be a secret.

    Raises:
        InvalidArgumentError: They are something else.
    """
    return None if options is None else _texts(options, "Storage options", "storage option")


def properties_of(properties: Any) -> Mapping[str, str]:
    """Return table properties as a dict of strings, empty for None.

    Raises:
        InvalidArgumentError: They are something else.
    """
    return {} if properties is None else dict(_texts(properties, "Table properties", "property"))


def _texts(values: Any, what: str, name: str, one: str = "") -> Mapping[str, str]:
    """Return a mapping of text to text; a key is the name of a ``name``, and its value is called ``one`` (``name``)."""
    if not isinstance(values, Mapping):
        raise _wrong(what, "a dict of strings", values)
    for key, value in values.items():
        if not isinstance(key, str):
            raise _wrong(f"The name of a {name}", "text", key)
        if not isinstance(value, str):
            raise _wrong(f"The {one or name} {key!r}", "text", value)
    return values


def keys_of(keys: Any) -> Mapping[str, list[str]]:
    """Return the keys of an erasure as lists of text by column. No error shows a key.

    Raises:
        InvalidArgumentError: They are something else.
    """
    if not isinstance(keys, Mapping) or not all(isinstance(name, str) for name in keys):
        raise _wrong("Keys", "a dict of lists of text, by column", keys)
    found = {}
    for name, texts in keys.items():
        if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
            raise _wrong(f"The keys of {name!r}", "a list of text", texts)
        found[name] = list(texts)
    return found


def policy_of(history: Any) -> History | None:
    """Return a policy for earlier versions.

    Raises:
        InvalidArgumentError: There is no such policy.
    """
    if history is not None and not (isinstance(history, str) and history == "drop"):
        raise InvalidArgumentError(
            f"The policy for earlier versions must be 'drop', not {reprlib.repr(history)}.",
            hint="Use history='drop' (--history drop), which gives them up.",
        )
    return cast("History | None", history)


def object_versions_of(policy: Any) -> KeptObjects:
    """Return a policy for the older versions of objects.

    Raises:
        InvalidArgumentError: There is no such policy.
    """
    if not (isinstance(policy, str) and policy in get_args(KeptObjects)):
        raise InvalidArgumentError(
            f"The policy for older versions of objects must be 'keep', 'drop' or 'absent', not {reprlib.repr(policy)}.",
            hint="'keep' is the default; 'drop' deletes them; 'absent' states that the store keeps none.",
        )
    return cast("KeptObjects", policy)


def columns_of(columns: Any) -> StructType:
    """Return the columns of a new table without rows, given as an Arrow schema or as names with types.

    Raises:
        InvalidArgumentError: They are something else.
        SchemaError, UnsupportedFeatureError: A table cannot have them.
    """
    if isinstance(columns, pa.Schema):
        return schema_of_arrow(columns)
    if not isinstance(columns, Mapping):
        raise InvalidArgumentError(
            f"Columns must be a schema, names with types, or rows, not {type(columns).__name__}.",
            hint='Give {"id": "bigint"}, a pyarrow.Schema, a pyarrow.Table or a polars.DataFrame.',
        )
    types = _texts(columns, "Columns", "column", "type of column")
    return StructType(tuple(StructField(name, parse_type(kind)) for name, kind in types.items()))


def names_of(names: Any, what: str) -> list[str]:
    """Return names of columns as a list; text is one name.

    Raises:
        InvalidArgumentError: They are something else.
    """
    if isinstance(names, str):
        return [names]
    if not isinstance(names, Iterable) or isinstance(names, (bytes, Mapping)):
        raise _wrong(what, "a list of names", names)
    found = list(names)
    for name in found:
        if not isinstance(name, str):
            raise _wrong(f"Each of {what[0].lower()}{what[1:]}", "text", name)
    return found


def values_of(values: Any) -> dict[str, str]:
    """Return the columns that an UPDATE sets, with the SQL text of their values.

    Raises:
        InvalidArgumentError: They are not a dict, or a name or a value is not text.
    """
    if not isinstance(values, Mapping):
        raise _wrong("The new values", "a dict of columns and SQL text", values)
    for name, value in values.items():
        if not isinstance(name, str):
            raise _wrong("The name of a column", "text", name)
        if not isinstance(value, str):
            raise InvalidArgumentError(
                f"The value of {name!r} must be SQL text, not {type(value).__name__}.",
                hint='Write constants as SQL does: "\'paid\'", "0", "NULL", "DATE \'2024-05-01\'".',
            )
    return dict(values)


def version_of(version: Any) -> int | None:
    """Return the number of a version, or None for the newest.

    Raises:
        InvalidArgumentError: It is not a whole number.
    """
    return whole_of(version, "The version")


def whole_of(number: Any, what: str) -> int | None:
    """Return a whole number, or None.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if number is None:
        return None
    if isinstance(number, bool) or not hasattr(number, "__index__"):  # NumPy's integers are numbers, too
        raise _wrong(what, "a whole number", number)
    return int(number)


def flag_of(flag: Any, what: str) -> bool:
    """Return True or False.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if not isinstance(flag, bool):
        raise _wrong(what, "True or False", flag)
    return flag


def hours_of(hours: Any) -> float | None:
    """Return a number of hours, or None for the table's own.

    Raises:
        InvalidArgumentError: It is not a number.
    """
    if hours is None:
        return None
    if isinstance(hours, bool) or not isinstance(hours, Real):
        raise _wrong("The retention", "a number of hours", hours)
    try:
        return float(hours)
    except OverflowError:
        return math.inf
