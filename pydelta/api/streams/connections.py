"""Close the connections of ended queries.

The JVM calls a query's source and sink on the query's own thread. For each thread of the JVM, py4j uses a Python thread
and a connection, which it never closes when the JVM's thread has died. A session that starts a query every minute
would collect threads of some megabytes each.
"""

from __future__ import annotations

import logging
import socket
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

from pydelta.engines.spark.jvm import Jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["close_ended", "note_caller"]

_log = logging.getLogger(__name__)
_current = threading.local()
_lock = threading.Lock()
_serving: Final[dict[int, weakref.ref[Any]]] = {}  # Connections by id of the JVM's thread.


def note_caller(spark: SparkSession) -> None:
    """Remember which of the JVM's threads calls this one, once per thread."""
    if getattr(_current, "noted", False):
        return
    _current.noted = True
    view = Jvm.of(spark).view
    connection = view._gateway_client.get_thread_connection()
    if connection is not None:
        with _lock:
            _serving[int(view.java.lang.Thread.currentThread().getId())] = weakref.ref(connection)


def close_ended(spark: SparkSession) -> None:
    """Close the connections of dead threads, which ends their Python threads."""
    if not _serving:
        return
    threads = Jvm.of(spark).view.java.lang.management.ManagementFactory.getThreadMXBean()
    with _lock:
        ended = [number for number in _serving if threads.getThreadInfo(number) is None]
        connections = [_serving.pop(number)() for number in ended]
    for connection in connections:
        if connection is None or connection.socket is None:
            continue
        try:
            connection.socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            _log.debug("the connection of an ended query was already closed: %s", error)
