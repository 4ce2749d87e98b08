"""Spell and read the names of tables and columns as SQL takes them, whatever characters are in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pydelta.errors import InvalidArgumentError

__all__ = ["camel_case", "path_text", "quoted", "unquoted"]

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PART: Final = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def camel_case(name: str) -> str:
    """Spell a Python name as JSON and the history do.

    Example:
        >>> camel_case("num_deleted_rows")
        'numDeletedRows'
    """
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


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


def path_text(path: Sequence[str]) -> str:
    r"""Return a path as users write it: dotted, odd names in backticks.

    Example:
        >>> path_text(("a", "b c"))
        'a.`b c`'
    """
    return ".".join(part if _PLAIN.fullmatch(part) else quoted(part) for part in path)
