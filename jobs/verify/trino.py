"""Run statements on Trino or Presto over HTTP, with no package but Python's own."""

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
    """A statement that Trino, or Presto, refused or could not answer, in its own words.

    Args:
        message: What was wrong.
        hint: What to do next, where that is the same for every statement.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Trino:
    """Run statements on a server; times are those of UTC.

    Args:
        address: ``host:port``, or ``https://host:port``.
        user: Who asks.
        name: What it is: Trino, or Presto, which speaks the same protocol with headers of its own name.
        password: Of the user, who has none where the server asks for none. It is sent over TLS alone.
    """

    def __init__(
        self, address: str, user: str, name: Literal["Trino", "Presto"] = "Trino", *, password: str | None = None
    ) -> None:
        self._address = address
        self._url = address if address.startswith("https://") else f"http://{address}"
        self._name = name
        self._headers = {f"X-{name}-User": user, f"X-{name}-Time-Zone": "UTC"}
        if password and self._url.startswith("https://"):
            said = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {said}"
        self._hint = _HINT.format(name.lower())

    def rows(self, statement: str) -> list[list[Any]]:
        """Run a statement and collect its rows, values as JSON has them.

        Raises:
            TrinoError: It was refused or failed, or there is no answer.
        """
        rows: list[list[Any]] = []
        page = self._get(f"{self._url}/v1/statement", statement.encode())
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
