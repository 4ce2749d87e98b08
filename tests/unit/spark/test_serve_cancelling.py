"""Which jobs are cancelled when a client interrupts its statement; without Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from pydelta.api.server.spark.cancelling import Cancelling


class Thread:
    def __init__(self):
        self.mark = False

    def isInterrupted(self):
        return self.mark


class Context:
    """Notes the tags that are set and whose jobs were cancelled."""

    def __init__(self):
        self._jsc = object()
        self.tags, self.cancelled, self.done = [], [], threading.Event()

    def addJobTag(self, tag):
        self.tags.append(tag)

    def removeJobTag(self, tag):
        self.tags.remove(tag)

    def cancelJobsWithTag(self, tag):
        self.cancelled.append(tag)
        self.done.set()


def watched():
    context, thread = Context(), Thread()
    current = SimpleNamespace(currentThread=lambda: thread)
    jvm = SimpleNamespace(view=SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(Thread=current))))
    return Cancelling(context, jvm), context, thread


def test_a_statement_that_nobody_interrupts_is_left_alone():
    cancelling, context, _ = watched()
    with cancelling.watching():
        cancelling.look()
        assert len(context.tags) == 1
    assert context.tags == []
    assert context.cancelled == []


def test_nothing_is_asked_of_a_context_that_was_stopped_meanwhile():
    cancelling, context, thread = watched()
    with cancelling.watching():
        tags = list(context.tags)
        context._jsc, thread.mark = None, True
        cancelling.look()
    assert context.cancelled == []
    assert context.tags == tags


def test_jobs_that_begin_after_the_mark_was_taken_off_are_cancelled_too():
    cancelling, context, thread = watched()
    with cancelling.watching():
        thread.mark = True
        cancelling.look()
        thread.mark = False
        cancelling.look()
        assert len(context.cancelled) >= 2
        assert set(context.cancelled) == set(context.tags)


def test_a_thread_looks_by_itself():
    cancelling, context, thread = watched()
    with cancelling.watching():
        thread.mark = True
        assert context.done.wait(600)


def test_what_has_ended_is_not_cancelled():
    cancelling, context, thread = watched()
    with cancelling.watching():
        pass
    thread.mark = True
    with cancelling.watching():
        thread.mark = False
        cancelling.look()
    assert context.cancelled == []
