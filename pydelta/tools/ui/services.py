"""Check whether services answer: HTTP pages by a request, other ports by connecting."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import urlsplit

from pydelta.errors import InvalidArgumentError
from pydelta.errors.redaction import hide_text
from pydelta.tools.ui.formats import duration
from pydelta.tools.ui.values import ServiceState

__all__ = ["ADVICE", "APPLICATION", "HTTP_ERROR", "Service", "ask", "get", "has_name", "is_page", "reason_of"]

APPLICATION: Final = "application"
"""The scheme of a service that is an application of Spark."""
HTTP_ERROR: Final = 400
"""The first status that is an error."""
ADVICE: Final = "Look whether it runs, and at its log; in the stack: make status."
_FORMS: Final = "Write NAME=ADDRESS or NAME=ADDRESS,LINK: Trino=http://trino:8080/v1/info,http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service to check.

    Args:
        name: Name to show.
        address: ``http://host:port/path``, ``https://…``, any scheme with host and port (``thrift://``, ``tcp://``),
            or ``application://name`` for an application of a watched Spark.
        link: Address for a browser, if any.
        optional: It is not started until its host name can be resolved.
    """

    name: str
    address: str
    link: str | None = None
    optional: bool = False

    @classmethod
    def parse(cls, text: str, *, optional: bool = False) -> Self:
        """Parse ``NAME=ADDRESS`` or ``NAME=ADDRESS,LINK``.

        Args:
            text: The text to parse.
            optional: Value of the field ``optional``.

        Raises:
            InvalidArgumentError: The text does not name a service. The message never shows a password.
        """
        name, _, rest = text.partition("=")
        address, _, link = rest.partition(",")
        try:
            parts = urlsplit(address)
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
            port = 0 if parts.scheme == APPLICATION else port
            of_link = urlsplit(link).scheme
        except ValueError:
            port = None
        if not name or not address or port is None or not parts.hostname:
            raise InvalidArgumentError(f"{hide_text(text)!r} does not name a service.", hint=_FORMS)
        if link and of_link not in ("http", "https"):
            raise InvalidArgumentError(f"The link of {name} is not an address of a page.", hint=_FORMS)
        return cls(name=name, address=address, link=link or None, optional=optional)


def ask(service: Service, *, seconds: float, now_ms: int) -> ServiceState:
    """Check a service once.

    Args:
        service: The service.
        seconds: Maximum duration of the check.
        now_ms: The current time, epoch milliseconds.
    """
    parts = urlsplit(service.address)
    where = hide_text(service.address)
    if service.optional and not has_name(str(parts.hostname)):
        return ServiceState(
            name=service.name, ok=False, said=f"{where}: its host has no name here", link=service.link, there=False,
            next=ADVICE, checked_ms=now_ms,
        )  # fmt: skip
    try:
        ok, said = _http(service.address, seconds) if parts.scheme in ("http", "https") else _tcp(parts, seconds)
    except TimeoutError:
        ok, said = False, f"{where} has not answered within {duration(seconds)}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        ok, said = False, f"{where}: {reason_of(error)}"
    return ServiceState(
        name=service.name, ok=ok, said=said, link=service.link, next=None if ok else ADVICE, checked_ms=now_ms
    )


def has_name(host: str) -> bool:
    """Return whether a host name can be resolved."""
    # A trailing dot prevents a search in the machine's domains, which may hold another host of that name.
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return True
    try:
        socket.getaddrinfo(host if "." in host else f"{host}.", None)
    except OSError:
        return False
    return True


def is_page(address: str) -> bool:
    """Return whether a text is an ``http://`` or ``https://`` address with a host."""
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 0) >= 0
    except ValueError:
        return False


@contextlib.contextmanager
def get(address: str, seconds: float, headers: Mapping[str, str] | None = None) -> Iterator[http.client.HTTPResponse]:
    """Send a GET, whose answer can be read until the block ends. Redirects are not followed.

    Args:
        address: An ``http://`` or ``https://`` address.
        seconds: Maximum duration of each step.
        headers: Headers of the request.

    Raises:
        OSError, http.client.HTTPException: There is no answer.
    """
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(str(parts.hostname), parts.port, timeout=seconds)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers=dict(headers or {}))
        yield connection.getresponse()
    finally:
        connection.close()


def reason_of(error: Exception) -> str:
    """Describe in a few words why there is no answer, without credentials."""
    return hide_text(str(getattr(error, "strerror", None) or str(error) or type(error).__name__))


def _http(address: str, seconds: float) -> tuple[bool, str]:
    with get(address, seconds) as answer:
        status = answer.status
    ok = status < HTTP_ERROR
    return ok, "answers" if ok else f"{hide_text(address)} answers with HTTP status {status}"


def _tcp(parts: Any, seconds: float) -> tuple[bool, str]:
    with socket.create_connection((parts.hostname, parts.port), timeout=seconds):
        return True, "takes connections"
