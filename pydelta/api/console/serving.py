"""Open and run an HTTP server of waitress, for the status page and the Iceberg REST catalog."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from waitress.server import create_server

from pydelta.api.console.addresses import Addresses, in_url
from pydelta.errors import DeltaEnvironmentError

__all__ = ["open_server", "run_server"]

_THREADS: Final = 8


def open_server(application: Callable[..., Any], addresses: Addresses, what: str, **limits: int) -> Any:
    """Create a server, which then waits for ``run_server``.

    Args:
        application: The WSGI application.
        addresses: Where to listen.
        what: Name of what is served, for the error.
        limits: Limits of waitress, such as ``max_request_body_size``.

    Raises:
        DeltaEnvironmentError: It cannot listen there.
    """
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # Do not log short waits.
    try:
        return create_server(
            application,
            listen=" ".join(f"{in_url(one.host)}:{one.page}" for one in addresses.each),
            threads=_THREADS,
            ident=None,
            clear_untrusted_proxy_headers=True,
            **limits,
        )
    except (OSError, socket.gaierror) as error:
        raise DeltaEnvironmentError(
            f"{what} cannot be served on {addresses.host}:{addresses.page}: {os.strerror(error.errno or 0)}.",
            hint="Choose another port with --port, or stop what listens there.",
        ) from error


def run_server(server: Any) -> None:
    """Serve until SIGTERM or SIGINT, then close the server and restore the signals' handlers."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before: dict[int, Callable[..., Any] | int | None] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.run()
    finally:
        server.close()
        for number, handler in before.items():
            signal.signal(number, handler)
