"""Read the rows of a file with a JSON object per line by a table's schema, block by block.

::

    whole lines --Arrow's reader, with the schema--> columns --text_values--> columns of the table's types
         |
         +-- a line that it rejects, or maps, or keys in another case --json--> line by line: a row, or a reason

A missing key is null. Numbers keep their digits until they are converted to the column's type. A line is refused for a
key that the table lacks, a repeated key, or a value of another kind (text for a number, for example).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.json

from pydelta.engines.arrow.tasks.csv_rows import first_bytes
from pydelta.engines.arrow.tasks.text_values import BadRow, TextBlock, TextRules, arrow_type, checked_rows
from pydelta.errors import InvalidArgumentError
from pydelta.protocol.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType

__all__ = ["JsonRows"]

_BLOCK: Final = 8 * 1024 * 1024
_LONGEST: Final = 256 * 1024 * 1024
_SPACE: Final = b" \t\r\n"
_LF, _BRACE = 10, 123
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_SHOWN: Final = 60


class _Number(str):
    """A number with a point or an exponent, with its original digits."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """The members of an object, in their order. A key may occur twice."""


class _Unfit(Exception):
    """The reason why a line is not a row, and the path of the value."""

    def __init__(self, path: str | None, reason: str) -> None:
        super().__init__(reason)
        self.path, self.reason = path, reason


class JsonRows:
    """The rows of one file.

    Args:
        stream: The file.
        name: Name of the file, for messages.
        fields: Columns of the table that JSON values can represent.
        unread: The other columns, which no line may name.
        rules: Rules for strings whose meaning the format leaves open.
        notes_names: Whether to fill ``named``.

    Raises:
        InvalidArgumentError: The file is UTF-16 or UTF-32.
    """

    def __init__(
        self,
        stream: IO[bytes],
        name: str,
        fields: Sequence[StructField],
        *,
        unread: Sequence[StructField] = (),
        rules: TextRules | None = None,
        notes_names: bool = False,
    ) -> None:
        self._stream, self._name, self._notes_names = stream, name, notes_names
        self._rules = rules or TextRules(base64=True)
        self.fields = list(fields)
        self._struct, self._unread = StructType(tuple(fields)), StructType(tuple(unread))
        self._rest, self._line = first_bytes(stream, name), 1
        self._schema: pa.Schema | None = None
        self._slow = any(_has_map(field.data_type) for field in fields)
        self.named: set[str] = set()
        """The columns that some line names, null or not. Complete once ``blocks`` has finished."""

    def blocks(self) -> Iterator[TextBlock]:
        """Yield the rows, some megabytes of the file at a time.

        Raises:
            InvalidArgumentError: A line is too long to be intended.
        """
        while chunk := self._stream.read(_BLOCK):
            end = chunk.rfind(b"\n") + 1
            if end:
                yield self._read(self._rest + chunk[:end])
                self._rest = chunk[end:]
                continue
            self._rest += chunk
            if len(self._rest) > _LONGEST:
                raise InvalidArgumentError(
                    f"{self._name}, line {self._line}: it is longer than {_LONGEST >> 20} MB.",
                    hint="Write one JSON object per line.",
                )
        if self._rest.strip(_SPACE):
            yield self._read(self._rest)

    def _read(self, data: bytes) -> TextBlock:
        begins = np.append(0, np.flatnonzero(np.frombuffer(data, np.uint8) == _LF) + 1)
        columns = None if self._slow else self._columns(data, begins)
        line, self._line = self._line, self._line + begins.size - 1
        if columns is not None:
            rows, problems = checked_rows(columns, self.fields, self._rules)
            places = _filled(data) if problems else []
            bad: list[BadRow] = []
        else:
            places, bad, values = self._sorted(data, line)
            schema = _asked_schema(self.fields, texts=True)
            columns = [pa.array([row.get(field.name) for row in values], field.type) for field in schema]
            rows, problems = checked_rows(columns, self.fields, self._rules)
        for found in problems:
            place, text = places[found.row]
            bad.append(BadRow(line=line + place, column=found.column, reason=found.reason, value=text))
        return TextBlock(rows=rows, bad=sorted(bad, key=lambda row: row.line))

    def _columns(self, data: bytes, begins: Any) -> list[Any] | None:
        """Read the columns with Arrow, or return None if single lines must be examined."""
        array = np.frombuffer(data, np.uint8)
        firsts = array[begins[begins < array.size]]
        filled = firsts == _BRACE  # Other values crash Arrow's reader.
        if not filled.all() and any(text[:1] != b"{" for _, text in _filled(data)):
            return None
        lines = int(filled.sum()) if filled.all() else len(_filled(data))
        if not lines:
            return [pa.array([], field.type) for field in _asked_schema(self.fields)]
        if self._schema is None:
            self._schema = _spelled_schema(self._struct, data)
        try:
            data.decode()
            found = pyarrow.json.read_json(
                pa.BufferReader(data),
                read_options=pyarrow.json.ReadOptions(block_size=len(data) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="error", newlines_in_values=False
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
            return None
        if found.num_rows != lines:
            return None  # A line has two objects.
        if self._notes_names:
            self._note_names(data, found)
        return [column.combine_chunks() for column in found.columns]

    def _note_names(self, data: bytes, found: pa.Table) -> None:
        """Note the columns that the lines name. For a column of nulls, the lines themselves must be read."""
        for field, column in zip(self.fields, found.columns, strict=True):
            if column.null_count < len(column):
                self.named.add(field.name)
        if len(self.named) < len(self.fields):
            for _, text in _filled(data):
                self.named |= {field.name for field, _ in _matched(_parsed(text), self._struct, None)}

    def _sorted(self, data: bytes, line: int) -> tuple[list[tuple[int, bytes]], list[BadRow], list[dict[str, Any]]]:
        """Separate lines that are rows, with their values, from the others."""
        good: list[tuple[int, bytes]] = []
        bad: list[BadRow] = []
        values: list[dict[str, Any]] = []
        for place, text in _filled(data):
            try:
                members = _parsed(text)
                self._refuse_unread(members)
                row = _values(members, self._struct, None)
            except _Unfit as error:
                bad.append(BadRow(line=line + place, column=error.path, reason=error.reason, value=text))
                continue
            good.append((place, text))
            values.append(row)
            self.named |= row.keys()
        return good, bad, values

    def _refuse_unread(self, members: _Object) -> None:
        for key, _ in members if self._unread.fields else ():
            field = self._unread.field(key)
            if field is not None:
                kind = _cut(str(field.data_type))
                raise _Unfit(field.name, f"the column is {kind}, which JSON cannot hold (keys of maps have to be text)")


def _filled(data: bytes) -> list[tuple[int, bytes]]:
    """Return the lines that are not empty, stripped, with their numbers from 0."""
    stripped = ((place, text.strip(_SPACE)) for place, text in enumerate(data.split(b"\n")))
    return [(place, text) for place, text in stripped if text]


def _has_map(data_type: DataType) -> bool:
    if isinstance(data_type, StructType):
        return any(_has_map(field.data_type) for field in data_type.fields)
    return isinstance(data_type, MapType) or (isinstance(data_type, ArrayType) and _has_map(data_type.element_type))


def _asked_schema(fields: Sequence[StructField], *, texts: bool = False) -> pa.Schema:
    """Return the schema for reading lines: strings for JSON strings, and for fractions with known digits."""
    return pa.schema([pa.field(field.name, _asked(field.data_type, texts)) for field in fields])


def _asked(data_type: DataType, texts: bool) -> pa.DataType:
    if isinstance(data_type, StructType):
        return pa.struct([pa.field(field.name, _asked(field.data_type, texts)) for field in data_type.fields])
    if isinstance(data_type, ArrayType):
        return pa.list_(_asked(data_type.element_type, texts))
    if isinstance(data_type, MapType):
        return pa.map_(pa.string(), _asked(data_type.value_type, texts))
    if isinstance(data_type, DecimalType):
        return pa.string() if texts else arrow_type(data_type)
    if data_type.name in ("float", "double"):
        return pa.string() if texts else arrow_type(data_type)
    return arrow_type(data_type) if data_type.name in {*_BITS, "boolean"} else pa.string()


def _spelled_schema(struct: StructType, data: bytes) -> pa.Schema:
    """Return the schema with the first line's spelling of column names, if it differs in case."""
    spelled: dict[str, str] = {}
    for _, text in _filled(data[: data.find(b"\n") + 1 or len(data)]):
        with suppress(_Unfit):
            members = _parsed(text)
            fields = _matched(members, struct, None)
            spelled = {field.name: key for (key, _), (field, _) in zip(members, fields, strict=True)}
    schema = _asked_schema(struct.fields)
    return pa.schema([field.with_name(spelled.get(field.name, field.name)) for field in schema])


def _constant(token: str) -> float:
    return float(token)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_Object, parse_float=_Number, parse_constant=_constant)


def _parsed(text: bytes) -> _Object:
    """Parse the object of a line.

    Raises:
        _Unfit: It is not an object.
    """
    try:
        value = _DECODER.decode(text.decode())
    except UnicodeDecodeError as error:
        raise _Unfit(None, f"the byte {text[error.start]:#04x} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _Unfit(None, f"it is not one JSON object: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError):  # A number has thousands of digits, or lists are nested too deeply.
        raise _Unfit(None, "it is not a JSON object that can be read") from None
    if not isinstance(value, _Object):
        raise _Unfit(None, f"it is {_kind(value)}, and not an object")
    return value


def _matched(members: _Object, struct: StructType, path: str | None) -> list[tuple[StructField, Any]]:
    """Return the fields that an object's keys name, ignoring case, with their values.

    Raises:
        _Unfit: A key is not a field, or a field occurs twice.
    """
    found: dict[str, tuple[StructField, Any]] = {}
    for key, value in members:
        field = struct.field(key)
        if field is None:
            raise _Unfit(path, f"the key {_cut(key)!r} is not {'a column' if path is None else 'a field'} of the table")
        if field.name in found:
            raise _Unfit(_below(path, field.name), f"the key {_cut(key)!r} comes twice")
        found[field.name] = (field, value)
    return list(found.values())


def _values(members: _Object, struct: StructType, path: str | None) -> dict[str, Any]:
    return {
        field.name: _value(value, field.data_type, _below(path, field.name))
        for field, value in _matched(members, struct, path)
    }


def _value(value: Any, data_type: DataType, path: str) -> Any:
    """Convert a value to the form of ``_asked``, if JSON writes its type in this way."""
    if value is None:
        return None
    if isinstance(data_type, StructType):
        if isinstance(value, _Object):
            return _values(value, data_type, path)
    elif isinstance(data_type, ArrayType):
        if type(value) is list:
            return [_value(item, data_type.element_type, f"{path}.element") for item in value]
    elif isinstance(data_type, MapType):
        if isinstance(value, _Object):
            return _map(value, data_type, path)
    elif isinstance(data_type, DecimalType) or data_type.name in ("float", "double"):
        if type(value) in (int, _Number, str):
            return _checked_text(str(value), path)
        if type(value) is float and isinstance(data_type, PrimitiveType):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)]
    elif data_type.name in _BITS:
        if type(value) is int and -(1 << _BITS[data_type.name] - 1) <= value < 1 << _BITS[data_type.name] - 1:
            return value
        if type(value) in (int, _Number):
            raise _Unfit(path, f"{_cut(str(value))} is not a whole number of type {data_type}")
    elif data_type.name == "boolean":
        if type(value) is bool:
            return value
    elif type(value) is str:
        return _checked_text(value, path)
    raise _Unfit(path, f"it is {_kind(value)}, but the column is {data_type}")


def _map(members: _Object, data_type: MapType, path: str) -> list[tuple[str, Any]]:
    keys = [key for key, _ in members]
    if len(set(keys)) < len(keys):
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise _Unfit(path, f"the key {_cut(twice)!r} comes twice")
    return [
        (_checked_text(key, f"{path}.key"), _value(value, data_type.value_type, f"{path}.value"))
        for key, value in members
    ]


def _checked_text(text: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Unfit(path, "it has half of a character (a surrogate without its other half)") from None
    return text


def _kind(value: Any) -> str:
    kinds = {bool: "true or false", str: "text", _Object: "an object", list: "a list", type(None): "null"}
    return kinds.get(type(value), "a number")


def _below(path: str | None, name: str) -> str:
    return name if path is None else f"{path}.{name}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
