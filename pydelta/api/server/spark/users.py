"""Find the user who runs a statement in a server's thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from pydelta.engines.spark.jvm import scala_object

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.engines.spark.jvm import Jvm

__all__ = ["UserOf", "connect_user", "nobody", "session_user", "thrift_session_user", "thrift_user"]

UserOf = Callable[["SparkSession"], str | None]
_TAGS: Final = "spark.job.tags"
_KNOWN: Final = "_pydelta_user"
_CLI: Final = "SparkSQLCLIService"
_USER: Final = re.compile(r"SparkConnect_\w*User_(.*?)_Session_")


def nobody(spark: SparkSession) -> str | None:
    """Return None for every session."""
    return None


def connect_user(spark: SparkSession) -> str | None:
    """Return the user of a Connect client from Connect's job tag on the thread; None in any other thread."""
    found: Any = spark.sparkContext.getLocalProperty(_TAGS)
    match = None if found is None else _USER.search(str(found))
    return None if match is None else match[1]


def thrift_user(jvm: Jvm, server: Any, spark: SparkSession) -> str | None:
    """Return the user of a connection to the Thrift server; None for a session that is not one of its connections.

    Args:
        jvm: The server's bindings.
        server: The Thrift server.
        spark: The session of a connection.
    """
    known: str | None = getattr(spark, _KNOWN, None)
    if known is None:
        known = thrift_session_user(server, str(spark._jsparkSession.sessionUUID()))
        if known is not None:
            setattr(spark, _KNOWN, known)
    return known


def thrift_session_user(server: Any, key: str) -> str | None:
    """Return the user of the connection to the Thrift server whose session has this id; None if there is none."""
    service = next((item for item in server.getServices() if str(item.getClass().getSimpleName()) == _CLI), None)
    if service is None:
        return None
    manager = service.getSessionManager()
    for handle, session in manager.getOperationManager().sessionToContexts().items():
        if str(session.sessionUUID()) == key:
            return str(manager.getSession(handle).getUserName())
    return None


def session_user(jvm: Jvm, seen: Iterable[tuple[str, str]], key: str) -> str | None:
    """Return the user of the session of Spark Connect that has an id; None if there is none.

    Args:
        jvm: The server's bindings.
        seen: Users and sessions that the front has seen, the last one first.
        key: The session's id in the JVM.
    """
    service = jvm.view.org.apache.spark.sql.connect.service
    manager = scala_object(service, "SparkConnectService").sessionManager()
    for user, session in seen:
        found = manager.getIsolatedSessionIfPresent(service.SessionKey(user, session))
        if found.isDefined() and str(found.get().session().sessionUUID()) == key:
            return user
    return None
