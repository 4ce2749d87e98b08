"""Read and write the messages of Thrift's binary protocol as far as a limited user's requests need it.

A message is a header (name, kind, number) and a struct. Fields are found by their numbers and copied as bytes, so that
what this module does not know passes unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["Field", "MalformedError", "ThriftMessage", "exception_message", "struct_field", "text_field"]

STOP, STRUCT, MAP, SET, LIST, TEXT, I32 = 0, 12, 13, 14, 15, 11, 8
_SIZES: Final = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8, 16: 16}
_VERSION: Final = 0x80010000
_CALL, _EXCEPTION = 1, 3
_DEEPEST: Final = 32
_UNKNOWN_KIND: Final = 0
"""The kind of a TApplicationException whose kind is unknown."""


class MalformedError(ValueError):
    """Bytes that are not a message of this protocol."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its type, and its value as bytes."""

    kind: int
    value: bytes


@dataclass(frozen=True, slots=True)
class ThriftMessage:
    """A message.

    Args:
        name: The method.
        kind: A call, a reply or an exception.
        number: The client's number of the call.
        body: The struct, as bytes.
    """

    name: str
    kind: int
    number: int
    body: bytes

    @classmethod
    def of(cls, data: bytes) -> ThriftMessage:
        """Parse a message.

        Raises:
            MalformedError: It is not one of the strict binary protocol.
        """
        try:
            head, length = struct.unpack_from(">Ii", data)
            if head & 0xFFFF0000 != _VERSION or not 0 <= length <= len(data):
                raise MalformedError("not a message of Thrift's binary protocol")
            (number,) = struct.unpack_from(">i", data, 8 + length)
            return cls(data[8 : 8 + length].decode(), head & 0xFF, number, data[12 + length :])
        except (struct.error, UnicodeDecodeError) as error:
            raise MalformedError("not a message of Thrift's binary protocol") from error

    def data(self) -> bytes:
        """Return the message as bytes."""
        name = self.name.encode()
        return struct.pack(">Ii", _VERSION | self.kind, len(name)) + name + struct.pack(">i", self.number) + self.body

    def argument(self) -> dict[int, Field]:
        """Return the fields of the one argument of a call.

        Raises:
            MalformedError: The call has none.
        """
        found = fields_of(self.body).get(1)
        if self.kind != _CALL or found is None or found.kind != STRUCT:
            raise MalformedError(f"{self.name} has no argument")
        return fields_of(found.value)

    def with_argument(self, name: str, fields: Mapping[int, Field]) -> ThriftMessage:
        """Return a call of another method with these fields."""
        inner = _struct(fields)
        return ThriftMessage(name, self.kind, self.number, _struct({1: Field(STRUCT, inner)}))


def fields_of(data: bytes) -> dict[int, Field]:
    """Return the fields of a struct by number.

    Raises:
        MalformedError: It is cut off, or has an unknown type.
    """
    found: dict[int, Field] = {}
    at = 0
    try:
        while data[at] != STOP:
            kind, number = struct.unpack_from(">bh", data, at)
            end = _end(data, at + 3, kind, _DEEPEST)
            found[number] = Field(kind, data[at + 3 : end])
            at = end
    except (IndexError, struct.error) as error:
        raise MalformedError("a struct is cut off") from error
    return found


def _end(data: bytes, at: int, kind: int, depth: int) -> int:
    """Return where a value ends."""
    if depth == 0:
        raise MalformedError("values are nested too deeply")
    if kind in _SIZES:
        end = at + _SIZES[kind]
    elif kind == TEXT:
        (length,) = struct.unpack_from(">i", data, at)
        end = at + 4 + length
        if length < 0:
            raise MalformedError("a text has a negative length")
    elif kind == STRUCT:
        while data[at] != STOP:
            at = _end(data, at + 3, data[at], depth - 1)
        end = at + 1
    elif kind in (MAP, SET, LIST):
        kinds = list(data[at : at + (2 if kind == MAP else 1)])
        at += len(kinds)
        (count,) = struct.unpack_from(">i", data, at)
        end = at + 4
        for _ in range(count):
            for inner in kinds:
                end = _end(data, end, inner, depth - 1)
    else:
        raise MalformedError(f"{kind} is not a type")
    if end > len(data):
        raise MalformedError("a value is cut off")
    return end


def texts_of(field: Field) -> dict[str, str]:
    """Return a map of texts.

    Raises:
        MalformedError: It is another value.
    """
    if field.kind != MAP:
        raise MalformedError("a map is expected")
    kinds, (count,) = field.value[:2], struct.unpack_from(">i", field.value, 2)
    if count and kinds != bytes([TEXT, TEXT]):
        raise MalformedError("a map of texts is expected")
    found, at = {}, 6
    for _ in range(count):
        words = []
        for _ in range(2):
            end = _end(field.value, at, TEXT, 1)
            words.append(field.value[at + 4 : end].decode())
            at = end
        found[words[0]] = words[1]
    return found


def text_of(field: Field | None) -> str | None:
    """Return a text; None for a field that is missing.

    Raises:
        MalformedError: It is another value.
    """
    if field is None:
        return None
    if field.kind != TEXT:
        raise MalformedError("a text is expected")
    return field.value[4:].decode()


def text_field(text: str) -> Field:
    """Return a field with a text."""
    value = text.encode()
    return Field(TEXT, struct.pack(">i", len(value)) + value)


def map_field(texts: Mapping[str, str]) -> Field:
    """Return a field with a map of texts."""
    head = bytes([TEXT, TEXT]) + struct.pack(">i", len(texts))
    return Field(MAP, head + b"".join(text_field(word).value for pair in texts.items() for word in pair))


def struct_field(fields: Mapping[int, Field]) -> Field:
    """Return a field with a struct."""
    return Field(STRUCT, _struct(fields))


def _struct(fields: Mapping[int, Field]) -> bytes:
    parts = [struct.pack(">bh", field.kind, number) + field.value for number, field in fields.items()]
    return b"".join(parts) + bytes([STOP])


def exception_message(call: ThriftMessage, text: str) -> bytes:
    """Return the reply that raises an error in the client."""
    body = _struct({1: text_field(text), 2: Field(I32, struct.pack(">i", _UNKNOWN_KIND))})
    return ThriftMessage(call.name, _EXCEPTION, call.number, body).data()


def status_message(call: ThriftMessage, text: str, state: str) -> bytes:
    """Return the reply of Hive's server whose status is an error."""
    status = {1: Field(I32, struct.pack(">i", 3)), 3: text_field(state), 5: text_field(text)}
    body = _struct({0: struct_field({1: struct_field(status)})})
    return ThriftMessage(call.name, 2, call.number, body).data()
