"""Register a table with Trino, run statements on it, read it and unregister it, using HTTP and the standard library."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.tools.certify.history import Row

__all__ = ["TrinoError", "TrinoReader", "TrinoTable", "user_of"]

_SECONDS: Final = 120.0
_PATIENCE: Final = 10.0
"""Seconds that a statement of a killed client has to end on its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrinoReader:
    """Reads tables through a catalog of Trino's Delta connector.

    Args:
        address: ``http://host:port``, without a password.
        catalog: A catalog with ``delta.register-table-procedure.enabled=true`` and without ``security=read-only``.
        schema: An existing schema in which the table is registered while it is read.
    """

    address: str
    catalog: str = "delta"
    schema: str = "default"

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.address)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise InvalidArgumentError(
                f"{self.address!r} is not the address of a Trino server.", hint="Write it as http://127.0.0.1:8080."
            )

    def read(self, uri: str) -> tuple[Row, ...]:
        """Read the newest version of a table.

        Raises:
            DeltaEnvironmentError: Trino does not answer, or does not allow tables to be registered.
            TrinoError: Trino cannot read the table.
        """
        table = self.register(uri)
        try:
            return table.read()
        finally:
            table.forget()

    def register(self, uri: str) -> TrinoTable:
        """Register a table with Trino under a unique name.

        Raises:
            DeltaEnvironmentError: Trino does not answer, or does not allow tables to be registered.
        """
        name = f"certify_{uuid.uuid4().hex[:12]}"
        table = TrinoTable(address=self.address, catalog=self.catalog, schema=self.schema, name=name)
        try:
            table.call("register_table", table_location=uri)
        except TrinoError as error:
            raise DeltaEnvironmentError(
                f"Trino at {self.address} does not register the table: {error}",
                hint="Its catalog needs delta.register-table-procedure.enabled=true and access to the schema "
                f"{self.schema}; or leave trino out of --with.",
            ) from error
        return table


class TrinoTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table registered with Trino.

    Args:
        address: Address of Trino.
        catalog: Catalog of the table; ``schema`` and ``name`` complete its name.
    """

    address: str
    catalog: str
    schema: str
    name: str

    @property
    def quoted(self) -> str:
        """The name of the table, quoted for a statement."""
        return ".".join(map(_quoted, (self.catalog, self.schema, self.name)))

    def read(self, version: int | None = None) -> tuple[Row, ...]:
        """Read a version, or the newest one.

        Raises:
            DeltaEnvironmentError: Trino does not answer.
            TrinoError: Trino cannot read the table.
        """
        of_version = "" if version is None else f" FOR VERSION AS OF {version}"
        rows = self.rows(f"SELECT op, n, k, rev FROM {self.quoted}{of_version}")
        return tuple(sorted((str(op), int(number), int(key), str(rev)) for op, number, key, rev in rows))

    def forget(self) -> None:
        """Unregister the table; its files stay.

        Raises:
            DeltaEnvironmentError: Trino does not answer.
            TrinoError: Trino refuses.
        """
        self.call("unregister_table")

    def call(self, procedure: str, **arguments: str) -> None:
        """Call a procedure of the catalog for this table."""
        given = {"schema_name": self.schema, "table_name": self.name, **arguments}
        named = ", ".join(f"{name} => {_text(value)}" for name, value in given.items())
        self.rows(f"CALL {_quoted(self.catalog)}.system.{procedure}({named})")

    def settle(self) -> None:
        """Wait until no statement of ``user_of`` is running, and kill those that run too long.

        A statement survives its killed client and then waits for it.

        Raises:
            DeltaEnvironmentError: Some are still running after two minutes.
        """
        pattern = _text(user_of(self, "").replace("_", "!_") + "%")
        began = time.monotonic()
        while running := self.rows(
            f"SELECT query_id FROM system.runtime.queries WHERE \"user\" LIKE {pattern} ESCAPE '!' "
            "AND state NOT IN ('FINISHED', 'FAILED')"
        ):
            waited = time.monotonic() - began
            if waited > _SECONDS:
                raise DeltaEnvironmentError(
                    f"Trino at {self.address} still runs {running[0][0]}, whose client was killed.",
                    hint="Find out what it is waiting for, and try again.",
                )
            if waited > _PATIENCE:
                for (query,) in running:
                    with suppress(TrinoError):  # It may have ended on its own by then.
                        self.rows(f"CALL system.runtime.kill_query(query_id => {_text(query)}, message => 'certify')")
            time.sleep(0.5)

    def rows(self, statement: str, *, user: str = "pydelta-certify") -> list[list[Any]]:
        """Run a statement.

        Raises:
            DeltaEnvironmentError: Trino does not answer.
            TrinoError: Trino refuses.
        """
        rows: list[list[Any]] = []
        page = self._get(f"{self.address.rstrip('/')}/v1/statement", user, statement.encode())
        while True:
            if "error" in page:
                error = page["error"]
                raise TrinoError(str(error.get("errorName", "error")), str(error.get("message", "no message")))
            rows += page.get("data", [])
            following = page.get("nextUri")
            if following is None:
                return rows
            page = self._get(following, user)

    def _get(self, url: str, user: str, body: bytes | None = None) -> dict[str, Any]:
        headers = {"X-Trino-User": user, "X-Trino-Source": "pydelta certify"}
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


def user_of(table: TrinoTable, op: str) -> str:
    """Return the user name of an operation, which Trino writes into the commit."""
    return f"{table.name}/{op}"


class TrinoError(Exception):
    """A statement that Trino refused, in its words.

    Args:
        name: Name of the error in Trino.
        message: Message of the error.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
