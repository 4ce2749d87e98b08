"""Write the JSON document that is posted when an alert begins or ends. Its field ``text`` suits Slack."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from pydelta.errors.redaction import hide_text
from pydelta.tools.alerts.evaluate import Triggered

__all__ = ["begin_message", "end_message"]

_LONGEST_LABEL: Final = 200


def begin_message(found: Triggered, began: float) -> dict[str, Any]:
    """Write the message of an alert that begins.

    Args:
        found: The alert.
        began: The time, epoch seconds.
    """
    rule = found.rule
    labels = {name: _shortened(hide_text(value)) for name, value in found.labels}
    summary = _filled(rule.summary, labels | {"value": _shown(found.value, rule.unit)})
    mark = json.dumps([rule.name, found.labels, began])
    return {
        "text": _escaped(f"[{rule.severity}] {rule.name}: {summary} Next: {rule.next}"),
        "status": "firing",
        "id": hashlib.sha256(mark.encode()).hexdigest()[:16],
        "alert": rule.name,
        "severity": rule.severity,
        "labels": labels,
        "value": found.value,
        "summary": summary,
        "description": rule.meaning,
        "next": rule.next,
        "startsAt": _moment(began),
        "endsAt": None,
    }


def end_message(begun: Mapping[str, Any], ended: float) -> dict[str, Any]:
    """Write the message of an alert that ends, from that of its beginning.

    Args:
        begun: The message of its beginning.
        ended: The time, epoch seconds.
    """
    text = _escaped(f"[ended] {begun['alert']}, since {begun['startsAt']}: {begun['summary']}")
    return {**begun, "text": text, "status": "resolved", "endsAt": _moment(ended)}


def _filled(template: str, values: Mapping[str, str]) -> str:
    """Fill in names in braces. A label that the series lacks is a dash."""
    parts = template.split("{")
    filled = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}")
        filled.append(values.get(name, "–") + rest)
    return "".join(filled)


def _shown(value: float, unit: str) -> str:
    if unit == "ratio":
        return f"{value:.1%}"
    if unit == "count":
        return f"{value:g}"
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if value >= 2 * size:
            return f"{value / size:.0f} {name}"
    return f"{value:.0f} s"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"


def _escaped(text: str) -> str:
    """Escape what Slack reads as markup, so that the name of a table cannot notify a channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _moment(seconds: float) -> str:
    return dt.datetime.fromtimestamp(int(seconds), tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
