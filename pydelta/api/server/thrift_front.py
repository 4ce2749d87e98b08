"""Check the password of Thrift's clients, let users whose role is limited run statements only, and pass on the rest.

::

    client --TLS, SASL PLAIN: name, password--> ThriftFront --SASL PLAIN: name, the server's own secret--> Spark
                                                     BindServer <--LDAP bind: is that the secret?------------/

Spark's own Thrift server answers lists of tables from the catalog, past parser and analyzer. For a limited user those
requests become a statement that ``spark/names.py`` answers. It listens on the loopback, and its log-in is LDAP at
``BindServer``, which knows one secret, so that nobody reaches it without passing here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import ssl
import struct
import tempfile
import threading
from typing import Final

from pydelta.api.access.roles import Access, User
from pydelta.api.console.guard import Guard
from pydelta.api.server.bind import BindServer
from pydelta.api.server.thrift_messages import (
    Field,
    MalformedError,
    ThriftMessage,
    exception_message,
    map_field,
    status_message,
    text_field,
    text_of,
    texts_of,
)
from pydelta.api.server.thrift_names import names_statement
from pydelta.errors import DeltaEnvironmentError

__all__ = ["ThriftFront"]

_LOG = logging.getLogger(__name__)
_START, _OK, _BAD, _COMPLETE = 1, 2, 3, 5
_LARGEST: Final = 128 << 20  # Bytes per message.
_LARGEST_LOGIN: Final = 64 << 10
_LOGIN_SECONDS: Final = 30.0
_MOST: Final = 256
"""The number of connections. Each holds a thread."""
_LOOPBACK: Final = "127.0.0.1"
_STATE: Final = "42501"
_USE: Final = "use:database"
_HARMLESS: Final = "set:hiveconf:hive.server2.thrift.resultset."
_PASSED: Final = frozenset({
    "CancelOperation", "CloseOperation", "CloseSession", "FetchResults", "GetCatalogs", "GetInfo", "GetOperationStatus",
    "GetResultSetMetadata", "GetTableTypes", "GetTypeInfo",
})  # fmt: skip
_NAMES: Final = frozenset({"GetSchemas", "GetTables", "GetColumns"})


class _RefusedError(Exception):
    """A request that a role does not allow."""


class ThriftFront:
    """The server that clients of JDBC and ODBC connect to.

    Args:
        access: The users and their roles.
        guard: Has the certificate and its key, if there are.
    """

    def __init__(self, access: Access, guard: Guard) -> None:
        self._access = access
        self._guard = guard
        self._secret = secrets.token_urlsafe(32)
        self._binder = BindServer(self._secret)
        self.behind = _free_address()
        """The address of Spark's own Thrift server: a loopback address and a port."""
        self._server: socket.socket | None = None
        self._tls = self._context()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_MOST)

    def settings(self) -> dict[str, str]:
        """Return the settings that Spark must start with."""
        return {
            "spark.hadoop.hive.server2.authentication": "LDAP",
            "spark.hadoop.hive.server2.authentication.ldap.url": self._binder.start(),
            "spark.hadoop.hive.server2.transport.mode": "binary",
            "spark.hadoop.hive.server2.use.SSL": "false",
            "spark.sql.hive.thriftServer.singleSession": "false",
        }

    def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            DeltaEnvironmentError: The port is in use.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._server = socket.create_server((host, port), family=family, backlog=64)
        except OSError as error:
            raise DeltaEnvironmentError(
                f"Thrift cannot listen on {host}:{port}: {error.strerror}.",
                hint="Another process may be using the port.",
            ) from error
        threading.Thread(target=self._accept, daemon=True, name="thrift-front").start()

    def stop(self) -> None:
        """Close all open connections."""
        if self._server is not None:
            self._server.close()
        self._binder.stop()
        with self._lock:
            waiting = list(self._open)
        for connection in waiting:
            _close(connection)

    def _context(self) -> ssl.SSLContext | None:
        if self._guard.certificate is None or self._guard.key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with tempfile.TemporaryDirectory() as folder:  # Only its owner may read it.
            paths = [os.path.join(folder, name) for name in ("certificate", "key")]
            for path, data in zip(paths, (self._guard.certificate, self._guard.key), strict=True):
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(data)
            try:
                context.load_cert_chain(*paths)
            except ssl.SSLError as error:
                raise DeltaEnvironmentError(
                    "The certificate and the key cannot be used.",
                    hint="Give --certificate and --key that match, as PEM.",
                ) from error
        return context

    def _accept(self) -> None:
        assert self._server is not None
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return  # The server has stopped.
            if not self._places.acquire(blocking=False):
                _close(connection)
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True, name="thrift-client").start()

    def _serve(self, connection: socket.socket) -> None:
        behind = None
        try:
            connection.settimeout(_LOGIN_SECONDS)
            client = connection if self._tls is None else self._tls.wrap_socket(connection, server_side=True)
            with self._lock:
                self._open.add(client)
            connection = client
            user = self._login(client)
            if user is None:
                return
            behind = socket.create_connection(self.behind, _LOGIN_SECONDS)
            self._enter(behind, user)
            _say(client, _COMPLETE, b"")
            client.settimeout(None)
            behind.settimeout(None)
            self._pass(client, behind, user)
        except (OSError, MalformedError, EOFError, UnicodeDecodeError, ValueError):
            _LOG.debug("a connection of Thrift ended", exc_info=True)
        finally:
            with self._lock:
                self._open.discard(connection)
            _close(connection)
            if behind is not None:
                _close(behind)
            self._places.release()

    def _login(self, client: socket.socket) -> User | None:
        """Run SASL PLAIN; returns the user, or None after a refusal."""
        code, mechanism = _hear(client)
        if code != _START or mechanism != b"PLAIN":
            _say(client, _BAD, b"This server asks for a name and a password (SASL PLAIN).")
            return None
        code, given = _hear(client)
        parts = given.split(b"\0")
        if code not in (_OK, _COMPLETE) or len(parts) != 3:
            _say(client, _BAD, b"This server asks for a name and a password (SASL PLAIN).")
            return None
        asked, name, password = (part.decode() for part in parts)
        user = self._access.check(name, password)
        if user is None or asked not in ("", name):
            _say(client, _BAD, b"Error validating the login")
            return None
        return user

    def _enter(self, behind: socket.socket, user: User) -> None:
        _say(behind, _START, b"PLAIN")
        _say(behind, _OK, f"\0{user.name}\0{self._secret}".encode())
        code, _ = _hear(behind)
        if code != _COMPLETE:
            raise MalformedError("Spark's own server refuses the front")

    def _pass(self, client: socket.socket, behind: socket.socket, user: User) -> None:
        while True:
            data = _frame(client)
            call = ThriftMessage.of(data)
            try:
                sent = call if call.name != "OpenSession" and user.role.admin else _allowed(call, user)
            except _RefusedError as error:
                text = f"[DELTA_ACCESS_DENIED] Access denied: {error}."
                with_status = call.name == "ExecuteStatement" or call.name.startswith(("Get", "Open"))
                _send(client, status_message(call, text, _STATE) if with_status else exception_message(call, text))
                continue
            _send(behind, sent.data())
            reply = ThriftMessage.of(_frame(behind))
            _send(client, ThriftMessage(call.name, reply.kind, reply.number, reply.body).data())


def _allowed(call: ThriftMessage, user: User) -> ThriftMessage:
    """Return the call that Spark's own server is to get.

    Raises:
        _RefusedError: The user's role does not allow it.
        MalformedError: The call is not one of Hive's server.
    """
    if call.name == "OpenSession":
        return _opening(call, user)
    if call.name in _PASSED:
        return call
    if call.name in _NAMES:
        fields = call.argument()
        statement = text_field(names_statement(call.name, [text_of(fields.get(number)) for number in (3, 4, 5)]))
        return call.with_argument("ExecuteStatement", {1: fields[1], 2: statement})
    if call.name == "ExecuteStatement":
        fields = call.argument()
        if 3 in fields and texts_of(fields[3]):
            raise _RefusedError("settings of a statement")
        return call
    raise _RefusedError(f"the call {call.name}")


def _opening(call: ThriftMessage, user: User) -> ThriftMessage:
    """Return the call that opens a session as its user, and for a limited user without settings."""
    fields: dict[int, Field] = {number: field for number, field in call.argument().items() if number in (1, 4)}
    if not user.role.admin and 4 in fields:
        given = texts_of(fields[4])
        for name in given:
            if name != _USE and not name.startswith(_HARMLESS):
                raise _RefusedError(f"the setting {name}")
        fields[4] = map_field({_USE: given[_USE]} if _USE in given else {})
    fields[2] = text_field(user.name)
    return call.with_argument(call.name, fields)


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        more = connection.recv(min(count - len(parts), 1 << 20))
        if not more:
            raise EOFError
        parts += more
    return bytes(parts)


def _hear(connection: socket.socket) -> tuple[int, bytes]:
    """Read a message of SASL's negotiation."""
    code, length = struct.unpack(">bi", _exactly(connection, 5))
    if not 0 <= length <= _LARGEST_LOGIN:
        raise MalformedError("a message of the log-in is too long")
    return code, _exactly(connection, length)


def _say(connection: socket.socket, code: int, words: bytes) -> None:
    connection.sendall(struct.pack(">bi", code, len(words)) + words)


def _frame(connection: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", _exactly(connection, 4))
    if not 0 <= length <= _LARGEST:
        raise MalformedError("a message is too long")
    return _exactly(connection, length)


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(struct.pack(">i", len(data)) + data)


def _free_address() -> tuple[str, int]:
    with socket.socket() as found:
        found.bind((_LOOPBACK, 0))
        return _LOOPBACK, int(found.getsockname()[1])
