"""Send messages of alerts to one address, and evaluate the rules, each in a thread that nothing else waits for.

::

    every 15 s: samples --> rules --> queue
    queue: first message --POST--> done | failed: again after a pause that doubles | refused: given up
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydelta.errors import InvalidArgumentError
from pydelta.tools.alerts.evaluate import MetricSample, SampleHistory
from pydelta.tools.alerts.queue import AlertQueue
from pydelta.tools.alerts.rules import RULES, AlertRule
from pydelta.tools.outbox import NoRedirect, checked_endpoint

__all__ = ["WEBHOOK_URL", "AlertWatch", "Pace", "WebhookState"]

_LOG = logging.getLogger(__name__)
WEBHOOK_URL: Final = "PYDELTA_ALERT_WEBHOOK"
"""The variable with the address to which alerts are posted. It may hold a secret, and is never shown."""
_PASSING: Final = frozenset({408, 425, 429})
"""Statuses below 500 after which a request is worth sending again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Times of the two threads, in seconds.

    Args:
        every: Between two evaluations.
        timeout: How long one step of a request may take: connecting, sending, or the reply.
        tries: How often a message is sent before it is given up.
        pause: The pause after the first failed try; it doubles each time.
        most_pause: The longest pause.
    """

    every: float = 15.0
    timeout: float = 5.0
    tries: int = 12
    pause: float = 5.0
    most_pause: float = 600.0

    def after(self, tries: int) -> float:
        """Return the pause after a number of failed tries."""
        return float(min(self.pause * 2 ** (tries - 1), self.most_pause))


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookState:
    """How posting goes. It never has the address.

    Args:
        begun: Alerts that have begun and not ended.
        sent: Messages that were accepted since the start.
        dropped: Messages that were given up since the start.
        waiting: Messages that wait.
        problem: Why the last message was not accepted; None if it was.
        unsaved: Why the file of alerts cannot be written; None if it can.
    """

    begun: int
    sent: int
    dropped: int
    waiting: int
    problem: str | None = None
    unsaved: str | None = None


class _Answer(NamedTuple):
    problem: str | None
    is_final: bool = False


class AlertWatch:
    """Evaluates the rules and posts what begins and ends.

    Args:
        url: The address; see ``checked_endpoint``.
        samples: Returns the samples of ``/metrics``.
        path: The file of alerts; None to forget them at the end of the process.
        rules: The rules.
        pace: The times.
        clock: Epoch seconds.

    Raises:
        InvalidArgumentError: The address is not one of HTTP. The message hides it.
    """

    def __init__(
        self,
        url: str,
        samples: Callable[[], Iterable[MetricSample]],
        *,
        path: Path | None = None,
        rules: tuple[AlertRule, ...] = RULES,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url = checked_endpoint(url, name=WEBHOOK_URL)
        if "@" in urlsplit(url).netloc:
            raise InvalidArgumentError(
                f"{WEBHOOK_URL} has a user name or a password before its host.",
                hint="Leave them out: a webhook's secret is in its path or query.",
            )
        self._samples = samples
        self._pace = pace or Pace()
        self._clock = clock
        self._history = SampleHistory(rules)
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._opener = urllib.request.build_opener(NoRedirect)
        self._queue = AlertQueue(path, now=clock(), woken=self._wake.set)
        self._sent = 0
        self._problem: str | None = None

    def start(self) -> None:
        """Start both threads. They do not keep the process from ending."""
        for name, loop in (("pydelta-alerts", self._evaluate), ("pydelta-webhook", self._post)):
            thread = threading.Thread(target=loop, daemon=True, name=name)
            self._threads.append(thread)
            thread.start()

    def stop(self, seconds: float = 0.0) -> None:
        """Let both threads end after their current step, and wait for each of them so long."""
        self._stopped.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(seconds)

    def state(self) -> WebhookState:
        """Return how posting goes."""
        queue = self._queue
        return WebhookState(
            begun=queue.begun, sent=self._sent, dropped=queue.dropped, waiting=queue.waiting, problem=self._problem,
            unsaved=queue.unsaved,
        )  # fmt: skip

    def look(self) -> None:
        """Evaluate the rules once."""
        samples = list(self._samples())
        now = self._clock()
        self._queue.note(self._history.add(samples, now), now)

    def _evaluate(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look()
            except Exception:  # noqa: BLE001 -- the next look may work
                _LOG.exception("The alerts could not be evaluated.")
            self._stopped.wait(self._pace.every)

    def _post(self) -> None:
        tries = 0
        while not self._stopped.is_set():
            self._wake.clear()
            message = self._queue.first()
            if self._stopped.is_set():
                return
            if message is None:
                self._wake.wait()
                continue
            answer = self._send(message)
            tries += 1
            if answer.problem is None:
                self._sent += 1
                self._problem = None
                self._queue.remove(message)
                tries = 0
                continue
            self._problem = answer.problem
            what = f"The alert {message['alert']} ({message['status']}) was not accepted by the webhook"
            if answer.is_final or tries >= self._pace.tries:
                _LOG.warning("%s and is given up after %d tries: %s", what, tries, answer.problem)
                self._queue.remove(message, dropped=True)
                tries = 0
                continue
            if tries == 1:
                _LOG.warning("%s and is sent again: %s", what, answer.problem)
            self._stopped.wait(self._pace.after(tries))

    def _send(self, message: Mapping[str, Any]) -> _Answer:
        """Send a message. The reason of a failure never quotes an error's text, because it may have the address."""
        body = json.dumps(message).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "pydelta"}
        try:
            request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")  # noqa: S310 -- checked
            with self._opener.open(request, timeout=self._pace.timeout) as reply:
                status = reply.status
        except urllib.error.HTTPError as error:
            with error:
                status = error.code
        except urllib.error.URLError as error:
            return _Answer(_reason(error.reason))
        except (OSError, http.client.HTTPException, ValueError) as error:
            return _Answer(_reason(error))
        if 200 <= status < 300:
            return _Answer(None)
        return _Answer(f"HTTP status {status}", is_final=status < 500 and status not in _PASSING)


def _reason(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "it has not answered in time"
    text = error.strerror if isinstance(error, OSError) else None
    return text or type(error).__name__
