"""Keep digests of erased keys, so that jobs which load data leave their rows out.

A backup that is restored, or a message that is sent again, brings erased rows back. A suppression list is a Delta table
with a digest (HMAC-SHA-256, hexadecimal) of each erased key and the name of the key. The salt of the digests is a
property of the table. It makes digests of different lists differ; those who may read the list can read it, so a list
needs the same care as the tables.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from pydelta.api.python.local import LocalTable
from pydelta.commands.erase.keys import bind_keys
from pydelta.commands.run import existing_table
from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog, Snapshot
from pydelta.tools.erasure.running import ErasureOutcome

__all__ = ["SALT", "add_to_list", "digest_of_key", "keys_of_outcomes", "salt_of"]

SALT: Final = "suppression.salt"
"""The property with the salt, hexadecimal."""
_BYTES: Final = 32
_SCHEMA: Final = pa.schema(
    [("key", pa.string()), ("digest", pa.string()), ("request", pa.string()), ("added", pa.timestamp("us", tz="UTC"))]
)


def digest_of_key(value: str | int | Decimal | dt.date, salt: bytes) -> str:
    """Return the digest of a key. Equal numbers have the same one, whatever their type and their zeros at the end."""
    text = f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)
    return hmac.new(salt, text.encode(), hashlib.sha256).hexdigest()


def salt_of(snapshot: Snapshot) -> bytes:
    """Return the salt of a list.

    Raises:
        InvalidArgumentError: The table is not a suppression list.
    """
    metadata = existing_table(snapshot).metadata
    text = "" if metadata is None else metadata.configuration.get(SALT, "")
    try:
        salt = bytes.fromhex(text)
    except ValueError:
        salt = b""
    if len(salt) != _BYTES or not {"key", "digest"} <= set(snapshot.schema.names):
        raise InvalidArgumentError(
            f"{snapshot.table_uri} is not a suppression list.",
            hint="Lists are made by pydelta erase … --suppress LOCATION.",
        )
    return salt


def keys_of_outcomes(outcomes: Iterable[ErasureOutcome]) -> dict[str, set[Any]]:
    """Return the keys that were erased, by the name of the key, as values of the columns of each table."""
    found: dict[str, set[Any]] = {}
    for outcome in outcomes:
        target = outcome.target
        for column, texts in target.keys.items():
            bound = bind_keys(target.context.log.update(), {column: texts})
            for item in bound.columns:
                found.setdefault(target.names[column], set()).update(item.values)
    return found


def add_to_list(
    location: str, keys: Mapping[str, Iterable[Any]], *, request: str, options: Mapping[str, str] | None = None
) -> int:
    """Add keys to a list, which is created if there is none. Keys that it has are not added again.

    Args:
        location: The location of the list.
        keys: Texts, whole numbers, decimals or days, by the name of the key.
        request: The id of the report or the request.
        options: Storage options.

    Returns:
        The number of new keys.
    """
    columns = {"key": "string", "digest": "string", "request": "string", "added": "timestamp"}
    properties = {SALT: secrets.token_bytes(_BYTES).hex()}
    table = LocalTable.create(location, columns, properties=properties, mode="ignore", options=options)
    salt = salt_of(DeltaLog.for_table(location, options=options).update())
    now = dt.datetime.now(dt.UTC)
    rows = [
        {"key": name, "digest": digest, "request": request, "added": now}
        for name, values in keys.items()
        for digest in sorted({digest_of_key(value, salt) for value in values})
    ]
    if not rows:
        return 0
    done = table.merge(pa.Table.from_pylist(rows, schema=_SCHEMA), on=["key", "digest"], matched=None)
    return int(done.num_inserted_rows)
