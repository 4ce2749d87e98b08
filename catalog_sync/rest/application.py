"""Answer the requests of readers of Iceberg over HTTP. Everything is read, nothing is written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

from catalog_sync.rest.answers import (
    JSON,
    Answer,
    RestError,
    catalog_config,
    error_answer,
    etag_of,
    json_answer,
    page_of,
    table_answer,
)
from catalog_sync.rest.routes import Namespace, Wanted, What, parse_namespace, parse_request
from pydelta.api.console.addresses import names_server
from pydelta.api.console.guard import Guard
from pydelta.errors import DeltaError, ObjectNotFoundError, TableNotFoundError

__all__ = ["RestCatalog", "ServedTables"]

_LOG = logging.getLogger(__name__)
_HEADERS: Final = (
    ("Content-Type", JSON),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
)
LARGEST_BODY: Final = 1 << 20


class ServedTables(Protocol):
    """The tables that a catalog shows. Safe to use from several threads."""

    def namespaces(self) -> Iterable[Namespace]:
        """Return the namespaces that have tables; those above them need not be included."""

    def tables(self, namespace: Namespace) -> Sequence[str]:
        """Return the names of the tables in a namespace, which may have none."""

    def location(self, namespace: Namespace, table: str) -> str | None:
        """Return the URI of a table's current Iceberg metadata, or None if there is no such table."""

    def read(self, namespace: Namespace, table: str, location: str) -> bytes:
        """Read the metadata at a location that ``location`` returned."""


class RestCatalog:
    """A WSGI application. Safe to call from several threads.

    Args:
        tables: Tables to show.
        guard: Decides who may read.
        host: The listening name or address. Without users, requests must use it, an IP address or ``localhost`` as
            Host, so that no foreign website can read the catalog under its own name.
    """

    def __init__(self, tables: ServedTables, guard: Guard, *, host: str = "127.0.0.1") -> None:
        self._tables = tables
        self._guard = guard
        self._host = host
        self._answers: dict[What, Callable[[Wanted, str], Answer]] = {
            What.CONFIG: lambda *_: catalog_config(),
            What.NAMESPACES: self._namespaces,
            What.NAMESPACE: self._namespace,
            What.TABLES: self._list_tables,
            What.TABLE: self._table,
            What.METRICS: lambda *_: Answer(204),
        }

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        answer = self._answer(environ)
        headers = [*_HEADERS, *answer.headers]
        if answer.status not in (204, 304):
            headers.append(("Content-Length", str(len(answer.body))))
        start_response(f"{answer.status} {HTTPStatus(answer.status).phrase}", headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else answer.body]

    def _answer(self, environ: Mapping[str, Any]) -> Answer:
        uri = environ.get("REQUEST_URI") or environ.get("PATH_INFO") or "/"
        try:
            self._check(environ)
            wanted = parse_request(environ["REQUEST_METHOD"], uri)
            answer = self._answers[wanted.what](wanted, environ.get("HTTP_IF_NONE_MATCH", ""))
        except RestError as error:
            return error_answer(error)
        except DeltaError as error:
            return error_answer(_of_store(error))
        except Exception:  # noqa: BLE001 -- no request may end the server or be answered with a stack trace
            _LOG.exception("catalog_sync serve: %s", uri)
            return error_answer(RestError(500, "Something went wrong; the catalog's own log says more."))
        if environ["REQUEST_METHOD"] == "HEAD" and answer.status == 200:
            return Answer(204, headers=answer.headers)
        return answer

    def _check(self, environ: Mapping[str, Any]) -> None:
        length = environ.get("CONTENT_LENGTH") or "0"
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            raise RestError(413, f"A request may have at most {LARGEST_BODY:,} bytes.")
        if self._guard.users:
            if self._guard.user_of(environ.get("HTTP_AUTHORIZATION", "")) is None:
                raise RestError(
                    401,
                    "This catalog asks for a token: Authorization: Bearer …, as its operator gave it to you.",
                    headers=(("WWW-Authenticate", "Bearer"),),
                )
        elif not names_server(environ.get("HTTP_HOST") or "", self._host):
            raise RestError(400, "The header Host does not name this catalog.")

    def _namespaces(self, wanted: Wanted, _: str) -> Answer:
        parent = parse_namespace(wanted.query["parent"]) if wanted.query.get("parent") else ()
        known = set(self._tables.namespaces())
        if parent and not _has(known, parent):
            raise _no_namespace(parent)
        depth = len(parent)
        children = sorted({name[depth] for name in known if name[:depth] == parent and len(name) > depth})
        page, token = page_of(children, wanted.query)
        return json_answer({"namespaces": [[*parent, name] for name in page], "next-page-token": token})

    def _namespace(self, wanted: Wanted, _: str) -> Answer:
        self._require(wanted.namespace)
        return json_answer({"namespace": list(wanted.namespace), "properties": {}})

    def _list_tables(self, wanted: Wanted, _: str) -> Answer:
        self._require(wanted.namespace)
        page, token = page_of(sorted(self._tables.tables(wanted.namespace)), wanted.query)
        found = [{"namespace": list(wanted.namespace), "name": name} for name in page]
        return json_answer({"identifiers": found, "next-page-token": token})

    def _table(self, wanted: Wanted, known: str) -> Answer:
        location = self._tables.location(wanted.namespace, wanted.table)
        if location is None:
            name = ".".join((*wanted.namespace, wanted.table))
            raise RestError(404, f"There is no table {name}.", "NoSuchTableException")
        data = self._tables.read(wanted.namespace, wanted.table, location)
        tag = etag_of(location, data, wanted.query)
        if tag in (item.strip().removeprefix("W/") for item in known.split(",")):
            return Answer(304, headers=(("ETag", tag),))
        return table_answer(location, data, wanted.query)

    def _require(self, namespace: Namespace) -> None:
        if not _has(self._tables.namespaces(), namespace):
            raise _no_namespace(namespace)


def _has(known: Iterable[Namespace], namespace: Namespace) -> bool:
    return any(name[: len(namespace)] == namespace for name in known)


def _no_namespace(namespace: Namespace) -> RestError:
    return RestError(404, f"There is no namespace {'.'.join(namespace)}.", "NoSuchNamespaceException")


def _of_store(error: DeltaError) -> RestError:
    """Return what a client learns about an error of the store or the metastore."""
    _LOG.warning("catalog_sync serve: %s", error)
    if error.retryable:
        return RestError(503, f"The catalog cannot answer at the moment: {error.message}")
    if isinstance(error, (ObjectNotFoundError, TableNotFoundError)):
        return RestError(404, f"The table's metadata is gone: {error.message}", "NoSuchTableException")
    return RestError(500, f"The catalog cannot answer: {error.message}")
