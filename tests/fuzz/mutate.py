"""Change inputs: as bytes, as JSON documents, as text, as tables of a checkpoint. One seed, one sequence."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

__all__ = ["Mutator"]

LARGEST: Final = 1 << 17
_DEEPEST: Final = 120
"""Deeper than a reader of Parquet goes; names of types grow with the square of it."""

_RAW: Final = (
    "1e400",
    "-1e400",
    "9" * 400,
    "9" * 5000,
    "-" + "9" * 400,
    "NaN",
    "Infinity",
    "-0",
    "1.5",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "2147483648",
    "18446744073709551616",
    '"\\ud800"',
    '"\\udfff\\ud800"',
    '"\\u0000"',
    "[" * 600 + "]" * 600,
    "[" * 5000,
    '{"a":' * 600 + "1" + "}" * 600,
    '{"a":1,"a":2}',
    "[1,]",
    "tru",
    '"',
)
_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    1.5,
    2**31,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**30,
    "",
    " ",
    "0",
    "-1",
    "null",
    "true",
    [],
    {},
    [None],
    {"": None},
    [[]],
    "..",
    "../x",
    "%2e%2e/x",
    "%2E%2E%2Fx",
    "a/../../x",
    "./x",
    "a//b",
    "/",
    "//",
    "/x/y",
    "/etc/passwd",
    "file:///etc/passwd",
    "file:/etc/passwd",
    "s3a://lake/t/x.parquet",
    "s3://lake/t/../u/x",
    "s3a://other/u/x",
    "s3a://lake/t2/x",
    "s3a://lake/t",
    "S3A://lake/t/x",
    "http://h/x",
    "hdfs://nn:1/x",
    "s3a://key:secret@lake/t/x",
    "s3a:",
    "a\x00b",
    "%00",
    "a b",
    "%",
    "%zz",
    "%25252e%25252e/x",
    "é",
    "\U0001f600",
    "\ud800",
    "a\nb",
    "\u2028",
    "_delta_log/x",
    "_delta_log/00000000000000000000.json",
    "x" * 300,
    "__HIVE_DEFAULT_PARTITION__",
    "p=a/x.parquet",
    "2024-02-30",
    "99999-01-01",
    "1e999999999",
    "NaN",
    "Infinity",
    "-0.0",
    "i",
    "u",
    "p",
    "long",
    "struct",
    "decimal(99,99)",
    "interval -1 week",
    "interval 99999999999999999 days",
    "interval 1e9 days",
    "parquet",
    "name",
    "id",
    "deletionVectors",
)


class Mutator:
    """Draws changed inputs.

    Args:
        rng: Where chance comes from.
        kind: See ``Target.kind``.
        words: See ``Target.words``.
    """

    def __init__(self, rng: random.Random, kind: str, words: Sequence[bytes]) -> None:
        self._rng = rng
        self._kind = kind
        self._words = tuple(words)

    def change(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        """Change an input once or a few times; another one of the corpus may lend a piece."""
        for _ in range(1 + int(self._rng.expovariate(0.7))):
            data = self._once(data, corpus)[:LARGEST]
        return data

    def _once(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        rng = self._rng
        structured: dict[str, Callable[[bytes], bytes]] = {"json": self._json, "checkpoint": self._checkpoint}
        if self._kind in structured and rng.random() < 0.7:
            try:
                return structured[self._kind](data)
            except Exception:  # noqa: BLE001 -- an input that is none any more is changed as bytes
                return self._bytes(data, corpus)
        if self._kind == "text" and rng.random() < 0.5:
            return self._text(data)
        return self._bytes(data, corpus)

    def _bytes(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        rng, size = self._rng, len(data)
        at = rng.randrange(size + 1)
        length = min(size - at, 1 << rng.randrange(8))
        choice = rng.randrange(9)
        if choice == 0 and size:
            at = min(at, size - 1)
            return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        if choice == 1 and size:
            at = min(at, size - 1)
            return data[:at] + bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))]) + data[at + 1 :]
        if choice == 2:
            return data[:at] + data[at + length :]
        if choice == 3:
            return data[: at + length] + data[at : at + length] * rng.choice((1, 1, 1, 50)) + data[at + length :]
        if choice == 4 and self._words:
            return data[:at] + rng.choice(self._words) + data[at + rng.choice((0, length)) :]
        if choice == 5 and corpus:
            other = rng.choice(corpus)
            start = rng.randrange(len(other) + 1)
            return data[:at] + other[start : start + (1 << rng.randrange(12))] + data[at + rng.choice((0, length)) :]
        if choice == 6:
            width = rng.choice((1, 2, 4, 8))
            number = rng.choice((0, 1, (1 << 8 * width) - 1, 1 << 8 * width - 1, (1 << 8 * width - 1) - 1))
            return data[:at] + number.to_bytes(width, rng.choice(("little", "big"))) + data[at + width :]
        if choice == 7:
            return data[:at]
        return data[:at] + rng.randbytes(length) + data[at:]

    def _text(self, data: bytes) -> bytes:
        rng = self._rng
        text = data.decode("utf-8", "surrogateescape")
        at = rng.randrange(len(text) + 1)
        choice = rng.randrange(5)
        if choice == 0:
            piece = rng.choice(
                ("(", ")", "'", '"', "`", "/*", "*/", "--", "\\", "\n", "%", "\x00", "\ud800", "é", ".", ",")
            )
            piece *= rng.choice((1, 1, 2, 30, 3000))
        elif choice == 1:
            piece = str(rng.choice(_VALUES))
        elif choice == 2:
            piece = rng.choice(("9" * 5000, "1e400", "-1", "0x1", "1e-99999", "٣", "1_0", "+-1", " 1", "1.", ".5"))
        elif choice == 3:
            words = text.split(" ")
            piece = " ".join(rng.sample(words, min(len(words), 3)))
        else:
            half = text[at : at + 1 + rng.randrange(20)]
            piece = half * rng.choice((1, 3, 40, 400))
        return (text[:at] + piece + text[at + rng.choice((0, 1, 5)) :]).encode("utf-8", "surrogatepass")

    # -- JSON -----------------------------------------------------------------------------------------------------

    def _json(self, data: bytes) -> bytes:
        lines = data.split(b"\n")
        full = [number for number, line in enumerate(lines) if line.strip()]
        number = self._rng.choice(full)
        choice = self._rng.randrange(12)
        if choice == 0:
            lines.insert(number, lines[self._rng.choice(full)])
        elif choice == 1:
            del lines[number]
        else:
            lines[number] = self._document(lines[number])
        return b"\n".join(lines)

    def _document(self, line: bytes) -> bytes:
        rng = self._rng
        document = json.loads(line)
        places = list(_places(document))
        holder, key = rng.choice(places)
        inner = holder[key]
        if isinstance(inner, str) and inner[:1] in ("{", "[") and rng.random() < 0.7:
            holder[key] = self._document(inner.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
            return json.dumps(document).encode("utf-8", "surrogatepass")
        choice = rng.randrange(10)
        if choice < 5:
            holder[key] = rng.choice(_VALUES)
        elif choice == 5:
            del holder[key]
        elif choice == 6:
            mark = "@@raw@@"
            holder[key] = mark
            return json.dumps(document).replace(f'"{mark}"', rng.choice(_RAW)).encode("utf-8", "surrogatepass")
        elif choice == 7 and isinstance(holder, dict):
            holder[rng.choice((str(key) + "x", "", "a\x00", "\ud800", str(key).upper()))] = holder.pop(key)
        elif choice == 8:
            other, name = rng.choice(places)
            if name in other if isinstance(other, dict) else name < len(other):
                holder[key] = json.loads(json.dumps(other[name]))
        else:
            holder[key] = [inner] * rng.choice((0, 1, 2, 300)) if rng.random() < 0.5 else {str(key): inner}
        return json.dumps(document).encode("utf-8", "surrogatepass")

    def _checkpoint(self, data: bytes) -> bytes:
        """Its rows as JSON, changed, and back, with the types that come of that or those that it had."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(io.BytesIO(data))
        if table.num_rows > 200:
            raise ValueError("too many rows")
        rng = self._rng
        choice = rng.randrange(6)
        if choice == 0 and table.num_columns > 1:
            table = table.remove_column(rng.randrange(table.num_columns))
        elif choice == 1:
            number = rng.randrange(table.num_columns)
            table = table.set_column(number, rng.choice(("add", "remove", "metaData", "x")), table.column(number))
        else:
            rows = table.to_pylist()
            lines = "\n".join(json.dumps(row, default=str) for row in rows).encode()
            text = self._json(lines)
            if len(text) > LARGEST or _depth(text) > _DEEPEST:
                raise ValueError("more than Arrow writes in the memory that there is")
            changed = [json.loads(line) for line in text.split(b"\n") if line.strip()]
            try:
                table = pa.Table.from_pylist(changed, schema=table.schema if rng.random() < 0.6 else None)
            except (pa.ArrowException, TypeError, OverflowError):
                table = pa.Table.from_pylist(changed)
        out = io.BytesIO()
        pq.write_table(
            table,
            out,
            row_group_size=rng.choice((1, 3, 1000)),
            use_dictionary=rng.random() < 0.5,
            write_statistics=rng.random() < 0.5,
            compression=rng.choice(("none", "snappy", "zstd", "gzip")),
        )
        return out.getvalue()


def _depth(text: bytes) -> int:
    """How deep a JSON text is nested; brackets within its texts count as well."""
    depth = deepest = 0
    for byte in text:
        if byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a document: what holds it, and its key there."""
    found: list[tuple[Any, Any]] = []
    queue = [value]
    while queue:
        holder = queue.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for key, inner in items:
            found.append((holder, key))
            queue.append(inner)
    return found
