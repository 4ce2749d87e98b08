"""Convert what the page shows to Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pydelta.tools.alerts.evaluate import MetricSample
from pydelta.tools.ui.values import ShownTable
from pydelta.tools.ui.watch import Overview

__all__ = ["CONTENT_TYPE", "metrics_text", "samples"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_THOUSAND: Final = 1000

_OF_TABLES: Final[Mapping[str, tuple[str, str]]] = {
    "version": ("version", "Newest version in the log."),
    "timestamp_seconds": ("timestamp_ms", "Time of that version."),
    "read_timestamp_seconds": ("read_ms", "When the log was looked at."),
    "trouble": ("weight", "2 for an error, 1 for a warning, 0 for neither."),
    "manifest_version": ("twin.manifest_version", "Version of the symlink manifests."),
    "metastore_version": ("twin.metastore_version", "Version that the twin carries."),
    "lag_versions": ("twin.lag_versions", "Versions that readers of manifests are behind."),
    "lag_seconds": ("twin.lag_seconds", "Age of the oldest version that they do not see."),
    "iceberg_version": ("iceberg.version", "Version that readers of the Iceberg entry see."),
    "iceberg_lag_versions": ("iceberg.lag_versions", "Versions that they are behind."),
    "iceberg_lag_seconds": ("iceberg.lag_seconds", "Age of the oldest version that they do not see."),
    "native_behind": ("native_behind", "1 where the table's own entry has other columns or properties."),
    "retries": ("recent_retries", "Times that statements of the last 15 minutes were run again, as their commits say."),
    "live_files": ("files.live", "Live files."),
    "live_bytes": ("files.live_bytes", "Bytes of live files."),
    "small_files": ("files.small", "Live files that OPTIMIZE would merge."),
    "vector_files": ("files.with_vectors", "Live files with a deletion vector."),
    "removed_files": ("files.removed", "Files that only older versions read."),
    "removed_bytes": ("files.removed_bytes", "Bytes of files that only older versions read."),
    "garbage_files": ("garbage.files", "Files that VACUUM would delete, as last known."),
    "garbage_bytes": ("garbage.bytes", "Bytes that VACUUM would delete, as last known."),
    "noncurrent_bytes": ("garbage.noncurrent_bytes", "Bytes of object versions that are not current, as last known."),
    "optimize_timestamp_seconds": ("optimize.timestamp_ms", "Time of the last OPTIMIZE."),
    "vacuum_timestamp_seconds": ("vacuum.timestamp_ms", "Time of the last VACUUM."),
    "checkpoint_timestamp_seconds": ("checkpoint.timestamp_ms", "Time of the last checkpoint."),
    "checkpoint_version": ("checkpoint.version", "Version of the last checkpoint."),
}
"""Maps metric names to fields of ``ShownTable`` and help strings."""


def _value(table: ShownTable, path: str) -> float | None:
    """Return the value at a dotted path, with times in seconds. None if any step of the path is unknown."""
    found: Any = table
    for name in path.split("."):
        found = getattr(found, name)
        if found is None:
            return None
    return found / _THOUSAND if path.endswith("_ms") else float(found)


def _gauge(name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float | None]]) -> Metric:
    """Build a gauge from values by labels, leaving out unknown values. Of equal labels the largest value is kept."""
    found: dict[tuple[str, ...], float] = {}
    for named, value in values:
        if value is not None:
            found[tuple(named)] = max(float(value), found.get(tuple(named), float("-inf")))
    family = GaugeMetricFamily(f"pydelta_{name}", text, labels=list(labels))
    for key, value in found.items():
        family.add_metric(list(key), value)
    return family


def _schedules(view: Overview) -> Iterator[Metric]:
    lines, labels = view.schedules, ["schedule"]
    failed = [([line.name], line.failed) for line in lines]
    yield _gauge("schedule_failed", "1 where the last run failed, and no later one succeeded.", labels, failed)
    late = [([line.name], line.late_seconds) for line in lines]
    yield _gauge("schedule_late_seconds", "How long ago a run should have begun; 0 if none is due.", labels, late)
    running = [([line.name], line.running_seconds) for line in lines]
    yield _gauge("schedule_running_seconds", "How long the present run has taken.", labels, running)
    tries = [([item.table, item.action], float(item.tries)) for item in view.failed_actions]
    text = "Failed tries in a row of what maintenance has to do."
    yield _gauge("maintenance_failed_tries", text, ["table", "action"], tries)


def _disks(view: Overview) -> Iterator[Metric]:
    disks, labels = view.disks, ["disk"]
    yield _gauge("disk_size_bytes", "What can be used.", labels, [([disk.name], disk.size_bytes) for disk in disks])
    yield _gauge("disk_free_bytes", "What is free.", labels, [([disk.name], disk.free_bytes) for disk in disks])
    yield _gauge("disk_used_ratio", "The used part.", labels, [([disk.name], disk.used_ratio) for disk in disks])


def _commits(view: Overview) -> Iterator[Metric]:
    if view.refused is not None:
        text = "Changes that programs gave up after conflicts, or whose outcome is unknown."
        family = CounterMetricFamily("pydelta_refused_commits", text, labels=["table", "error"])
        for table, counts in view.refused.items():
            for code, count in counts.items():
                family.add_metric([table, code], count)
        yield family


def _webhook(view: Overview) -> Iterator[Metric]:
    if view.webhook is not None:
        text = "Messages that the webhook accepted, and that were given up."
        posts = CounterMetricFamily("pydelta_alert_posts", text, labels=["outcome"])
        posts.add_metric(["sent"], view.webhook.sent)
        posts.add_metric(["dropped"], view.webhook.dropped)
        yield posts
        yield GaugeMetricFamily("pydelta_alerts", "Alerts that have begun and not ended.", value=view.webhook.begun)


class _View(Collector):
    def __init__(self, view: Overview) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        view = self._view
        for name, (path, text) in _OF_TABLES.items():
            family = GaugeMetricFamily(f"pydelta_table_{name}", text, labels=["table"])
            for table in view.tables:
                found = _value(table, path)
                if found is not None:
                    family.add_metric([table.place.name], found)
            yield family
        done = GaugeMetricFamily("pydelta_stream_batch", "Newest batch that is done.", labels=["checkpoint"])
        backlog = GaugeMetricFamily(
            "pydelta_stream_backlog_versions", "Commits not read yet.", labels=["checkpoint", "table"]
        )
        for stream in view.streams:
            if stream.done_batch is not None:
                done.add_metric([stream.location], stream.done_batch)
            for source in stream.sources:
                if source.backlog_versions is not None and source.table is not None:
                    backlog.add_metric([stream.location, source.table], source.backlog_versions)
        yield done
        yield backlog
        up = GaugeMetricFamily("pydelta_service_up", "1 where the service answers.", labels=["service"])
        for service in view.services:
            if service.ok is not None and service.kind == "service":
                up.add_metric([service.name], float(service.ok))
        yield up
        yield from _schedules(view)
        yield from _disks(view)
        yield from _commits(view)
        yield from _webhook(view)
        yield GaugeMetricFamily("pydelta_tables", "Tables that are shown.", value=len(view.tables))


def samples(view: Overview) -> Iterator[MetricSample]:
    """Yield every sample of ``metrics_text``, for the evaluation of alerts."""
    for family in _View(view).collect():
        for sample in family.samples:
            yield MetricSample(sample.name, sample.labels, sample.value)


def metrics_text(view: Overview) -> bytes:
    """Format all metrics as Prometheus text, leaving out unknown values."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_View(view))
    return generate_latest(registry)
