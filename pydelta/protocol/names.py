"""Spell the names of tables and columns as SQL takes them, whatever characters are in them."""

from __future__ import annotations

__all__ = ["quoted"]


def quoted(*parts: str) -> str:
    """Put each part of a name between backticks, with dots between the parts.

    Example:
        >>> quoted("lake", "odd`name")
        '`lake`.`odd``name`'
    """
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
