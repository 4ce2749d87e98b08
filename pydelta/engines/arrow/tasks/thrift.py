"""Read and write structures of Thrift's compact protocol without their definitions, for the footers of Parquet.

A structure is a dictionary from field id to ``(type, value)``. Numbers are integers, text is bytes, a list is a pair of
its items' type and the items. What is read is written again byte for byte.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

__all__ = ["I16", "I32", "I64", "LIST", "STRUCT", "Struct", "read_struct", "write_struct"]

Struct: TypeAlias = dict[int, tuple[int, Any]]

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
STRUCT: Final = 12
_INTEGERS: Final = (I16, I32, I64)
_LONG_LIST: Final = 15
_LARGEST_STEP: Final = 15
_DOUBLE_BYTES: Final = 8


def read_struct(data: memoryview, at: int = 0) -> tuple[Struct, int]:
    """Read a structure.

    Args:
        data: The bytes.
        at: Where it begins.

    Returns:
        The structure, and where it ends.

    Raises:
        ValueError: It has a type that Parquet's structures do not have.
        IndexError: The bytes end within it.
    """
    found: Struct = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return found, at
        kind, step = head & 15, head >> 4
        if step:
            number += step
        else:
            number, at = _read_integer(data, at)
        if kind in (TRUE, FALSE):
            found[number] = kind, None
        else:
            value, at = _read_value(data, at, kind)
            found[number] = kind, value


def write_struct(struct: Struct) -> bytes:
    """Return a structure's bytes. Fields are written in the dictionary's order."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _read_integer(data: memoryview, at: int) -> tuple[int, int]:
    value, at = _read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _read_value(data: memoryview, at: int, kind: int) -> tuple[Any, int]:
    if kind in _INTEGERS:
        return _read_integer(data, at)
    if kind == BINARY:
        size, at = _read_varint(data, at)
        return bytes(data[at : at + size]), at + size
    if kind == STRUCT:
        return read_struct(data, at)
    if kind in (LIST, SET):
        return _read_list(data, at)
    if kind in (BYTE, TRUE, FALSE):  # A boolean in a list is a byte.
        return data[at], at + 1
    if kind == DOUBLE:
        return bytes(data[at : at + _DOUBLE_BYTES]), at + _DOUBLE_BYTES
    raise ValueError(f"Parquet's structures have no field of type {kind}.")


def _read_list(data: memoryview, at: int) -> tuple[tuple[int, list[Any]], int]:
    head = data[at]
    at += 1
    size, kind = head >> 4, head & 15
    if size == _LONG_LIST:
        size, at = _read_varint(data, at)
    items = []
    for _ in range(size):
        item, at = _read_value(data, at, kind)
        items.append(item)
    return (kind, items), at


def _write_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _write_integer(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number, (kind, value) in struct.items():
        if 0 < number - last <= _LARGEST_STEP:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            _write_integer(out, number)
        last = number
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _write_integer(out, value)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        item_kind, items = value
        if len(items) < _LONG_LIST:
            out.append(len(items) << 4 | item_kind)
        else:
            out.append(_LONG_LIST << 4 | item_kind)
            _write_varint(out, len(items))
        for item in items:
            _write_value(out, item_kind, item)
    elif kind == DOUBLE:
        out += value
    else:
        out.append(value)
