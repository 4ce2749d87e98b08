"""Notify the scheduler of commits and of refused ones, and receive such notices: small JSON documents over HTTP.

A notice of a commit only makes the scheduler look at a table earlier, and one of a refused commit is only counted, so
neither need be trusted. The listener therefore asks for no log-in, and a notice about an unknown table is ignored.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import threading
from collections import Counter
from typing import Any, Final

from pydelta.errors import InvalidArgumentError
from pydelta.tools.maintenance.refusals import is_error_code
from pydelta.tools.outbox import Outbox, checked_endpoint
from pydelta.txn.hooks import HookContext, RefusedCommit, after_commits_where, environment_has

__all__ = ["NOTICE_URL", "REFUSAL_URL", "Listener", "announce_commit", "announce_refusal"]

NOTICE_URL: Final = "PYDELTA_NOTICE_URL"
"""The variable with the address of the scheduler's listener, such as ``http://scheduler:8089/commits``."""
REFUSAL_URL: Final = "PYDELTA_REFUSAL_URL"
"""The variable with the address for refused commits, such as ``http://scheduler:8089/refusals``."""
_LARGEST: Final = 64 * 1024
_MOST: Final = 10_000


def announce_refusal(refused: RefusedCommit) -> None:
    """Notify the scheduler of a change that was given up, if PYDELTA_REFUSAL_URL is set. Never waits.

    Raises:
        InvalidArgumentError: The variable does not hold a valid address.
    """
    url = os.environ.get(REFUSAL_URL)
    if url:
        outbox = _outbox(url, REFUSAL_URL)
        outbox.put({"location": refused.table, "refused": refused.error.code})


@after_commits_where(environment_has(NOTICE_URL), refused=announce_refusal)
def announce_commit(context: HookContext) -> None:
    """Notify the scheduler of a commit if PYDELTA_NOTICE_URL is set; see ``pydelta.txn.hooks``. Never waits.

    Raises:
        InvalidArgumentError: The variable does not hold a valid address.
    """
    outbox = _outbox(os.environ[NOTICE_URL], NOTICE_URL)
    outbox.put({"location": context.snapshot.table_uri, "version": context.snapshot.version})


@functools.cache
def _outbox(url: str, name: str) -> Outbox:
    return Outbox(checked_endpoint(url, name=name))


class _Handler(http.server.BaseHTTPRequestHandler):
    """Accepts ``POST`` requests with a location, and answers only with a status."""

    listener: Listener
    timeout = 10

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LARGEST:
            return self._answer(413)
        try:
            found = json.loads(self.rfile.read(int(length)))
        except ValueError:
            found = None
        fields = found if isinstance(found, dict) else {}
        location, code = fields.get("location"), fields.get("refused")
        if not isinstance(location, str) or not location:
            return self._answer(400)
        if code is not None:
            return self._answer(202 if is_error_code(code) and self.listener.refuse(location, code) else 400)
        return self._answer(202 if self.listener.note(location) else 503)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing, because there is a request per commit."""


class Listener:
    """Collects the locations of tables with new commits, and counts refused ones.

    Args:
        host, port: Address to listen at; port 0 for any free port.
        wake: Event that each notice sets.
    """

    def __init__(self, host: str, port: int, wake: threading.Event) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._noted: set[str] = set()
        self._refused: Counter[tuple[str, str]] = Counter()
        handler = type("Handler", (_Handler,), {"listener": self})
        self._server = http.server.ThreadingHTTPServer((host, port), handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True, name="pydelta-notices").start()

    @classmethod
    def open(cls, address: str, wake: threading.Event) -> Listener:
        """Listen at ``HOST:PORT``.

        Raises:
            InvalidArgumentError: The address is invalid, or listening there is not possible.
        """
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise InvalidArgumentError(f"{address!r} is not an address.", hint="Write it as host:port, scheduler:8089.")
        try:
            return cls(host or "127.0.0.1", int(port), wake)
        except OSError as error:
            raise InvalidArgumentError(
                f"The scheduler cannot listen at {address}: {error.strerror}.",
                hint="Choose another host or port (--listen).",
            ) from error

    def note(self, location: str) -> bool:
        """Add a location. Returns False if too many are waiting."""
        with self._lock:
            if len(self._noted) >= _MOST:
                return False
            self._noted.add(location)
        self._wake.set()
        return True

    def take(self) -> frozenset[str]:
        """Return the locations collected since the last call."""
        with self._lock:
            found, self._noted = frozenset(self._noted), set()
        return found

    def refuse(self, location: str, code: str) -> bool:
        """Count a refused commit. Returns False if too many different ones are waiting."""
        with self._lock:
            if len(self._refused) >= _MOST and (location, code) not in self._refused:
                return False
            self._refused[location, code] += 1
        return True

    def take_refused(self) -> Counter[tuple[str, str]]:
        """Return the refused commits since the last call, by location and error code."""
        with self._lock:
            found, self._refused = self._refused, Counter()
        return found

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
