"""Define why a stream stops over what it finds in its table; each says what to do next, and nothing was skipped."""

from __future__ import annotations

from pydelta.errors import StreamStoppedError

__all__ = [
    "SourceRowsChangedError",
    "SourceRowsRemovedError",
    "SourceSchemaChangedError",
    "SourceTableReplacedError",
    "SourceVersionsMissingError",
]


class SourceRowsRemovedError(StreamStoppedError):
    """A commit of a stream's table only removes rows, and the stream did not say that it may."""

    code = "DELTA_SOURCE_IGNORE_DELETE"


class SourceRowsChangedError(StreamStoppedError):
    """A commit of a stream's table changes rows, and the stream did not say that it may."""

    code = "DELTA_SOURCE_TABLE_IGNORE_CHANGES"


class SourceSchemaChangedError(StreamStoppedError):
    """A commit's columns do not fit those that the stream reads."""

    code = "DELTA_SCHEMA_CHANGED_WITH_VERSION"


class SourceTableReplacedError(StreamStoppedError):
    """Another table is at the place of the one that the stream read, or the checkpoint is of another table."""

    code = "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"


class SourceVersionsMissingError(StreamStoppedError):
    """Versions are gone from the log before the stream has read them."""

    code = "DELTA_MISSING_FILES_UNEXPECTED_VERSION"
