r"""Read the rows of a CSV file (RFC 4180) by a table's schema, block by block.

::

    bytes --_Blocks--> whole records --Arrow--> columns of text --text_values--> columns of the table's types
                             |
                             +-- a malformed quote, number of values or text --> record by record

A value in quotes keeps its line breaks, delimiters and doubled quotes. Spaces belong to values. An empty value is null
without quotes, and the empty string with them. Empty lines are not rows. A line ends with ``\n``, ``\r\n`` or ``\r``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from pydelta.engines.arrow.tasks.text_values import BadRow, TextBlock, TextRules, checked_rows
from pydelta.errors import InvalidArgumentError
from pydelta.protocol.types import StructField

__all__ = ["CsvRows", "CsvShape", "first_bytes"]

_BLOCK: Final = 8 * 1024 * 1024
_LONGEST: Final = 128 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_QUOTE, _LF, _CR = 34, 10, 13
_QUOTED: Final = re.compile(rb'"(?:[^"]+|"")*+"')


def first_bytes(stream: IO[bytes], name: str) -> bytes:
    """Return the first bytes of a file after any byte order mark.

    Raises:
        InvalidArgumentError: The file is UTF-16 or UTF-32.
    """
    begin = b""
    while len(begin) < 4 and (more := stream.read(4 - len(begin))):
        begin += more
    if begin.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        raise InvalidArgumentError(f"{name} is not UTF-8 but UTF-16 or UTF-32.", hint="Save it as UTF-8.")
    return begin.removeprefix(_BOM)


class CsvShape(NamedTuple):
    """The form of a file: whether its first line names the columns, and the delimiter (one character)."""

    header: bool = True
    delimiter: str = ","
    may_be_empty: bool = False
    """Whether a file without a header may have no rows. Otherwise that is an error."""


class _Record(NamedTuple):
    """A record of the file: its line, its bytes without the line's end, its values, and where the next one begins."""

    line: int
    value: bytes
    values: list[bytes]
    end: int
    next_line: int


class CsvRows:
    """The rows of one file.

    Args:
        stream: The file.
        name: Name of the file, for messages.
        fields_of: Function that returns the table's field for each name of the header, and raises an error for names
            that do not fit. Without a header it is given no names.
        shape: Form of the file, or None for RFC 4180's commas with a header.
        rules: Rules for strings whose meaning the format leaves open.

    Raises:
        InvalidArgumentError: There is no header, or the file is not UTF-8.
    """

    def __init__(
        self,
        stream: IO[bytes],
        name: str,
        fields_of: Callable[[Sequence[str]], Sequence[StructField]],
        *,
        shape: CsvShape | None = None,
        rules: TextRules | None = None,
    ) -> None:
        self._shape = shape or CsvShape()
        self._stream, self._name, self._rules = stream, name, rules or TextRules()
        self._delimiter = self._shape.delimiter.encode()
        plain = rb"[^\r\n" + re.escape(self._delimiter) + rb"]*"
        self._value = re.compile(rb'"(?:[^"]+|"")*+"' + plain + rb'|"(?:[^"]+|"")*+\Z|' + plain)
        self._rest, self._line, self._ended = first_bytes(stream, name), 1, False
        names = self._header() if self._shape.header else []
        self.fields = list(fields_of(names)) if names or not self._shape.header else []

    def blocks(self) -> Iterator[TextBlock]:
        """Yield the rows, some megabytes of the file at a time.

        Raises:
            InvalidArgumentError: A record is too long to be intended.
        """
        while (data := self._next()) is not None:
            yield self._read(data)

    def _header(self) -> list[str]:
        while True:
            record = self._record(self._rest, 0, self._line)
            if record.end == len(self._rest) and not self._ended:  # The record may continue.
                self._more()
            elif self._rest and not record.value:
                self._rest, self._line = self._rest[record.end :], record.next_line
            else:
                break
        if not record.value and self._shape.may_be_empty:
            return []
        if not record.value:
            raise InvalidArgumentError(f"{self._name} is empty.", hint="Its first line has to name the columns.")
        if (wrong := _malformed(record, None)) is not None:
            raise InvalidArgumentError(f"{self._name}, line {record.line}: {wrong[1]}.", hint="Correct the header.")
        self._rest, self._line = self._rest[record.end :], record.next_line
        return [_text(value) for value in record.values]

    def _more(self) -> None:
        """Read the next bytes. A record's length is limited, so that an unclosed quote does not fill the memory."""
        if len(self._rest) > _LONGEST:
            raise InvalidArgumentError(
                f"{self._name}, line {self._line}: a record is longer than {_LONGEST >> 20} MB.",
                hint="Look for a quote that is opened there and never closed.",
            )
        chunk = self._stream.read(_BLOCK)
        self._ended = not chunk
        self._rest += chunk

    def _next(self) -> bytes | None:
        """Return whole records, judged by their quotes, or None at the end."""
        while not self._ended:
            self._more()
            if (end := 0 if self._ended else _whole(self._rest)) > 0:
                data, self._rest = self._rest[:end], self._rest[end:]
                return data
        data, self._rest = self._rest, b""
        return data or None

    def _read(self, data: bytes) -> TextBlock:
        first_line = self._line
        columns = self._columns(data) if self._is_clean(data) else None
        if columns is not None:
            self._line += _line_ends(np.frombuffer(data, np.uint8)).size
            rows, problems = checked_rows(columns, self.fields, self._rules)
            records = list(self._records(data, first_line)) if problems else []
            bad: list[BadRow] = []
        else:
            records, bad = self._sorted(data)
            columns = self._columns(b"\n".join([*(record.value for record in records), b""]))
            assert columns is not None, "each record was looked at"
            rows, problems = checked_rows(columns, self.fields, self._rules)
        for found in problems:
            record = records[found.row]
            bad.append(BadRow(line=record.line, column=found.column, reason=found.reason, value=record.value))
        return TextBlock(rows=rows, bad=sorted(bad, key=lambda row: row.line))

    def _columns(self, data: bytes) -> list[Any] | None:
        """Read the values as one column of strings each, or return None if some record is malformed."""
        names = [f"c{place}" for place in range(len(self.fields))]
        if not data.strip(b"\r\n"):
            return [pa.array([], pa.string()) for _ in names]
        if not data.endswith((b"\n", b"\r")):
            data += b"\n"  # Arrow takes an empty value at the end of a file for a quoted one.
        try:
            found = pyarrow.csv.read_csv(
                pa.BufferReader(data),
                read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=len(data) + 1),
                parse_options=pyarrow.csv.ParseOptions(delimiter=self._delimiter.decode(), newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=["", *self._rules.nulls],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return None
        return [column.combine_chunks() for column in found.columns]

    def _is_clean(self, data: bytes) -> bool:
        """Return whether each quote begins a value, ends one, or is doubled."""
        array = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(array == _QUOTE)
        if quotes.size % 2:
            return False
        begins, ends = quotes[0::2], quotes[1::2]
        around = np.array([_QUOTE, _LF, _CR, self._delimiter[0]], np.uint8)
        before = array[begins[begins > 0] - 1]
        after = array[ends[ends < array.size - 1] + 1]
        return bool(np.isin(before, around).all() and np.isin(after, around).all())

    def _sorted(self, data: bytes) -> tuple[list[_Record], list[BadRow]]:
        """Separate valid records from the others. A record that continues after the block is put back."""
        good: list[_Record] = []
        bad: list[BadRow] = []
        for record in self._records(data, self._line):
            if not self._ended and _is_open(record):  # Only the last record can be open.
                self._rest, self._line = record.value + self._rest, record.line
                return good, bad
            wrong = _malformed(record, self.fields)
            if wrong is None:
                good.append(record)
            else:
                bad.append(BadRow(line=record.line, column=wrong[0], reason=wrong[1], value=record.value))
        self._line += _line_ends(np.frombuffer(data, np.uint8)).size
        return good, bad

    def _records(self, data: bytes, line: int) -> Iterator[_Record]:
        start = 0
        while start < len(data):
            record = self._record(data, start, line)
            if record.value:
                yield record
            start, line = record.end, record.next_line

    def _record(self, data: bytes, start: int, line: int) -> _Record:
        """Parse the record that begins at a position."""
        values = []
        place = start
        while True:
            found = self._value.match(data, place)
            assert found is not None, "nothing is a value, too"
            values.append(found.group())
            place = found.end() + 1
            if data[found.end() : place] != self._delimiter:
                break
        stop = end = found.end()
        if data[stop : stop + 2] == b"\r\n":
            end += 2
        elif stop < len(data):
            end += 1
        value = data[start:stop]
        breaks = value.count(b"\n") + value.count(b"\r") - value.count(b"\r\n")
        return _Record(line, value, values, end, line + breaks + 1)


def _line_ends(array: Any) -> Any:
    """Find the positions of the last byte of each line end, inside quotes and outside."""
    following = np.append(array[1:], np.uint8(0))
    return np.flatnonzero((array == _LF) | ((array == _CR) & (following != _LF)))


def _whole(data: bytes) -> int:
    """Return the end of the last whole record, assuming that all quotes are valid."""
    array = np.frombuffer(data, np.uint8)
    ends = _line_ends(array)
    ends = ends[ends < array.size - 1] if data.endswith(b"\r") else ends
    outside = np.searchsorted(np.flatnonzero(array == _QUOTE), ends) % 2 == 0
    return int(ends[outside][-1]) + 1 if outside.any() else 0


def _is_open(record: _Record) -> bool:
    """Return whether the last value begins with a quote that is not closed."""
    last = record.values[-1]
    return last.startswith(b'"') and _QUOTED.match(last) is None


def _malformed(record: _Record, fields: Sequence[StructField] | None) -> tuple[str | None, str] | None:
    """Return the column and the reason why a record is malformed, or None. Without fields it is the header."""
    for place, value in enumerate(record.values):
        column = fields[place].name if fields is not None and place < len(fields) else None
        if value.startswith(b'"'):
            quoted = _QUOTED.match(value)
            if quoted is None:
                return column, "a quote is opened and never closed"
            if quoted.end() < len(value):
                return column, "there is text behind a closing quote"
        elif b'"' in value:
            return column, "there is a quote within a value that does not begin with one"
        try:
            value.decode()
        except UnicodeDecodeError as error:
            return column, f"the byte {value[error.start]:#04x} is not UTF-8"
    if fields is None or len(record.values) == len(fields):
        return None
    short = len(record.values) < len(fields)
    column = fields[len(record.values)].name if short else None
    return column, f"there are {len(record.values)} values for {len(fields)} columns"


def _text(value: bytes) -> str:
    return (value[1:-1].replace(b'""', b'"') if value.startswith(b'"') else value).decode()
