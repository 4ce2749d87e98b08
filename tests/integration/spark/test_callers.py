"""Threads of the JVM that call Python and end leave nothing behind."""

from __future__ import annotations

import threading

import pytest

from pydelta.engines.spark.callers import _field, close_ended
from pydelta.engines.spark.jvm import Jvm


class Runnable:
    """Code of Python that a thread of the JVM runs."""

    def __init__(self, run):
        self.run = run

    class Java:
        implements = ("java.lang.Runnable",)


@pytest.fixture
def jvm(spark):
    return Jvm.of(spark)


def test_threads_that_have_ended_leave_neither_sockets_nor_threads(jvm):
    callers = close_ended(jvm.gateway)
    callers.close_ended()
    there = _kept(jvm)
    together, serving = threading.Barrier(8), []
    pool = jvm.view.java.util.concurrent.Executors.newFixedThreadPool(8)

    def call():
        serving.append(threading.current_thread())
        together.wait(60)

    try:
        waiting = [pool.submit(Runnable(call)) for _ in range(8)]
        for one in waiting:
            one.get()
        ours = _kept(jvm) - there
        assert len(ours) >= 8
        callers.close_ended()
        assert all(thread.is_alive() for thread in serving)  # since the threads that called live
    finally:
        pool.shutdown()
        pool.awaitTermination(60, jvm.view.java.util.concurrent.TimeUnit.SECONDS)
    assert len({thread.ident for thread in serving}) == 8
    for thread in serving:  # a pool is terminated a moment before its last thread has ended
        for _ in range(60):
            callers.close_ended()
            thread.join(1)
            if not thread.is_alive():
                break
    assert not any(thread.is_alive() for thread in serving)
    assert len(_kept(jvm) & ours) <= len(ours) - 8  # another thread of Spark's may have called meanwhile


def test_a_thread_that_lives_calls_again_however_long_it_was_idle(jvm):
    callers = close_ended(jvm.gateway)
    called = []
    pool = jvm.view.java.util.concurrent.Executors.newFixedThreadPool(1)
    try:
        pool.submit(Runnable(lambda: called.append(threading.get_ident()))).get()
        callers.close_ended()
        pool.submit(Runnable(lambda: called.append(threading.get_ident()))).get()
    finally:
        pool.shutdownNow()
    assert len(called) == 2
    assert called[0] == called[1]


def _kept(jvm):
    """The connections that are kept, by their identity."""
    kept = _field(jvm.gateway.java_gateway_server.getCallbackClient(), "connections").toArray()
    return {jvm.view.java.lang.System.identityHashCode(one) for one in kept}


def test_it_is_put_in_place_once(jvm):
    assert close_ended(jvm.gateway) is close_ended(jvm.gateway)
