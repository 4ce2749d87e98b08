"""Read a table with Trino over HTTP: register it, read it, forget it; with no package but Python's own."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from pydelta.certify.history import Row
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError

__all__ = ["TrinoReader"]

_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrinoReader:
    """Reads tables through a catalog of Trino's Delta connector.

    Args:
        address: ``http://host:port``, without a password.
        catalog: A catalog with ``delta.register-table-procedure.enabled=true`` and without ``security=read-only``.
        schema: Where the table is registered while it is read; it has to be there.
    """

    address: str
    catalog: str = "delta"
    schema: str = "default"

    def __post_init__(self) -> None:
        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgumentError(
                f"{self.address!r} is not the address of a Trino.", hint="Write it as http://127.0.0.1:8080."
            )

    def read(self, uri: str) -> tuple[Row, ...]:
        """Read the newest version of a table.

        Raises:
            DeltaEnvironmentError: Trino does not answer, or does not let tables be registered.
            TrinoError: It cannot read the table.
        """
        name = f"certify_{uuid.uuid4().hex[:12]}"
        where = f"{_quoted(self.catalog)}.{_quoted(self.schema)}.{_quoted(name)}"
        named = f"schema_name => {_text(self.schema)}, table_name => {_text(name)}"
        call = f"CALL {_quoted(self.catalog)}.system"
        try:
            self._rows(f"{call}.register_table({named}, table_location => {_text(uri)})")
        except TrinoError as error:
            raise DeltaEnvironmentError(
                f"Trino at {self.address} does not register the table to read: {error}",
                hint="Its catalog needs delta.register-table-procedure.enabled=true and access to the schema "
                f"{self.schema}; or leave trino out of --with.",
            ) from error
        try:
            rows = self._rows(f"SELECT op, n, k, rev FROM {where}")
        finally:
            self._rows(f"{call}.unregister_table({named})")
        return tuple(sorted((str(op), int(number), int(key), str(rev)) for op, number, key, rev in rows))

    def _rows(self, statement: str) -> list[list[Any]]:
        rows: list[list[Any]] = []
        page = self._get(f"{self.address.rstrip('/')}/v1/statement", statement.encode())
        while True:
            if "error" in page:
                error = page["error"]
                raise TrinoError(f"{error.get('errorName', 'error')}: {error.get('message', 'no message')}")
            rows += page.get("data", [])
            following = page.get("nextUri")
            if following is None:
                return rows
            page = self._get(following)

    def _get(self, url: str, body: bytes | None = None) -> dict[str, Any]:
        headers = {"X-Trino-User": "pydelta-certify", "X-Trino-Source": "pydelta certify"}
        request = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise DeltaEnvironmentError(
                f"Trino at {self.address} does not answer: {getattr(error, 'reason', error)}",
                hint="Check --trino, and that Trino is up.",
            ) from error


class TrinoError(Exception):
    """A statement that Trino refused, in its words."""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
