"""Run the REST catalog until the process is asked to stop."""

from __future__ import annotations

import sys
from typing import Any, Final

from waitress.channel import HTTPChannel
from waitress.task import ErrorTask

from catalog_sync.rest.answers import JSON, RestError, error_answer
from catalog_sync.rest.application import LARGEST_BODY, RestCatalog, ServedTables
from pydelta.api.console.addresses import Addresses, check_free, check_private, in_url
from pydelta.api.console.guard import Guard
from pydelta.api.console.serving import open_server, run_server
from pydelta.api.console.terminal import Terminal
from pydelta.errors import DeltaEnvironmentError

__all__ = ["check_exposed", "rest_server", "serve_catalog"]

_LARGEST_HEADER: Final = 16 << 10


class _JsonErrorTask(ErrorTask):  # type: ignore[misc]
    """Answers what is not HTTP, or too large, in the specification's form too."""

    def execute(self) -> None:
        error = self.request.error
        status = 413 if error.code == 413 else 400
        body = error_answer(RestError(status, f"{error.reason}: {error.body}")).body
        self.status = f"{error.code} {error.reason}"
        self.response_headers.append(("Content-Type", JSON))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(HTTPChannel):  # type: ignore[misc]
    error_task_class = _JsonErrorTask


def check_exposed(addresses: Addresses, guard: Guard) -> None:
    """Refuse to serve other machines without a log-in, or in the clear on a public address.

    Raises:
        InvalidArgumentError: The host is not an address of this machine.
        DeltaEnvironmentError: Others would reach the catalog.
    """
    if addresses.is_loopback:
        return
    if addresses.no_login:
        check_private(addresses)
        return
    if not guard.users:
        raise DeltaEnvironmentError(
            f"The catalog would be open to other machines on {addresses.host}, and it asks for no log-in.",
            hint="Give --users, or listen on 127.0.0.1; or give --no-login with one private address, such as a "
            "container's whose port is published on 127.0.0.1.",
        )
    reason = addresses.open_because
    if reason is not None:
        raise DeltaEnvironmentError(
            f"The catalog would be sent tokens in the clear on {addresses.host}: {reason}.",
            hint="Listen on 127.0.0.1 or on one private address, and put a proxy with TLS before it.",
        )


def rest_server(tables: ServedTables, addresses: Addresses, guard: Guard) -> Any:
    """Create the server, which then waits for ``run``.

    Raises:
        DeltaEnvironmentError: It cannot listen there.
    """
    application = RestCatalog(tables, guard, host=addresses.host)
    server = open_server(
        application,
        addresses,
        "The catalog",
        max_request_header_size=_LARGEST_HEADER,
        max_request_body_size=LARGEST_BODY,
    )
    for part in getattr(server, "_map", {}).values():  # A name with several addresses has a server for each.
        if hasattr(part, "channel_class"):
            part.channel_class = _Channel
    return server


def serve_catalog(tables: ServedTables, addresses: Addresses, guard: Guard) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        tables: Tables to show.
        addresses: Where to listen.
        guard: Decides who may read.

    Raises:
        InvalidArgumentError, DeltaEnvironmentError: It cannot listen there.
    """
    check_exposed(addresses, guard)
    check_free(addresses)
    server = rest_server(tables, addresses, guard)
    Terminal().write(f"Iceberg REST catalog: http://{in_url(addresses.host)}:{addresses.page}")
    if not guard.users:
        Terminal().write(f"Without a log-in: whoever reaches {addresses.host} can read the tables' metadata.")
    sys.stdout.flush()
    run_server(server)
