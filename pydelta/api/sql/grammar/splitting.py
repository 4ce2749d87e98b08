"""Split text into complete statements and an unfinished rest.

A semicolon ends a statement unless it is inside a string, a quoted name, a comment or a ``BEGIN … END`` block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Piece", "is_blank", "split_statements"]

_TOKEN: Final = re.compile(
    r"""(?P<comment>--[^\n]*(?:\n|$))
      | (?P<open_comment>/\*)
      | (?P<raw>\b[rR](?:'[^']*'|"[^"]*"))
      | (?P<open_raw>\b[rR]['"])
      | (?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)
      | (?P<open>['"`])
      | (?P<word>\w+)
      | (?P<end>;)
      | (?P<blank>\s+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_BLOCK_ENDS: Final = frozenset({"IF", "LOOP", "WHILE", "REPEAT", "FOR"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One statement.

    Args:
        text: Without the semicolon.
        line: Line of the whole text where it begins, from 1.
    """

    text: str
    line: int


def split_statements(text: str) -> tuple[list[Piece], str]:
    """Cut text at the semicolons that end statements.

    Args:
        text: SQL.

    Returns:
        The complete statements, without empty ones, and the text after the last of them. The rest is blank when every
        statement is complete; an unclosed string, name, comment or block stays in the rest.

    Example:
        >>> pieces, rest = split_statements("SELECT ';' /* one; */; SELECT 2")
        >>> [piece.text for piece in pieces], rest.strip()
        (["SELECT ';' /* one; */"], 'SELECT 2')
    """
    pieces: list[Piece] = []
    start = at = depth = 0
    block = first = True
    previous = ""
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None
        kind, at = match.lastgroup, match.end()
        if kind == "open_comment":
            at, _ = _after_comment(text, at)
        elif kind in ("open", "open_raw"):
            break
        elif kind == "word":
            word = match.group().upper()
            if first:
                block = word == "BEGIN"
            first = False
            if block and word in ("BEGIN", "CASE") and previous != "END":
                depth += 1
            elif block and previous == "END" and word in _BLOCK_ENDS:
                depth += 1  # END IF and the like close blocks that were not counted.
            if block and word == "END":
                depth -= 1
            previous = word
        elif kind == "end" and depth <= 0:
            statement = text[start : match.start()]
            if not is_blank(statement):
                leading = len(statement) - len(statement.lstrip())
                line = text.count("\n", 0, start + leading) + 1
                pieces.append(Piece(text=statement.strip(), line=line))
            start, depth, block, first, previous = at, 0, True, True, ""
        elif kind in ("end", "quoted", "raw", "other"):
            first, previous = False, "" if kind != "end" else ";"
    return pieces, text[start:]


def is_blank(text: str) -> bool:
    """Return whether text holds only white space and closed comments."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None
        if match.lastgroup not in ("comment", "blank", "open_comment"):
            return False
        at = match.end()
        if match.lastgroup == "open_comment":
            at, closed = _after_comment(text, at)
            if not closed:
                return False
    return True


def _after_comment(text: str, at: int) -> tuple[int, bool]:
    """Return where a bracketed comment ends, and whether it is closed; comments nest as Spark's do."""
    depth = 1
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end(), True
    return len(text), False
