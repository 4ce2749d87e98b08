"""Parse SQL text into a condition bound to a table's schema, without Spark: for command line and path predicates.

Covers comparisons, AND, OR, NOT, [NOT] IN, [NOT] BETWEEN, [NOT] LIKE 'prefix%', IS [NOT] NULL over columns and
constants.
"""

from __future__ import annotations

import datetime as dt
import difflib
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedInput, UnexpectedToken, VisitError

from pydelta.conditions import Condition
from pydelta.errors import BindError, DeltaError, InvalidArgumentError, LogCorruptedError, ParseError
from pydelta.predicate.expressions import (
    And,
    Column,
    Compare,
    Expr,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
)
from pydelta.protocol.partitions import parse_partition_value
from pydelta.protocol.types import DataType, DecimalType, PrimitiveType, StructType

__all__ = ["parse_predicate"]

_GRAMMAR: Final = r"""
?start: or_
?or_: and_ | or_ "OR"i and_
?and_: not_ | and_ "AND"i not_
?not_: "NOT"i not_ -> negate | test
?test: operand
     | operand COMPARISON operand -> compare
     | operand "IS"i "NULL"i -> is_null
     | operand "IS"i "NOT"i "NULL"i -> is_not_null
     | operand "IN"i "(" constant ("," constant)* ")" -> in_
     | operand "NOT"i "IN"i "(" constant ("," constant)* ")" -> not_in
     | operand "BETWEEN"i operand "AND"i operand -> between
     | operand "NOT"i "BETWEEN"i operand "AND"i operand -> not_between
     | operand "LIKE"i STRING -> like
     | operand "NOT"i "LIKE"i STRING -> not_like
?operand: constant | column | "(" or_ ")"
?constant: STRING -> string
     | SIGNED -> number
     | "TRUE"i -> true
     | "FALSE"i -> false
     | "NULL"i -> null
     | _DATE STRING -> date
     | _TIMESTAMP STRING -> timestamp
column: NAME ("." NAME)*
COMPARISON: "<=>" | "<=" | ">=" | "!=" | "<>" | "==" | "=" | "<" | ">"
_DATE.2: /DATE(?=\s*['"])/i
_TIMESTAMP.2: /TIMESTAMP(?=\s*['"])/i
STRING: /'(?:[^'\\]|\\.|'')*'/ | /"(?:[^"\\]|\\.)*"/
SIGNED.2: /[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?/
NAME: /`(?:[^`]|``)+`/ | /(?!(?:AND|OR|NOT|IN|IS|NULL|BETWEEN|LIKE|TRUE|FALSE)\b)[^\W\d]\w*/i
%import common.WS
%ignore WS
"""


_SPELLINGS: Final = {
    "date": "Write dates as 2024-05-01.",
    "timestamp": "Write times as 2024-05-01 12:00:00.",
    "timestamp_ntz": "Write times as 2024-05-01 12:00:00.",
}
_MOST_CHARACTERS: Final = 400  # the smallest double, written out, has fewer
_OTHER: Final = "Compare the column with a constant of its own type."


@lru_cache(maxsize=1)
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="contextual", maybe_placeholders=False)


def parse_predicate(text: str, schema: StructType) -> Expr:
    """Parse a condition and bind its columns.

    Args:
        text: As after WHERE.
        schema: The columns there are. Constants are converted to the type of the column they meet.

    Raises:
        ParseError: It does not parse; line, column and a caret show where.
        BindError: It names a column that is not there (with the nearest one and all there are), or compares a column
            with a constant that is not a value of its type, or is a value where a condition is meant.
        InvalidArgumentError: A LIKE pattern other than a prefix.
    """
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        lines = text.replace("\r\n", "\n").split("\n")  # as the parser counts them
        line, column = max(error.line, 1), max(error.column, 1)
        if isinstance(error, UnexpectedToken) and error.token.type == "$END":  # it stops too early: point behind it
            line, column = len(lines), len(lines[-1].rstrip()) + 1
        shown = lines[line - 1]
        raise ParseError(
            f"The condition does not parse at line {line}, column {column}:\n  {shown}\n  {' ' * (column - 1)}^",
            line=line,
            column=column,
            hint="Compare columns with constants: day >= '2024-01-01' AND kind IN ('a', 'b').",
        ) from None
    try:
        binder = _Binder(schema)
        bound = binder.condition(binder.transform(tree))
    except VisitError as error:
        if isinstance(error.orig_exc, DeltaError):
            raise error.orig_exc from None
        raise
    except RecursionError:
        raise ParseError(
            "The condition is nested too deeply.", hint="Write long lists of alternatives with IN (...)."
        ) from None
    return bound


def _unquote(token: str) -> str:
    body = token[1:-1]
    if token[0] == "'":
        body = body.replace("''", "'")
    out, escaped = [], False
    for char in body:
        if escaped:
            out.append({"n": "\n", "t": "\t", "0": "\0"}.get(char, char))
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            out.append(char)
    return "".join(out)


@v_args(inline=True)
class _Binder(Transformer[Token, Expr]):
    """Tree of the grammar -> expressions; constants take the type of the column beside them."""

    def __init__(self, schema: StructType) -> None:
        super().__init__()
        self._schema = schema
        self._types: dict[tuple[str, ...], DataType] = {}

    def column(self, *names: Token) -> Expr:
        path: list[str] = []
        current: DataType = self._schema
        for token in names:
            name = token[1:-1].replace("``", "`") if token.startswith("`") else str(token)
            field = current.field(name) if isinstance(current, StructType) else None
            if field is None:
                known = current.names if isinstance(current, StructType) else ()
                close = difflib.get_close_matches(name, known, n=1)
                raise BindError(
                    f"There is no column {'.'.join([*path, name])!r}.",
                    hint=(f"Did you mean {close[0]!r}? " if close else "")
                    + (
                        f"The {'fields' if path else 'columns'} are: {', '.join(known)}."
                        if known
                        else f"{'.'.join(path)!r} is {current} and has no fields."
                    ),
                    condition=Condition.of(
                        "UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName=".".join([*path, name]), proposal=known
                    ),
                )
            path.append(field.name)
            current = field.data_type
        self._types[tuple(path)] = current
        return Column(tuple(path))

    def string(self, token: Token) -> Expr:
        return Literal(_unquote(token), "string")

    def number(self, token: Token) -> Expr:
        text = str(token)
        if len(text) > _MOST_CHARACTERS:
            raise BindError(
                f"The number {text[:20]}… has {len(text)} characters.",
                hint="Numbers of tables have at most 38 digits.",
            )
        if text.lstrip("+-").isdigit():
            return Literal(int(text), "long")
        return Literal(float(text), "double") if "e" in text.lower() else Literal(Decimal(text), "decimal")

    def true(self) -> Expr:
        return Literal(True, "boolean")

    def false(self) -> Expr:
        return Literal(False, "boolean")

    def null(self) -> Expr:
        return Literal(None)

    def date(self, token: Token) -> Expr:
        return self._parsed(_unquote(token), PrimitiveType("date"))

    def timestamp(self, token: Token) -> Expr:
        return self._parsed(_unquote(token), PrimitiveType("timestamp"))

    def _parsed(self, text: str, data_type: DataType) -> Literal:
        try:
            return Literal(parse_partition_value(text, data_type), str(data_type))
        except LogCorruptedError:
            raise BindError(
                f"{text!r} is not a valid {data_type}.", hint=_SPELLINGS.get(str(data_type), _OTHER)
            ) from None

    def compare(self, left: Expr, operator: Token, right: Expr) -> Expr:
        left, right = self._typed(left, right), self._typed(right, left)
        symbol = {"==": "=", "<>": "!="}.get(str(operator), str(operator))
        return Not(Compare("=", left, right)) if symbol == "!=" else Compare(symbol, left, right)

    def is_null(self, child: Expr) -> Expr:
        return IsNull(child)

    def is_not_null(self, child: Expr) -> Expr:
        return IsNotNull(child)

    def in_(self, child: Expr, *values: Expr) -> Expr:
        return In(child, tuple(self._constant(self._typed(value, child)) for value in values))

    def not_in(self, child: Expr, *values: Expr) -> Expr:
        return Not(self.in_(child, *values))

    def between(self, child: Expr, low: Expr, high: Expr) -> Expr:
        return And(Compare(">=", child, self._typed(low, child)), Compare("<=", child, self._typed(high, child)))

    def like(self, child: Expr, token: Token) -> Expr:
        pattern = _unquote(token)
        prefix = pattern.removesuffix("%")
        if "%" in prefix or "_" in prefix:
            raise InvalidArgumentError(
                f"LIKE {pattern!r} is not supported here.",
                hint="Without Spark, only patterns such as 'abc%' are supported.",
            )
        return StartsWith(child, prefix) if pattern.endswith("%") else Compare("=", child, Literal(prefix, "string"))

    def not_between(self, child: Expr, low: Expr, high: Expr) -> Expr:
        return Not(self.between(child, low, high))

    def not_like(self, child: Expr, token: Token) -> Expr:
        return Not(self.like(child, token))

    def negate(self, child: Expr) -> Expr:
        return Not(self.condition(child))

    def and_(self, left: Expr, right: Expr) -> Expr:
        return And(self.condition(left), self.condition(right))

    def or_(self, left: Expr, right: Expr) -> Expr:
        return Or(self.condition(left), self.condition(right))

    def condition(self, expr: Expr) -> Expr:
        """The expression, when it is true, false or null."""
        value = isinstance(expr, Column) and self._types[expr.path] != PrimitiveType("boolean")
        if value or (isinstance(expr, Literal) and not (expr.value is None or isinstance(expr.value, bool))):
            raise BindError(f"{expr} is not a condition.", hint=f"Compare it with something, as in {expr} = ….")
        return expr

    @staticmethod
    def _constant(expr: Expr) -> Any:
        assert isinstance(expr, Literal)
        return expr.value

    def _typed(self, side: Expr, other: Expr) -> Expr:
        """A constant in the type of the column that it is compared with."""
        if not (isinstance(side, Literal) and isinstance(other, Column)) or side.value is None:
            return side
        data_type, value = self._types[other.path], side.value
        name = data_type.name if isinstance(data_type, PrimitiveType) else "decimal"
        numeric = isinstance(data_type, DecimalType) or name in (
            "byte", "short", "integer", "long", "float", "double",
        )  # fmt: skip
        if isinstance(value, str) and name != "string":
            return self._parsed(value, data_type)
        fits = {
            "string": isinstance(value, str),
            "boolean": isinstance(value, bool),
            "date": isinstance(value, dt.date) and not isinstance(value, dt.datetime),
            "timestamp": isinstance(value, dt.datetime),
            "timestamp_ntz": isinstance(value, dt.datetime),
        }.get(name, numeric and isinstance(value, (int, float, Decimal)) and not isinstance(value, bool))
        if not fits:
            raise BindError(
                f"The column {'.'.join(other.path)!r} is {data_type}, and {side} is not.",
                hint="Compare it with a constant of its own type.",
            )
        if name == "timestamp_ntz" and value.tzinfo is not None:
            return Literal(value.replace(tzinfo=None), name)
        return Literal(value, str(data_type))
