r"""Split SQL text into tokens, and read its literals, by the rules of Spark's lexer and parser.

::

    tokens("a = 'x\n' -- why")  ->  [name a, operator =, string 'x\n']      without comments and spaces
    text_of("'x\n'")            ->  the value of the literal
    number_of("-", "1.5e3")      ->  its value, and the name of its type

Text that Spark reads by a session setting, or that only Spark accepts, is refused.
"""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple
from unicodedata import category

__all__ = ["KEYWORDS", "NotRead", "Token", "Unsure", "number_of", "text_of", "tokens"]

KEYWORDS: Final = frozenset(
    {"AND", "BETWEEN", "CASE", "CAST", "DISTINCT", "DIV", "ESCAPE", "EXISTS", "FALSE", "FROM", "ILIKE", "IN"}
    | {"INTERVAL", "IS", "LIKE", "NOT", "NULL", "OR", "REGEXP", "RLIKE", "TRUE", "UNKNOWN"}
)
"""Words that can name a column only between backquotes."""

_TOKEN: Final = re.compile(
    r"""
      (?P<space> [ \t\r\n]++ | --(?:\\\n|[^\r\n])*+ )
    | (?P<digits> [0-9]++(?![\w.]) )
    | (?P<string> '(?:[^'\\]++|\\.|'')*+' | "(?:[^"\\]++|\\.|"")*+" | [rR]'[^']*+' | [rR]"[^"]*+" )
    | (?P<number> (?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?(?:[bB][dD]|[fFdD])?(?!\w)
                | [0-9]++[eE][+-][0-9]++(?:[bB][dD]|[fFdD])?(?!\w) )
    | (?P<word> \w++ )
    | (?P<quoted> `(?:[^`]|``)++` )
    | (?P<operator> <=> | <= | >= | <> | != | == | !> | !< | [=<>!(),.+-] )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT: Final = re.compile(r"/\*|\*/")
_WHOLE: Final = re.compile(r"[0-9]+(?:BD|[LSYFD])?|[0-9]+E[0-9]+(?:BD|[FD])?", re.IGNORECASE)
_NUMBER: Final = re.compile(r"(?P<digits>[0-9.]+)(?P<exponent>E[+-]?[0-9]+)?(?P<suffix>BD|[LSYFD])?")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))", re.DOTALL)
_ESCAPED: Final = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "%": "\\%",
    "_": "\\_",
}
_BITS: Final = {"Y": ("byte", 8), "S": ("short", 16), "L": ("long", 64)}
_PLAIN_DIGITS: Final = 9
_MOST_DIGITS: Final = 38
_MOST_CHARACTERS: Final = 400  # The smallest double, written in full, has fewer.


class NotRead(Exception):
    """The text at a position cannot be read.

    Args:
        position: Position in the text, from 0.
        reason: The problem, or None if the position explains it.
    """

    def __init__(self, position: int, reason: str | None = None) -> None:
        self.position = position
        self.reason = reason


class Token(NamedTuple):
    """A token. ``kind`` is string, number, name, word (one of ``KEYWORDS``, in capitals), operator or end."""

    kind: str
    text: str
    start: int


def tokens(text: str) -> list[Token]:
    """Split text into tokens. The last one marks the end.

    Raises:
        NotRead: No token begins at a position.
    """
    found: list[Token] = []
    position, end = 0, len(text)
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            position = _behind_comment(text, position)
            continue
        kind, part = match.lastgroup or "", match.group()
        if kind == "digits":
            kind = "number"
        elif kind == "word":
            kind, part = _kind_of(part, position)
        elif kind == "quoted":
            kind, part = "name", part[1:-1].replace("``", "`")
        if kind != "space":
            found.append(Token(kind, part, position))
        position = match.end()
    found.append(Token("end", "", len(text.rstrip())))
    return found


def _behind_comment(text: str, start: int) -> int:
    """Return the position after the comment that begins here. Comments can be nested."""
    if not text.startswith("/*", start):
        raise NotRead(start)
    depth, position = 0, start
    while depth or position == start:
        match = _COMMENT.search(text, position)
        if match is None or text.startswith("/*+", match.start()):  # This is an optimizer hint.
            raise NotRead(start)
        depth += 1 if match.group() == "/*" else -1
        position = match.end()
    return position


def _kind_of(word: str, position: int) -> tuple[str, str]:
    if not word.isascii():
        letters = all(char.isascii() or category(char).startswith("L") for char in word)
        if not letters or word.upper().isascii():  # Java's upper case of it could be a keyword.
            raise NotRead(position, "Put the name between backquotes.")
        return "name", word
    if word[0].isdigit():
        return ("number" if _WHOLE.fullmatch(word) else "name"), word
    upper = word.upper()
    return ("word", upper) if upper in KEYWORDS else ("name", word)


def text_of(literal: str) -> str:
    """Return the value of a string literal, with escapes resolved.

    Raises:
        ValueError: It holds half of a surrogate pair, which Spark stores as another character.
    """
    quote = literal[0]
    if quote in "rR":
        found = literal[2:-1]
    else:
        found = literal[1:-1].replace(quote * 2, quote) if "\\" not in literal else _unescaped(literal[1:-1], quote)
    if found.isascii():
        return found
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _unescaped(body: str, quote: str) -> str:
    parts, position = list[str](), 0
    for match in _ESCAPE.finditer(body):
        parts.append(body[position : match.start()].replace(quote * 2, quote))
        short, long, octal, char = match.groups()
        position = match.end()
        if char is None:
            code = int(short or long, 16) if octal is None else int(octal, 8)
            if code > 0x10FFFF:
                raise ValueError("no character")
            parts.append(chr(code))
        else:
            parts.append(_ESCAPED.get(char, char))
    return "".join([*parts, body[position:].replace(quote * 2, quote)])


class Unsure(ValueError):
    """Raised for a value that only Spark can determine."""


def number_of(sign: str, text: str) -> tuple[Any, str]:
    """Return the value of a number, and its type: an integer type, ``decimal``, ``float`` or ``double``.

    Args:
        sign: ``-`` or empty.
        text: The token.

    Raises:
        ValueError: Its type has no such value.
        Unsure: Only Spark can determine its value.
    """
    if len(text) <= _PLAIN_DIGITS and text.isdigit():
        return int(sign + text), "integer"
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"has {len(text)} characters")
    match = _NUMBER.fullmatch(text.upper())
    assert match is not None, "a token that is a number"
    digits, exponent, suffix = (part or "" for part in match.groups())
    if suffix in ("D", "F") or (exponent and not suffix):
        return _floating(f"{sign}{digits}{exponent}", suffix)
    if exponent:
        raise Unsure("is a decimal with an exponent")
    whole, _, fraction = digits.partition(".")
    if len(whole.lstrip("0")) + len(fraction) > _MOST_DIGITS:
        raise ValueError("has too many digits")
    if suffix == "BD" or "." in digits:
        return Decimal(sign + digits), "decimal"
    value = int(sign + digits)
    kind, bits = _BITS.get(suffix, ("integer", 32))
    if not suffix and not _within(value, bits):
        kind, bits = "long", 64
    if _within(value, bits):
        return value, kind
    if suffix:
        raise ValueError("is outside the range of its type")
    return value, "decimal"


def _within(value: int, bits: int) -> bool:
    return -(1 << bits - 1) <= value < 1 << bits - 1


def _floating(plain: str, suffix: str) -> tuple[float, str]:
    value = float(plain)
    if value in (float("inf"), float("-inf")):
        raise ValueError("is outside the range of its type")
    if suffix != "F":
        return value, "double"
    try:
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError as error:
        raise ValueError("is outside the range of its type") from error
    if Fraction(Decimal(plain)) != Fraction(single):
        raise Unsure("is a number that a float would round")
    return single, "float"
