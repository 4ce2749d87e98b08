"""Wait for a started server to accept connections, as long as Spark runs."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Final

__all__ = ["wait_until_accepting"]

_POLL_SECONDS: Final = 0.1
_REPORT_SECONDS: Final = 60.0
_LOG: Final = logging.getLogger(__name__)


def wait_until_accepting(what: str, address: tuple[str, int], check: Callable[[], None], asked: Event) -> None:
    """Return when a server accepts connections, or when the process is asked to stop.

    The server has bound its port before; how long its first answer takes depends on the machine, so that no number of
    seconds distinguishes a busy machine from a broken server. Every minute of waiting is logged.

    Args:
        what: The server's name, for messages.
        address: Its host and port.
        check: Called between attempts; raises if the server's process or Spark has ended.
        asked: Set when the process is asked to stop.
    """
    report = monotonic() + _REPORT_SECONDS
    while not asked.is_set():
        try:
            with socket.create_connection(address, timeout=1):
                return
        except OSError as error:
            reason = error
        check()
        if monotonic() >= report:
            _LOG.warning(
                "The %s server runs, but does not accept connections on %s:%d (%s). Still waiting; stop it and start "
                "it with --verbose to see its messages.", what, *address, reason,
            )  # fmt: skip
            report = monotonic() + _REPORT_SECONDS
        asked.wait(_POLL_SECONDS)
