"""The wait for a started server: as long as Spark runs, and no longer."""

from __future__ import annotations

import logging
import socket
import threading

import pytest
from ports import free_ports

from pydelta.api.server.spark import accepting
from pydelta.errors import DeltaEnvironmentError


@pytest.fixture
def hours(monkeypatch):
    """Each look at the clock is an hour later than the one before, as on a machine that does nothing for us."""
    seen = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(accepting, "monotonic", lambda: float(next(seen)))


def test_a_server_may_take_hours_while_spark_runs(hours, caplog):
    (port,) = free_ports(1)
    checks, opened = [], []

    def check():
        checks.append(None)
        if len(checks) == 3:
            opened.append(socket.create_server(("127.0.0.1", port)))

    with caplog.at_level(logging.WARNING, "pydelta"):
        accepting.wait_until_accepting("Thrift", ("127.0.0.1", port), check, threading.Event())
    opened[0].close()
    assert len(checks) == 3
    (*_, last) = (record.getMessage() for record in caplog.records)
    assert len(caplog.records) == 3
    assert last.startswith(f"The Thrift server runs, but does not accept connections on 127.0.0.1:{port} (")


def test_the_end_of_spark_ends_the_wait():
    def check():
        raise DeltaEnvironmentError("Spark's process ended by itself, with code 1.", hint="Look.")

    with pytest.raises(DeltaEnvironmentError, match="with code 1"):
        accepting.wait_until_accepting("Thrift", ("127.0.0.1", *free_ports(1)), check, threading.Event())


def test_a_request_to_stop_ends_the_wait():
    asked = threading.Event()
    accepting.wait_until_accepting("Thrift", ("127.0.0.1", *free_ports(1)), asked.set, asked)
    assert asked.is_set()
