"""Run ``pydelta serve``: listen until the process is asked to stop, then wait for running commits."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydelta.api.console.addresses import OF_THE_ENVIRONMENT, Addresses, check_free, in_url
from pydelta.api.console.guard import Guard
from pydelta.api.console.terminal import Terminal
from pydelta.api.prompt.session import prompt_session
from pydelta.api.server.spark.server import Server
from pydelta.api.server.thrift_front import ThriftFront
from pydelta.engines.spark.stopping import Stopping
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError, first_line

if TYPE_CHECKING:
    from pydelta.api.server.front import Front
    from pydelta.api.server.metrics import Metrics

__all__ = ["run_server"]

_POLL_SECONDS: Final = 1.0
_ENDING_SECONDS: Final = 10.0
_UNKNOWN: Final = 3


def run_server(
    addresses: Addresses,
    guard: Guard,
    *,
    grace: float,
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
    **session: Any,
) -> int:
    """Serve until SIGTERM or SIGINT.

    Args:
        addresses: Where to listen.
        guard: Who may use Spark Connect.
        grace: Seconds that running statements with an effect have to finish when the server stops.
        conf: Spark settings.
        verbose: Show Spark's messages.
        session: More arguments for ``prompt_session``: master, warehouse, metastore.

    Returns:
        The exit code: 0, or 3 if statements were still running at the end.

    Raises:
        InvalidArgumentError, DeltaEnvironmentError: It cannot listen there, or Spark does not start.
    """
    check_free(addresses)
    for name in OF_THE_ENVIRONMENT:
        os.environ.pop(name, None)
    front = None if addresses.connect is None else _front(guard)
    if front is not None:
        addresses = replace(addresses, behind=front.behind)
    thrift = None if addresses.thrift is None or guard.access is None else ThriftFront(guard.access, guard)
    if thrift is not None:
        addresses = replace(addresses, thrift_behind=thrift.behind)
    if guard.access is not None and addresses.no_login:
        raise InvalidArgumentError("--no-login and --access exclude each other.", hint="Give one of them.")
    settings = {**(conf or {}), **addresses.settings()}
    for each in (front, thrift):
        settings |= each.settings() if each is not None else {}
    out, err = Terminal(), Terminal(error=True)
    with prompt_session(conf=settings, verbose=verbose, **session) as spark:
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)  # Clients receive the errors.
        logging.getLogger().addFilter(_is_not_of_py4j)
        logging.getLogger("pydelta").setLevel(logging.WARNING)
        seen = () if front is None else front.seen
        server = Server(spark, addresses, closed=guard.is_closed, access=guard.access, seen=seen)
        stopping = Stopping(spark)
        with stopping.listening():
            server.start(stopping.asked)
            if front is not None and addresses.connect is not None:
                front.start(server.sessions, addresses.host, addresses.connect)
            if thrift is not None and addresses.thrift is not None:
                thrift.start(addresses.host, addresses.thrift)
            counting = (
                None if addresses.metrics is None else _counting(server, addresses.metrics_host, addresses.metrics)
            )
            for line in _listening(addresses):
                out.write(line)
            sys.stdout.flush()
            try:
                _wait(server, stopping)
            except KeyboardInterrupt:
                err.say()
            out.write("Stopping: no new statements; those that are running may end.")
            sys.stdout.flush()
            left = server.stop(grace)
            for each in (front, thrift):
                if each is not None:
                    each.stop()
            if counting is not None:
                counting.stop()
        if left:
            err.say(f"Statements that had not ended: {left}. DESCRIBE HISTORY shows whether they committed.")
        return _UNKNOWN if left else 0


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Filter out py4j's records on the root logger, which report the JVM's end with a trace per thread."""
    return Path(record.pathname).parent.name != "py4j"


def _front(guard: Guard) -> Front:
    try:
        from pydelta.api.server.front import Front
    except ImportError as error:  # PySpark's own error names the package.
        raise DeltaEnvironmentError(
            f"Spark Connect needs a package that is not installed: {first_line(error)}",
            hint="pip install 'pydelta-lakehouse[serve]', or leave out --connect.",
        ) from error
    return Front(guard)


def _counting(server: Server, host: str, port: int) -> Metrics:
    try:
        from pydelta.api.server.metrics import Metrics
    except ImportError as error:
        raise DeltaEnvironmentError(
            "Metrics need the package prometheus-client, which is not installed.",
            hint="pip install 'pydelta-lakehouse[serve]', or leave out --metrics.",
        ) from error
    found = Metrics(server.sessions, server.jvm_process)
    found.start(host, port)
    return found


def _listening(addresses: Addresses) -> list[str]:
    host = in_url(addresses.host)
    lines = []
    if addresses.thrift is not None:
        lines.append(f"JDBC, ODBC, beeline: jdbc:hive2://{host}:{addresses.thrift}")
    if addresses.connect is not None:
        lines.append(f"Spark Connect: sc://{host}:{addresses.connect}")
    if addresses.metrics is not None:
        lines.append(f"Metrics: http://{in_url(addresses.metrics_host)}:{addresses.metrics}/metrics")
    if addresses.no_login and not addresses.is_loopback:
        lines.append(f"No log-in: everyone who reaches {addresses.host} can use it, under any name.")
    return lines


def _wait(server: Server, stopping: Stopping) -> None:
    """Wait until the process is asked to stop."""
    while not stopping.asked.wait(_POLL_SECONDS):
        server.check_process()
        if server.has_lost_spark and not stopping.asked.wait(_ENDING_SECONDS):
            server.check_process()  # A process that is ending stops Spark first.
            raise DeltaEnvironmentError(
                "Spark stopped by itself: the cluster ended the application, or lost it.",
                hint="Look at the page of the cluster's master and start the server again; commits that were reported "
                "to clients are there.",
            )
