"""Parse the path and the query of a request to the REST catalog. Pure.

::

    /v1/config
    /v1/namespaces                              ?parent=, ?pageToken=, ?pageSize=
    /v1/namespaces/{a%1Fb}                      parts of a namespace are separated by the byte 1F
    /v1/namespaces/{a%1Fb}/tables[/{table}[/metrics]]
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from catalog_sync.rest.answers import RestError

__all__ = ["Wanted", "What", "parse_namespace", "parse_request"]

SEPARATOR: Final = "\x1f"
_LONGEST: Final = 4096
_MOST_PARTS: Final = 32

Namespace = tuple[str, ...]


class What(enum.Enum):
    """What a request is about."""

    CONFIG = "config"
    NAMESPACES = "namespaces"
    NAMESPACE = "namespace"
    TABLES = "tables"
    TABLE = "table"
    METRICS = "metrics"


_METHODS: Final[Mapping[What, tuple[str, ...]]] = {
    What.CONFIG: ("GET",),
    What.NAMESPACES: ("GET",),
    What.NAMESPACE: ("GET", "HEAD"),
    What.TABLES: ("GET",),
    What.TABLE: ("GET", "HEAD"),
    What.METRICS: ("POST",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A request.

    Args:
        what: What it is about.
        namespace: Its namespace, empty if it has none.
        table: Name of the table, empty if it has none.
        query: Parameters, the last one of each name.
    """

    what: What
    namespace: Namespace = ()
    table: str = ""
    query: Mapping[str, str]


def parse_request(method: str, uri: str) -> Wanted:
    """Parse a request.

    Args:
        method: HTTP method.
        uri: Path and query as they were sent, still percent-encoded.

    Raises:
        RestError: There is no such endpoint, it does not have the method, or the text is malformed.
    """
    if len(uri) > _LONGEST:
        raise RestError(400, f"The address has {len(uri):,} characters, and at most {_LONGEST:,} are allowed.")
    path, _, query = uri.partition("?")
    wanted = _parse_path(path, _parse_query(query.partition("#")[0]))
    if method not in _METHODS[wanted.what]:
        raise RestError(406, f"This catalog only reads: {method} does not work on {path}.")
    return wanted


def parse_namespace(text: str) -> Namespace:
    """Parse a namespace that is already decoded.

    Raises:
        RestError: A part is empty, or there are too many.
    """
    parts = tuple(text.split(SEPARATOR))
    if not all(parts) or len(parts) > _MOST_PARTS:
        raise RestError(400, f"{text!r} is not a namespace.")
    return parts


def _parse_path(path: str, query: Mapping[str, str]) -> Wanted:
    parts = [_decoded(part) for part in path.split("/")]
    if parts[:2] != ["", "v1"] or len(parts) < 3:
        raise _no_endpoint(path)
    match parts[2:]:
        case ["config"]:
            return Wanted(what=What.CONFIG, query=query)
        case ["namespaces"]:
            return Wanted(what=What.NAMESPACES, query=query)
        case ["namespaces", namespace]:
            return Wanted(what=What.NAMESPACE, namespace=parse_namespace(namespace), query=query)
        case ["namespaces", namespace, "tables"]:
            return Wanted(what=What.TABLES, namespace=parse_namespace(namespace), query=query)
        case ["namespaces", namespace, "tables", table] if table:
            return Wanted(what=What.TABLE, namespace=parse_namespace(namespace), table=table, query=query)
        case ["namespaces", namespace, "tables", table, "metrics"] if table:
            return Wanted(what=What.METRICS, namespace=parse_namespace(namespace), table=table, query=query)
        case ["namespaces", _, "properties" | "register"] | ["tables", "rename"] | ["transactions", "commit"]:
            raise RestError(406, f"This catalog only reads: {path[:200]} would change something.")
        case _:
            raise _no_endpoint(path)


def _no_endpoint(path: str) -> RestError:
    return RestError(404, f"This catalog has no endpoint {path[:200]!r}.")


def _parse_query(text: str) -> dict[str, str]:
    found = {}
    for pair in filter(None, text.split("&")):
        name, _, value = pair.partition("=")
        found[_decoded(name.replace("+", " "))] = _decoded(value.replace("+", " "))
    return found


def _decoded(text: str) -> str:
    try:
        return unquote_to_bytes(text.encode("latin-1")).decode()
    except ValueError as error:
        raise RestError(400, "The address is not UTF-8.") from error
