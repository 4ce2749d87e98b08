"""Turn a ``DeltaError`` into one that Spark users catch, too.

A table that is not there, a name that does not resolve, text that does not parse and a schema that does not fit are
``AnalysisException`` to Spark users; each such error gets a twin class that derives from both.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.errors import AnalysisException, ArithmeticException, ParseException, PySparkException

from pydelta import errors
from pydelta.errors import DeltaError

__all__ = ["raised_in", "to_spark"]

_RAISED: Final = re.compile(r"pydelta\.errors\.(\w+): \[\w+\] (.*?)(?:\n  Next: ([^\n]*))?(?:\n|$)")

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
)
_TWINS: dict[type[DeltaError], type[DeltaError]] = {}


def raised_in(text: str) -> DeltaError | None:
    """Return an error of ours that a Python process raised and Spark's error quotes; None when there is none."""
    match = _RAISED.search(text)
    raised = getattr(errors, match.group(1), None) if match else None
    if match is None or not isinstance(raised, type) or not issubclass(raised, DeltaError):
        return None
    if issubclass(raised, errors.CommitStateUnknownError):
        return raised(match.group(2), txn_id="", hint=match.group(3))
    return raised(match.group(2), hint=match.group(3))


def to_spark(error: DeltaError) -> DeltaError:
    """Return the error as an instance of its own class and of the PySpark exception that Spark users catch.

    Args:
        error: Any error of this package.

    Returns:
        ``error`` itself when Spark users expect no exception of theirs there (conflicts, storage, corruption), or
        when it is one already.
    """
    if isinstance(error, PySparkException):
        return error
    base = next((spark for own, spark in _SPARK_BASES if isinstance(error, own)), None)
    if base is None:
        return error
    twin = _twin(type(error), base)
    converted = twin.__new__(twin)
    converted.__dict__.update(error.__dict__)
    converted.__dict__.update(
        _message=str(error), _errorClass=error.code, _messageParameters={}, _contexts=[], _errorCode=error.code
    )
    converted.args = error.args
    converted.__traceback__ = error.__traceback__
    converted.__cause__ = error.__cause__
    converted.__suppress_context__ = error.__suppress_context__
    return converted


def _twin(own: type[DeltaError], base: type[PySparkException]) -> type[DeltaError]:
    if own not in _TWINS:
        body = {
            "__doc__": own.__doc__,
            "__module__": own.__module__,
            "__str__": own.__str__,
            "getCondition": _code,
            "getErrorClass": _code,
            "getMessage": own.__str__,
            "getSqlState": _no_state,
        }
        _TWINS[own] = type(own.__name__, (own, base), body)
    return _TWINS[own]


def _code(self: DeltaError) -> str:
    return self.code


def _no_state(self: DeltaError) -> None:
    return None
