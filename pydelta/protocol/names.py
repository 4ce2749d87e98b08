"""Parse and quote the names of tables and columns in SQL, with any characters in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pydelta.errors import InvalidArgumentError

__all__ = ["camel_case", "path_text", "quoted", "unquoted"]

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PART: Final = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def camel_case(name: str) -> str:
    """Convert a Python name to the camelCase of JSON and the history.

    Example:
        >>> camel_case("num_deleted_rows")
        'numDeletedRows'
    """
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def quoted(*parts: str) -> str:
    """Quote each part of a name in backticks and join the parts with dots.

    Example:
        >>> quoted("lake", "odd`name")
        '`lake`.`odd``name`'
    """
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def unquoted(name: str) -> tuple[str, ...]:
    """Split a column or field name at its dots. Dots in backticks do not split.

    Raises:
        InvalidArgumentError: It is not a valid name.

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
        hint="A dot separates a column from a field in it; put a name that contains a dot in backticks: `a.b`.",
    )


def path_text(path: Sequence[str]) -> str:
    r"""Return a path as users write it: dotted, with backticks around unusual names.

    Example:
        >>> path_text(("a", "b c"))
        'a.`b c`'
    """
    return ".".join(part if _PLAIN.fullmatch(part) else quoted(part) for part in path)
