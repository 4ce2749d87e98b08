"""Make conditions and values at random, as text, and compute what they are without Spark.

The same seed gives the same texts. ``kept_texts.txt`` holds some, each with what Spark made of it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
import re
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa

from pydelta.engines.arrow.evaluate import evaluate
from pydelta.engines.arrow.exact import assigned, exact
from pydelta.engines.arrow.expressions import NotHere
from pydelta.errors import DeltaError
from pydelta.predicate import Literal, NotEvaluable, columns, parse_predicate, partition_mask
from pydelta.predicate.expressions import fields_of
from pydelta.protocol.schema import to_arrow
from pydelta.protocol.types import StructField, StructType, parse_type

ZONE: Final = "America/New_York"
_BIG: Final = "12345678901234567890123456.0123456789"

VALUES: Final[dict[str, tuple[str, list[Any]]]] = {
    "b": ("boolean", [None, True, False]),
    "y": ("byte", [None, 0, 1, -1, 5, 127, -128]),
    "h": ("short", [None, 0, 1, -5, 100, 32767, -32768]),
    "i": ("integer", [None, 0, 1, -1, 5, 100, 2147483647, -2147483648, 16777217]),
    "l": ("long", [None, 0, 1, -1, 5, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "f": ("float", [None, 0.0, -0.0, 1.5, 0.10000000149011612, 16777216.0, float("nan"), float("inf"), -1.0]),
    "x": ("double", [None, 0.0, -0.0, 1.5, 0.1, 1000.0, float("nan"), float("-inf"), 5e-324, 2.0**53]),
    "n": ("decimal(10,2)", [None, *map(Decimal, ("0.00", "1.50", "-1.50", "99999999.99", "5.00", "0.10"))]),
    "w": ("decimal(38,10)", [None, *map(Decimal, ("0E-10", "1.5000000000", _BIG, "-0.0000000001"))]),
    "s": ("string", [None, "", "a",
          "ab", "a%", "a_", "arb", "a\rb", "A", "it's", "x\\y", "tab\there", "50%", "50x", "a\\%",
          "5", "1_000", "true", "\u00e9", "\U0001f600", "a\nb", "a\0b", "a\x1ab", 'q"q', "2024-01-05", "ab c", "\x08"]),
    "c": ("binary", [None, b"", b"a", b"\x1f\n", b"\xff", b"a%"]),
    "d": ("date", [None, dt.date(2024, 1, 5), dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "t": ("timestamp", [None, *(dt.datetime(2024, 1, 5, hour, 0, 0, tzinfo=dt.UTC) for hour in (0, 5, 12)),
          dt.datetime(2024, 3, 10, 7, 30, tzinfo=dt.UTC), dt.datetime(1850, 1, 1, tzinfo=dt.UTC),
          dt.datetime(2024, 11, 3, 5, 30, tzinfo=dt.UTC), dt.datetime(2024, 1, 5, 12, 0, 0, 123456, tzinfo=dt.UTC)]),
    "z": ("timestamp_ntz", [None, dt.datetime(2024, 1, 5), dt.datetime(2024, 1, 5, 12, 0, 0, 500000)]),
    "a.b": ("string", ["a", None, "x.y"]),
    "Odd `name`": ("integer", [1, None, 5]),
    "user": ("string", ["a", None]),
    "date": ("date", [dt.date(2024, 1, 5), None]),
    "1_000": ("integer", [1, 1000, None]),
    "\u00fcber": ("integer", [1, None]),
}  # fmt: skip
_ROWS: Final = max(len(values) for _, values in VALUES.values())
_INNER: Final = StructType((StructField("k", parse_type("long")), StructField("s", parse_type("string"))))
SCHEMA: Final = StructType(
    (*(StructField(name, parse_type(kind)) for name, (kind, _) in VALUES.items()), StructField("o", _INNER))
)


def rows() -> pa.Table:
    """The rows that conditions are tried on."""
    made: dict[str, list[Any]] = {name: [v[at % len(v)] for at in range(_ROWS)] for name, (_, v) in VALUES.items()}
    made["o"] = [None if at % 5 == 4 else {"k": at % 3, "s": "ab"[at % 2]} for at in range(_ROWS)]
    return pa.Table.from_pydict(made, schema=to_arrow(SCHEMA))


class Texts:
    """Texts at random, most of which mean something.

    Args:
        seed: The same one gives the same texts.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self) -> str:
        """A condition, perhaps damaged."""
        parts = self._condition(self.random.choice((0, 0, 0, 1, 1, 2)))
        text = "".join(part + self._gap() for part in parts)
        return self._damaged(text) if self.random.random() < 0.06 else text

    def value(self) -> tuple[str, str]:
        """A column, and what to set it to."""
        column = self.random.choice(list(VALUES))
        kind = VALUES[column][0]
        return column, "".join(part + self._gap() for part in self._constant(kind))

    def _pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def _gap(self) -> str:
        many = (" ",) * 30 + ("  ", "\n", "\t", " -- why\n", "/* x */ ", " /* /* y */ */ ")
        return str(self.random.choice(many))

    def _damaged(self, text: str) -> str:
        at = self.random.randrange(len(text))
        change = self._pick("", text[at] * 2, "'", "\\", "_", ".", "-", "0", "(", "e", "\u00a0", "`", '"', "!")
        return text[:at] + change + text[at + 1 :]

    def _word(self, word: str) -> str:
        return str(self._pick(word, word, word.lower(), word.title()))

    def _column(self, name: str) -> str:
        quoted = "`" + name.replace("`", "``") + "`"
        plain = re.fullmatch(r"\w+", name) is not None
        return str(self._pick(name, name, name.upper(), quoted)) if plain and name != "\u00fcber" else quoted

    def _condition(self, depth: int) -> list[str]:
        if depth:
            left, right = self._condition(depth - 1), self._condition(depth - 1)
            word = self._word(self._pick("AND", "OR"))
            joined = [*left, word, *right]
            shape = self.random.random()
            if shape < 0.3:
                return ["(", *joined, ")"]
            return [self._pick(self._word("NOT"), "!"), "(", *joined, ")"] if shape < 0.4 else joined
        leaf = self._leaf()
        return [self._pick(self._word("NOT"), "!"), *leaf] if self.random.random() < 0.15 else leaf

    def _leaf(self) -> list[str]:
        name = self.random.choice([*VALUES, *"sssxlidtznfc"])
        kind = VALUES[name][0]
        column = self._column(name)
        if self.random.random() < 0.05:
            column, kind = self._pick(("o.k", "long"), ("o . `S`", "string"), ("O.s", "string"))
        negated = [self._word("NOT")] if self.random.random() < 0.25 else []
        shape = self.random.random()
        if shape < 0.5:
            sides = [[column], self._constant(kind)]
            if self.random.random() < 0.15:
                sides[1] = [self._column(self.random.choice([other for other in VALUES if VALUES[other][0] == kind]))]
            if self.random.random() < 0.15:
                sides.reverse()
            return [*sides[0], self._pick("=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">=", "!>", "!<"), *sides[1]]
        if shape < 0.62:
            items = [self._constant(kind) for _ in range(self._pick(1, 2, 3, 12))]
            listed = [part for item in items for part in (*item, ",")][:-1]
            return [column, *negated, self._word("IN"), "(", *listed, ")"]
        if shape < 0.72:
            return [
                column,
                *negated,
                self._word("BETWEEN"),
                *self._constant(kind),
                self._word("AND"),
                *self._constant(kind),
            ]
        if shape < 0.86:
            escape = self._pick(
                [], [], [], [], [], [self._word("ESCAPE"), self._pick("'!'", "'/'", r"'\\'", "'%'", "'a'")]
            )
            column = column if kind == "string" else self._column(self._pick("s", "s", "s", "i"))
            return [column, *negated, self._word("LIKE"), self._pattern(), *escape]
        if shape < 0.9 and kind == "boolean":
            return [column]
        if shape < 0.95:
            return [
                column,
                self._word("IS"),
                *negated,
                self._word(self._pick("NULL", "NULL", "TRUE", "FALSE", "UNKNOWN")),
            ]
        return [column, self._word("IS"), *negated, "DISTINCT", "FROM", *self._constant(kind)]

    def _pattern(self) -> str:
        text = "".join(self._pick("a", "b", "50", "x", "a", r"\%", r"\_", r"\\", "!%", "!_", "%", "_", "''")
                       for _ in range(self._pick(1, 1, 2)))  # fmt: skip
        return "'" + text + self._pick("%", "%", "%", "", "%%") + "'"

    def _constant(self, kind: str) -> list[str]:
        draw = self.random.random()
        if draw < 0.04:
            return [self._word("NULL")]
        if draw < 0.09:
            kind = self._pick("boolean", "integer", "double", "decimal", "string", "date", "timestamp", "binary")
        kind = kind.partition("(")[0]
        if kind in ("byte", "short", "integer", "long"):
            return self._whole()
        if kind in ("float", "double", "decimal"):
            return self._pick(self._whole, self._fraction, self._fraction)()
        if draw > 0.75 and kind != "string":
            return [self._text_of(kind)]
        return {
            "boolean": lambda: [self._word(self._pick("TRUE", "FALSE"))],
            "date": lambda: [self._word("DATE"), self._text_of("date")],
            "timestamp": lambda: [self._word(self._pick("TIMESTAMP", "TIMESTAMP_LTZ")), self._text_of("timestamp")],
            "timestamp_ntz": lambda: [self._word("TIMESTAMP_NTZ"), self._text_of("timestamp_ntz")],
            "binary": lambda: [self._pick("X", "x"), self._pick("'1f0A'", "'61'", "'f'", "''", "'ff'", "'6g'")],
        }.get(kind, lambda: self._string())()

    def _whole(self) -> list[str]:
        sign = self._pick([], [], [], [], ["-"], ["+"])
        digits = self._pick("0", "1", "5", "127", "128", "1000", "1_000", "32768", "2147483647", "2147483648",
                            "16777217",
                            "9007199254740993", "9223372036854775807", "9223372036854775808", "9" * 38, "9" * 39, "007",
                            str(self.random.randrange(10**6)))  # fmt: skip
        text = digits + self._pick(*[""] * 8, "L", "l", "S", "Y", "y")
        return self._pick([*sign, text], [*sign, text], [*sign, text], [self._text_of("integer")])

    def _fraction(self) -> list[str]:
        sign = self._pick([], [], [], ["-"], ["+"])
        digits = self._pick(
            "1.5",
            "0.1",
            "1.",
            ".5",
            "0.0",
            "1.50",
            "5.00",
            "99999999.99",
            "1e3",
            "1E-3",
            "5e-324",
            "1e400",
            "1.5e+2",
            "123456789.123456789",
            "0.1000000000",
            "1e",
            "9007199254740993.0",
            "1_0.5",
            _BIG,
        )
        text = digits + self._pick(*[""] * 6, "D", "F", "BD", "d", "f", "bd", "L")
        return self._pick([*sign, text], [*sign, text], [self._text_of("double")])

    def _string(self) -> list[str]:
        found = [self._literal("".join(self._pick(*_PIECES) for _ in range(self._pick(0, 1, 1, 2, 3))))]
        if self.random.random() < 0.5:
            value = self.random.choice([item for item in VALUES["s"][1] if item is not None])
            found = ["'" + "".join(self._spelt(char) for char in value) + "'"]
        return [*found, *self._string()] if self.random.random() < 0.06 else found

    def _literal(self, body: str) -> str:
        quote = self._pick("'", "'", "'", '"')
        whole = quote + body.replace("Q", quote * 2) + quote
        return self._pick("r", "R") + whole if self.random.random() < 0.08 else whole

    def _spelt(self, char: str) -> str:
        """A character as one of the escapes that stand for it."""
        plain = {"'": "''", "\\": r"\\", "\0": r"\0"}.get(char, char)
        code = ord(char)
        short = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\x1a": r"\Z", "\x08": r"\b", "'": r"\'"}.get(char, plain)
        octal = f"\\{code:03o}" if code < 128 else plain
        unicode = f"\\u{code:04x}" if code < 65536 else f"\\U{code:08X}"
        return str(self._pick(plain, plain, plain, short, octal, unicode, f"\\U{code:08x}"))

    def _text_of(self, kind: str) -> str:
        body = self._pick(*_TEXTS[kind])
        if self.random.random() < 0.1:
            body = self._pick(" ", "\\t", "\\n", "\u00a0", "+", "x", "_") + body
        elif self.random.random() < 0.1:
            body += self._pick(" ", "\\t", "0", "x", "_", ".", "Z", "\u0663", "\\0")
        quote = self._pick("'", "'", "'", '"')
        return f"{quote}{body}{quote}"


_PIECES: Final = (
    "a", "b", "A", "%", "_", "Q", "50", " ", r"\%", r"\_", r"\n", r"\r", r"\t", r"\b", r"\Z", r"\0", r"\\", r"\'",
    r"\"", r"\u0041", r"\U0001F600", r"\101", r"\012", r"\400", r"\12", r"\x", r"\u12", r"\ud83d", r"\ude00", "\u00e9",
    "\U0001f600", "--", "/*", "`", "it", r"\177", r"\200", r"\U00110000",
)  # fmt: skip
_TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "boolean": (
        "true", "FALSE", "t", "f", "yes", "No", "1", "0", "y", "n", "on", "",
    ),
    "integer": (
        "5", "1", "-1", "+1", "1_000", "1.0", "1e3", "0x5", "", "9223372036854775808", "007", "5L", "- 1",
    ),
    "double": (
        "1.5", "1e3", "1_000", ".5", "1.", "nan", "NaN", "Infinity", "-inf", "+Infinity", "1d", "1.5F", "0x1p3",
        "", "0.1", "1e400", "-0.0", "--1", "1 5", "INF", "+NaN", "1e5L",
    ),
    "decimal": (
        "1.5", "1.50", "5", "1e0", "1_0", "1.555", "", "99999999999", "0.1", "-1.5",
    ),
    "date": (
        "2024-01-05", "2024-1-5", "2024", "2024-02", "2024-02-29", "2023-02-29", "2_024-01-05", "2024-01-05 x",
        "+2024-01-05", "2024-01-05T", "2024-01-05T12:00:00Z", "20240105", "today", "10000-01-01", "-0001-01-01",
        "0001-01-01", "24-01-05", "", "2024-",
    ),
    "timestamp": (
        "2024-01-05 12:00:00", "2024-01-05T12:00:00Z", "2024-01-05 12:00:00+00:00", "2024-01-05 07:00:00 -05:00",
        "2024-01-05", "2024-01", "2024", "2024-01-05 12:00", "2024-01-05 12", "2024-01-05 12:00:00.123456",
        "2024-1-5 5:0:0", "2024-01-05 12:00:00.1234567891", "2024-01-05 12:00:00.", "2024-01-05 12:00:00.12345678",
        "2024-01-05 12:00:00+01", "2024-03-10 02:30:00", "2024-11-03 01:30:00", "1850-01-01 00:00:00",
        "2024-01-05 12:00:00 UTC", "2024-01-05 12:00:00+0100", "2024-01-05 12:00:00 Europe/Berlin",
        "2024-01-05 12:00:00+19:00", "T12:00", "12:00:00", "now", "2024-01-05 24:00:00", "",
        "2024-01-05 12:00:00UTC", "2024-01-05 12:00:00 GMT+1", "2024-01-05 12:00:00+1:00", "2024-01-05 12:00:00z",
        "2024-01-05T12:00Z", "2024-01-05 12:00:00-18:00", "2024-01-05 12:00:00+01:60", "2024-01-05Z",
        "2024-01-05 12:00:00  Z",
    ),
    "timestamp_ntz": (
        "2024-01-05 12:00:00.5", "2024-01-05", "2024-01-05T00:00:00", "2024-01-05 12:00:00Z", "2024-01-05 12:00",
        "2024-01-05 12:00:00+01:00",
    ),
    "binary": (
        "a", "a%", "", "\xe9",
    ),
}  # fmt: skip


def here(text: str, table: pa.Table, zone: str | None) -> list[bool | None] | str:
    """The value of a condition in each row, without Spark; why it is refused, as text."""
    try:
        expr = parse_predicate(text, SCHEMA, time_zone=zone)
        native = exact(expr, SCHEMA)
        found = evaluate(native, lambda path: _column(table, path), table.num_rows).to_pylist()
    except (DeltaError, NotHere) as error:
        return str(error)
    paths = columns(expr)
    if paths and all(len(path) == 1 for path in paths) and len({f.type for f in fields_of(native)}) == 1:
        frame = pl.from_arrow(table.select([path[0] for path in paths]))
        assert isinstance(frame, pl.DataFrame)
        with contextlib.suppress(NotEvaluable):
            assert partition_mask(expr, frame).to_list() == found, f"partition values differ: {text!r}"
    return found


def value_here(column: str, text: str, zone: str | None) -> tuple[str | None] | str:
    """What a column is set to, as text; why that is refused, as text alone."""
    try:
        found = assigned(column, text, SCHEMA, zone)
    except (DeltaError, NotHere) as error:
        return str(error)
    if not isinstance(found, Literal):
        return "a column"
    if found.value is None:
        return (None,)
    name = str(found.type)
    if name in ("float", "double"):
        return (bits(found.value),)
    if name == "boolean":
        return (str(found.value).lower(),)
    if name == "binary":
        return (found.value.hex(),)
    return (digits(found.value) if isinstance(found.value, Decimal) else str(found.value),)


def bits(number: float) -> str:
    return "nan" if number != number else struct.pack(">d", number).hex()


def digits(number: Decimal) -> str:
    text = f"{number:.20f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _column(table: pa.Table, path: tuple[str, ...]) -> Any:
    found = table.column(path[0]).combine_chunks()
    for name in path[1:]:
        found = pa.compute.struct_field(found, name)
    return found


def shown(found: list[bool | None] | str) -> str:
    """The answer of ``here`` as a line keeps it."""
    return "refused" if isinstance(found, str) else "".join("?" if item is None else "FT"[item] for item in found)


def kept() -> Iterator[tuple[str, str]]:
    """Texts that were compared with Spark, with their answers."""
    for line in Path(__file__).with_name("kept_texts.txt").read_text(encoding="utf-8").splitlines():
        answer, _, text = line.partition(" ")
        yield json.loads(text), answer
