"""Parse SQL text into a condition bound to a table's schema, without Spark, for the command line and path predicates.

Supports comparisons, AND, OR, NOT, IS [NOT] DISTINCT FROM, [NOT] IN, [NOT] BETWEEN, [NOT] LIKE 'prefix%' [ESCAPE],
IS [NOT] NULL, TRUE or FALSE over columns and constants, with Spark's precedence.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

from pydelta.errors import ParseError
from pydelta.predicate.binding import Binder, Joined
from pydelta.predicate.expressions import And, Column, Expr, Literal, Not, Or
from pydelta.predicate.lexing import NotRead, Token, tokens
from pydelta.protocol.types import StructType

__all__ = ["parse_predicate", "parse_value"]

_COMPARISONS: Final = frozenset(("=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">=", "!>", "!<"))
_TYPED: Final = frozenset(("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "X"))
_DEEPEST: Final = 100
_HINT: Final = (
    "Compare columns with constants: day >= '2024-01-01' AND kind IN ('a', 'b'). Functions, casts and arithmetic take "
    "a session of Spark."
)
_Step = Generator[Any, Any, Any]


def parse_predicate(text: str, schema: StructType, *, time_zone: str | None = None) -> Expr:
    """Parse a condition and bind its columns.

    Args:
        text: The text after WHERE, in Spark's SQL with default settings.
        schema: Columns of the table. Constants are converted to the type of the column that they are compared with.
        time_zone: Zone of times that name none. With None, such times are refused if an instant is needed.

    Raises:
        ParseError: It does not parse. The message shows line and column with a caret.
        BindError: It names a missing column (the message lists the nearest and all others), compares a column with a
            constant in a way that may differ from Spark's, or is a value instead of a condition.
        InvalidArgumentError: A LIKE pattern is not a prefix.
    """
    binder = Binder(schema, time_zone)
    return _built(binder.condition(_Parser(text, binder).run()))


def parse_value(text: str, schema: StructType, *, time_zone: str | None = None) -> Column | Literal | None:
    """Parse a constant or the name of a column, or return None for any other expression. See ``parse_predicate``."""
    found = _Parser(text, Binder(schema, time_zone)).run(value=True)
    return found if isinstance(found, (Column, Literal)) else None


def _built(expr: Any) -> Expr:
    """Build the tree of a condition. Long chains of AND and OR become balanced."""
    return _node(expr, 0)


def _node(expr: Any, depth: int) -> Expr:
    if depth > _DEEPEST:
        raise ParseError("The condition is nested too deeply.", hint="Write long lists of alternatives with IN (...).")
    if isinstance(expr, Joined):
        return _balanced(expr.kind, [_node(part, depth + 1) for part in expr.parts])
    if isinstance(expr, Not):
        return Not(_node(expr.child, depth + 1))
    found: Expr = expr
    return found


def _balanced(kind: type[And] | type[Or], parts: Sequence[Expr]) -> Expr:
    """Turn ``a AND b AND c AND d`` into ``(a AND b) AND (c AND d)``."""
    level = list(parts)
    while len(level) > 1:
        pairs = [kind(*level[at : at + 2]) for at in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) - len(level) % 2 :]
    (found,) = level
    return found


class _Parser:
    """Parses one text. Its methods are generators driven by ``run``, so that deep nesting cannot overflow the stack."""

    def __init__(self, text: str, binder: Binder) -> None:
        self._text = text
        self._binder = binder
        try:
            self._tokens = tokens(text)
        except NotRead as error:
            raise self._error(error.position, error.reason) from None
        self._at = 0

    def run(self, *, value: bool = False) -> Any:
        """Parse the whole text.

        Args:
            value: Whether to parse a value. The result is None if the text is more than a constant or a column.
        """
        stack, found = [self._alone() if value else self._whole()], None
        while stack:
            try:
                stack.append(stack[-1].send(found))
                found = None
            except StopIteration as done:
                stack.pop()
                found = done.value
        return found

    # --- tokens --------------------------------------------------------------------------------------------

    def _error(self, position: int, reason: str | None = None) -> ParseError:
        """Make an error that shows a position of the text."""
        lines = self._text[:position].split("\n")
        line, column = len(lines), len(lines[-1]) + 1
        shown = self._text.split("\n")[line - 1].rstrip("\r")
        return ParseError(
            f"The condition does not parse at line {line}, column {column}:\n  {shown}\n  {' ' * (column - 1)}^",
            line=line,
            column=column,
            hint=reason or _HINT,
        )

    def _next(self, *expected: str) -> Token:
        """Return the next token, which must be one of these operators or words if any are given."""
        token = self._tokens[self._at]
        if expected and (token.kind not in ("operator", "word") or token.text not in expected):
            raise self._error(token.start)
        self._at += 1
        return token

    def _take(self, *texts: str) -> bool:
        """Skip these operators or words if they come next. Returns whether they did."""
        ahead = self._tokens[self._at : self._at + len(texts)]
        if [item.text for item in ahead if item.kind in ("operator", "word")] != list(texts):
            return False
        self._at += len(texts)
        return True

    # --- grammar -------------------------------------------------------------------------------------------

    def _whole(self) -> _Step:
        found = yield self._boolean()
        token = self._tokens[self._at]
        if token.kind != "end":
            raise self._error(token.start)
        return found

    def _alone(self) -> _Step:
        found = yield self._primary()
        return found if self._tokens[self._at].kind == "end" else None

    def _boolean(self) -> _Step:
        alternatives = []
        while True:
            conjuncts = []
            while True:
                conjuncts.append((yield self._negated()))
                if not self._take("AND"):
                    break
            alternatives.append(self._joined(And, conjuncts))
            if not self._take("OR"):
                return self._joined(Or, alternatives)

    def _joined(self, kind: type[And] | type[Or], parts: list[Any]) -> Any:
        if len(parts) == 1:
            return parts.pop()
        first, *others = map(self._binder.condition, parts)
        found = first.parts if isinstance(first, Joined) and first.kind is kind else [first]
        for part in others:
            found += part.parts if isinstance(part, Joined) and part.kind is kind else [part]
        return Joined(kind, found)

    def _negated(self) -> _Step:
        negations = 0
        while self._take("NOT") or self._take("!"):
            negations += 1
        found = yield self._predicated()
        if not negations:
            return found
        child = self._binder.condition(found)
        return child if negations % 2 == 0 else self._opposite(child)

    def _opposite(self, child: Any) -> Any:
        return child.child if isinstance(child, Not) else Not(child)

    def _predicated(self) -> _Step:
        left, binder = (yield self._value()), self._binder
        found: Expr | Joined
        if self._take("IS"):
            negated = self._take("NOT")
            if self._take("DISTINCT", "FROM"):
                same = binder.compare("<=>", left, (yield self._value()))
                return same if negated else self._opposite(same)
            found = binder.is_(self._next("NULL", "TRUE", "FALSE", "UNKNOWN").text, left)
            return self._opposite(found) if negated else found
        negated = self._take("NOT")
        if self._take("IN"):
            found = binder.in_(left, (yield self._list()))
        elif self._take("BETWEEN"):
            low = yield self._value()
            self._next("AND")
            high = yield self._value()
            found = Joined(And, [binder.compare(">=", left, low), binder.compare("<=", left, high)])
        elif self._take("LIKE"):
            pattern = yield self._value()
            found = binder.like(left, pattern, self._escape())
        elif negated:
            raise self._error(self._tokens[self._at].start)
        else:
            return left
        return self._opposite(found) if negated else found

    def _escape(self) -> str:
        if not self._take("ESCAPE"):
            return "\\"
        token = self._next()
        text = self._binder.string("", token.text).value if token.kind == "string" else ""
        if len(text) != 1:
            raise self._error(token.start, "The escape character must be a single character.")
        return str(text)

    def _list(self) -> _Step:
        self._next("(")
        values: list[Any] = []
        while True:
            self._constants(values)
            values.append((yield self._boolean()))
            if self._next(",", ")").text == ")":
                return values

    def _constants(self, values: list[Any]) -> None:
        """Read all plain constants that are followed by a comma."""
        found, at, read = self._tokens, self._at, {"number": self._binder.number, "string": self._binder.string}
        while (reader := read.get(found[at].kind)) and found[at + 1].text == "," and found[at + 1].kind == "operator":
            values.append(reader("", found[at].text))
            at += 2
        self._at = at

    def _value(self) -> _Step:
        left = yield self._primary()
        while (token := self._tokens[self._at]).kind == "operator" and token.text in _COMPARISONS:
            self._at += 1
            right = yield self._primary()
            left = self._binder.compare(token.text, left, right)
        return left

    def _primary(self) -> _Step:
        token = self._next()
        if token.kind == "operator" and token.text == "(":
            found = yield self._boolean()
            self._next(")")
            return found
        if token.kind == "operator" and token.text in ("-", "+"):
            number = self._next()
            if number.kind != "number":
                raise self._error(number.start)
            return self._constant(number, "-" if token.text == "-" else "")
        if token.kind in ("string", "number"):
            return self._constant(token, "")
        if token.kind == "word" and token.text in ("TRUE", "FALSE", "NULL"):
            return self._binder.word(token.text)
        if token.kind != "name":
            raise self._error(token.start)
        return self._named(token)

    def _named(self, token: Token) -> Expr:
        """Read a column, or a literal with the type that the name gives."""
        unquoted = self._text.startswith(token.text, token.start)
        following = self._tokens[self._at]
        if following.kind == "string" and unquoted and token.text.upper() in _TYPED:
            self._at += 1
            return self._binder.typed(token.text.upper(), following.text)
        names = [token.text]
        while self._take("."):
            part = self._next()
            if part.kind != "name":
                raise self._error(part.start)
            names.append(part.text)
        following = self._tokens[self._at]
        if following.kind == "operator" and following.text == "(":
            raise self._error(token.start)  # It is a function call.
        return self._binder.column(names)

    def _constant(self, token: Token, sign: str) -> Literal:
        if token.kind == "number":
            return self._binder.number(sign, token.text)
        found = self._binder.string("", token.text)
        while self._tokens[self._at].kind == "string":
            found = self._binder.string(found.value, self._next().text)
        return found
