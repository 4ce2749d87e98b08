"""Write a statement's result, or its error, as text for a terminal, CSV or JSON lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, NumericType, VariantType

from pydelta.api.console.terminal import Terminal, visible
from pydelta.engines.spark.errors import raised_in
from pydelta.errors import CommitStateUnknownError, CommittedError, DeltaConcurrentModificationException, DeltaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Format", "exit_code", "explained", "write_rows"]

Format = Literal["table", "csv", "json"]

_QUOTED: Final = re.compile(r'[",\r\n]')
_CONDITION: Final = re.compile(r"\s*SQLSTATE: \w{5}")
_POSITION: Final = re.compile(r"; line (\d+),? pos (\d+)")
_CARET: Final = re.compile(r"^-*\^+$")
_CONFLICT: Final[type[DeltaError]] = DeltaConcurrentModificationException
_CONFLICTS: Final = {kind.code.partition(".")[0] for kind in (_CONFLICT, *_CONFLICT.__subclasses__())}
_UNKNOWN: Final = {CommitStateUnknownError.code, CommittedError.code}
_CAUSE: Final = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)


def write_rows(frame: DataFrame, terminal: Terminal, *, style: Format = "table", limit: int = 100) -> int:
    """Write a result.

    Args:
        frame: The result of ``spark.sql``.
        terminal: Where to write.
        style: A drawn table, CSV with a header, or one JSON document per row.
        limit: At most this many rows; 0 for all.

    Returns:
        How many rows were written; -1 when there are more than ``limit``.
    """
    if style == "table":
        numeric = [isinstance(field.dataType, NumericType) for field in frame.schema]
        return _draw(frame.columns, numeric, _rows(frame, limit), terminal, limit)
    if style == "csv":
        terminal.write(_line(frame.columns))
    lines = (_line(row) for row in _rows(frame, limit)) if style == "csv" else _documents(frame, limit)
    written = 0
    for line in lines:
        if limit and written == limit:
            return -1
        written += 1
        terminal.write(line)
    return written


def _rows(frame: DataFrame, limit: int) -> Iterator[tuple[str | None, ...]]:
    """Yield rows with values as Spark casts them to text, in the session's time zone; one row more than ``limit``."""
    if not frame.columns:
        return
    numbered, places = _numbered(frame)
    fields = zip(places, numbered.schema.fields, strict=True)
    shown = numbered.select(*(_text(place, field.dataType).alias(place) for place, field in fields))
    for row in shown.take(limit + 1) if limit else shown.toLocalIterator():
        yield tuple(row)


def _documents(frame: DataFrame, limit: int) -> Iterator[str]:
    """Yield rows as Spark's JSON documents."""
    numbered, places = _numbered(frame)
    columns = (F.col(place).alias(name) for place, name in zip(places, frame.columns, strict=True))
    shown = numbered.select(F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}))
    for row in shown.take(limit + 1) if limit else shown.toLocalIterator():
        yield str(row[0])


def _numbered(frame: DataFrame) -> tuple[DataFrame, list[str]]:
    """Rename the frame's columns to known, distinct names."""
    places = [f"c{number}" for number in range(len(frame.columns))]
    return frame.toDF(*places), places


def _text(place: str, data_type: DataType) -> Any:
    if isinstance(data_type, BinaryType):
        return F.hex(place)
    return F.to_json(place) if isinstance(data_type, VariantType) else F.col(place).cast("string")


def _line(values: Sequence[str | None]) -> str:
    """Format a line of CSV: NULL is empty, an empty string is quoted."""
    return ",".join("" if value is None else _quoted(value) for value in values)


def _quoted(value: str) -> str:
    plain = value and not _QUOTED.search(value)
    return value if plain else '"' + value.replace('"', '""') + '"'


def _draw(
    names: Sequence[str],
    numeric: Sequence[bool],
    texts: Iterator[tuple[str | None, ...]],
    terminal: Terminal,
    limit: int,
) -> int:
    rows = list(texts)
    more = bool(limit) and len(rows) > limit
    rows = rows[:limit] if limit else rows
    terminal.result(names, rows, numeric=numeric)
    return -1 if more else len(rows)


def exit_code(error: BaseException) -> int:
    """Return an error's exit code: our own (``pydelta.errors``), also from a server by condition; 1 for others."""
    if isinstance(error, DeltaError):
        return error.exit_code
    condition = ((error.getCondition() if isinstance(error, PySparkException) else None) or "").partition(".")[0]
    if condition in _UNKNOWN:
        return 3
    return 2 if condition in _CONFLICTS else 1


def explained(error: BaseException) -> str:
    """Explain an error in one line; a syntax error also shows its line with a caret, our own errors the next step."""
    if not isinstance(error, DeltaError):
        error = raised_in(str(error)) or error  # Spark may quote our error inside a stack trace.
    text = str(error).strip() or type(error).__name__
    if not isinstance(error, DeltaError) and not isinstance(error, PySparkException):
        first = text.splitlines()[0]
        causes = _CAUSE.findall(text)
        return visible(causes[-1] if causes else first)
    head, *rest = text.splitlines()
    lines = [visible(_of_spark(head, "" if isinstance(error, DeltaError) else text))]
    caret = next((at for at, line in enumerate(rest) if _CARET.match(line)), 0)
    if caret:
        lines += [visible(rest[caret - 1]), rest[caret].replace("-", " ")]
    elif not isinstance(error, DeltaError):  # A server may have sent one of our errors as text.
        lines += ["  " + visible(line.strip()) for line in rest if line.startswith("  Next: ")]
    else:
        lines += [visible(line) if not line.startswith("  ") else "  " + visible(line.strip()) for line in rest]
    return "\n".join(lines)


def _of_spark(head: str, text: str) -> str:
    """Strip the SQLSTATE from the first line, and add the cause if a job failed."""
    found = _CONDITION.sub("", head)
    found = (
        _POSITION.sub(lambda match: f" (line {match.group(1)}, pos {match.group(2)})", found)
        .replace("; (", " (")
        .rstrip(" ;")
    )
    causes = _CAUSE.findall(text)
    return f"{found}: {causes[-1]}" if causes and causes[-1] not in found else found
