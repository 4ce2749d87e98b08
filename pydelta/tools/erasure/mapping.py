"""Read which column of which table holds which key.

::

    ["lake.orders"]              # the table, by its location or its name, as in the request
    email = "email"              # the column of the table = the column of the file of keys
    "contact.mail" = "email"     # a field of a struct

    ["lake.invoices"]
    customer = "customer_id"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.protocol.names import unquoted
from pydelta.protocol.types import DataType, StructType
from pydelta.tools.erasure.requests import file_bytes

__all__ = ["Mapped", "keys_of_table", "read_mapping"]

Mapped: TypeAlias = Mapping[str, Mapping[str, str]]
"""The key of each column, by table."""
_HINT: Final = 'Write a TOML file: ["lake.orders"] and, below it, lines such as email = "email".'


def read_mapping(file: str, options: Mapping[str, str] | None = None) -> Mapped:
    """Read a mapping from a TOML file.

    Args:
        file: A local file or a URI.
        options: Storage options, for a URI.

    Raises:
        InvalidArgumentError: It cannot be read, or it is not a mapping.
    """
    try:
        found = tomllib.loads(file_bytes(file, options).decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, DeltaError) as error:
        raise InvalidArgumentError(f"The mapping {file} cannot be read: {error}.", hint=_HINT) from error
    for table, columns in found.items():
        if not isinstance(columns, dict) or not columns or not all(isinstance(key, str) for key in columns.values()):
            raise InvalidArgumentError(
                f"The mapping {file} does not give the key of each column of {table} as text.", hint=_HINT
            )
    if not found:
        raise InvalidArgumentError(f"The mapping {file} names no table.", hint=_HINT)
    return found


def keys_of_table(
    table: str, schema: StructType, keys: Mapping[str, Sequence[str]], mapping: Mapped | None, *, some: bool
) -> dict[str, Sequence[str]]:
    """Return the keys of a table by its columns.

    Args:
        table: The name or location that the request has for the table.
        schema: Its schema.
        keys: The keys of the request, by their names.
        mapping: The columns of each table. Without it a key belongs to the column of its name.
        some: Whether the table may lack columns; keys are then left out, and without a mapping all of them may be.

    Raises:
        InvalidArgumentError: The mapping names a key that the request does not have.
    """
    if mapping is None:
        return {name: texts for name, texts in keys.items() if not some or _has(schema, name)}
    columns = mapping.get(table, {})
    if unknown := sorted(set(columns.values()) - set(keys)):
        raise InvalidArgumentError(
            f"The mapping gives {table} the key {unknown[0]}, which the request does not have.",
            hint=f"The request has keys for {', '.join(sorted(keys))}.",
        )
    found: dict[str, list[str]] = {}
    for column, key in columns.items():
        found.setdefault(column, []).extend(keys[key])
    return dict(found)


def _has(schema: StructType, name: str) -> bool:
    struct: DataType = schema
    for part in unquoted(name):
        field = struct.field(part) if isinstance(struct, StructType) else None
        if field is None:
            return False
        struct = field.data_type
    return True
