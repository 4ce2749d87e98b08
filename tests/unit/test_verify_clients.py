"""Trino over HTTP, against a server that answers by the page; who sees a commit when, by a clock of the test's."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from jobs.verify.cluster import said_of, why_waiting
from jobs.verify.trino import Trino, TrinoError
from jobs.verify.visible import Waiting, seen_after


@pytest.fixture
def server():
    """A server on the loopback that gives the pages it is told, in order, and notes what it was asked."""

    class Pages(BaseHTTPRequestHandler):
        asked: list = []  # noqa: RUF012
        headers_sent: list = []  # noqa: RUF012
        pages: list = []  # noqa: RUF012

        def _answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            self.asked.append((self.command, body, self.headers["X-Trino-User"] or self.headers["X-Presto-User"]))
            self.headers_sent.append(dict(self.headers))
            status, page = self.pages.pop(0)
            if "nextUri" in page:
                page = page | {"nextUri": f"http://127.0.0.1:{self.server.server_port}{page['nextUri']}"}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(page).encode())

        do_GET = do_POST = _answer  # noqa: N815

        def log_message(self, *_):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    Pages.address = f"127.0.0.1:{running.server_port}"
    yield Pages
    running.shutdown()
    running.server_close()
    thread.join()


def test_rows_of_all_pages_come_in_order(server):
    server.pages += [
        (200, {"nextUri": "/v1/1"}),
        (200, {"nextUri": "/v1/2", "data": [[1, "a"]]}),
        (200, {"data": [[2, None]]}),
    ]
    assert Trino(server.address, "verify").rows("SELECT 1") == [[1, "a"], [2, None]]
    assert server.asked == [("POST", "SELECT 1", "verify"), ("GET", "", "verify"), ("GET", "", "verify")]


def test_a_statement_that_fails_on_a_later_page_is_an_error_in_trino_s_words(server):
    error = {"errorName": "TABLE_NOT_FOUND", "message": "line 1:15: Table 'hive.a.b' does not exist"}
    server.pages += [(200, {"nextUri": "/v1/1", "data": [[1]]}), (200, {"error": error})]
    with pytest.raises(TrinoError, match=r"TABLE_NOT_FOUND: line 1:15: Table 'hive\.a\.b' does not exist"):
        Trino(server.address, "verify").rows("SELECT 1")


def test_another_answer_and_none_at_all_are_told_with_the_address(server):
    server.pages.append((503, {}))
    with pytest.raises(TrinoError, match=rf"{re.escape(server.address)} answered with HTTP status 503"):
        Trino(server.address, "verify").rows("SELECT 1")
    with pytest.raises(TrinoError, match=r"127\.0\.0\.1:1 does not answer: \[Errno") as caught:
        Trino("127.0.0.1:1", "verify").rows("SELECT 1")
    assert "make logs SERVICE=trino" in caught.value.hint


def test_presto_is_asked_by_headers_of_its_own_name_and_named_in_its_errors(server):
    server.pages += [(200, {"nextUri": "/v1/1"}), (200, {"data": [[1]]}), (500, {})]
    presto = Trino(server.address, "verify", "Presto")
    assert presto.rows("SELECT 1") == [[1]]
    for sent in server.headers_sent:
        named = {name: value for name, value in sent.items() if name.startswith("X-")}
        assert named == {"X-Presto-User": "verify", "X-Presto-Time-Zone": "UTC"}
    with pytest.raises(
        TrinoError, match=rf"Presto at {re.escape(server.address)} answered with HTTP status 500"
    ) as caught:
        presto.rows("SELECT 1")
    assert "make logs SERVICE=presto" in caught.value.hint


def test_each_reader_is_timed_from_the_commit_on():
    visible = threading.Event()

    def write():
        visible.set()
        return 100.0

    assert seen_after(write, [visible.is_set, lambda: True], clock=lambda: 103.5) == [3.5, 3.5]


def test_a_reader_that_sees_nothing_once_the_writer_has_ended_never_does():
    asked = []

    def blind():
        asked.append(1)
        return False

    assert seen_after(lambda: 0.0, [blind], clock=lambda: 1.0) == [None]
    assert asked, "it was asked"


def test_a_reader_is_asked_once_more_after_the_writer_has_ended():
    """What becomes visible in the writer's last moment counts: the question before it is not the last one."""
    began, ended = threading.Event(), threading.Event()

    def late():
        before = ended.is_set()
        began.set()
        if not before:
            ended.wait()
        return before

    def write():
        began.wait()
        ended.set()
        return 10.0

    assert seen_after(write, [late], clock=lambda: 12.0) == [2.0]


def test_a_writer_that_fails_leaves_no_reader_behind():
    def write():
        raise OSError("gone")

    before = threading.active_count()
    with pytest.raises(OSError, match="gone"):
        seen_after(write, [lambda: False])
    assert threading.active_count() == before


def test_waiting_passes_over_errors_until_it_is_there():
    answers = [TrinoError("no such table"), False, True]

    def look():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert Waiting(look, (TrinoError,), 0.0).seen(600) is not None
    assert answers == []


def test_waiting_ends_with_nothing_when_patience_does():
    assert Waiting(lambda: False, (TrinoError,), 0.0).seen(0.0) is None


def test_who_holds_the_cluster_is_said_by_name():
    status = {
        "cores": 4,
        "coresused": 4,
        "activeapps": [{"name": "pyspark", "cores": 4}, {"name": "verify", "cores": 0}],
    }
    assert "4 of 4 cores are taken, by pyspark (4), verify (0). Next: wait, or end" in said_of(status)
    assert "by nobody" in said_of({"cores": 4, "coresused": 0, "activeapps": []})


def test_a_master_that_does_not_answer_is_said():
    assert "Spark's master does not answer" in why_waiting("http://127.0.0.1:1/json/")
