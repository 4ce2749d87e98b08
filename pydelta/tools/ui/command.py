"""Run ``pydelta ui`` until the process is asked to stop."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydelta.api.access.roles import Access
from pydelta.api.console.addresses import Addresses, check_free, check_private, in_url
from pydelta.api.console.serving import open_server, run_server
from pydelta.api.console.terminal import Terminal
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.tools.alerts.webhook import WEBHOOK_URL, AlertWatch
from pydelta.tools.ui.metrics import samples
from pydelta.tools.ui.server import Application
from pydelta.tools.ui.watch import Watch, Watched

__all__ = ["DEFAULT_PORT", "check_exposed", "run_ui", "watch_alerts"]

DEFAULT_PORT: Final = 8088


def check_exposed(addresses: Addresses, *, asks: bool = False) -> None:
    """Refuse to serve other machines, unless on one private address and with ``--no-login`` or ``--access``.

    Args:
        addresses: Where to listen.
        asks: Whether the page asks for a name and a password.

    Raises:
        InvalidArgumentError: The host is not an address of this machine.
        DeltaEnvironmentError: Other machines would reach the page.
    """
    if addresses.is_loopback:
        return
    if asks and addresses.no_login:
        raise InvalidArgumentError("--no-login and --access exclude each other.", hint="Give one of them.")
    if not addresses.no_login and not asks:
        raise DeltaEnvironmentError(
            f"The page would be open to other machines on {addresses.host}, and it asks for no log-in.",
            hint="Listen on 127.0.0.1 and put a proxy with a log-in before it; or give --access or --no-login with "
            "one private address, such as a container's whose port is published on 127.0.0.1.",
        )
    check_private(addresses)


def watch_alerts(watch: Watch, state: Path | None, env: Mapping[str, str]) -> AlertWatch | None:
    """Create what posts alerts, and let the page show how it goes; None if the environment names no webhook.

    Args:
        watch: Provides the figures.
        state: File of the alerts.
        env: The environment.

    Raises:
        InvalidArgumentError: The address is not one of HTTP, or the file has no folder.
    """
    url = env.get(WEBHOOK_URL, "").strip()
    if state is not None and not state.parent.is_dir():
        raise InvalidArgumentError(
            f"The folder of --alert-state {state} does not exist.", hint="Create it, or name another file."
        )
    if not url:
        return None
    alerts = AlertWatch(url, lambda: samples(watch.overview()), path=state)
    watch.webhook = alerts.state
    return alerts


def run_ui(
    watched: Watched, addresses: Addresses, alert_state: Path | None = None, access: Access | None = None
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        watched: What to show.
        addresses: Where to listen.
        alert_state: File of the alerts that were posted.
        access: The users and their roles; None if everyone may see everything.

    Raises:
        InvalidArgumentError, DeltaEnvironmentError: It cannot listen there, or cannot post alerts.
    """
    if addresses.page is None:
        raise InvalidArgumentError("The page has no port.", hint="Give --port.")
    for one in addresses.each:
        check_exposed(one, asks=access is not None)
        check_free(one)
    logging.getLogger("thrift").setLevel(logging.CRITICAL + 1)  # The page itself shows errors of the metastore.
    watch = Watch(watched)
    alerts = watch_alerts(watch, alert_state, os.environ)
    application = Application(watch, host=addresses.host, access=access)
    server = open_server(application, addresses, "The page")
    Terminal().write(f"Tables, streams and services: http://{in_url(addresses.host)}:{addresses.page}")
    if addresses.no_login and not addresses.is_loopback and access is None:
        Terminal().write(f"Without a log-in: whoever reaches {addresses.host} can read it.")
    if alerts is not None:
        alerts.start()
        Terminal().write(f"Alerts are posted to the webhook of {WEBHOOK_URL}.")
    sys.stdout.flush()
    run_server(server)
