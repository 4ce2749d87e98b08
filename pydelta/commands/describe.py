"""Describe a table and its history as plain rows: DESCRIBE DETAIL and HISTORY. No JVM, no data read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydelta.protocol.features import implied_features
from pydelta.storage.uris import plain_location

if TYPE_CHECKING:
    from pydelta.log import CommitRecord, Snapshot

__all__ = ["DETAIL_COLUMNS", "HISTORY_COLUMNS", "describe_detail", "describe_history"]

DETAIL_COLUMNS = (
    "format",
    "id",
    "name",
    "description",
    "location",
    "createdAt",
    "lastModified",
    "partitionColumns",
    "clusteringColumns",
    "numFiles",
    "sizeInBytes",
    "properties",
    "minReaderVersion",
    "minWriterVersion",
    "tableFeatures",
)

HISTORY_COLUMNS = (
    "version",
    "timestamp",
    "userId",
    "userName",
    "operation",
    "operationParameters",
    "job",
    "notebook",
    "clusterId",
    "readVersion",
    "isolationLevel",
    "isBlindAppend",
    "operationMetrics",
    "userMetadata",
    "engineInfo",
)


def describe_detail(snapshot: Snapshot) -> dict[str, Any]:
    """Return one row about a snapshot; keys as ``DETAIL_COLUMNS``, times in epoch milliseconds.

    Sizes are in bytes and count only live files.
    """
    metadata, protocol = snapshot.metadata, snapshot.protocol
    assert metadata is not None and protocol is not None, "an empty snapshot has no details"
    return {
        "format": "delta",
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "location": plain_location(snapshot.table_uri),
        "createdAt": metadata.created_time,
        "lastModified": snapshot.timestamp_ms,
        "partitionColumns": list(metadata.partition_columns),
        "clusteringColumns": list(snapshot.clustering_columns),
        "numFiles": snapshot.num_files,
        "sizeInBytes": snapshot.size_bytes,
        "properties": dict(metadata.configuration),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": sorted(implied_features(protocol)),
    }


def _texts(value: Any) -> dict[str, str | None] | None:
    """Convert a JSON object to a map of strings, the type of the history's columns; null stays null."""
    if not isinstance(value, Mapping):
        return None
    return {str(key): item if item is None or isinstance(item, str) else str(item) for key, item in value.items()}


def describe_history(records: Iterable[CommitRecord]) -> list[dict[str, Any]]:
    """Return rows of the history, in the order of ``records``; keys as ``HISTORY_COLUMNS``.

    Times are in epoch milliseconds. Fields that a commit lacks are None; only version and time are always present.
    """
    rows = []
    for record in records:
        info: Mapping[str, Any] = record.commit_info.fields if record.commit_info else {}
        rows.append(
            {
                "version": record.version,
                "timestamp": record.timestamp_ms,
                "userId": info.get("userId"),
                "userName": info.get("userName"),
                "operation": info.get("operation"),
                "operationParameters": _texts(info.get("operationParameters")),
                "job": _texts(info.get("job")),
                "notebook": _texts(info.get("notebook")),
                "clusterId": info.get("clusterId"),
                "readVersion": info.get("readVersion"),
                "isolationLevel": info.get("isolationLevel"),
                "isBlindAppend": info.get("isBlindAppend"),
                "operationMetrics": _texts(info.get("operationMetrics")),
                "userMetadata": info.get("userMetadata"),
                "engineInfo": info.get("engineInfo"),
            }
        )
    return rows
