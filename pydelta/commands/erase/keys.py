"""Bind the keys of an erasure to the columns of a table.

A row belongs to a key if one of the named columns has its value, exactly: texts by their characters, numbers and days
by their value. Only columns whose values are compared in one way can name a person.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydelta.errors import BindError, InvalidArgumentError, LogCorruptedError, UnsupportedFeatureError
from pydelta.log import Snapshot
from pydelta.predicate import Column, Expr, In, Or
from pydelta.protocol.names import path_text, unquoted
from pydelta.protocol.partitions import parse_partition_value, serialize_partition_value
from pydelta.protocol.schema import physical_name
from pydelta.protocol.sized_texts import fitted_text
from pydelta.protocol.types import DataType, DecimalType, PrimitiveType, StructField, StructType

__all__ = ["KeyColumn", "Subject", "bind_keys"]

_TYPES: Final = ("string", "byte", "short", "integer", "long", "date")
_COLLATIONS: Final = "__COLLATIONS"
_FIELD_ID: Final = "delta.columnMapping.id"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyColumn:
    """A column, with the keys to look for in it.

    Args:
        path: Its logical path.
        physical: Its path in files, statistics and partition values.
        field_id: Its id in files of a table whose columns are mapped by id; None otherwise.
        data_type: Its type.
        values: The keys as Python values, each once.
        texts: The same keys as partition values spell them.
        is_partition: Whether it is a partition column.
    """

    path: tuple[str, ...]
    physical: tuple[str, ...]
    field_id: int | None
    data_type: DataType
    values: tuple[Any, ...]
    texts: tuple[str, ...]
    is_partition: bool

    @property
    def name(self) -> str:
        """Its name, as users write it."""
        return path_text(self.path)

    @property
    def is_text(self) -> bool:
        """Whether its keys are texts, which other texts may contain."""
        return self.data_type == PrimitiveType("string")

    def condition(self) -> Expr:
        """Return the condition of its rows, for pruning by partition values and statistics."""
        return In(Column(self.path), self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is erased from a table: the rows with a key in any of the columns.

    Args:
        columns: The columns, at least one.
    """

    columns: tuple[KeyColumn, ...]

    def condition(self) -> Expr:
        """Return the condition of the rows, for pruning."""
        first, *others = (column.condition() for column in self.columns)
        for other in others:
            first = Or(first, other)
        return first

    def digests(self, salt: bytes) -> dict[str, list[str]]:
        """Return a keyed digest (HMAC-SHA-256, hexadecimal) of each key, by column. Reports have these alone."""
        return {
            column.name: sorted(hmac.new(salt, text.encode(), hashlib.sha256).hexdigest() for text in column.texts)
            for column in self.columns
        }


def bind_keys(snapshot: Snapshot, keys: Mapping[str, Sequence[str]]) -> Subject:
    """Bind keys to a version of a table.

    Args:
        snapshot: The version.
        keys: Texts by the name of a column, as SQL names it.

    Raises:
        BindError: The table has no such column.
        UnsupportedFeatureError: Values of the column's type are not compared in one way.
        InvalidArgumentError: There is no key, a key is empty or not a value of the column's type.
    """
    columns = tuple(_bound(snapshot, name, texts) for name, texts in keys.items() if texts)
    if not columns:
        raise InvalidArgumentError("There is no key to erase.", hint="Give at least one key and its column.")
    return Subject(columns=columns)


def _bound(snapshot: Snapshot, name: str, texts: Sequence[str]) -> KeyColumn:
    fields = _fields(snapshot.schema, name)
    field, path = fields[-1], tuple(part.name for part in fields)
    _refuse_type(field, name)
    values = {_value(text, field, name): None for text in texts}
    mapped = snapshot.column_mapping_mode != "none"
    identity = field.metadata.get(_FIELD_ID) if snapshot.column_mapping_mode == "id" else None
    return KeyColumn(
        path=path,
        physical=tuple(physical_name(part) for part in fields) if mapped else path,
        field_id=identity if isinstance(identity, int) else None,
        data_type=field.data_type,
        values=tuple(values),
        texts=tuple(str(serialize_partition_value(value, field.data_type)) for value in values),
        is_partition=len(path) == 1 and path[0] in snapshot.partition_columns,
    )


def _fields(schema: StructType, name: str) -> list[StructField]:
    struct: DataType = schema
    found: list[StructField] = []
    for part in unquoted(name):
        field = struct.field(part) if isinstance(struct, StructType) else None
        if field is None:
            raise BindError(
                f"The table has no column {name}.",
                hint=f"The columns are: {', '.join(schema.names)}. A key can be a field of a struct.",
            )
        found.append(field)
        struct = field.data_type
    return found


def _refuse_type(field: StructField, name: str) -> None:
    plain = isinstance(field.data_type, DecimalType) or (
        isinstance(field.data_type, PrimitiveType) and field.data_type.name in _TYPES
    )
    if not plain or _COLLATIONS in field.metadata:
        kind = "text with a collation" if plain else str(field.data_type)
        raise UnsupportedFeatureError(
            f"The column {name} is {kind}, whose values are not compared in one way by all readers.",
            features=("keys of this type",),
            hint="Name the rows by a column of text, whole numbers, decimals or days.",
        )


def _value(text: str, field: StructField, name: str) -> Any:
    if not isinstance(text, str):
        raise InvalidArgumentError(
            f"A key of {name} is {type(text).__name__}, not text.", hint="Give keys as text, as a file has them."
        )
    if text == "":
        raise InvalidArgumentError(
            f"A key of {name} is empty.", hint="Take empty lines out: they would name every row without a value."
        )
    if field.data_type == PrimitiveType("string"):
        return fitted_text(text, field)
    try:
        return parse_partition_value(text, field.data_type)
    except LogCorruptedError:
        raise InvalidArgumentError(
            f"A key of {name} is not a value of its type, {field.data_type}.",
            hint="Check the file of keys, and that it names the right column. The key is not shown on purpose.",
        ) from None
