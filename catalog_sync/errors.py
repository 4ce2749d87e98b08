"""Define the errors that can occur between a table and the metastore."""

from __future__ import annotations

from pydelta.errors import CatalogSyncError

__all__ = ["MetastoreError", "MetastoreUnavailableError", "NotOursError", "PartitionTooLongError", "TooLongToWaitError"]


class MetastoreError(CatalogSyncError):
    """The metastore refused a request."""

    code = "SYNC_METASTORE_ERROR"


class MetastoreUnavailableError(MetastoreError):
    """The metastore does not answer. Nothing is lost: the next run does what is missing."""

    code = "SYNC_METASTORE_UNAVAILABLE"
    retryable = True


class TooLongToWaitError(MetastoreUnavailableError):
    """The metastore would take longer than somebody may wait; nothing was sent, and a sync from outside does it."""

    code = "SYNC_TOO_LONG_TO_WAIT"


class NotOursError(CatalogSyncError):
    """The metastore has something else under the name; it is never overwritten."""

    code = "SYNC_NOT_OURS"


class PartitionTooLongError(CatalogSyncError):
    """A partition's value or name is longer than what a metastore's database holds."""

    code = "SYNC_PARTITION_TOO_LONG"
