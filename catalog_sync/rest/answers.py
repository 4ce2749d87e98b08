"""Build the bodies of the REST catalog's answers and errors, as the public OpenAPI document has them. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

__all__ = ["Answer", "RestError", "catalog_config", "error_answer", "etag_of", "json_answer", "page_of", "table_answer"]

JSON: Final = "application/json"
_TYPES: Final = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    404: "NotFoundException",
    406: "UnsupportedOperationException",
    413: "BadRequestException",
    500: "InternalServerError",
    503: "ServiceUnavailableException",
}
_ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
)
LARGEST_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a body and headers beyond the usual ones."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = field(default=())


class RestError(Exception):
    """A request that gets an error of the specification.

    Args:
        status: HTTP status.
        message: What is wrong, for people.
        kind: Name of the exception, or None for the usual one of the status.
        headers: Headers of the answer.
    """

    def __init__(
        self, status: int, message: str, kind: str | None = None, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.headers = status, message, kind or _TYPES[status], headers


def json_answer(value: object, status: int = 200) -> Answer:
    """Return an answer with a JSON body."""
    return Answer(status, json.dumps(value, ensure_ascii=False).encode())


def error_answer(error: RestError) -> Answer:
    """Return an error in the specification's form."""
    body = {"error": {"message": error.message, "type": error.kind, "code": error.status}}
    return Answer(error.status, json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"), error.headers)


def catalog_config() -> Answer:
    """Return the configuration of the catalog: the endpoints that it has, and nothing for clients to override."""
    return json_answer({"defaults": {}, "overrides": {}, "endpoints": list(_ENDPOINTS)})


def page_of(names: Sequence[str], query: Mapping[str, str]) -> tuple[list[str], str | None]:
    """Return the names of a page and the token of the next one, or None.

    A client that sends neither ``pageToken`` nor ``pageSize`` gets all names. A token holds the last name of its page,
    so that names that come and go move no others.

    Args:
        names: All names, sorted.
        query: Parameters of the request.

    Raises:
        RestError: The token or the size is invalid.
    """
    token, size = query.get("pageToken"), query.get("pageSize")
    after = _name_of(token) if token else None
    left = [name for name in names if after is None or name > after]
    if token is None and size is None:
        return left, None
    most = LARGEST_PAGE
    if size is not None:
        if not (size.isascii() and size.isdecimal()) or len(size) > 9 or int(size) < 1:
            raise RestError(400, f"pageSize is {size!r}; it has to be a number from 1.")
        most = min(int(size), LARGEST_PAGE)
    page = left[:most]
    return page, base64.urlsafe_b64encode(page[-1].encode()).decode() if len(left) > most else None


def _name_of(token: str) -> str:
    try:
        return base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error) as error:
        raise RestError(400, "pageToken is not one that this catalog gave.") from error


def table_answer(location: str, metadata: bytes, query: Mapping[str, str]) -> Answer:
    """Return the answer that loads a table.

    Args:
        location: URI of its metadata.
        metadata: Content of that file.
        query: Parameters of the request. With ``snapshots=refs``, only snapshots with a name are listed.

    Raises:
        RestError: The parameter is invalid, or the file is not JSON.
    """
    chosen = query.get("snapshots", "all").lower()
    if chosen not in ("all", "refs"):
        raise RestError(400, f"snapshots is {chosen!r}; it has to be all or refs.")
    try:
        found: dict[str, Any] = msgspec.json.decode(metadata)
        if not isinstance(found, dict):
            raise TypeError
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        raise RestError(500, f"{location} is not Iceberg metadata.") from error
    if chosen == "refs":
        named = {ref["snapshot-id"] for ref in found.get("refs", {}).values()}
        found["snapshots"] = [item for item in found.get("snapshots", []) if item["snapshot-id"] in named]
    body = msgspec.json.encode({"metadata-location": location, "metadata": found, "config": {}})
    return Answer(200, body, (("ETag", etag_of(location, metadata, query)),))


def etag_of(location: str, metadata: bytes, query: Mapping[str, str]) -> str:
    """Return the tag of a table's answer: a table made again at the same place has metadata of the same location."""
    text = f"{location}\n{query.get('snapshots', 'all').lower()}\n"
    return f'"{hashlib.sha256(text.encode() + metadata).hexdigest()[:32]}"'
