"""Send small JSON documents over HTTP, or into a folder, in a background thread.

::

    put --bounded queue--> one thread --POST--> the endpoint
         if full: dropped, counted            no answer, or refused: dropped, counted

The caller of ``put`` never waits and never gets an error. At exit, the queue gets a moment to empty.
"""

from __future__ import annotations

import atexit
import json
import logging
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from pydelta.errors import InvalidArgumentError, first_line

__all__ = ["NoRedirect", "Outbox", "checked_endpoint"]

_LOG = logging.getLogger(__name__)
_WAITING: Final = 1000
_SECONDS: Final = 5.0
_LAST_SECONDS: Final = 2.0
_TOLD_EVERY: Final = 60.0
_FAILED: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class _Letter:
    body: bytes


def checked_endpoint(url: str, *, name: str) -> str:
    """Check that an endpoint is an HTTP address, and return it.

    Raises:
        InvalidArgumentError: It is not an HTTP address. The message hides it, because it may hold a credential.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 0) >= 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidArgumentError(
            f"{name} is not an HTTP address.", hint=f"Set it to http://host:port or https://host, or unset {name}."
        )
    return url


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, because a header with a credential is only for the named endpoint."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: the redirect becomes an ``HTTPError``."""
        return


class Outbox:
    """Posts documents to one endpoint, in the order in which they were put.

    Args:
        url: The endpoint; see ``checked_endpoint``.
        headers: Headers of every request. They may hold a credential and are never shown.
        waiting: Maximum number of waiting documents.
        seconds: Timeout of one request.
        deliver: Takes the text of a document instead of the endpoint, and returns why it could not, or None.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        waiting: int = _WAITING,
        seconds: float = _SECONDS,
        deliver: Callable[[bytes], str | None] | None = None,
    ) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json"} | dict(headers or {})
        self._seconds = seconds
        self._deliver = deliver
        self._queue: queue.Queue[_Letter] = queue.Queue(waiting)
        self._opener = urllib.request.build_opener(NoRedirect)
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._open = 0
        self._told = float("-inf")
        self.sent = 0
        self.dropped = 0

    def put(self, document: Mapping[str, Any]) -> bool:
        """Queue a document. Returns False if it was dropped. Never waits, and never raises because of the endpoint."""
        letter = _Letter(body=json.dumps(document, default=str).encode())
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, daemon=True, name="pydelta-outbox")
                self._thread.start()
                atexit.register(self.flush, _LAST_SECONDS)
            try:
                self._queue.put_nowait(letter)
            except queue.Full:
                self._drop("too many are waiting")
                return False
            self._open += 1
        return True

    def flush(self, seconds: float) -> bool:
        """Wait until every document was sent or dropped. Returns False if that took too long."""
        give_up = time.monotonic() + seconds
        with self._idle:
            while self._open:
                left = give_up - time.monotonic()
                if left <= 0:
                    return False
                self._idle.wait(left)
        return True

    def _loop(self) -> None:
        while True:
            letter = self._queue.get()
            problem = self._send(letter)
            with self._idle:
                self._open -= 1
                if problem is None:
                    self.sent += 1
                else:
                    self._drop(problem)
                self._idle.notify_all()

    def _send(self, letter: _Letter) -> str | None:
        """Send a document. Returns the reason why it was not accepted, or None."""
        if self._deliver is not None:
            return self._deliver(letter.body)
        request = urllib.request.Request(self._url, data=letter.body, headers=self._headers, method="POST")  # noqa: S310 -- checked
        try:
            with self._opener.open(request, timeout=self._seconds) as reply:
                return None if reply.status < _FAILED else f"HTTP status {reply.status}"
        except urllib.error.HTTPError as error:
            with error:
                return f"HTTP status {error.code}"
        except Exception as error:  # noqa: BLE001 -- no behaviour of an endpoint may end the thread
            return f"{type(error).__name__}: {first_line(str(error))}"

    def _drop(self, why: str) -> None:
        """Count a dropped document, and log it at most once a minute. The caller holds the lock."""
        self.dropped += 1
        now = time.monotonic()
        if now - self._told >= _TOLD_EVERY:
            self._told = now
            host = urlsplit(self._url).hostname or "the folder"
            _LOG.warning("%d events for %s were dropped; the last one since: %s", self.dropped, host, why)
