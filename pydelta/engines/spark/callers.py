"""Release the connections of JVM threads that have ended.

::

    a JVM thread calls Python  -->  py4j opens a connection for it and starts a Python thread that serves it
    the JVM thread ends        -->  py4j keeps all three: two sockets and a thread
    this module, every 10 s    -->  finds ended JVM threads and closes their connections, so the Python threads end

A server creates threads for each statement, and Spark's pools renew theirs, so a driver that runs for days would have
thousands. A connection whose thread lives is never closed, however long it is idle.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final

from py4j.clientserver import ClientServerConnection, PythonServer
from py4j.protocol import Py4JError

from pydelta.engines.spark.java_names import JavaNames

__all__ = ["Callers", "close_ended"]

_EVERY: Final = 10.0
"""Seconds between two checks."""


class _Connection(ClientServerConnection):  # type: ignore[misc]
    """A connection that records which JVM thread uses it."""

    caller: tuple[int, Any] | None = None

    def _call_proxy(self, obj_id: Any, stream: Any) -> Any:
        answer = super()._call_proxy(obj_id, stream)
        if self.caller is None:  # The call is read but not yet answered, so that thread can be asked now.
            try:
                thread = self.python_server.callers.current_thread()
                self.caller = int(thread.getId()), thread
            except Py4JError:  # Spark is shutting down.
                pass
        return answer


class Callers:
    """The connections over which JVM threads call Python. Thread-safe.

    Args:
        gateway: PySpark's gateway.
    """

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._known: weakref.WeakSet[_Connection] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._begun = False
        self._current: Any = None

    def current_thread(self) -> Any:
        """Return the JVM thread that waits for this one."""
        if self._current is None:
            self._current = JavaNames.of(self._gateway).java.lang.Thread.currentThread
        return self._current()

    def connection(self, server: PythonServer, socket: Any, stream: Any) -> _Connection:
        """Create a connection for a JVM thread's first call. py4j calls this."""
        found = _Connection(
            server.java_parameters,
            server.python_parameters,
            server.gateway_property,
            server.gateway_client,
            python_server=server,
        )
        found.init_socket_from_python_server(socket, stream)
        with self._lock:
            self._known.add(found)
            if not self._begun:
                self._begun = True
                threading.Thread(target=self._watch, daemon=True, name="pydelta-callers").start()
        return found

    def close_ended(self) -> int:
        """Close the connections of threads that have ended. Returns their number."""
        with self._lock:
            known = [(item, item.caller) for item in self._known if item.is_connected and item.socket is not None]
        alive = self._living()
        ended = [
            item for item, caller in known if caller is not None and caller[0] not in alive and not caller[1].isAlive()
        ]
        ports = {item.socket.getpeername()[1]: item for item in ended if item.socket is not None}
        if not ports:
            return 0
        closed = self._close_there(set(ports))
        with self._lock:
            for item in ports.values():
                self._known.discard(item)
        return closed

    def _living(self) -> set[int]:
        """Return the ids of the JVM's threads, transferred as one text."""
        java = self._gateway.jvm.java
        ids = java.lang.management.ManagementFactory.getThreadMXBean().getAllThreadIds()
        text = java.util.Arrays.toString(ids).strip("[]")
        return {int(number) for number in text.split(",") if number.strip()}

    def _close_there(self, ports: set[int]) -> int:
        """Remove connections from py4j's list in the JVM and close them, under its lock. The Python ends follow."""
        client = self._gateway.java_gateway_server.getCallbackClient()
        lock, connections = (_field(client, name) for name in ("lock", "connections"))
        closed = 0
        lock.lock()
        try:
            for connection in list(connections.toArray()):
                socket = connection.getSocket()
                if socket is not None and socket.getLocalPort() in ports and connections.remove(connection):
                    connection.shutdown()
                    closed += 1
        finally:
            lock.unlock()
        return closed

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(_EVERY):
            try:
                self.close_ended()
            except (Py4JError, OSError):  # Spark has stopped, and all JVM threads with it.
                with self._lock:
                    self._begun = False
                return


def _field(client: Any, name: str) -> Any:
    """Read a field of py4j's client in the JVM that has no getter."""
    field = client.getClass().getSuperclass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(client)


def close_ended(gateway: Any) -> Callers | None:
    """Start closing connections of ended JVM threads, for all sessions of the process. Idempotent.

    Args:
        gateway: PySpark's gateway. With ``PYSPARK_PIN_THREAD=false``, which has no thread per caller, nothing changes.

    Returns:
        The object that closes them, or None.
    """
    server = getattr(gateway, "_callback_server", None)
    if not isinstance(server, PythonServer):
        return None
    callers: Callers | None = getattr(server, "callers", None)
    if callers is None:
        callers = server.callers = Callers(gateway)
        server._create_connection = lambda socket, stream: callers.connection(server, socket, stream)
    return callers
