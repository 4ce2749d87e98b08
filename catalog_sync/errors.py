"""What can go wrong between a table and the metastore."""

from __future__ import annotations

from pydelta.errors import DeltaError

__all__ = ["MetastoreError", "MetastoreUnavailableError", "NotOursError"]


class MetastoreError(DeltaError):
    """The metastore refused a request."""

    code = "SYNC_METASTORE_ERROR"


class MetastoreUnavailableError(MetastoreError):
    """The metastore does not answer. Nothing is lost: the next run does what is missing."""

    code = "SYNC_METASTORE_UNAVAILABLE"
    retryable = True
    exit_code = 2


class NotOursError(DeltaError):
    """The metastore has something else under the name; it is never overwritten."""

    code = "SYNC_NOT_OURS"
