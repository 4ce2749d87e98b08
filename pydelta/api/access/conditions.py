"""Parse the conditions of row filters: comparisons of a column with constants, joined by AND.

Only what Trino and Spark decide alike is allowed. Every constant has a type, and both engines compare a column only
with constants of one kind, so that neither converts a value.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["Comparison", "ConditionError", "Constant", "is_bigint", "kind_of", "parse_condition"]

Constant: TypeAlias = str | int | bool | datetime.date
_OPERATORS: Final = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_LARGEST: Final = 2**63
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
      | (?P<number>-?\d+(?![\w.]))
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign><=|>=|<>|!=|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE,
)
_RESERVED: Final = frozenset({"and", "or", "not", "in", "is", "null", "true", "false", "like", "between"})


class ConditionError(ValueError):
    """A text that is not a condition of this grammar."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison.

    Args:
        column: Name of the column.
        operator: ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=`` or ``IN``.
        values: The constant, or those of IN. All have one type.
    """

    column: str
    operator: str
    values: tuple[Constant, ...]


def kind_of(value: Constant) -> str:
    """Return the kind of a constant: ``text``, ``integer``, ``boolean`` or ``date``."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    return "text" if isinstance(value, str) else "date"


def is_bigint(number: int) -> bool:
    """Return whether an integer has at most 64 bits, as the largest type of both engines."""
    return -_LARGEST <= number < _LARGEST


def parse_condition(text: str) -> tuple[Comparison, ...]:
    """Parse a condition such as ``region = 'EU' AND day >= DATE '2024-01-01'``.

    Raises:
        ConditionError: The text is not of this grammar.
    """
    return _Reader(text).condition()


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def condition(self) -> tuple[Comparison, ...]:
        found = [self._comparison()]
        while self._at < len(self._tokens):
            kind, word = self._next("AND")
            if kind != "word" or word.upper() != "AND":
                raise ConditionError(f"{word!r} stands where AND is expected")
            found.append(self._comparison())
        return tuple(found)

    def _next(self, expected: str) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise ConditionError(f"it ends where {expected} is expected")
        self._at += 1
        return self._tokens[self._at - 1]

    def _comparison(self) -> Comparison:
        column = self._column()
        kind, sign = self._next("an operator")
        if kind == "word" and sign.upper() == "IN":
            return Comparison(column, "IN", self._list())
        if kind != "sign" or sign not in _OPERATORS:
            raise ConditionError(f"{sign!r} is not one of {', '.join(_OPERATORS)}, IN")
        return Comparison(column, _OPERATORS[sign], (self._constant(),))

    def _column(self) -> str:
        kind, word = self._next("a column")
        if kind == "quoted":
            return word[1:-1].replace(word[0] * 2, word[0])
        if kind != "word" or word.lower() in _RESERVED:
            raise ConditionError(f"{word!r} stands where a column is expected")
        return word

    def _list(self) -> tuple[Constant, ...]:
        if self._next("(") != ("sign", "("):
            raise ConditionError("IN needs a list in brackets")
        values = [self._constant()]
        while (token := self._next(")")) != ("sign", ")"):
            if token != ("sign", ","):
                raise ConditionError(f"{token[1]!r} stands where a comma is expected")
            values.append(self._constant())
        if len({kind_of(value) for value in values}) > 1:
            raise ConditionError("the constants of IN have several types")
        return tuple(values)

    def _constant(self) -> Constant:
        kind, word = self._next("a constant")
        if kind == "text":
            return word[1:-1].replace("''", "'")
        if kind == "number" and is_bigint(int(word)):
            return int(word)
        if kind == "word" and word.lower() in ("true", "false"):
            return word.lower() == "true"
        if kind == "word" and word.upper() == "DATE":
            return self._date()
        raise ConditionError(f"{word!r} is not a text in quotes, an integer, TRUE, FALSE or DATE '…'")

    def _date(self) -> datetime.date:
        kind, word = self._next("a date in quotes")
        try:
            if kind != "text" or len(word) != len("'2024-01-01'"):
                raise ValueError
            return datetime.date.fromisoformat(word[1:-1])
        except ValueError:
            raise ConditionError(f"{word} is not a date such as '2024-01-01'") from None


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ConditionError(f"{text[at:end].strip()[:40]!r} cannot be read")
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found
