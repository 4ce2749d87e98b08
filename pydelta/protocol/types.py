"""Convert a table's schema between frozen values and its JSON in the log.

Protocol: "Schema Serialization Format". Field metadata is preserved unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from pydelta.errors import LogCorruptedError, SchemaError
from pydelta.protocol.malformed import MALFORMED_JSON, reason

__all__ = [
    "ArrayType",
    "DataType",
    "DecimalType",
    "MapType",
    "PrimitiveType",
    "StructField",
    "StructType",
    "has_user_type",
    "parse_schema",
    "parse_type",
    "plain_type",
]

PRIMITIVES: Final = frozenset(
    {
        "string",
        "long",
        "integer",
        "short",
        "byte",
        "float",
        "double",
        "boolean",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "void",
        "variant",
    }
)
_ALIASES: Final = {
    "null": "void", "int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte",
    # This is the default collation; Spark keeps the clause if the user wrote it.
    "string collate UTF8_BINARY": "string",
}  # fmt: skip


User: TypeAlias = Mapping[str, Any] | None
"""What the log states about a user-defined type besides its value type (``class``, ``pyClass`` …), or None.

Such a type compares like its value type, and schema changes never reach inside it.
"""


def _with_user(user: User, values: Any) -> Any:
    return values if user is None else {**user, "sqlType": values}


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parts, by its name in the log: ``long``, ``string``, ``timestamp_ntz`` …

    Names outside the protocol (intervals, collated strings, geometry) are kept, so that a schema can still be shown.
    """

    name: str
    user: User = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name

    @property
    def known(self) -> bool:
        """Whether the protocol defines the type."""
        return self.name in PRIMITIVES

    def to_dict(self) -> Any:
        """Return the JSON value."""
        return _with_user(self.user, self.name)


@dataclass(frozen=True, slots=True)
class DecimalType:
    """``decimal(precision, scale)``."""

    precision: int
    scale: int
    user: User = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"

    def to_dict(self) -> Any:
        """Return the JSON value."""
        return _with_user(self.user, str(self))


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array whose elements have one type."""

    element_type: DataType
    contains_null: bool = True
    user: User = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"array<{self.element_type}>"

    def to_dict(self) -> Any:
        """Return the JSON value."""
        values = {"type": "array", "elementType": self.element_type.to_dict(), "containsNull": self.contains_null}
        return _with_user(self.user, values)


@dataclass(frozen=True, slots=True)
class MapType:
    """A map from keys of one type to values of another."""

    key_type: DataType
    value_type: DataType
    value_contains_null: bool = True
    user: User = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"map<{self.key_type},{self.value_type}>"

    def to_dict(self) -> Any:
        """Return the JSON value."""
        values = {
            "type": "map",
            "keyType": self.key_type.to_dict(),
            "valueType": self.value_type.to_dict(),
            "valueContainsNull": self.value_contains_null,
        }
        return _with_user(self.user, values)


@dataclass(frozen=True, slots=True)
class StructField:
    """A named part of a struct. ``metadata`` is free-form JSON: comments, column mapping, generation, constraints."""

    name: str
    data_type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} {self.data_type}" + ("" if self.nullable else " not null")

    def to_dict(self) -> Any:
        """Return the JSON value."""
        return {
            "name": self.name,
            "type": self.data_type.to_dict(),
            "nullable": self.nullable,
            "metadata": dict(self.metadata),
        }

    def replace(self, **changes: Any) -> StructField:
        """Return a copy with some attributes changed."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class StructType:
    """Named fields in order. Names are unique ignoring case."""

    fields: tuple[StructField, ...] = ()
    user: User = field(default=None, compare=False, repr=False)
    _by_name: dict[str, StructField] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Fields by exact and by lower-case name. Filled at the first lookup, because a table may have thousands."""

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        return "struct<" + ",".join(f"{item.name}:{item.data_type}" for item in self.fields) + ">"

    @property
    def names(self) -> tuple[str, ...]:
        """The field names, in order."""
        return tuple(item.name for item in self.fields)

    def field(self, name: str) -> StructField | None:
        """Return the field of that name, ignoring case. An exact match takes precedence."""
        if not self._by_name and self.fields:
            names = {item.name: item for item in reversed(self.fields)}
            folded = {item.name.lower(): item for item in reversed(self.fields)}
            self._by_name.update(folded | names)
        found = self._by_name.get(name)
        return self._by_name.get(name.lower()) if found is None else found

    def to_dict(self) -> Any:
        """Return the JSON value."""
        return _with_user(self.user, {"type": "struct", "fields": [item.to_dict() for item in self.fields]})

    def to_json(self) -> str:
        """Return compact JSON text, the form in ``schemaString``."""
        return json.dumps(self.to_dict(), separators=(",", ":"), ensure_ascii=False)

    def tree(self) -> str:
        """Format the schema for messages, one line per field.

        Example:
            >>> print(StructType((StructField("id", PrimitiveType("long"), False),)).tree())
            root
             |-- id: long (not null)
        """
        return "\n".join(["root", *_branches(self, 1)])


DataType: TypeAlias = PrimitiveType | DecimalType | ArrayType | MapType | StructType


def _branches(struct: StructType, depth: int) -> Iterator[str]:
    for item in struct.fields:
        kind = type(item.data_type).__name__.removesuffix("Type").lower()
        shown = kind if isinstance(item.data_type, StructType) else str(item.data_type)
        yield f"{' |  ' * (depth - 1)} |-- {item.name}: {shown}" + ("" if item.nullable else " (not null)")
        if isinstance(item.data_type, StructType):
            yield from _branches(item.data_type, depth + 1)


_MOST_DIGITS: Final = 38
_DEEPEST: Final = 300
_DECIMAL: Final = re.compile(r"decimal(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?")


def parse_type(value: Any) -> DataType:
    """Parse a type from decoded JSON.

    Raises:
        SchemaError: The value is not a type.
    """
    if isinstance(value, str):
        match = _DECIMAL.fullmatch(value)
        if match:
            return _decimal(value, int(match.group(1) or 10), int(match.group(2) or 0))
        return PrimitiveType(_ALIASES.get(value, value))
    if isinstance(value, dict):
        kind = value.get("type")
        if kind == "struct":
            return StructType(tuple(_parse_field(item) for item in value["fields"]))
        if kind == "array":
            return ArrayType(parse_type(value["elementType"]), bool(value.get("containsNull", True)))
        if kind == "map":
            return MapType(
                parse_type(value["keyType"]), parse_type(value["valueType"]), bool(value.get("valueContainsNull", True))
            )
        if kind == "udt" and "sqlType" in value:
            user = {key: item for key, item in value.items() if key != "sqlType"}
            return replace(parse_type(value["sqlType"]), user=user)
    raise SchemaError(f"{value!r} is not a type of a table schema.")


def has_user_type(data_type: DataType) -> bool:
    """Return whether a type is user-defined or contains such a type."""
    if isinstance(data_type, StructType):
        parts: tuple[DataType, ...] = tuple(item.data_type for item in data_type.fields)
    elif isinstance(data_type, MapType):
        parts = (data_type.key_type, data_type.value_type)
    else:
        parts = (data_type.element_type,) if isinstance(data_type, ArrayType) else ()
    return data_type.user is not None or any(map(has_user_type, parts))


def plain_type(data_type: DataType, known: Callable[[Mapping[str, Any]], bool] = lambda user: False) -> DataType:
    """Replace user-defined types by the types of their values.

    Args:
        data_type: The type.
        known: Which user-defined types to keep. The default is none, because building one runs code named in the log.
    """
    if data_type.user is not None:
        return data_type if known(data_type.user) else plain_type(replace(data_type, user=None), known)
    if isinstance(data_type, StructType):
        return StructType(tuple(item.replace(data_type=plain_type(item.data_type, known)) for item in data_type.fields))
    if isinstance(data_type, ArrayType):
        return replace(data_type, element_type=plain_type(data_type.element_type, known))
    if isinstance(data_type, MapType):
        key, value = plain_type(data_type.key_type, known), plain_type(data_type.value_type, known)
        return replace(data_type, key_type=key, value_type=value)
    return data_type


def _decimal(text: str, precision: int, scale: int) -> DecimalType:
    if not (1 <= precision <= _MOST_DIGITS and 0 <= scale <= precision):
        raise SchemaError(
            f"{text} is not a type: a decimal has 1 to {_MOST_DIGITS} digits, and no more than that after the "
            f"decimal point."
        )
    return DecimalType(precision, scale)


def _parse_field(value: Any) -> StructField:
    name = value["name"]
    if not isinstance(name, str):
        raise SchemaError(f"{name!r} is not the name of a column.")
    name.encode()  # This raises ValueError for a lone surrogate.
    metadata = dict(value.get("metadata") or {})
    return StructField(name, parse_type(value["type"]), bool(value.get("nullable", True)), metadata)


def _refuse_deep(value: Any) -> None:
    """Refuse deeply nested values before recursive functions walk them."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise SchemaError(f"its JSON is nested more than {_DEEPEST} levels deep")
        inner = [item for item in level if isinstance(item, (dict, list))]
        level = [part for item in inner for part in (item.values() if isinstance(item, dict) else item)]


def parse_schema(text: str) -> StructType:
    """Parse a schema from ``schemaString``.

    Raises:
        LogCorruptedError: The text is not JSON or does not describe a struct.
    """
    try:
        value = json.loads(text)
        _refuse_deep(value)
        parsed = parse_type(value)
    except (*MALFORMED_JSON, KeyError, TypeError, AttributeError, SchemaError) as error:
        why = error.message if isinstance(error, SchemaError) else reason(error)
        raise LogCorruptedError(
            f"The table's schemaString is not a schema: {why.removesuffix('.')}.",
            hint="The metaData action is damaged.",
        ) from error
    if not isinstance(parsed, StructType):
        raise LogCorruptedError(
            "The table's schemaString does not describe a struct.", hint="The metaData action is damaged."
        )
    return parsed
