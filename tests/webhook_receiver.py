"""A server on the loopback that takes what a webhook posts, and answers as a test tells it to."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LONGEST = 60.0


class Receiver:
    """What was posted, in order. ``answers`` has a status per request, then 200; 0 does not answer."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[int] = []
        self.posted: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.released = threading.Event()
        self._changed = threading.Condition()

    def take(self, path: str, document: dict[str, Any]) -> int:
        with self._changed:
            self.paths.append(path)
            self.posted.append(document)
            self._changed.notify_all()
            return self.answers.pop(0) if self.answers else 200

    def wait(self, count: int) -> list[dict[str, Any]]:
        """Wait until a number of messages was posted, and return them all."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.posted) >= count, LONGEST), self.posted
            return list(self.posted)

    @property
    def seen(self) -> list[tuple[str, str]]:
        return [(document["alert"], document["status"]) for document in self.posted]


class _Handler(http.server.BaseHTTPRequestHandler):
    receiver: Receiver
    timeout = LONGEST

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/json"
        status = self.receiver.take(self.path, json.loads(body))
        if not status:
            self.receiver.released.wait(LONGEST)
            status = 200
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.receiver.take(self.path, {"alert": "a redirect was followed", "status": "GET"})
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def receiving(path: str = "/hook") -> Iterator[Receiver]:
    """Run a receiver for the time of a block."""
    receiver = Receiver()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), type("ReceivingHandler", (_Handler,), {"receiver": receiver})
    )
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}{path}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()
        thread.join(LONGEST)


def until(holds: Any) -> None:
    """Return once something holds, or fail."""
    give_up = time.monotonic() + LONGEST
    while not holds():
        assert time.monotonic() < give_up, "this was never so"
        threading.Event().wait(0.01)
