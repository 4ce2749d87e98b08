"""Conditions as SQL, each with what it means for a row: values as the generator of rows has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any, Final

from pydelta.protocol.types import DataType, DecimalType, PrimitiveType, StructField
from tests.arrow_rows import Generator

__all__ = ["Condition", "draw_condition", "draw_value", "is_simple", "literal", "quoted"]

Row = Mapping[str, Any]
_DAY: Final = 86_400_000_000
_SUFFIX: Final = {"byte": "Y", "short": "S", "integer": "", "long": "L", "float": "F", "double": "D"}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as text, and what it is for a row; None for unknown."""

    text: str
    of: Callable[[Row], bool | None]


def quoted(name: str) -> str:
    """Quote a name for SQL."""
    return "`" + name.replace("`", "``") + "`"


def is_simple(kind: DataType) -> bool:
    """Return whether a type has no parts."""
    return isinstance(kind, (PrimitiveType, DecimalType))


def literal(value: Any, kind: DataType) -> str:
    """Write a value of a simple type as SQL."""
    if value is None:
        return "NULL"
    if isinstance(kind, DecimalType):
        return f"{Decimal(value):f}BD"
    assert isinstance(kind, PrimitiveType)
    name = kind.name
    if name == "boolean":
        return str(value).lower()
    if name in ("float", "double"):
        if value != value or value in (float("inf"), float("-inf")):
            return f"CAST('{value}' AS {name.upper()})"
        return f"{value!r}{_SUFFIX[name]}"
    if name in _SUFFIX:
        return f"{value}{_SUFFIX[name]}"
    if name == "string":
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")
        return f"'{escaped}'"
    if name == "binary":
        return f"X'{value.hex()}'"
    if name == "date":
        return f"DATE'{day_text(value)}'"
    text = instant_text(value)
    return f"TIMESTAMP'{text}Z'" if name == "timestamp" else f"TIMESTAMP_NTZ'{text}'"


def instant_text(micros: int) -> str:
    """Write microseconds since 1970 as Spark reads them."""
    day, rest = divmod(micros, _DAY)
    seconds, rest = divmod(rest, 1_000_000)
    return f"{day_text(day)} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"


def day_text(days: int) -> str:
    """Write a day as Spark reads it; ``datetime`` ends with the year 9999."""
    cycles, days = divmod(days + 719_468, 146_097)
    of_cycle = (days - days // 1460 + days // 36_524 - days // 146_096) // 365
    of_year = days - (365 * of_cycle + of_cycle // 4 - of_cycle // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = of_cycle + cycles * 400 + (month <= 2)
    return f"{'+' if year > 9999 else ''}{year:04}-{month:02}-{day:02}"


def draw_value(random: Random, kind: DataType) -> Any:
    """Draw a value that is not null."""
    generator = Generator(random.randrange(2**32))
    while (value := generator.value(kind)) is None:
        pass
    return value


def draw_condition(random: Random, fields: Sequence[StructField], keys: Sequence[int]) -> Condition:
    """Draw a condition over columns of simple types; ``id`` has a part in many."""
    simple = [item for item in fields if is_simple(item.data_type)]
    found = _atom(random, simple, keys)
    for _ in range(random.choice([0, 0, 1, 2])):
        found = _joined(random.choice(["AND", "OR"]), found, _atom(random, simple, keys))
    return _negated(found) if random.random() < 0.15 else found


def _atom(random: Random, fields: Sequence[StructField], keys: Sequence[int]) -> Condition:
    if any(item.name == "id" for item in fields) and random.random() < 0.4:
        few = random.sample(list(keys), 2)
        return random.choice(
            [
                Condition(f"id = {few[0]}", lambda row: _compared(row["id"], "=", few[0])),
                Condition(f"id IN ({few[0]}, {few[1]})", lambda row: _among(row["id"], few)),
                Condition(f"id > {few[0]}", lambda row: _compared(row["id"], ">", few[0])),
                Condition(f"ID <= {few[1]}L", lambda row: _compared(row["id"], "<=", few[1])),
            ]
        )
    item = random.choice(fields)
    name, column = item.name, quoted(item.name)
    drawn = [draw_value(random, item.data_type) for _ in range(3)]
    shown = [literal(value, item.data_type) for value in drawn]
    how = random.random()
    if how < 0.1:
        return Condition(f"{column} IS NULL", lambda row: row[name] is None)
    if how < 0.2:
        return Condition(f"{column} IS NOT NULL", lambda row: row[name] is not None)
    if how < 0.4:
        found = Condition(f"{column} IN ({', '.join(shown)})", lambda row: _among(row[name], drawn))
        return found if how < 0.3 else Condition(found.text.replace(" IN (", " NOT IN (", 1), _negated(found).of)
    if how < 0.5:
        low = Condition(f"{column} BETWEEN {shown[0]}", lambda row: _compared(row[name], ">=", drawn[0]))
        return _joined("AND", low, Condition(shown[1], lambda row: _compared(row[name], "<=", drawn[1])), plain=True)
    symbol = random.choice(["=", "=", "<=>", "<>", "<", ">="])
    return Condition(f"{column} {symbol} {shown[0]}", lambda row: _compared(row[name], symbol, drawn[0]))


def _joined(word: str, left: Condition, right: Condition, *, plain: bool = False) -> Condition:
    decisive = word == "OR"

    def of(row: Row) -> bool | None:
        both = (left.of(row), right.of(row))
        return decisive if decisive in both else None if None in both else not decisive

    text = f"{left.text} {word} {right.text}" if plain else f"({left.text}) {word} ({right.text})"
    return Condition(text, of)


def _negated(found: Condition) -> Condition:
    def of(row: Row) -> bool | None:
        value = found.of(row)
        return None if value is None else not value

    return Condition(f"NOT ({found.text})", of)


def _among(value: Any, drawn: Sequence[Any]) -> bool | None:
    return None if value is None else any(_order(value) == _order(item) for item in drawn)


def _compared(value: Any, symbol: str, constant: Any) -> bool | None:
    """A comparison as Spark has it: NaN is itself and beyond all, -0.0 is 0.0, texts go by their bytes."""
    if value is None:
        return False if symbol == "<=>" else None
    left, right = _order(value), _order(constant)
    below, same = left < right, left == right
    return {"=": same, "<=>": same, "<>": not same, "<": below, "<=": below or same, ">": not (below or same),
            ">=": not below}[symbol]  # fmt: skip


def _order(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if value != value else (0, value)
    return value.encode() if isinstance(value, str) else value
