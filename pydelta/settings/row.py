"""Declare a setting in one row, which defines its field, its parser and its line in the guide.

::

    max_open_files: int = setting("write.maxOpenFiles", parse_positive_int, "64", "Parquet writers of one task.")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["SettingRow", "rows_of", "setting", "table_of", "unset"]

_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """A setting.

    Args:
        field: Attribute of the class that holds its value.
        key: Name for users, without the common prefix.
        parse: Parser of its text; ``name`` is the name in errors.
        default: Default as a user would write it, or empty for no default.
        meaning: Meaning in one sentence.
        alias: Another name: a full one, or that of the reference engine with its default there.
    """

    field: str
    key: str
    parse: Callable[..., Any]
    default: str
    meaning: str
    alias: str


def setting(
    key: str, parse: Callable[..., _T], default: str, meaning: str, *, alias: str = "", shown: bool = True
) -> _T:
    """Return the field of a setting with a default.

    Args:
        key: Name for users, without the common prefix.
        parse: Parser that returns the field's type.
        default: A text that ``parse`` accepts.
        meaning: Meaning in one sentence.
        alias: Another name, as in ``SettingRow``.
        shown: Whether the ``repr`` of the settings includes it.
    """
    row = {"key": key, "parse": parse, "default": default, "meaning": meaning, "alias": alias}
    return dataclasses.field(default=parse(default, name=key), metadata=row, repr=shown)


def unset(
    key: str, parse: Callable[..., _T], value: _U, meaning: str, *, alias: str = "", shown: bool = True
) -> _T | _U:
    """Return the field of a setting without a default.

    Args:
        key: Name for users, without the common prefix.
        parse: Parser that returns the field's type.
        value: Value of the field if the setting is not set.
        meaning: Meaning in one sentence.
        alias: Another name, as in ``SettingRow``.
        shown: Whether the ``repr`` of the settings includes it.
    """
    row = {"key": key, "parse": parse, "default": "", "meaning": meaning, "alias": alias}
    return dataclasses.field(default=value, metadata=row, repr=shown)


def rows_of(cls: type) -> Mapping[str, SettingRow]:
    """Return the rows of a class of settings by their keys, in the order of the class."""
    fields = (it for it in dataclasses.fields(cls) if it.metadata)
    return {it.metadata["key"]: SettingRow(field=it.name, **it.metadata) for it in fields}


def table_of(rows: Mapping[str, SettingRow], prefix: str = "") -> list[str]:
    """Render settings as lines of a Markdown table: name, default, meaning."""
    return [
        f"| `{prefix}{row.key}` | {f'`{row.default}`' if row.default else ''} | {row.meaning} |"
        for row in rows.values()
    ]
