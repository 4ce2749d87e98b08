"""Record which alerts have begun and what is still to be posted, in a file that the next process reads.

::

    conditions hold --for_seconds--> begun: a message --ends_after_seconds without them--> ended: a message
    message --posted, or given up--> gone

An alert that has begun stays so over a restart: it is not posted again, and its end is. For the first minutes after a
start nothing ends, because the page has not read all tables yet. A process that dies between a POST and the file posts
that message again, with the same ``id`` and ``status``.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydelta.tools.alerts.evaluate import Labels, Triggered
from pydelta.tools.alerts.messages import begin_message, end_message
from pydelta.tools.files import replace_json

__all__ = ["AlertQueue"]

_LOG = logging.getLogger(__name__)
_GRACE: Final = 120.0
_MOST_WAITING: Final = 200
_FORMAT: Final = 1


@dataclass(slots=True)
class _Standing:
    """A series whose conditions hold, or held a moment ago.

    Args:
        rule, labels: The alert.
        since: When they began to hold, epoch seconds.
        ends_after: How long they must not hold before the alert ends.
        missing: When they were first found not to hold; None while they hold.
        begun: The message of its beginning; None while it has not begun.
    """

    rule: str
    labels: Labels
    since: float
    ends_after: float
    missing: float | None = None
    begun: dict[str, Any] | None = None


class AlertQueue:
    """The alerts of one process. Safe to use from several threads.

    Args:
        path: The file; None to forget everything at the end of the process.
        now: The time of the start, epoch seconds.
        woken: Called when there is a message to post.
    """

    def __init__(self, path: Path | None, *, now: float, woken: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self._woken = woken
        self._lock = threading.Lock()
        self._calm_until = now + _GRACE
        self._standing: dict[tuple[str, Labels], _Standing] = {}
        self._waiting: list[dict[str, Any]] = []
        self._changed = False
        self.dropped = 0
        self.unsaved: str | None = None
        if path is not None and path.exists():
            self._load(path)

    @property
    def waiting(self) -> int:
        """The number of messages that wait to be posted."""
        with self._lock:
            return len(self._waiting)

    @property
    def begun(self) -> int:
        """The number of alerts that have begun and not ended."""
        with self._lock:
            return sum(item.begun is not None for item in self._standing.values())

    def note(self, triggered: Iterable[Triggered], now: float) -> None:
        """Note the conditions that hold, and queue the messages of alerts that begin or end.

        Args:
            triggered: What holds now.
            now: The time, epoch seconds.
        """
        with self._lock:
            held: set[tuple[str, Labels]] = set()
            messages = [*self._begin(triggered, held, now), *self._end(held, now)]
            changed = self._changed
            self._waiting += messages
            surplus = len(self._waiting) - _MOST_WAITING
            if surplus > 0:
                del self._waiting[:surplus]
                self.dropped += surplus
            if changed or messages or self.unsaved:
                self._save()
        if messages:
            self._woken()

    def first(self) -> Mapping[str, Any] | None:
        """Return the message to post next; None if there is none."""
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def remove(self, message: Mapping[str, Any], *, dropped: bool = False) -> None:
        """Forget a message that was posted, or given up."""
        with self._lock:
            if self._waiting and self._waiting[0] is message:
                del self._waiting[0]
            self.dropped += dropped
            self._save()

    def _begin(
        self, triggered: Iterable[Triggered], held: set[tuple[str, Labels]], now: float
    ) -> Iterable[dict[str, Any]]:
        self._changed = False
        for found in triggered:
            key = found.rule.name, found.labels
            item = self._standing.get(key)
            if item is None:
                item = _Standing(*key, since=now, ends_after=found.rule.ends_after_seconds)
                self._standing[key] = item
                self._changed = True
            held.add(key)
            item.missing = None
            item.since = min(item.since, now)  # The clock was set back.
            if item.begun is None and now - item.since >= found.rule.for_seconds:
                item.begun = begin_message(found, now)
                yield item.begun

    def _end(self, held: set[tuple[str, Labels]], now: float) -> Iterable[dict[str, Any]]:
        for key, item in list(self._standing.items()):
            if key in held or now < self._calm_until:
                continue
            item.missing = now if item.missing is None else min(item.missing, now)
            if item.begun is None:
                del self._standing[key]
                self._changed = True
            elif now - item.missing >= item.ends_after:
                del self._standing[key]
                yield end_message(item.begun, now)

    def _load(self, path: Path) -> None:
        """Read the file. One that cannot be read is logged and replaced."""
        try:
            found = json.loads(path.read_text())
            for row in found["standing"]:
                labels = tuple((str(name), str(value)) for name, value in row["labels"])
                key = str(row["rule"]), labels
                begun = dict(row["begun"]) if row["begun"] is not None else None
                since, ends_after = float(row["since"]), float(row["endsAfter"])
                self._standing[key] = _Standing(*key, since, ends_after, begun=begun)
            self._waiting = [dict(message) for message in found["waiting"]][-_MOST_WAITING:]
        except (OSError, ValueError, TypeError, KeyError) as error:
            self._standing, self._waiting = {}, []
            _LOG.warning("%s is not a file of alerts (%s): alerts are posted again.", path, type(error).__name__)

    def _save(self) -> None:
        """Replace the file. A failure is kept for the page, and tried again at the next note."""
        if self._path is None:
            return
        rows = [
            {"rule": item.rule, "labels": item.labels, "since": item.since, "endsAfter": item.ends_after,
             "begun": item.begun}
            for item in self._standing.values()
        ]  # fmt: skip
        try:
            replace_json(self._path, {"format": _FORMAT, "standing": rows, "waiting": self._waiting})
        except OSError as error:
            if self.unsaved is None:
                _LOG.warning("%s cannot be written: %s", self._path, error.strerror)
            self.unsaved = error.strerror or type(error).__name__
        else:
            self.unsaved = None
