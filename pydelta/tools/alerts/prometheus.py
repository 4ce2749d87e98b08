"""Write the alerts as Prometheus' rules, and as the table of the guide."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from pydelta.tools.alerts.rules import RULES, AlertCondition, AlertRule

__all__ = ["expression", "guide_table", "prometheus_rules", "span"]

_FUNCTIONS: Final = {"seconds": "humanizeDuration", "ratio": "humanizePercentage", "count": "humanize"}
_UNITS: Final = ((3600, "h", "hour"), (60, "m", "minute"), (1, "s", "second"))
_HEADER: Final = """\
# When somebody has to look. Generated from pydelta/tools/alerts/rules.py by
# python -m pydelta.tools.alerts rules > images/monitor/rules.yml; a test compares them. docs/guides/alerts.md
groups:
  - name: lakehouse
    rules:
"""


def span(seconds: int, *, long: bool = False) -> str:
    """Format a time for Prometheus, or for people if ``long``.

    Example:
        >>> span(300), span(300, long=True), span(3600, long=True), span(0)
        ('5m', '5 minutes', '1 hour', '0s')
    """
    for size, short, name in _UNITS:
        count, rest = divmod(seconds, size)
        if count and not rest:
            return f"{count} {name}{'' if count == 1 else 's'}" if long else f"{count}{short}"
    return "0 seconds" if long else "0s"


def _number(value: float) -> str:
    return f"{value:g}"


def _figure(condition: AlertCondition) -> str:
    figure = condition.figure
    chosen = ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(figure.labels.items()))
    series = f"{figure.metric}{{{chosen}}}" if chosen else figure.metric
    if figure.how != "last":
        series = f"{figure.how}({series}[{span(figure.seconds)}])"
    return f"{series} {condition.is_} {_number(condition.threshold)}"


def expression(rule: AlertRule) -> str:
    """Write a rule's conditions in PromQL."""
    return f" and on ({', '.join(rule.on)}) ".join(map(_figure, rule.when))


def _summary(rule: AlertRule) -> str:
    """Write the summary with Prometheus' templates for labels and value."""

    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        return f"{{{{ $value | {_FUNCTIONS[rule.unit]} }}}}" if name == "value" else f"{{{{ $labels.{name} }}}}"

    return re.sub(r"\{(\w+)\}", replaced, rule.summary)


def prometheus_rules(rules: Sequence[AlertRule] = RULES) -> str:
    """Write Prometheus' rule file. A JSON string is a YAML string."""

    def quoted(text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    lines = []
    for rule in rules:
        lines += [
            f"      - alert: {rule.name}",
            f"        expr: {quoted(expression(rule))}",
            f"        for: {span(rule.for_seconds)}",
            f"        keep_firing_for: {span(rule.ends_after_seconds)}",
            f"        labels: {{severity: {rule.severity}}}",
            "        annotations:",
            f"          summary: {quoted(_summary(rule))}",
            f"          description: {quoted(rule.meaning)}",
            f"          next: {quoted(rule.next)}",
        ]
    return _HEADER + "\n".join(lines) + "\n"


def guide_table(rules: Sequence[AlertRule] = RULES) -> str:
    """Write the guide's table of alerts."""
    rows = ["| alert | begins | means | next |", "|---|---|---|---|"]
    for rule in rules:
        begins = f"`{expression(rule)}`"
        if rule.for_seconds:
            begins += f" for {span(rule.for_seconds, long=True)}"
        cells = f"`{rule.name}`, {rule.severity}", begins, rule.meaning, rule.next
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n"
