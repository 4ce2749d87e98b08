"""Convert a ``DeltaError`` to an exception that Spark users also catch.

Spark users expect ``AnalysisException`` for a missing table, a name that does not resolve, text that does not parse or
a schema that does not fit. Each such error gets a twin class derived from both. What Delta users catch for a condition
takes precedence. All other errors of a session are at least a ``PySparkException``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
    UnsupportedOperationException,
)

from pydelta import errors
from pydelta.errors import DeltaError
from pydelta.errors.conditions import PHRASES, Condition, sql_state

__all__ = ["causes_of", "condition_of", "raised_in", "spark_class", "to_spark"]

_MOST_CAUSES: Final = 20
_RAISED: Final = re.compile(r"pydelta\.errors\.(\w+): \[([\w.]+)\] (.*?)(?:\n  Next: ([^\n]*))?(?:\n|$)")

_SPARK_BASES: Final[tuple[tuple[type[DeltaError], type[PySparkException]], ...]] = (
    (errors.ParseError, ParseException),
    (errors.BindError, AnalysisException),
    (errors.SqlError, AnalysisException),
    (errors.SchemaMismatchError, AnalysisException),
    (errors.CastOverflowError, ArithmeticException),
    (errors.ConstraintViolatedError, PySparkException),
    (errors.SchemaError, AnalysisException),
    (errors.TableNotFoundError, AnalysisException),
    (errors.TableAlreadyExistsError, AnalysisException),
    (errors.VersionNotFoundError, AnalysisException),
    (errors.ChangeDataNotRecordedError, AnalysisException),
    (errors.UnsupportedFeatureError, AnalysisException),
    (errors.InvalidArgumentError, AnalysisException),
    (errors.UnsafeOperationError, AnalysisException),
    (errors.AccessDeniedError, AnalysisException),
    (DeltaError, PySparkException),
)
_ILLEGAL_ARGUMENT: Final = """
    CODEC_NOT_AVAILABLE.WITH_AVAILABLE_CODECS_SUGGESTION
    DELTA_ACTIVE_SPARK_SESSION_NOT_FOUND
    DELTA_CDC_READ_NULL_RANGE_BOUNDARY
    DELTA_CDC_START_VERSION_AFTER_LATEST
    DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN
    DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE
    DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS
    DELTA_ILLEGAL_OPTION
    DELTA_ILLEGAL_USAGE
    DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS
    DELTA_INVALID_CDC_RANGE
    DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS
    DELTA_INVALID_INTERVAL
    DELTA_INVALID_ISOLATION_LEVEL
    DELTA_INVALID_PROPERTY_VALUE
    DELTA_MODE_NOT_SUPPORTED
    DELTA_ONEOF_IN_TIMETRAVEL
    DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE
    DELTA_PATH_NOT_SPECIFIED
    DELTA_PROTOCOL_PROPERTY_NOT_INT
    DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE
    DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE
    DELTA_UNSUPPORTED_CLONE_REPLACE_SAME_TABLE
    DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE
    DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT
    DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST
    DELTA_ZORDERING_ON_PARTITION_COLUMN
"""
_UNSUPPORTED_OPERATION: Final = """
    DELTA_CANNOT_MODIFY_APPEND_ONLY
    DELTA_CANNOT_MODIFY_TABLE_PROPERTY
    DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE
    DELTA_CLUSTERING_WITH_PARTITION_PREDICATE
    DELTA_GEOSPATIAL_NOT_SUPPORTED
    DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE
    DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE
    DELTA_OPTIMIZE_FULL_NOT_SUPPORTED
    DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE
    DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS
    DELTA_UNSUPPORTED_MANIFEST_GENERATION_WITH_COLUMN_MAPPING
    DELTA_UNSUPPORTED_SCHEMA_DURING_READ
"""
_ANALYSIS: Final = """
    DELTA_NEW_CHECK_CONSTRAINT_VIOLATION
    DELTA_NEW_NOT_NULL_VIOLATION
    DELTA_REPLACE_WHERE_MISMATCH
    DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT
    DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT
"""
_BY_CONDITION: Final[Mapping[str, type[PySparkException]]] = {
    **dict.fromkeys(_ILLEGAL_ARGUMENT.split(), IllegalArgumentException),
    **dict.fromkeys(_UNSUPPORTED_OPERATION.split(), UnsupportedOperationException),
    **dict.fromkeys(_ANALYSIS.split(), AnalysisException),
    "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE": ArithmeticException,
}
"""The exception that Delta users catch for a condition, if it differs from that of the error's class."""
_TWINS: dict[tuple[type[DeltaError], type[PySparkException]], type[DeltaError]] = {}


def condition_of(error: BaseException) -> Condition | None:
    """Return the Spark condition that an error carries, to pass it on, or None."""
    if not isinstance(error, PySparkException):
        return None
    name = error.getCondition()
    if name is None:
        return None
    return Condition(name, dict(error.getMessageParameters() or {}), error.getSqlState())


def raised_in(text: str) -> DeltaError | None:
    """Return the engine's error that a Python process raised and that Spark's error quotes, or None."""
    match = _RAISED.search(text)
    raised = getattr(errors, match.group(1), None) if match else None
    if match is None or not isinstance(raised, type) or not issubclass(raised, DeltaError):
        return None
    name, hint = match.group(2), match.group(4)
    # The phrase is added again when the error is shown.
    message = match.group(3).replace(f" ({PHRASES.get(name)}).", ".")
    if issubclass(raised, errors.CommitStateUnknownError):
        return raised(message, txn_id="", hint=hint)
    if name == raised.code or issubclass(raised, errors.DeltaConcurrentModificationException):
        return raised(message, hint=hint)
    return raised(message, hint=hint, condition=Condition(name, {}, sql_state(name)))


def to_spark(error: DeltaError) -> DeltaError:
    """Return the error as an instance of both its own class and the PySpark exception that Spark users catch.

    Args:
        error: Any error of this package.

    Returns:
        ``error`` itself if it already is one.
    """
    if isinstance(error, PySparkException):
        return error
    twin = _twin(type(error), spark_class(error))
    converted = twin.__new__(twin)
    converted.__dict__.update(error.__dict__)
    converted.__dict__.update(
        _message=str(error),
        _errorClass=error.code,
        _messageParameters=dict(error.parameters),
        _contexts=[],
        _errorCode=error.code,
    )
    converted.args = error.args
    converted.__traceback__ = error.__traceback__
    converted.__cause__ = error.__cause__
    converted.__suppress_context__ = error.__suppress_context__
    return converted


def spark_class(error: DeltaError) -> type[PySparkException]:
    """Return the PySpark exception that Spark users catch for an error."""
    of_class = next(spark for own, spark in _SPARK_BASES if isinstance(error, own))
    return _BY_CONDITION.get(error.code, of_class)


def _twin(own: type[DeltaError], base: type[PySparkException]) -> type[DeltaError]:
    if (own, base) not in _TWINS:
        body = {
            "__doc__": own.__doc__,
            "__module__": own.__module__,
            "__str__": own.__str__,
            "getMessage": own.__str__,
            "getBreakingChangeInfo": _nothing_breaking,
        }
        _TWINS[own, base] = type(own.__name__, (own, base), body)
    return _TWINS[own, base]


def _nothing_breaking(self: DeltaError) -> None:
    return None


def causes_of(error: Any) -> list[str]:
    """Return the messages of a JVM exception and its causes, each with its class, outermost first."""
    found: list[str] = []
    while error is not None and len(found) < _MOST_CAUSES:
        found.append(str(error.toString()))
        error = error.getCause()
    return found
