"""Define the errors of syncing a table with the metastore."""

from __future__ import annotations

from pydelta.errors import CatalogSyncError

__all__ = ["MetastoreError", "MetastoreUnavailableError", "NotOursError", "PartitionTooLongError", "TooLongToWaitError"]


class MetastoreError(CatalogSyncError):
    """The metastore refused a request."""

    code = "SYNC_METASTORE_ERROR"


class MetastoreUnavailableError(MetastoreError):
    """The metastore does not answer. Nothing is lost: the next run completes the sync."""

    code = "SYNC_METASTORE_UNAVAILABLE"
    retryable = True


class TooLongToWaitError(MetastoreUnavailableError):
    """The metastore would take longer than the caller may wait. Nothing was sent; a separate sync can do it."""

    code = "SYNC_TOO_LONG_TO_WAIT"


class NotOursError(CatalogSyncError):
    """The metastore has a different entry under the name, which is never overwritten."""

    code = "SYNC_NOT_OURS"


class PartitionTooLongError(CatalogSyncError):
    """A partition's value or name is too long for the metastore's database."""

    code = "SYNC_PARTITION_TOO_LONG"
