"""Spell and read the names of tables and columns as SQL takes them, whatever characters are in them."""

from __future__ import annotations

import re
from typing import Final

from pydelta.errors import InvalidArgumentError

__all__ = ["quoted", "unquoted"]

_PART: Final = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def quoted(*parts: str) -> str:
    """Put each part of a name between backticks, with dots between the parts.

    Example:
        >>> quoted("lake", "odd`name")
        '`lake`.`odd``name`'
    """
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def unquoted(name: str) -> tuple[str, ...]:
    """Split the name of a column, or of a field in it, at its dots; those between backticks belong to a part.

    Raises:
        InvalidArgumentError: It is not such a name.

    Example:
        >>> unquoted("a.`b.c`")
        ('a', 'b.c')
    """
    parts, position = list[str](), 0
    while match := _PART.match(name, position):
        parts.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        position = match.end()
        if position == len(name):
            return tuple(parts)
        if name[position] != ".":
            break
        position += 1
    raise InvalidArgumentError(
        f"{name!r} is not the name of a column.",
        hint="A dot leads to a field in a column; put a name that has a dot between backticks: `a.b`.",
    )
