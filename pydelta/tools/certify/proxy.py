"""Forward requests from a loopback port to an S3 endpoint, and delay, refuse, cut or lose some of the replies.

Requests are forwarded unchanged, with the Host header they were signed for, so their signatures stay valid. The seed
decides which requests go wrong, in the order in which they arrive.
"""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from pydelta.storage.kinds import kind_of
from pydelta.storage.options import HadoopOptions
from pydelta.storage.uris import scheme_of

__all__ = ["Proxy", "endpoint_of", "with_endpoint"]

_ENDPOINT: Final = "fs.s3a.endpoint"
_SSL: Final = "fs.s3a.connection.ssl.enabled"
_TROUBLES: Final = {"slow reply": 20, "no reply": 8, "cut reply": 6, "refused": 6, "cut request": 4}
"""Occurrences per thousand requests."""
_MOST_SECONDS: Final = 0.25
_PATIENCE_SECONDS: Final = 60.0
_HOP: Final = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "te", "upgrade"})
_BUSY: Final = b"<Error><Code>SlowDown</Code><Message>pydelta certify refused this request</Message></Error>"


def endpoint_of(uri: str, options: Mapping[str, str]) -> str | None:
    """Return the endpoint that a proxy can be put in front of, or None if there is none."""
    if kind_of(scheme_of(uri)).name != "s3":
        return None
    found = HadoopOptions(options)
    endpoint = found.get(_ENDPOINT)
    if endpoint is None:
        return None
    if "://" in endpoint:
        return endpoint
    return f"{'https' if found.get_flag(_SSL, default=True) else 'http'}://{endpoint}"


def with_endpoint(options: Mapping[str, str], address: str) -> dict[str, str]:
    """Return options that use another endpoint, with path-style addresses instead of bucket hosts."""
    names = {_ENDPOINT, f"spark.hadoop.{_ENDPOINT}", _SSL, f"spark.hadoop.{_SSL}"}
    others = {name: value for name, value in options.items() if name not in names}
    prefix = "spark.hadoop." if any(name.startswith("spark.hadoop.fs.s3a.") for name in options) else ""
    path_style = {f"{prefix}fs.s3a.path.style.access": "true"}
    return others | {f"{prefix}{_ENDPOINT}": address, f"{prefix}{_SSL}": "false"} | path_style


class Proxy:
    """A proxy in front of an endpoint, running until the block ends.

    Args:
        endpoint: ``http://host:port`` or ``https://…``.
        seed: Decides what goes wrong.
    """

    def __init__(self, endpoint: str, seed: int) -> None:
        self._endpoint = urlsplit(endpoint)
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self.faults: Counter[str] = Counter()
        self._server = _Server(self)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def draw(self) -> tuple[str, float]:
        """Draw the fault of the next request ("" for none) and the delay in seconds of a slow one."""
        with self._lock:
            number, seconds = self._chance.randrange(1000), self._chance.random() * _MOST_SECONDS
            for trouble, share in _TROUBLES.items():
                if number < share:
                    self.faults[trouble] += 1
                    return trouble, seconds
                number -= share
        return "", 0.0

    def forward(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> _Reply:
        """Forward a request and read the whole reply.

        Raises:
            OSError, HTTPException: The endpoint does not answer.
        """
        make = http.client.HTTPSConnection if self._endpoint.scheme == "https" else http.client.HTTPConnection
        connection = make(self._endpoint.hostname or "", self._endpoint.port, timeout=_PATIENCE_SECONDS)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                if name.lower() not in _HOP:
                    connection.putheader(name, value)
            connection.putheader("Connection", "close")
            connection.endheaders(body or None)
            reply = connection.getresponse()
            return _Reply(reply.status, reply.reason, reply.getheaders(), reply.read())
        finally:
            connection.close()


class _Reply:
    def __init__(self, status: int, reason: str, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status, self.reason, self.headers, self.body = status, reason, headers, body


class _Server(ThreadingHTTPServer):
    """A server that knows its proxy."""

    daemon_threads = True

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        try:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            self._pass_on()
            self.wfile.flush()
        except (OSError, http.client.HTTPException):
            self.close_connection = True

    def _pass_on(self) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        trouble, seconds = self.server.proxy.draw()
        if trouble == "cut request":
            self._cut()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if trouble == "refused":
            self._answer(_Reply(503, "Slow Down", [("Content-Type", "application/xml")], _BUSY))
            return
        sent = [(name, value) for name, value in self.headers.items() if name.lower() != "expect"]
        reply = self.server.proxy.forward(self.command, self.path, sent, body)
        if trouble == "no reply":
            self._cut()
            return
        if trouble == "slow reply":
            time.sleep(seconds)
        self._answer(reply, part=trouble == "cut reply")

    def _answer(self, reply: _Reply, *, part: bool = False) -> None:
        self.send_response_only(reply.status, reply.reason)
        for name, value in reply.headers:
            if name.lower() not in _HOP | {"content-length"}:
                self.send_header(name, value)
        length = next((value for name, value in reply.headers if name.lower() == "content-length"), None)
        known = length if self.command == "HEAD" else str(len(reply.body))
        if known is not None and reply.status != http.client.NO_CONTENT:
            self.send_header("Content-Length", known)
        self.end_headers()
        if self.command == "HEAD":
            return
        if part:
            self.wfile.write(reply.body[: len(reply.body) // 2])
            self.wfile.flush()
            self._cut()
            return
        self.wfile.write(reply.body)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing, because the request line may carry a signature."""
