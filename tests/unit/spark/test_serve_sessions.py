"""What a server counts, refuses and waits for; without Spark."""

from __future__ import annotations

import threading

import pytest

from pydelta.api.server.spark.sessions import Sessions
from pydelta.errors import DeltaEnvironmentError
from pydelta.txn.commit import author


def sessions(user=None):
    return Sessions(None, lambda spark: user)


def test_a_statement_commits_for_its_user():
    with sessions("ada").statement(None):
        assert author() == "ada"
    assert author() is None


def test_after_stop_no_statement_begins():
    server = sessions()
    server.refuse_when_stopping()
    assert server.stop(0) == 0
    with pytest.raises(DeltaEnvironmentError, match="accepts no more statements"):
        server.refuse_when_stopping()
    with pytest.raises(DeltaEnvironmentError, match="accepts no more statements"), server.statement(None):
        raise AssertionError("it has begun")


def test_stop_tells_how_many_are_still_running():
    server = sessions()
    with server.statement(None):
        assert server.stop(0) == 1
    assert server.stop(0) == 0


def test_stop_waits_for_a_statement_to_end():
    server, begun, may_end = sessions(), threading.Event(), threading.Event()

    def run():
        with server.statement(None):
            begun.set()
            may_end.wait()

    running = threading.Thread(target=run)
    running.start()
    begun.wait()
    left = []
    stopping = threading.Thread(target=lambda: left.append(server.stop(3600)))
    stopping.start()
    assert left == []
    may_end.set()
    stopping.join()
    running.join()
    assert left == [0]


def test_a_statement_that_fails_is_counted_out():
    server = sessions()
    with pytest.raises(ZeroDivisionError), server.statement(None):
        raise ZeroDivisionError
    assert server.stop(0) == 0
