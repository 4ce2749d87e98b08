"""Count a server's statements for Prometheus.

::

    Sessions --outcome, seconds--> Metrics --GET /metrics--> Prometheus
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, start_http_server

from pydelta.errors import DeltaEnvironmentError

if TYPE_CHECKING:
    from pydelta.api.server.spark.sessions import Outcome, Sessions

__all__ = ["Metrics"]

_SECONDS: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)


class Metrics:
    """Counts the work of a server since its start.

    Args:
        sessions: The server's sessions.
        jvm: Id of Spark's process; None if unknown.
    """

    def __init__(self, sessions: Sessions, jvm: int | None) -> None:
        self.registry = CollectorRegistry()
        named: dict[str, Any] = {"registry": self.registry}
        self._ended = Counter(
            "pydelta_statements", "Statements that change something and have ended, by outcome.", ["outcome"], **named
        )
        for outcome in ("done", "conflict", "unknown", "failed"):
            self._ended.labels(outcome)  # This exports a 0 before the first statement.
        self._seconds = Histogram(
            "pydelta_statement_seconds", "How long those took, whatever their outcome.", buckets=_SECONDS, **named
        )
        running = Gauge("pydelta_statements_running", "Statements that change something and are running.", **named)
        running.set_function(lambda: sessions.running)
        texts = Counter("pydelta_texts", "SQL texts that clients have sent, reads and all others.", **named)
        ProcessCollector(namespace="pydelta", **named)
        if jvm is not None:
            ProcessCollector(namespace="pydelta_jvm", pid=lambda: jvm, **named)
        sessions.observe = self._observe
        sessions.observe_text = texts.inc
        self._server: Any = None

    def start(self, host: str, port: int) -> None:
        """Answer ``GET /metrics`` in a separate thread.

        Raises:
            DeltaEnvironmentError: The port is in use, or the address is not this machine's.
        """
        try:
            self._server, _ = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise DeltaEnvironmentError(
                f"Metrics cannot be served on {host}:{port}: {os.strerror(error.errno or 0)}.",
                hint="Choose another port with --metrics, or stop what listens there.",
            ) from error

    def stop(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _observe(self, outcome: Outcome, seconds: float) -> None:
        self._ended.labels(outcome).inc()
        self._seconds.observe(seconds)
