"""Declare a setting in one row, from which its field, its parsing and the page about it are made.

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
        key: Its name for users, without a prefix that all have.
        parse: Reads its text; ``name`` is what errors call it.
        default: What it is where it is not set, as a user would write it; empty for nothing.
        meaning: What it is for.
        alias: Another name for it: a full one, or that of the reference engine with its default there.
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
    """Return the field of a setting that has a default.

    Args:
        key: As in ``SettingRow``, like the next ones.
        parse: Gives the field's type.
        default: A text that ``parse`` takes.
        meaning: A sentence.
        alias: Another name.
        shown: Whether the ``repr`` of the settings has it.
    """
    row = {"key": key, "parse": parse, "default": default, "meaning": meaning, "alias": alias}
    return dataclasses.field(default=parse(default, name=key), metadata=row, repr=shown)


def unset(
    key: str, parse: Callable[..., _T], value: _U, meaning: str, *, alias: str = "", shown: bool = True
) -> _T | _U:
    """Return the field of a setting without a default.

    Args:
        key: As in ``setting``, like all others but one.
        parse: Gives the field's type.
        value: What the field holds where it is not set.
        meaning: A sentence.
        alias: Another name.
        shown: Whether the ``repr`` has it.
    """
    row = {"key": key, "parse": parse, "default": "", "meaning": meaning, "alias": alias}
    return dataclasses.field(default=value, metadata=row, repr=shown)


def rows_of(cls: type) -> Mapping[str, SettingRow]:
    """Return the rows of a class of settings by their keys, in its order."""
    fields = (it for it in dataclasses.fields(cls) if it.metadata)
    return {it.metadata["key"]: SettingRow(field=it.name, **it.metadata) for it in fields}


def table_of(rows: Mapping[str, SettingRow], prefix: str = "") -> list[str]:
    """Render settings as lines of a table in Markdown: name, default, meaning."""
    return [
        f"| `{prefix}{row.key}` | {f'`{row.default}`' if row.default else ''} | {row.meaning} |"
        for row in rows.values()
    ]
