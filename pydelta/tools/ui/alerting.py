"""Gather what alerts need beside tables and services: refused commits, and problems of the webhook."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final

from pydelta.errors import CommitStateUnknownError, DeltaConcurrentModificationException, DeltaError
from pydelta.tools.alerts.webhook import WEBHOOK_URL, WebhookState
from pydelta.tools.maintenance.refusals import read_refusals
from pydelta.tools.ui.values import ShownPlace, Trouble

__all__ = ["refused_by_table", "webhook_troubles"]

_KINDS: Final[tuple[type[DeltaError], ...]] = (
    *DeltaConcurrentModificationException.__subclasses__(),
    CommitStateUnknownError,
)
_ERRORS: Final = tuple(sorted(kind.code for kind in _KINDS))
"""Errors that every counted table has a count of, so that the first one is an increase."""


def refused_by_table(paths: Sequence[str], places: Sequence[ShownPlace]) -> Mapping[str, Mapping[str, int]] | None:
    """Return the refused commits of the shown tables, by name and error code; None if no file says so.

    Args:
        paths: Files of a ``RefusalTally``.
        places: The tables.
    """
    now = dt.datetime.now(dt.UTC)
    known = [counts for counts in (read_refusals(path, now) for path in paths) if counts is not None]
    if not known:
        return None
    found: dict[str, dict[str, int]] = {}
    for place in places:
        if not any(place.uri in counts for counts in known):
            continue  # Its refused commits are not counted.
        of_table = dict.fromkeys(_ERRORS, 0)
        for counts in known:
            for code, count in counts.get(place.uri, {}).items():
                of_table[code] = of_table.get(code, 0) + count
        found[place.name] = of_table
    return found


def webhook_troubles(webhook: WebhookState | None) -> list[Trouble]:
    """Describe the problems of posting alerts. The address is never shown."""
    found = []
    if webhook is not None and webhook.problem is not None:
        found.append(
            Trouble(
                what=f"The alert webhook did not accept the last message: {webhook.problem}. {webhook.waiting} wait, "
                f"{webhook.dropped} were given up.",
                next=f"Check the address in {WEBHOOK_URL} (ALERT_WEBHOOK in .env), and whether its server is reached "
                "from here.",
            )
        )
    if webhook is not None and webhook.unsaved is not None:
        found.append(
            Trouble(
                what=f"The file of alerts cannot be written: {webhook.unsaved}.",
                next="Mend it, or after a restart alerts that go on are posted again.",
            )
        )
    return found
