"""Run ``pydelta ui`` until the process is asked to stop."""

from __future__ import annotations

import logging
import sys
from typing import Final

from pydelta.api.console.addresses import Addresses, check_free, check_private, in_url
from pydelta.api.console.serving import open_server, run_server
from pydelta.api.console.terminal import Terminal
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.tools.ui.server import Application
from pydelta.tools.ui.watch import Watch, Watched

__all__ = ["DEFAULT_PORT", "check_exposed", "run_ui"]

DEFAULT_PORT: Final = 8088


def check_exposed(addresses: Addresses) -> None:
    """Refuse to serve other machines, unless on one private address and with ``--no-login``.

    Raises:
        InvalidArgumentError: The host is not an address of this machine.
        DeltaEnvironmentError: Other machines would reach the page.
    """
    if addresses.is_loopback:
        return
    if not addresses.no_login:
        raise DeltaEnvironmentError(
            f"The page would be open to other machines on {addresses.host}, and it asks for no log-in.",
            hint="Listen on 127.0.0.1 and put a proxy with a log-in before it; or give --no-login with one private "
            "address, such as a container's whose port is published on 127.0.0.1.",
        )
    check_private(addresses)


def run_ui(watched: Watched, addresses: Addresses) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        watched: What to show.
        addresses: Where to listen.

    Raises:
        InvalidArgumentError, DeltaEnvironmentError: It cannot listen there.
    """
    if addresses.page is None:
        raise InvalidArgumentError("The page has no port.", hint="Give --port.")
    check_exposed(addresses)
    check_free(addresses)
    logging.getLogger("thrift").setLevel(logging.CRITICAL + 1)  # The page itself shows errors of the metastore.
    application = Application(Watch(watched), host=addresses.host)
    server = open_server(application, addresses, "The page")
    Terminal().write(f"Tables, streams and services: http://{in_url(addresses.host)}:{addresses.page}")
    if addresses.no_login and not addresses.is_loopback:
        Terminal().write(f"Without a log-in: whoever reaches {addresses.host} can read it.")
    sys.stdout.flush()
    run_server(server)
