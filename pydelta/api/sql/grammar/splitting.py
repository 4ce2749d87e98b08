"""Split text into its statements, and what is not ended yet.

A semicolon ends a statement unless it stands in a string, a quoted name, a comment or a ``BEGIN … END`` block.
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
        line: Line of the whole text that it begins on, from 1.
    """

    text: str
    line: int


def split_statements(text: str) -> tuple[list[Piece], str]:
    """Cut text at the semicolons that end statements.

    Args:
        text: SQL.

    Returns:
        The statements that are ended, empty ones left out, and the text after the last of them. That is blank when
        everything is ended; an unclosed string, name, comment or block reaches to its end.

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
                depth += 1  # END IF and its like close what was not counted
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
    """Tell whether text holds nothing but white space and comments that are closed."""
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
    """Where a bracketed comment ends, and whether it does; they nest, as Spark's do."""
    depth = 1
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end(), True
    return len(text), False
