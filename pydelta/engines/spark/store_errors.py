"""Describe in words what a store answered, or that it did not, when Spark itself asked it for something."""

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
"""Words of failures that pass: in the class or the message of an error of Java's, or of one of its causes."""


def store_failure(error: Py4JJavaError, what: str) -> StorageError:
    """Describe an error of the JVM as one of the store, without the JVM's stack.

    Args:
        error: What a call of Spark raised.
        what: Was asked for, as the beginning of a sentence: ``The input cannot be read``.

    Returns:
        A retryable one where the store was away, timed out or was too busy; else one that somebody has to look at.
    """
    causes = causes_of(error.java_exception)
    said = " ".join(causes[-1].split())[:500]
    if any(word in text for word in _PASSING for text in causes):
        hint = "Nothing was written. Check that the store runs and its address is right, then run it again."
        return StorageError(f"{what}, since the store does not answer: {said}", retryable=True, hint=hint)
    return StorageError(
        f"{what}: {said}", hint="Nothing was written. Check the address, the credentials and their rights."
    )
