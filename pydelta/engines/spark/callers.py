"""Let the connections of the JVM's threads go when the threads have ended.

::

    a thread of the JVM calls Python  -->  py4j opens a connection for it, and begins a thread here that serves it
    the JVM's thread ends             -->  py4j keeps all three: two sockets and a thread
    here, every ten seconds           -->  which threads have ended?  their connections are closed, the threads here end

A server makes threads for each statement, and Spark's pools renew theirs: a driver that runs for days would have
thousands. A connection whose thread lives is never touched, however long it is idle.
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
"""Seconds between two looks."""


class _Connection(ClientServerConnection):  # type: ignore[misc]
    """A connection that knows which thread of the JVM has it."""

    caller: tuple[int, Any] | None = None

    def _call_proxy(self, obj_id: Any, stream: Any) -> Any:
        answer = super()._call_proxy(obj_id, stream)
        if self.caller is None:  # now that the call has been read and not yet answered, the same thread can be asked
            try:
                thread = self.python_server.callers.current_thread()
                self.caller = int(thread.getId()), thread
            except Py4JError:  # Spark is ending
                pass
        return answer


class Callers:
    """The connections by which threads of the JVM call Python. Safe to use from several threads.

    Args:
        gateway: PySpark's.
    """

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._known: weakref.WeakSet[_Connection] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._begun = False
        self._current: Any = None

    def current_thread(self) -> Any:
        """Return the JVM's thread that waits for this one."""
        if self._current is None:
            self._current = JavaNames.of(self._gateway).java.lang.Thread.currentThread
        return self._current()

    def connection(self, server: PythonServer, socket: Any, stream: Any) -> _Connection:
        """Make a connection for a thread of the JVM that calls for the first time; py4j asks for it."""
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
        """Close the connections of threads that have ended; how many."""
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
        """Numbers of the JVM's threads, as one text."""
        java = self._gateway.jvm.java
        ids = java.lang.management.ManagementFactory.getThreadMXBean().getAllThreadIds()
        text = java.util.Arrays.toString(ids).strip("[]")
        return {int(number) for number in text.split(",") if number.strip()}

    def _close_there(self, ports: set[int]) -> int:
        """Take connections from py4j's list in the JVM and close them, under its own lock; the ends here follow."""
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
            except (Py4JError, OSError):  # Spark has ended, and with it every thread of the JVM
                with self._lock:
                    self._begun = False
                return


def _field(client: Any, name: str) -> Any:
    """A field of py4j's client in the JVM that has no method of its own."""
    field = client.getClass().getSuperclass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(client)


def close_ended(gateway: Any) -> Callers | None:
    """Look after the connections of the JVM's threads, for all sessions of a process; again changes nothing.

    Args:
        gateway: PySpark's. One without threads of its own per caller (``PYSPARK_PIN_THREAD=false``) is left as it is.

    Returns:
        Who looks after them.
    """
    server = getattr(gateway, "_callback_server", None)
    if not isinstance(server, PythonServer):
        return None
    callers: Callers | None = getattr(server, "callers", None)
    if callers is None:
        callers = server.callers = Callers(gateway)
        server._create_connection = lambda socket, stream: callers.connection(server, socket, stream)
    return callers
