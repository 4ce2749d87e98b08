"""Run statements on Trino or Presto over HTTP, using only the standard library."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any, Final, Literal

__all__ = ["Trino", "TrinoError"]

_SECONDS: Final = 120.0
_HINT: Final = "make status, make logs SERVICE={}; make up starts it again"


class TrinoError(Exception):
    """A statement that Trino or Presto refused or could not answer, with the server's message.

    Args:
        message: The error message.
        hint: What to do next, if that does not depend on the statement.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Trino:
    """A client that runs statements on a server. Times are in UTC.

    Args:
        address: ``host:port``, or ``https://host:port``.
        user: User name of the client.
        name: Trino, or Presto, which speaks the same protocol with different header names.
        password: Password of the user, if the server requires one. It is only sent over TLS.
    """

    def __init__(
        self, address: str, user: str, name: Literal["Trino", "Presto"] = "Trino", *, password: str | None = None
    ) -> None:
        self._address = address
        self._url = address if address.startswith("https://") else f"http://{address}"
        self._name = name
        self._headers = {f"X-{name}-User": user, f"X-{name}-Time-Zone": "UTC"}
        if password and self._url.startswith("https://"):
            credential = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {credential}"
        self._hint = _HINT.format(name.lower())

    def rows(self, statement: str) -> list[list[Any]]:
        """Run a statement and collect its rows, with values as in JSON.

        Raises:
            TrinoError: The statement was refused or failed, or the server does not answer.
        """
        return self.answer(statement)[1]

    def answer(self, statement: str) -> tuple[list[str], list[list[Any]]]:
        """Run a statement and collect the names of its columns, and its rows.

        Raises:
            TrinoError: The statement was refused or failed, or the server does not answer.
        """
        names: list[str] = []
        rows: list[list[Any]] = []
        page = self._get(f"{self._url}/v1/statement", statement.encode())
        while True:
            if "error" in page:
                error = page["error"]
                raise TrinoError(f"{error.get('errorName', 'error')}: {error.get('message', 'no message')}")
            names = names or [column["name"] for column in page.get("columns", [])]
            rows += page.get("data", [])
            following = page.get("nextUri")
            if following is None:
                return names, rows
            page = self._get(following)

    def _get(self, url: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(url, data=body, headers=self._headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            raise TrinoError(
                f"{self._name} at {self._address} answered with HTTP status {error.code}.", self._hint
            ) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise TrinoError(f"{self._name} at {self._address} does not answer: {reason}", self._hint) from error
