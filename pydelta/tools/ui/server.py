"""Serve the pages, the JSON and the metrics over HTTP. Only GET and HEAD work, and ``Watch`` provides the values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qs

from pydelta.api.console.addresses import names_server
from pydelta.errors import DeltaError, UnsafeOperationError, VersionNotFoundError
from pydelta.tools.ui.catalog.answers import answers_of, chosen_table, sums_of
from pydelta.tools.ui.metrics import CONTENT_TYPE, metrics_text
from pydelta.tools.ui.pages import (
    commit_page,
    json_text,
    overview_page,
    stylesheet,
    table_json,
    table_page,
    tables_json,
)
from pydelta.tools.ui.replies import JSON, NoPageError, PageReply, Query, told
from pydelta.tools.ui.roles import LIMITED_PAGES, RoleWatch, user_of
from pydelta.tools.ui.values import ShownTable, Trouble
from pydelta.tools.ui.watch import Overview, Watch

if TYPE_CHECKING:
    from pydelta.api.access.roles import Access

__all__ = ["Application", "Pages"]

_LOG = logging.getLogger(__name__)
_LONGEST_VERSION: Final = 18
_STATUS: Final = {
    200: "200 OK", 400: "400 Bad Request", 401: "401 Unauthorized", 403: "403 Forbidden",
    404: "404 Not Found", 405: "405 Method Not Allowed",
    500: "500 Internal Server Error", 503: "503 Service Unavailable",
}  # fmt: skip
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)


class Application:
    """A WSGI application. Safe to call from several threads.

    Args:
        watch: Provides what is shown.
        host: The listening name or address. Requests must use it, an IP address or ``localhost`` as Host, so that no
            foreign website can read the page under its own name.
        access: The users and their roles; None if everyone may see everything.
    """

    def __init__(self, watch: Watch, *, host: str = "127.0.0.1", access: Access | None = None) -> None:
        self._host = host
        self._access = access
        self._all = Pages(watch).routes
        roles = {} if access is None else {user.role.name: user.role for user in access.users.values()}
        self._limited = {
            name: Pages(cast("Watch", RoleWatch(watch, role))).routes for name, role in roles.items() if not role.admin
        }

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        reply = self._reply(environ)
        headers = [*_HEADERS, ("Content-Type", reply.kind), ("Content-Length", str(len(reply.body)))]
        if reply.status == 405:
            headers.append(("Allow", "GET, HEAD"))
        if reply.status == 401:
            headers.append(("WWW-Authenticate", 'Basic realm="tables", charset="UTF-8"'))
        start_response(_STATUS[reply.status], headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else reply.body]

    def _route(self, environ: dict[str, Any], path: str) -> Callable[[Query], PageReply] | None:
        """Return what answers a request for a path; None if nothing does.

        Raises:
            NoPageError: The request needs a name and a password, or the role does not see the page.
        """
        if self._access is None or path == "/page.css":
            return self._all.get(path)
        user = user_of(self._access, environ)
        if user is None:
            if path == "/health":
                return lambda _: PageReply(json_text({"ok": True}), JSON)
            what = Trouble(what="This page asks for a name and a password.", next="Log in as one of its users.")
            raise NoPageError(401, "Log in", what)
        if user.role.admin:
            return self._all.get(path)
        if path.removeprefix("/api").rstrip("/") not in LIMITED_PAGES:
            what = Trouble(
                what=f"The role {user.role.name} does not see this page.", next="Go back to the tables of your role."
            )
            raise NoPageError(403, "Not for your role", what)
        return self._limited[user.role.name].get(path)

    def _reply(self, environ: dict[str, Any]) -> PageReply:
        path = environ.get("PATH_INFO") or "/"
        as_json = path.startswith(("/api/", "/health"))
        try:
            self._check(environ)
            route = self._route(environ, path)
            if route is None:
                what = Trouble(what="There is no such page.", next="Go back to the tables.")
                raise NoPageError(404, "No such page", what)
            fields = parse_qs(environ.get("QUERY_STRING", ""), max_num_fields=20)
            return route({name: values[-1] for name, values in fields.items()})
        except Exception as error:  # noqa: BLE001 -- no request may end the server or be answered with a stack trace
            return _refusal(error, path, as_json=as_json)

    def _check(self, environ: dict[str, Any]) -> None:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            what = Trouble(what="This page only reads: it answers GET and HEAD.", next="Use the pydelta command.")
            raise NoPageError(405, "Only reading", what)
        host = environ.get("HTTP_HOST") or ""
        if not names_server(host, self._host):
            what = Trouble(
                what=f"{(host.rpartition(':')[0] or host).lower()!r} is not a name of this page.",
                next="Open it by the address that pydelta ui printed; a proxy has to send that address as Host.",
            )
            raise NoPageError(400, "Not an address of this page", what)


class Pages:
    """The pages over what a watch provides.

    Args:
        watch: Provides what is shown.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.routes: dict[str, Callable[[Query], PageReply]] = {
            "/": lambda _: PageReply(overview_page(self._watch.overview()).encode()),
            "/table": self._table,
            "/commit": self._commit,
            "/page.css": lambda _: PageReply(stylesheet(), "text/css; charset=utf-8"),
            "/health": self._health,
            "/api/tables": lambda _: PageReply(json_text(tables_json(self._watch.overview())), JSON),
            "/api/table": self._table_json,
            "/api/commit": self._commit_json,
            "/metrics": lambda _: PageReply(metrics_text(self._watch.overview()), CONTENT_TYPE),
            **answers_of(watch),
        }

    def _chosen(self, query: Query) -> tuple[Overview, ShownTable]:
        return chosen_table(self._watch.overview(), query)

    def _table(self, query: Query) -> PageReply:
        view, table = self._chosen(query)
        return PageReply(table_page(view, table, sums_of(self._watch, table)).encode())

    def _table_json(self, query: Query) -> PageReply:
        return PageReply(json_text(table_json(*self._chosen(query))), JSON)

    def _commit(self, query: Query) -> PageReply:
        view, table = self._chosen(query)
        return PageReply(commit_page(view, table, self._watch.detail(table, _version(query))).encode())

    def _commit_json(self, query: Query) -> PageReply:
        _, table = self._chosen(query)
        return PageReply(json_text(self._watch.detail(table, _version(query))), JSON)

    def _health(self, _: Query) -> PageReply:
        """Answer at once. The status shows that this server works; the body lists problems of tables and services."""
        view = self._watch.overview(waits=False)
        down = [service.name for service in view.services if service.ok is False]
        found = {
            "ok": not view.troubles and not down and not any(table.weight > 1 for table in view.tables),
            "tables": len(view.tables),
            "tablesThatNeedAttention": [table.place.name for table in view.tables if table.weight],
            "servicesThatDoNotAnswer": down,
            "troubles": view.troubles,
        }
        return PageReply(json_text(found), JSON)


def _refusal(error: Exception, path: str, *, as_json: bool) -> PageReply:
    """Return the reply to a request that failed."""
    if isinstance(error, NoPageError):
        return told(error.status, error.title, error.trouble, as_json=as_json)
    if isinstance(error, VersionNotFoundError):
        return told(404, "No such version", Trouble.of(error), as_json=as_json)
    if isinstance(error, UnsafeOperationError):
        return told(403, "Not shown", Trouble.of(error), as_json=as_json)
    if isinstance(error, DeltaError) and isinstance(error, ValueError):
        return told(500, "The table cannot be read", Trouble.of(error), as_json=as_json)
    if isinstance(error, DeltaError):
        return told(503 if error.retryable else 500, "It cannot be read", Trouble.of(error), as_json=as_json)
    if isinstance(error, ValueError):
        what = Trouble(what="The address cannot be read.", next="Follow a link of the page of tables.")
        return told(400, "Not an address of this page", what, as_json=as_json)
    if isinstance(error, TimeoutError):
        what = Trouble(what="The store has not answered in time.", next="Load the page again in a moment.", weight=2)
        return told(503, "Not yet", what, as_json=as_json)
    _LOG.error("pydelta ui: %s", path, exc_info=error)
    return told(500, "Something went wrong", Trouble.of(error), as_json=as_json)


def _version(query: Query) -> int:
    text = query.get("version", "")
    if not text.isascii() or not text.isdecimal() or len(text) > _LONGEST_VERSION:
        what = Trouble(what=f"{text!r} is not a version.", next="Choose a commit on the page of its table.")
        raise NoPageError(400, "No such version", what)
    return int(text)
