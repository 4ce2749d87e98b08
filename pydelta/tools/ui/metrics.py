"""Convert what the page shows to Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pydelta.tools.ui.values import ShownTable
from pydelta.tools.ui.watch import Overview

__all__ = ["CONTENT_TYPE", "metrics_text"]

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
            if service.ok is not None:
                up.add_metric([service.name], float(service.ok))
        yield up
        yield GaugeMetricFamily("pydelta_tables", "Tables that are shown.", value=len(view.tables))


def metrics_text(view: Overview) -> bytes:
    """Format all metrics as Prometheus text, leaving out unknown values."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_View(view))
    return generate_latest(registry)
