"""Evaluate the rules over samples of ``/metrics``, as Prometheus does."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from pydelta.tools.alerts.rules import AlertCondition, AlertFigure, AlertRule

__all__ = ["Labels", "MetricSample", "SampleHistory", "Triggered"]

Labels: TypeAlias = tuple[tuple[str, str], ...]
_MOST_SERIES: Final = 50_000


class MetricSample(NamedTuple):
    """One number: a metric, its labels and the value."""

    metric: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Triggered:
    """A rule whose conditions hold now for a series, with the value of the first condition."""

    rule: AlertRule
    labels: Labels
    value: float


class SampleHistory:
    """Keeps the samples that the rules need. Not thread-safe.

    Args:
        rules: The rules to evaluate.
    """

    def __init__(self, rules: Sequence[AlertRule]) -> None:
        self._rules = rules
        self._seconds: dict[str, int] = {}
        for figure in (condition.figure for rule in rules for condition in rule.when):
            self._seconds[figure.metric] = max(figure.seconds, self._seconds.get(figure.metric, 0))
        self._series: dict[tuple[str, Labels], deque[tuple[float, float]]] = {}
        self._newest: set[tuple[str, Labels]] = set()

    def add(self, samples: Iterable[MetricSample], now: float) -> list[Triggered]:
        """Add the samples of one moment, and return the rules whose conditions hold then.

        Args:
            samples: All samples of the moment. A series that is missing has no value.
            now: The time in seconds, later than that of the last call.
        """
        self._newest.clear()
        for sample in samples:
            if sample.metric in self._seconds and len(self._newest) < _MOST_SERIES:
                key = sample.metric, tuple(sorted(sample.labels.items()))
                self._series.setdefault(key, deque()).append((now, sample.value))
                self._newest.add(key)
        for key, points in list(self._series.items()):
            while points and points[0][0] < now - self._seconds[key[0]]:
                points.popleft()
            if not points:
                del self._series[key]
        return [found for rule in self._rules if rule.by_page for found in self._triggered(rule)]

    def _triggered(self, rule: AlertRule) -> Iterable[Triggered]:
        first, *others = rule.when
        partners = [{_chosen(labels, rule.on) for labels, _ in self._holding(condition)} for condition in others]
        for labels, value in self._holding(first):
            if all(_chosen(labels, rule.on) in found for found in partners):
                yield Triggered(rule, labels, value)

    def _holding(self, condition: AlertCondition) -> Iterable[tuple[Labels, float]]:
        figure, threshold = condition.figure, condition.threshold
        for metric, labels in sorted(self._newest):
            if metric != figure.metric or not figure.labels.items() <= dict(labels).items():
                continue
            value = _value(figure, self._series[metric, labels])
            if value is not None and (value > threshold if condition.is_ == ">" else value == threshold):
                yield labels, value


def _chosen(labels: Labels, names: Sequence[str]) -> Labels:
    return tuple((name, value) for name, value in labels if name in names)


def _value(figure: AlertFigure, points: Sequence[tuple[float, float]]) -> float | None:
    """Return a figure's value from its points, oldest first; None if a change needs more points."""
    if figure.how == "last":
        return points[-1][1]
    if len(points) < 2:
        return None
    if figure.how == "delta":
        return points[-1][1] - points[0][1]
    # A counter that went down was reset, and counts from 0.
    return sum(after - before if after >= before else after for (_, before), (_, after) in pairwise(points))
