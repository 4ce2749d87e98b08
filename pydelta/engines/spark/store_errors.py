"""Describe storage errors that Spark's own file access raised."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JJavaError

from pydelta.engines.spark.errors import causes_of
from pydelta.errors import StorageError

__all__ = ["store_failure"]

_PASSING: Final = (
    "ConnectException",
    "ConnectTimeout",
    "SocketTimeout",
    "SocketException",
    "NoRouteToHost",
    "UnknownHost",
    "NoHttpResponse",
    "Unable to execute HTTP request",
    "Connection refused",
    "Connection reset",
    "SlowDown",
    "ServiceUnavailable",
    "Status Code: 500",
    "Status Code: 502",
    "Status Code: 503",
    "Status Code: 504",
)
"""Words that identify transient failures, in the class or message of a Java error or its causes."""


def store_failure(error: Py4JJavaError, what: str) -> StorageError:
    """Convert a JVM error to one of the store, without the JVM's stack.

    Args:
        error: The error that a Spark call raised.
        what: What failed, as the start of a sentence: ``The input cannot be read``.

    Returns:
        A retryable error if the store was unreachable, timed out or was busy, otherwise one that needs attention.
    """
    causes = causes_of(error.java_exception)
    message = " ".join(causes[-1].split())[:500]
    if any(word in text for word in _PASSING for text in causes):
        hint = "Nothing was written. Check that the store runs and its address is right, then run it again."
        return StorageError(f"{what}, since the store does not answer: {message}", retryable=True, hint=hint)
    return StorageError(
        f"{what}: {message}", hint="Nothing was written. Check the address, the credentials and their rights."
    )
