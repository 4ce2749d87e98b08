"""Objects of the JVM that Python lets go are let go some seconds later."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

from pydelta.spark.returned import LateRelease, release_late


def test_an_object_is_let_go_when_it_has_waited_in_order():
    queue, clock = deque(), [0.0]
    late = LateRelease(queue, now=lambda: clock[0])
    for at, name in ((0.0, "a"), (1.0, "b"), (9.9, "c")):
        clock[0] = at
        late.appendleft(("client", name))
    assert not queue
    clock[0] = 11.0
    late.appendleft(("client", "d"))
    assert [queue.pop()[1] for _ in range(len(queue))] == ["a", "b"]
    clock[0] = 30.0
    late.appendleft(("client", "e"))
    assert [queue.pop()[1] for _ in range(len(queue))] == ["c", "d"]


def test_the_end_of_the_worker_does_not_wait():
    queue = deque()
    LateRelease(queue).appendleft("__shutdown__")
    assert list(queue) == ["__shutdown__"]


def test_a_gateway_is_changed_once_and_one_without_a_queue_not_at_all():
    gateway = SimpleNamespace(_gateway_client=SimpleNamespace(finalizer_deque=deque()))
    release_late(gateway)
    first = gateway._gateway_client.finalizer_deque
    release_late(gateway)
    assert gateway._gateway_client.finalizer_deque is first
    assert isinstance(first, LateRelease)
    release_late(SimpleNamespace(_gateway_client=SimpleNamespace()))
