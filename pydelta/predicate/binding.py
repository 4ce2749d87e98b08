"""Bind parsed conditions to columns, with each constant in the type in which Spark compares it with its column.

A comparison is accepted only if Spark gives the same result for every row. If Spark would cast the column, round, or
use the session's time zone, it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from pydelta.errors import BindError, InvalidArgumentError, LogCorruptedError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.errors.suggestions import nearest
from pydelta.predicate.expressions import (
    WHOLE,
    And,
    Column,
    Compare,
    Expr,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    TextTest,
)
from pydelta.predicate.lexing import Unsure, number_of, text_of
from pydelta.protocol.partitions import names_zone, parse_partition_value
from pydelta.protocol.sized_texts import LENGTH
from pydelta.protocol.types import DataType, DecimalType, PrimitiveType, StructField, StructType

__all__ = ["Binder", "Joined", "value_of_text"]

_SPELLINGS: Final = {
    "date": "Write dates as 2024-05-01.",
    "timestamp": "Write times as 2024-05-01 12:00:00+02:00.",
    "timestamp_ntz": "Write times as 2024-05-01 12:00:00.",
}
_OTHER: Final = "Compare the column with a constant of its own type; casts take a session of Spark."
_EXACT_DOUBLE: Final = 1 << 53
_MOST_FLOATS: Final = 10
_LONG_DIGITS: Final = 20
_COLLATIONS: Final = "__COLLATIONS"
_PADDED: Final = re.compile(r"(?<!var)char\(", re.IGNORECASE)
_BEYOND: Final = re.compile(r"\s*(?:-|\+?\d{5,6}-|\+?0000-)")
_SYMBOLS: Final = {"==": "=", "!>": "<=", "!<": ">="}


@dataclass(slots=True)
class Joined:
    """Any number of conditions joined by AND or by OR."""

    kind: type[And] | type[Or]
    parts: list[Any]


def value_of_text(text: str, data_type: DataType, time_zone: str | None) -> Any:
    """Cast text to a type as Spark does.

    Raises:
        BindError: It is not a value of the type, or it depends on a time zone that is not given.
    """
    name = str(data_type)
    if name == "timestamp" and time_zone is None and not names_zone(text):
        raise BindError(
            f"{text!r} names no time zone, and there is no session to take one from.",
            hint="Write it with its zone, as in 2024-05-01 12:00:00+02:00 or …Z, or give the zone: --time-zone "
            "Europe/Berlin, pydelta.open(…, time_zone='Europe/Berlin').",
        )
    try:
        if text == "" and name not in ("string", "binary"):
            raise ValueError("nothing")
        if name == "timestamp_ntz" and names_zone(text):
            raise ValueError("a zone where there is none")
        if name in ("string", "binary"):
            return text if name == "string" else text.encode()
        return parse_partition_value(text, data_type, time_zone=time_zone or "UTC")
    except (LogCorruptedError, ValueError):
        if name in _SPELLINGS and _BEYOND.match(text):
            raise _not_here(f"a {name} beyond the years 1 to 9999") from None
        raise BindError(f"{text!r} is not a valid {data_type}.", hint=_SPELLINGS.get(name, _OTHER)) from None


class Binder:
    """Builds expressions over the columns of a schema. See ``parse_predicate``."""

    def __init__(self, schema: StructType, time_zone: str | None) -> None:
        self._schema = schema
        self._zone = time_zone
        self._fields: dict[tuple[str, ...], StructField] = {}

    # --- columns and constants -----------------------------------------------------------------------------

    def column(self, names: Sequence[str]) -> Column:
        """Resolve a column, or a field in it, by names that ignore case."""
        path: list[str] = []
        current: DataType = self._schema
        for name in names:
            field = current.field(name) if isinstance(current, StructType) else None
            if field is None:
                raise _no_column(path, name, current)
            path.append(field.name)
            current = field.data_type
            self._fields[tuple(path)] = field
        return Column(tuple(path))

    def word(self, word: str) -> Literal:
        """Read TRUE, FALSE or NULL."""
        return Literal(None) if word == "NULL" else Literal(word == "TRUE", "boolean")

    def number(self, sign: str, text: str) -> Literal:
        """Read a number."""
        try:
            return _number_literal(*number_of(sign, text))
        except ValueError as error:
            shown = text if len(text) <= 40 else f"{text[:20]}…"
            if isinstance(error, Unsure):
                raise _not_here(f"the number {sign}{shown}, which {error}") from None
            raise BindError(
                f"The number {sign}{shown} {error}.", hint="Numbers in tables have at most 38 digits."
            ) from None

    def string(self, before: str, literal: str) -> Literal:
        """Read a string literal, appended to the text of preceding ones."""
        try:
            return Literal(before + text_of(literal), "string")
        except ValueError:
            raise BindError(
                "A text holds half of a character.", hint="Write characters beyond 16 bits as \\U0001F600."
            ) from None

    def typed(self, name: str, literal: str) -> Literal:
        """Read a literal such as DATE '2024-05-01'."""
        text = str(self.string("", literal).value)
        if name == "X":
            if re.fullmatch("[0-9a-fA-F]*", text) is None:
                raise BindError(f"X{text!r} is not a binary literal.", hint="Write bytes as X'1F0A'.")
            return Literal(bytes.fromhex("0" * (len(text) % 2) + text), "binary")
        kind = {"TIMESTAMP_LTZ": "timestamp"}.get(name, name.lower())
        return Literal(value_of_text(text, PrimitiveType(kind), self._zone), kind)

    # --- conditions ----------------------------------------------------------------------------------------

    def condition(self, expr: Any) -> Any:
        """Check that an expression can be true, false or null, and return it unchanged."""
        value = isinstance(expr, Column) and self._fields[expr.path].data_type != PrimitiveType("boolean")
        if value or (isinstance(expr, Literal) and not (expr.value is None or isinstance(expr.value, bool))):
            raise BindError(f"{expr} is not a condition.", hint=f"Compare it with something, as in {expr} = ….")
        return expr

    def compare(self, operator: str, left: Any, right: Any) -> Any:
        """Compare two columns, or a column with a constant."""
        if operator in ("!=", "<>"):
            found = self.compare("=", left, right)
            if not isinstance(found, Literal):
                return Not(found)
            return Literal(None) if found.value is None else Literal(not found.value, "boolean")
        symbol = _SYMBOLS.get(operator, operator)
        if isinstance(left, Literal) and isinstance(right, Literal):
            return _constant(symbol, left, right)
        if isinstance(left, Column) and isinstance(right, Column):
            self._alike(left, right)
            return Compare(symbol, left, right)
        if isinstance(left, Literal) and isinstance(right, Column):
            return Compare(symbol, self._beside(right, left), right)
        if isinstance(left, Column) and isinstance(right, Literal):
            return Compare(symbol, left, self._beside(left, right))
        raise _not_here("a comparison with a condition")

    def in_(self, child: Any, values: Sequence[Any]) -> Any:
        """Look a column up among constants."""
        if not isinstance(child, Column) or not all(isinstance(value, Literal) for value in values):
            raise _not_here("IN of anything but a column and constants")
        kinds = {_kind(value) for value in values}
        if len(kinds - {None}) > 1 and not kinds <= {None, *WHOLE, "decimal", "double"}:
            raise _not_here("IN with constants of several types")
        convert = self._conversion(child)
        if self._fields[child.path].data_type == PrimitiveType("float"):  # IN would round doubles to singles.
            if len(values) > _MOST_FLOATS:
                raise _not_here("a long IN list of floats")
            return Joined(Or, [self.compare("=", child, value) for value in values])
        return In(child, tuple(None if value.value is None else convert(value).value for value in values))

    def is_(self, what: str, child: Any) -> Expr:
        """Test whether a column is null, or which truth value it has."""
        if not isinstance(child, Column):
            raise _not_here("IS of anything but a column")
        if what == "NULL":
            return IsNull(child)
        self.condition(child)
        return IsNull(child) if what == "UNKNOWN" else Compare("<=>", child, self.word(what))

    def like(self, child: Any, pattern: Any, escape: str) -> Expr:
        """Match a literal pattern, optionally followed by ``%``."""
        if not isinstance(child, Column) or not isinstance(pattern, Literal) or _kind(pattern) != "string":
            raise _not_here("LIKE of anything but a column and a string")
        self._conversion(child)
        if self._fields[child.path].data_type != PrimitiveType("string"):
            raise _not_here(f"LIKE of a column that is {self._fields[child.path].data_type}")
        prefix, rest = _prefix(pattern.value, escape)
        if rest is None:
            return Compare("=", child, Literal(prefix, "string"))
        if rest.strip("%"):
            raise InvalidArgumentError(
                f"LIKE {pattern.value!r} is not supported here.",
                hint="Without Spark, only patterns such as 'abc%' are supported.",
            )
        return TextTest("starts", child, prefix)

    # --- types ---------------------------------------------------------------------------------------------

    def _alike(self, left: Column, right: Column) -> None:
        """Refuse columns that Spark compares in a third type."""
        one, other = self._fields[left.path].data_type, self._fields[right.path].data_type
        whole = all(isinstance(item, PrimitiveType) and item.name in WHOLE for item in (one, other))
        if one != other and not whole:
            raise _not_here(f"a comparison of {one} with {other}")
        self._conversion(left)
        self._conversion(right)

    def _beside(self, column: Column, constant: Literal) -> Literal:
        """Convert a constant to the type in which it is compared with a column."""
        return constant if constant.value is None else self._conversion(column)(constant)

    def _conversion(self, column: Column) -> Any:
        """Return the function that converts a constant to the type in which it is compared with a column."""
        field = self._fields[column.path]
        on_path = [self._fields[column.path[: size + 1]].metadata for size in range(len(column.path))]
        if any(_COLLATIONS in item or _PADDED.search(str(item.get(LENGTH))) for item in on_path):
            raise _not_here(f"a comparison of {column}, whose strings Spark does not compare by their bytes")
        data_type = field.data_type
        name = "decimal" if isinstance(data_type, DecimalType) else str(data_type)

        def convert(constant: Literal) -> Literal:
            value, kind = constant.value, _kind(constant)
            if kind == name and kind not in ("decimal", "float"):
                return constant
            if kind == "string" and name in _FROM_TEXT:
                shown = "double" if name == "float" else name  # Single precision is compared as double.
                return Literal(value_of_text(value, data_type, self._zone), shown)
            found = None
            if kind == "string" and name == "decimal":
                raise _not_here(f"a comparison of {data_type} with {constant}")
            if kind in (*WHOLE, "decimal", "double", "float"):
                found = _number(value, str(kind), data_type, name)
                if found is None and (name in WHOLE or name == "decimal"):
                    raise _not_here(f"a comparison of {data_type} with {constant}")
            if found is None:
                raise BindError(
                    f"The column {'.'.join(column.path)!r} is {data_type}, and {constant} is not.",
                    hint=_SPELLINGS.get(name, _OTHER),
                )
            return found

        return convert


_FROM_TEXT: Final = frozenset(
    ("boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "binary")
)


def _number(value: Any, kind: str, data_type: DataType, name: str) -> Literal | None:
    """Convert a number for a comparison with a column, or return None if Spark might round either."""
    if name in ("float", "double"):
        return Literal(float(value), "double")
    if isinstance(data_type, DecimalType):
        return None if kind in ("float", "double") else Literal(Decimal(value), str(data_type))
    if name not in WHOLE or kind == "float":
        return None
    if kind == "double":
        return Literal(int(value), "long") if value.is_integer() and abs(value) < _EXACT_DOUBLE else None
    if isinstance(value, Decimal):
        scale = -int(value.as_tuple().exponent)
        whole = max(_LONG_DIGITS, len(value.as_tuple().digits) - scale)
        return Literal(int(value), "long") if value == int(value) and scale + whole <= 38 else None
    return Literal(value, "long")


def _number_literal(value: Any, kind: str) -> Literal:
    """Make a literal of a number. A decimal's precision is the number of its digits, as in Spark."""
    if kind != "decimal":
        return Literal(value, kind)
    _, digits, exponent = Decimal(value).as_tuple()
    scale = -int(exponent)
    return Literal(value, DecimalType(max(len(digits), scale), scale))


def _kind(constant: Literal) -> str | None:
    """Return the name of a constant's type, without a decimal's precision and scale. None for a null."""
    if constant.type is None:
        return None
    return "decimal" if isinstance(constant.type, DecimalType) else str(constant.type)


def _constant(symbol: str, left: Literal, right: Literal) -> Literal:
    """Evaluate a comparison of two constants if it needs no cast."""
    if symbol != "<=>" and (left.value is None or right.value is None):
        return Literal(None)
    kinds = {_kind(left), _kind(right)}
    if symbol not in ("=", "<=>") or not (kinds.issubset(WHOLE) or kinds == {"string"}):
        raise _not_here("a comparison of two constants")
    return Literal(left.value == right.value, "boolean")


def _prefix(pattern: str, escape: str) -> tuple[str, str | None]:
    """Split a pattern into its literal prefix and the rest from its first wildcard, None without one."""
    found, position = list[str](), 0
    while position < len(pattern):
        char = pattern[position]
        if char == escape:
            position += 1
            char = pattern[position : position + 1]
            if char not in ("%", "_", escape):
                raise InvalidArgumentError(
                    f"In LIKE {pattern!r}, {escape!r} stands before neither %, _ nor itself.",
                    hint="Write the escape character twice, or name another one with ESCAPE.",
                )
        elif char in ("%", "_"):
            return "".join(found), pattern[position:]
        found.append(char)
        position += 1
    return "".join(found), None


def _not_here(what: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Only Spark is sure to compute this right: {what}.",
        features=("a command without Spark",),
        hint="Run it in a session: DeltaTable.forPath(spark, path), or pydelta sql.",
    )


def _no_column(path: Sequence[str], name: str, current: DataType) -> BindError:
    known = current.names if isinstance(current, StructType) else ()
    meant = nearest(name, known)
    full = ".".join([*path, name])
    return BindError(
        f"There is no column {full!r}.",
        hint=(f"Did you mean {meant!r}? " if meant else "")
        + (
            f"The {'fields' if path else 'columns'} are: {', '.join(known)}."
            if known
            else f"{'.'.join(path)!r} is {current} and has no fields."
        ),
        condition=Condition.of("UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName=full, proposal=known),
    )
