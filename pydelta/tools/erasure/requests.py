"""Read the keys of an erasure from a file or a condition.

::

    people.txt, --column email      one key per line
    people.csv, .ndjson, .parquet   a column of the file is a column of the table; rows may leave some empty
    --where "email IN ('a', 'b')"   constants of one comparison; anything else would name no keys to search for
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.log import Snapshot
from pydelta.predicate import Column, Compare, Expr, In, Literal, Or, parse_predicate
from pydelta.protocol.names import path_text
from pydelta.storage import open_store

__all__ = ["file_bytes", "keys_of_condition", "keys_of_file"]

_TABULAR: Final = (".csv", ".ndjson", ".jsonl", ".parquet")


def keys_of_file(file: str, column: str | None, options: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """Read keys by column.

    Args:
        file: A local file or a URI: .csv with a header, .ndjson or .parquet; any other has a key per line.
        column: The table's column. A file with columns is then read for that column alone.
        options: Storage options, for a URI.

    Raises:
        InvalidArgumentError: The file cannot be read or has no key, or a file of lines comes without a column.
    """
    kind = Path(file).suffix.lower()
    if kind not in _TABULAR and column is None:
        raise InvalidArgumentError(
            f"{file} has a key per line, but for which column is not said.",
            hint="Name the column with --column, or give a .csv with a header, .ndjson or .parquet.",
        )
    try:
        records = _records(io.BytesIO(file_bytes(file, options)), kind, column)
        found: dict[str, dict[str, None]] = {}
        for record in records:
            for name, value in record.items():
                text = _text(value)
                if text != "" and (column is None or name == column):
                    found.setdefault(name, {})[text] = None
    except DeltaError as error:
        raise InvalidArgumentError(
            f"The keys in {file} cannot be read: {error.message}", hint=error.hint or "Check the location."
        ) from error
    except (OSError, UnicodeDecodeError, ValueError, csv.Error) as error:
        raise InvalidArgumentError(
            f"The keys in {file} cannot be read: {type(error).__name__}.",
            hint="Check that the file exists, and that it is UTF-8 text of the kind that its name says.",
        ) from None  # The text of the error may show a key.
    if not any(found.values()):
        raise InvalidArgumentError(
            f"There is no key in {file}{'' if column is None else f' for the column {column}'}.",
            hint="Check the file, and the name of the column in it.",
        )
    return {name: list(keys) for name, keys in found.items()}


def file_bytes(file: str, options: Mapping[str, str] | None = None) -> bytes:
    """Read a local file, or one at a URI.

    Raises:
        OSError, DeltaError: It cannot be read.
    """
    folder, _, name = file.rpartition("/")
    return open_store(folder, options).read(name) if "://" in folder else Path(file).read_bytes()


def _records(data: io.BytesIO, kind: str, column: str | None) -> Iterator[Mapping[str, Any]]:
    if kind == ".parquet":
        import pyarrow.parquet as pq

        yield from pq.ParquetFile(data).read().to_pylist()
        return
    lines = io.TextIOWrapper(data, encoding="utf-8-sig", newline="")
    if kind == ".csv":
        for row in csv.DictReader(lines):
            yield {name: value for name, value in row.items() if name is not None and value is not None}
    elif kind in _TABULAR:
        yield from _documents(lines)
    else:
        assert column is not None
        for line in lines:
            yield {column: line.rstrip("\r\n")}


def _documents(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        if line.strip():
            found = json.loads(line, parse_float=Decimal)
            if not isinstance(found, dict):
                raise ValueError("not an object")
            yield found


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int, Decimal, dt.date)) or isinstance(value, dt.datetime):
        raise ValueError("a key is a text, a whole number, a decimal or a day")
    return str(value)


def keys_of_condition(condition: str, snapshot: Snapshot) -> dict[str, list[str]]:
    """Return the constants that a condition compares columns with.

    Args:
        condition: ``column = constant``, ``column IN (…)``, or several of them with OR.
        snapshot: The table.

    Raises:
        InvalidArgumentError: It is any other condition.
        ParseError, BindError: It does not fit the table.
    """
    found: dict[str, list[str]] = {}
    for path, values in _comparisons(parse_predicate(condition, snapshot.schema), condition):
        found.setdefault(path_text(path), []).extend(_text(value) for value in values)
    return found


def _comparisons(expr: Expr, condition: str) -> Iterator[tuple[tuple[str, ...], tuple[Any, ...]]]:
    match expr:
        case Or():
            yield from _comparisons(expr.left, condition)
            yield from _comparisons(expr.right, condition)
        case In(child=Column(path=path), values=values) if None not in values:
            yield path, values
        case Compare(op="=", left=Column(path=path), right=Literal(value=value)) if value is not None:
            yield path, (value,)
        case Compare(op="=", left=Literal(value=value), right=Column(path=path)) if value is not None:
            yield path, (value,)
        case _:
            raise InvalidArgumentError(
                "An erasure is by keys, so that what is left can be searched for them: this condition names none.",
                hint="Write column = constant or column IN (…), several with OR; or give a file with --keys.",
            )
