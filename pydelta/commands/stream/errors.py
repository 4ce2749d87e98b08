"""Define the errors that stop a stream over its table's state; each suggests the next step, and no row was skipped."""

from __future__ import annotations

from typing import Self

from pydelta.errors import StreamStoppedError
from pydelta.errors.conditions import Condition

__all__ = [
    "SchemaLocationConflictError",
    "SchemaLocationOutsideError",
    "SchemaLogBeginningError",
    "SchemaLogDamagedError",
    "SchemaLogOfTableError",
    "SourceColumnsRenamedError",
    "SourceDefinitionChangedError",
    "SourceEvolutionBlockedError",
    "SourceFrameOutdatedError",
    "SourceRowsChangedError",
    "SourceRowsRemovedError",
    "SourceSchemaChangedError",
    "SourceTableReplacedError",
    "SourceVersionsMissingError",
]


class SourceRowsRemovedError(StreamStoppedError):
    """A commit of a stream's table only removes rows, and the stream's options do not allow that."""

    code = "DELTA_SOURCE_IGNORE_DELETE"


class SourceRowsChangedError(StreamStoppedError):
    """A commit of a stream's table changes rows, and the stream's options do not allow that."""

    code = "DELTA_SOURCE_TABLE_IGNORE_CHANGES"


class SourceSchemaChangedError(StreamStoppedError):
    """A commit's columns do not fit those that the stream reads."""

    code = "DELTA_SCHEMA_CHANGED_WITH_VERSION"


class SourceTableReplacedError(StreamStoppedError):
    """The table was replaced by another one, or the checkpoint belongs to another table."""

    code = "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"


class SourceVersionsMissingError(StreamStoppedError):
    """Versions disappeared from the log before the stream read them."""

    code = "DELTA_MISSING_FILES_UNEXPECTED_VERSION"


class SourceDefinitionChangedError(StreamStoppedError):
    """The table's definition changed, and the new one is in the schema log: start the query again."""

    code = "DELTA_STREAMING_METADATA_EVOLUTION"


class SourceEvolutionBlockedError(StreamStoppedError):
    """Columns were renamed, dropped or retyped, and the stream's options do not allow following that."""

    code = "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION"


class SourceColumnsRenamedError(SourceSchemaChangedError):
    """Columns were renamed or dropped under column mapping, and no schema log follows them."""

    code = "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG"


class SourceFrameOutdatedError(StreamStoppedError):
    """The schema log has a later schema than the query's DataFrame."""

    code = "DELTA_STREAMING_SCHEMA_MISMATCH_ON_RESTART"


class SchemaLocationConflictError(StreamStoppedError):
    """Two sources use the same schema log."""

    code = "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT"

    @classmethod
    def at(cls, location: str, table: str) -> Self:
        """Build the error for a location."""
        return cls(
            f"The schema log at {location} belongs to another stream of {table}.",
            hint="Give each stream its own schemaTrackingLocation below its checkpointLocation; two streams of "
            "one table in one query need different streamingSourceTrackingId.",
            condition=Condition.of("DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT", loc=location, table=table),
        )


class SchemaLocationOutsideError(StreamStoppedError):
    """A schema log is outside the query's checkpoint."""

    code = "DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT"


class SchemaLogDamagedError(StreamStoppedError):
    """A file of a schema log cannot be read."""

    code = "DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED"

    def __init__(self, message: str, *, hint: str, location: str) -> None:
        super().__init__(
            message,
            hint=hint,
            condition=Condition.of("DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED", location=location),
        )


class SchemaLogOfTableError(StreamStoppedError):
    """A schema log belongs to another table."""

    code = "DELTA_STREAMING_SCHEMA_LOG_INCOMPATIBLE_DELTA_TABLE_ID"


class SchemaLogBeginningError(StreamStoppedError):
    """A batch that was planned without a schema log spans schemas that no single one can read."""

    code = "DELTA_STREAMING_SCHEMA_LOG_INIT_FAILED_INCOMPATIBLE_METADATA"
