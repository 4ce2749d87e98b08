"""Objects of the JVM that Python lets go are let go some seconds later."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace

import pytest
from py4j.clientserver import FinalizerWorker

from pydelta.engines.spark.callback_results import LateRelease, release_late


def taken(late):
    found = []
    while True:
        try:
            found.append(late.pop())
        except IndexError:
            return found


def test_an_object_is_let_go_when_it_has_waited_in_order():
    clock = [0.0]
    late = LateRelease(deque(["younger", "older"]), now=lambda: clock[0])
    for at, name in ((0.0, "a"), (1.0, "b"), (9.9, "c")):
        clock[0] = at
        late.appendleft(("client", name))
        assert taken(late) == []
    clock[0] = 10.0
    assert taken(late) == ["older", "younger", ("client", "a")]
    clock[0] = 11.0
    assert taken(late) == [("client", "b")]
    clock[0] = 30.0
    assert taken(late) == [("client", "c")]
    assert taken(late) == []


def test_the_end_of_the_worker_does_not_wait():
    late = LateRelease(deque(), now=lambda: 0.0)
    late.appendleft(("client", "a"))
    late.appendleft("__shutdown__")
    assert late.pop() == "__shutdown__"
    with pytest.raises(IndexError):
        late.pop()


class Letting:
    """A client of py4j's; ``gone`` is set when the worker lets an object go."""

    def __init__(self):
        self.gone = threading.Event()

    def garbage_collect_object(self, target_id, enqueue):
        assert (target_id, enqueue) == ("o1", False)
        self.gone.set()


def test_py4js_own_worker_lets_go_of_what_has_waited_though_nothing_follows(monkeypatch):
    monkeypatch.setattr("pydelta.engines.spark.callback_results._LATER", 0.3)
    queue = deque()
    worker = FinalizerWorker(queue)
    worker.daemon = True
    worker.start()
    client = Letting()
    client.finalizer_deque = queue
    gateway = SimpleNamespace(_gateway_client=client)
    release_late(gateway)
    first = client.finalizer_deque
    release_late(gateway)
    assert client.finalizer_deque is first
    assert isinstance(first, LateRelease)
    first.appendleft((client, "o1"))
    assert not client.gone.is_set()
    client.gone.wait()
    first.appendleft("__shutdown__")
    worker.join()


def test_a_gateway_without_a_worker_is_left_as_it_is():
    queue = deque()
    gateway = SimpleNamespace(_gateway_client=SimpleNamespace(finalizer_deque=queue))
    release_late(gateway)
    assert gateway._gateway_client.finalizer_deque is queue
    release_late(SimpleNamespace(_gateway_client=SimpleNamespace()))
