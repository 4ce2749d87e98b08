"""Raise the engine's own error that ended a query, without the JVM's stack trace."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException, StreamingQueryException

from pydelta.engines.spark.errors import raised_in
from pydelta.errors import DeltaError, error_context
from pydelta.errors.conditions import said

__all__ = ["explained", "noting"]

_TWINS: dict[type[DeltaError], type[DeltaError]] = {}
_QUERY: Final = re.compile(r"\[id = ([0-9a-f-]{36})")
_KEPT: Final = 64
_raised: OrderedDict[str, DeltaError] = OrderedDict()
_lock = threading.Lock()


@contextmanager
def noting(query: str, *, table: str) -> Iterator[None]:
    """Remember the engine's error that ends a query, because the JVM passes it on only as text.

    Args:
        query: The query's id.
        table: The table to name in the error.
    """
    try:
        with error_context(table=table):
            yield
    except DeltaError as error:
        with _lock:
            _raised[query] = error
            _raised.move_to_end(query)
            while len(_raised) > _KEPT:
                _raised.popitem(last=False)
        raise


def explained(error: StreamingQueryException) -> Exception:
    """Return the engine's error that ended a query, as a ``StreamingQueryException``, or else the given one."""
    if isinstance(error, DeltaError):
        return error
    text = str(error)
    query = _QUERY.search(text)
    noted = _raised.get(query.group(1)) if query is not None else None
    is_noted = noted is not None and said(noted.condition, noted.message) in text
    ours = noted if is_noted else raised_in(text)
    if ours is None:
        return error
    twin = _twin(type(ours))
    converted = twin.__new__(twin)
    converted.__dict__.update(ours.__dict__)
    converted.__dict__.update(
        _message=str(ours), _errorClass=ours.code, _messageParameters={}, _contexts=[], _errorCode=ours.code
    )
    converted.args = ours.args
    return converted


def _twin(own: type[DeltaError]) -> type[DeltaError]:
    if own not in _TWINS:
        body = {
            "__doc__": own.__doc__,
            "__module__": own.__module__,
            "__str__": own.__str__,
            "getCondition": _code,
            "getErrorClass": _code,
            "getMessage": own.__str__,
            "getSqlState": PySparkException.getSqlState,
        }
        _TWINS[own] = type(own.__name__, (own, StreamingQueryException), body)
    return _TWINS[own]


def _code(self: DeltaError) -> str:
    return self.code
