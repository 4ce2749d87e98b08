"""Answer LDAP's simple bind on the loopback: one secret is right, whatever the name.

Spark's Thrift server has no log-in that Python can answer, except that it asks an LDAP server. This is the smallest
one: it reads a bind, answers it, and ends the connection at anything else.
"""

from __future__ import annotations

import hmac
import socketserver
import threading
from typing import Any, Final

__all__ = ["BindServer", "bind_password", "bind_reply"]

_SUCCESS, _WRONG = 0, 49
_SEQUENCE, _INTEGER, _TEXT = 0x30, 0x02, 0x04
_BIND, _SIMPLE, _UNBIND = 0x60, 0x80, 0x42
_LARGEST: Final = 4096
_SECONDS: Final = 30.0


class BindServer:
    """The server.

    Args:
        secret: The password that is right.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._server: socketserver.ThreadingTCPServer | None = None

    def start(self) -> str:
        """Listen on a free port; returns the address."""
        secret = self._secret.encode()

        class Handler(socketserver.StreamRequestHandler):
            timeout = _SECONDS

            def handle(self) -> None:
                while True:
                    message = _read(self.rfile)
                    found = None if message is None else bind_password(message)
                    if found is None:
                        return
                    number, password = found
                    self.wfile.write(bind_reply(number, is_right=hmac.compare_digest(password, secret)))

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Leave out the trace of a connection that broke."""

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True, name="binder").start()
        return f"ldap://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        """Close it."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def _read(file: Any) -> bytes | None:
    """Read one message: a sequence, without its tag and length; None at the end or for anything else."""
    head = file.read(2)
    if len(head) < 2 or head[0] != _SEQUENCE:
        return None
    length = head[1]
    if length > 0x80:
        length = int.from_bytes(file.read(length - 0x80), "big")
    data = file.read(length) if length <= _LARGEST else b""
    return data if data and len(data) == length else None


def _value(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Return the tag and the content of a value, and where the next one begins."""
    tag, length, begin = data[at], data[at + 1], at + 2
    if length > 0x80:
        begin += length - 0x80
        length = int.from_bytes(data[at + 2 : begin], "big")
    if begin + length > len(data):
        raise IndexError
    return tag, data[begin : begin + length], begin + length


def bind_password(message: bytes) -> tuple[int, bytes] | None:
    """Return the number of a message and the password in it; None if it is not a simple bind."""
    try:
        tag, number, at = _value(message, 0)
        kind, bind, _ = _value(message, at)
        if tag != _INTEGER or kind != _BIND:
            return None
        _, _, at = _value(bind, 0)
        _, _, at = _value(bind, at)
        how, password, _ = _value(bind, at)
    except IndexError:
        return None
    return (int.from_bytes(number, "big"), password) if how == _SIMPLE and password else None


def bind_reply(number: int, *, is_right: bool) -> bytes:
    """Return the answer to a bind."""
    result = bytes([0x0A, 1, _SUCCESS if is_right else _WRONG, _TEXT, 0, _TEXT, 0])
    count = number.to_bytes(max(1, (number.bit_length() + 8) // 8), "big")
    body = bytes([_INTEGER, len(count)]) + count + bytes([0x61, len(result)]) + result
    return bytes([_SEQUENCE, len(body)]) + body
